//! Without a fault: the delay of a message, and the processor time of a publication.

use crate::cluster::crowd::{self, Report};
use crate::cluster::findings::Named;
use crate::cluster::gateway::Gateway;
use crate::cluster::publisher::{Load, Order};
use crate::cluster::site::Site;
use crate::cluster::{CHANNEL, LOCAL};
use crate::error::{Error, Result};
use crate::statistics;

/// The milliseconds from one message to the next while delays are measured, at least.
const PERIOD_MS: u64 = 200;

/// Subscribers that receive a message in a millisecond, at least: so all of them have a message
/// before the next.
const RECEIVERS: usize = 8;

/// The name of the message after the last that is measured.
const END: &str = "end-of-delay";

/// Publications in a block, of each kind in turn.
const BLOCK: u64 = 100;

impl Site {
    /// Returns the time from the beginning of a publication at the first server until the last
    /// subscriber of the other servers has the message, and the processor time that all servers and
    /// all subscribers spend on a message.
    pub(super) fn delay(&mut self, messages: u64, subscribers: usize) -> Result<[Named; 4]> {
        for crowd in &mut self.crowds {
            crowd.order(&crowd::Order::Follow(END.to_owned()))?;
        }
        let period_ms = PERIOD_MS.max(subscribers.div_ceil(RECEIVERS) as u64);
        let before = self.servers_time()?;
        let published =
            self.publishers.ask(&Order::Series(load(CHANNEL, "delay", period_ms), messages))?;
        self.publishers.ask(&Order::One(END.to_owned()))?;
        let mut reports = Vec::new();
        for crowd in &mut self.crowds {
            reports.push(crowd.answer::<Report>()?);
        }
        let spent = (self.servers_time()? - before) as f64;
        let load: u64 = reports.iter().map(|report| report.cpu_ns).sum();
        let delays: Vec<f64> = published
            .confirmed
            .iter()
            .filter_map(|confirmed| {
                let of = |report: &Report| {
                    let mut found = report.messages.iter().filter(|one| one.text == confirmed.text);
                    found.next().map(|one| one.last_elsewhere_ns)
                };
                let last = reports.iter().filter_map(of).max()?;
                Some(last.saturating_sub(confirmed.begun_ns) as f64)
            })
            .collect();
        if delays.len() < messages as usize {
            return Err(Error::Work {
                subject: "superpoll serve",
                found: format!("{} of {messages} messages were received", delays.len()),
            });
        }
        let of = |share| statistics::quantile(&delays, share);
        let each = |time: f64| time / messages as f64;
        Ok([
            ("p50", "ns", of(0.5)),
            ("p99", "ns", of(0.99)),
            ("servers", "ns", each(spent)),
            ("subscribers", "ns", each(load as f64)),
        ])
    }

    /// Returns the processor time that all servers have used, in nanoseconds.
    fn servers_time(&self) -> Result<u64> {
        self.gateways.iter().map(Gateway::processor_time).sum()
    }

    /// Returns the processor time of the first server for a publication, with the log in Redis and
    /// with its own. There must be no subscribers yet.
    pub(super) fn processor(&mut self, messages: u64, round: usize) -> Result<[Named; 3]> {
        let mut spent = [0, 0];
        let blocks = messages.div_ceil(BLOCK);
        for block in 0..blocks {
            for (place, path) in [CHANNEL, LOCAL].into_iter().enumerate() {
                let name = format!("processor-{round}-{block}");
                let before = self.gateways[0].processor_time()?;
                let published = self.publishers.ask(&Order::Series(load(path, &name, 0), BLOCK))?;
                spent[place] += self.gateways[0].processor_time()? - before;
                if published.confirmed.len() < BLOCK as usize {
                    return Err(Error::Work {
                        subject: "superpoll serve",
                        found: format!("messages were not confirmed: {:?}", published.failures),
                    });
                }
            }
        }
        let each = spent.map(|spent| spent as f64 / (blocks * BLOCK) as f64);
        let difference = each[0] - each[1];
        Ok([("redis", "ns", each[0]), ("own", "ns", each[1]), ("difference", "ns", difference)])
    }
}

fn load(path: &str, name: &str, period_ms: u64) -> Load {
    Load { path: path.to_owned(), name: name.to_owned(), period_ms, hang_up_every: None }
}
