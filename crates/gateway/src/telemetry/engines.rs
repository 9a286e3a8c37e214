//! The engines of all processes, for the live page.
//!
//! The page gets a message each second as long as it is open. So the work for it must not grow with
//! the connections and channels of the server: it reads the counters of the engines, and leaves out
//! the state of each channel that [`Counts`](super::overview::Counts) are made from.
//!
//! A page that shows several processes continues with the last counters of one that does not
//! answer, as long as it exists: otherwise its sums would fall, and come back as a burst.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use superpoll_http::telemetry::ratio::ActiveRatio;
use superpoll_http::telemetry::traffic::{ChannelName, Processes, Traffic, exists};

use super::overview::Overview;
use super::socket::Engine;
use super::verdict::{WatchingCost, verdict};
use crate::processes;

/// The engines of a process at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessEngines {
    /// The start of the process, in seconds since 1970.
    started_seconds: u64,
    uptime_seconds: f64,
    connections: u32,
    active_ratio: Option<ActiveRatio>,
    engines: Vec<Engine>,
}

impl ProcessEngines {
    /// Adds the engines of another process of the server.
    fn add(&mut self, other: ProcessEngines) {
        self.started_seconds = self.started_seconds.min(other.started_seconds);
        self.uptime_seconds = self.uptime_seconds.max(other.uptime_seconds);
        self.connections += other.connections;
        self.active_ratio = ActiveRatio::sum([self.active_ratio, other.active_ratio].into_iter());
        self.engines.extend(other.engines);
    }
}

/// The processes of a server as a page has seen them.
#[derive(Debug, Default)]
pub(super) struct PageProcesses {
    traffic: Processes,
    /// The engines by the place and the number of their process.
    engines: BTreeMap<(u32, u32), ProcessEngines>,
    /// The engines of the last message.
    last: Vec<Engine>,
}

impl PageProcesses {
    /// Takes the answers of processes, and returns the sum over all that exist. `None`: there is
    /// none.
    fn sum(
        &mut self,
        answers: impl IntoIterator<Item = ((u32, u32), ProcessEngines)>,
        exists: impl Fn(u32) -> bool,
    ) -> Option<ProcessEngines> {
        let mut last = std::mem::take(&mut self.engines);
        self.engines.extend(answers);
        last.retain(|at, _| !self.engines.contains_key(at) && exists(at.1));
        self.engines.append(&mut last);
        let mut all = self.engines.values();
        let mut sum = all.next()?.clone();
        all.for_each(|engines| sum.add(engines.clone()));
        Some(sum)
    }

    /// Returns the ratio and what watching has cost since the last message, in one line.
    fn verdict(&mut self, now: &ProcessEngines) -> Option<String> {
        let last = std::mem::replace(&mut self.last, now.engines.clone());
        let ratio = now.active_ratio?;
        let cost = WatchingCost::between(&last, &now.engines, ratio.last_second.connections);
        Some(verdict(&ratio, cost.as_ref()))
    }
}

/// The status at one moment, as the live page gets it.
#[derive(Debug, Serialize)]
struct PageStatus<'a> {
    version: &'static str,
    backend: &'static str,
    started_seconds: u64,
    uptime_seconds: f64,
    connections: u32,
    active_ratio: Option<ActiveRatio>,
    /// The ratio, what watching has cost since the last message, and what `poll` would cost.
    verdict: Option<String>,
    engines: &'a [Engine],
    /// The processes that have not answered, whose figures are the last ones.
    missing_processes: Vec<u32>,
    traffic: &'a Traffic,
}

impl Overview {
    /// Reads the counters of all engines of this process.
    async fn count_engines(&self) -> ProcessEngines {
        let engines = self.read_engines().await;
        let (started, uptime) = self.started();
        let epoch = started.duration_since(SystemTime::UNIX_EPOCH);
        ProcessEngines {
            started_seconds: epoch.map_or(0, |epoch| epoch.as_secs()),
            uptime_seconds: uptime.as_secs_f64(),
            connections: self.connections(),
            active_ratio: self.active_ratio(),
            engines,
        }
    }

    /// Returns the engines of this process for the other ones, in bytes.
    pub(crate) async fn encoded_engines(&self) -> Option<Vec<u8>> {
        let slot = self.link().map(|link| link.slot())?;
        postcard::to_allocvec(&((slot, std::process::id()), self.count_engines().await)).ok()
    }

    /// Returns the traffic of this process for the other ones, in bytes.
    pub(crate) async fn encoded_traffic(&self, channels: &[ChannelName]) -> Option<Vec<u8>> {
        postcard::to_allocvec(&(std::process::id(), self.traffic(channels).await)).ok()
    }

    /// Returns the traffic of all processes of the server.
    async fn traffic_of_all(&self, processes: &mut Processes) -> Traffic {
        let mut traffic = match self.link() {
            None => self.traffic(&[]).await,
            Some(link) => {
                let asked = processes::Kind::Traffic(processes.wanted());
                let (all, _) = link.collect(asked).await.unwrap_or_default();
                processes.sum(all.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok()))
            }
        };
        traffic.limit();
        traffic
    }

    /// Returns the status for the live page, in JSON.
    pub(super) async fn page_text(&self, page: &mut PageProcesses) -> Option<String> {
        let (mut counts, mut missing_processes) = (self.count_engines().await, Vec::new());
        if let Some(link) = self.link() {
            let asked = link.collect(processes::Kind::Engines).await;
            let (all, missing) = asked.unwrap_or_default();
            missing_processes = missing;
            let answers = all.iter().filter_map(|bytes| postcard::from_bytes(bytes).ok());
            counts = page.sum(answers, exists).unwrap_or(counts);
        }
        let status = PageStatus {
            version: env!("CARGO_PKG_VERSION"),
            backend: self.backend(),
            started_seconds: counts.started_seconds,
            uptime_seconds: counts.uptime_seconds,
            connections: counts.connections,
            active_ratio: counts.active_ratio,
            verdict: page.verdict(&counts),
            engines: &counts.engines,
            missing_processes,
            traffic: &self.traffic_of_all(&mut page.traffic).await,
        };
        serde_json::to_string(&status).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use superpoll_hub::broker::Brokers;
    use superpoll_hub::channel::{Registry, VISITED};
    use superpoll_rt::Runtime;

    use super::*;
    use crate::Config;

    fn of(started_seconds: u64, connections: u32) -> ProcessEngines {
        let uptime_seconds = 1000.0 - started_seconds as f64;
        let (active_ratio, engines) = (None, Vec::new());
        ProcessEngines { started_seconds, uptime_seconds, connections, active_ratio, engines }
    }

    #[test]
    fn a_silent_process_keeps_its_place_and_the_start_of_the_server_until_it_has_ended() {
        let mut page = PageProcesses::default();
        let mut sum = |answers: &[((u32, u32), ProcessEngines)], ended: u32| {
            let sum = page.sum(answers.iter().cloned(), |process| process != ended).unwrap();
            (sum.started_seconds, sum.connections)
        };
        let (oldest, other) = (((0, 41), of(100, 5)), ((1, 42), of(200, 7)));
        assert_eq!(sum(&[oldest.clone(), other.clone()], 0), (100, 12));
        // The oldest one does not answer: the page would begin again with another start.
        assert_eq!(sum(&[((1, 42), of(200, 8))], 0), (100, 13));
        assert_eq!(sum(&[], 0), (100, 13));
        assert_eq!(sum(&[oldest, other], 0), (100, 12));
        assert_eq!(sum(&[((0, 43), of(300, 1)), ((1, 42), of(200, 7))], 41), (200, 8));
        assert!(PageProcesses::default().sum([], |_| true).is_none());
    }

    /// A page is open for a while on a server of many channels: they are looked at once, and for
    /// metrics each time.
    #[test]
    fn the_work_for_a_page_does_not_grow_with_the_channels() {
        const CHANNELS: usize = 5000;
        const MESSAGES: usize = 20;
        let runtime = Runtime::new().unwrap();
        let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
                    path = \"/c/{name}\"\nchannel = { max_channels = 9000 }\n";
        let config = Config::parse("test.toml", text).unwrap();
        let registry = Registry::default().next_with(&config, Brokers::default());
        for number in 0..CHANNELS {
            registry.routes()[0].channel(&format!("/c/{number}").into()).unwrap();
        }
        let (handle, limits) = (runtime.handle(), Arc::default());
        let overview = Overview::new(handle, "", vec![Arc::default()], limits, Arc::default());
        let overview = Arc::new(overview);
        overview.describe(
            registry,
            Vec::new(),
            Overview::requests_of(&config, 1, &overview.requests()),
            Vec::new(),
        );
        runtime.block_on(async move {
            let begun = std::time::Instant::now();
            VISITED.set(0);
            let mut page = PageProcesses::default();
            let mut text = String::new();
            for _ in 0..MESSAGES {
                text = overview.page_text(&mut page).await.unwrap();
                // The look continues meanwhile.
                while overview.is_looking() {
                    superpoll_rt::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            assert!(text.contains(&format!("\"count\":{CHANNELS}")), "{text}");
            // There is one look a second at most.
            let (visited, seconds) = (VISITED.get(), begun.elapsed().as_secs() as usize);
            assert!((CHANNELS..=CHANNELS * (seconds + 1)).contains(&visited), "{visited}");
            VISITED.set(0);
            assert!(overview.collect().await.channels.len() == 1 && VISITED.get() >= CHANNELS);
        });
    }
}
