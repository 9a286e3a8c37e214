//! The channels with the most subscribers, and the sums over all channels.
//!
//! A route may have a million channels, each with a lock of its own. So they are looked at in parts
//! of
//! [`PART`] channels: a server with few channels looks at all of them for each snapshot, and one
//! with more has a task for it, which lets everything else run after each part. The task begins
//! again when a viewer asks, at the earliest after [`PAUSE`] times the time that the last look has
//! taken, so that it takes at most a twentieth of one engine's time. All viewers share its outcome.
//!
//! A look goes along the list by which idle channels are found (`route.rs` in the hub). That search
//! moves channels from the front of the list to its end meanwhile, and a look keeps its place by
//! the number of channels that have left the front: it meets no channel twice. If the search
//! overtakes the look, which it does only where an engine stands still for a while, channels are
//! missed. Such a look is dropped: counts that fall and come back would look like a burst.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use superpoll_http::telemetry::traffic::{
    CHANNELS, ChannelName, ChannelTraffic, ChannelsTraffic, Messages,
};
use superpoll_hub::channel::{ChannelState, Channels, Figures, ListPlace, Registry};
use superpoll_rt::{spawn, time};

/// The most channels that are looked at in one go.
const PART: usize = 1000;

/// The most channels of a server that are looked at for each snapshot.
const FEW: usize = 2000;

/// How often a look at few channels is tried.
const ATTEMPTS: usize = 3;

/// How many times as long as a look took it rests after it.
const PAUSE: u32 = 20;

/// The least rest.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The time between two parts.
const NAP: Duration = Duration::from_millis(1);

/// The channels that one process tells of. Subscribers of a channel are spread over the processes
/// of a server, so that a process tells of more channels than are shown in the end.
const CANDIDATES: usize = 4 * CHANNELS;

/// The outcome of a look.
#[derive(Debug)]
struct Found {
    at: Instant,
    /// The processor time that it took.
    cost: Duration,
    channels: ChannelsTraffic,
}

#[derive(Debug, Default)]
struct SurveyState {
    last: Option<Found>,
    is_under_way: bool,
}

/// The looks at the channels of a server.
#[derive(Debug, Default)]
pub(crate) struct ChannelSurvey(Mutex<SurveyState>);

impl ChannelSurvey {
    fn state(&self) -> MutexGuard<'_, SurveyState> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the same as [`survey`](ChannelSurvey::survey), with the figures of all `wanted`
    /// channels as they are now; those of a channel that is not there are zero.
    pub(crate) fn take_with(
        self: &Arc<Self>,
        registry: &Registry,
        wanted: &[ChannelName],
    ) -> ChannelsTraffic {
        let mut found = self.survey(registry);
        // Without them all are listed already.
        if found.has_all || wanted.is_empty() {
            return found;
        }
        let routes = registry.routes_by_host();
        let asked: HashSet<_> = wanted.iter().map(|one| (&*one.host, &*one.name)).collect();
        found.top.retain(|known| !asked.contains(&(&*known.host, &*known.name)));
        found.top.extend(wanted.iter().map(|ChannelName { host, name }| {
            let of_host = routes.iter().filter(|(known, _)| **known == **host);
            let hub = of_host.filter_map(|(_, channels)| channels.find(name)).next();
            let messages = hub.map_or_else(Messages::default, |hub| {
                messages(hub.subscribers(), &hub.counters().figures())
            });
            ChannelTraffic { host: host.clone(), name: name.clone(), messages }
        }));
        found
    }

    /// Returns the channels as they are now or, if there are many, as they were at the last look,
    /// and begins another one if it is due. Call it on an engine.
    pub(crate) fn survey(self: &Arc<Self>, registry: &Registry) -> ChannelsTraffic {
        let routes = registry.routes_by_host();
        if routes.iter().map(|(_, channels)| channels.count()).sum::<usize>() <= FEW {
            // Another engine may look for idle channels between two parts.
            for _ in 0..ATTEMPTS {
                let mut look = Look::default();
                for (host, channels) in &routes {
                    let mut place = ListPlace::default();
                    while look.part(host, channels, &mut place) {}
                }
                if let Some(found) = look.finish() {
                    return found;
                }
            }
        }
        let mut state = self.state();
        let is_due = state
            .last
            .as_ref()
            .is_none_or(|found| time::now() - found.at >= (found.cost * PAUSE).max(SHORTEST_PAUSE));
        if is_due && !std::mem::replace(&mut state.is_under_way, true) {
            let survey = self.clone();
            spawn(async move { survey.look(routes).await }).detach();
        }
        let Some(found) = &state.last else { return ChannelsTraffic::default() };
        let age = u64::try_from((time::now() - found.at).as_nanos()).unwrap_or(u64::MAX);
        ChannelsTraffic { age_ns: age, ..found.channels.clone() }
    }

    #[cfg(test)]
    pub(crate) fn is_under_way(&self) -> bool {
        self.state().is_under_way
    }

    async fn look(self: Arc<Self>, routes: Vec<(Arc<str>, Arc<Channels>)>) {
        let at = time::now();
        let mut cost = Duration::ZERO;
        let mut look = Look::default();
        for (host, channels) in routes {
            let mut place = ListPlace::default();
            loop {
                let begun = Instant::now();
                let is_more = look.part(&host, &channels, &mut place);
                cost += begun.elapsed();
                if !is_more {
                    break;
                }
                time::sleep(NAP).await;
            }
        }
        let mut state = self.state();
        state.is_under_way = false;
        if let Some(channels) = look.finish() {
            state.last = Some(Found { at, cost, channels });
        }
    }
}

/// A look that has begun.
#[derive(Default)]
struct Look {
    total: Messages,
    count: usize,
    has_missed_any: bool,
    /// The least of the candidates comes first; of two with the same figures, the last by name.
    top: BinaryHeap<Reverse<Candidate>>,
}

/// A channel that may be among those that are shown, with its host and name.
type Candidate = (Messages, Reverse<(Arc<str>, Arc<str>)>);

impl Look {
    /// Looks at some channels of a route from a place on. `false`: there are no more.
    fn part(&mut self, host: &Arc<str>, channels: &Channels, place: &mut ListPlace) -> bool {
        let Some(part) = channels.next_part(place, PART) else {
            self.total.add(&messages(0, &place.ended));
            self.has_missed_any |= place.was_overtaken;
            return false;
        };
        for ChannelState { name, subscribers, messages: figures } in part {
            let messages = messages(subscribers, &figures);
            self.total.add(&messages);
            self.count += 1;
            let candidate = (messages, Reverse((host.clone(), name)));
            if self.top.len() == CANDIDATES {
                // The heap has an element.
                let is_less = self.top.peek().is_some_and(|Reverse(least)| candidate <= *least);
                if is_less {
                    continue;
                }
                self.top.pop();
            }
            self.top.push(Reverse(candidate));
        }
        true
    }

    /// Returns the channels that were found, unless some were missed.
    fn finish(self) -> Option<ChannelsTraffic> {
        if self.has_missed_any {
            return None;
        }
        let sorted = self.top.into_sorted_vec().into_iter();
        let top = sorted.map(|Reverse((messages, Reverse((host, name))))| ChannelTraffic {
            host: host.to_string(),
            name: name.to_string(),
            messages,
        });
        let (total, count, top) = (self.total, self.count, top.collect::<Vec<_>>());
        Some(ChannelsTraffic { age_ns: 0, total, count, has_all: top.len() == count, top })
    }
}

fn messages(subscribers: usize, figures: &Figures) -> Messages {
    let Figures { published, delivered, left_out, disconnected } = *figures;
    let subscribers = subscribers as u64;
    Messages { subscribers, published, delivered, dropped: left_out, disconnected }
}

#[cfg(test)]
mod tests {
    use superpoll_hub::broker::Brokers;
    use superpoll_rt::Runtime;

    use super::*;
    use crate::Config;

    fn registry() -> Registry {
        let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
                    [[hosts.routes]]\npath = \"/c/{name}\"\n\
                    channel = { publish = \"anyone\", max_channels = 9000 }\n\
                    [[hosts.routes]]\npath = \"/one\"\nchannel = { publish = \"anyone\" }\n";
        let config = Config::parse("test.toml", text).unwrap();
        Registry::default().next_with(&config, Brokers::default())
    }

    /// Creates channels, each with as many messages as its number says.
    fn fill(registry: &Registry, count: usize) {
        let (_, channels) = registry
            .routes_by_host()
            .into_iter()
            .find(|(_, channels)| channels.count() == 0)
            .unwrap();
        for number in 0..count {
            let hub = channels.channel(&format!("/c/{number}").into()).unwrap();
            for _ in 0..number % 100 {
                hub.publish("m").unwrap();
            }
        }
    }

    #[test]
    fn a_few_channels_are_counted_at_once() {
        Runtime::new().unwrap().block_on(async {
            let registry = registry();
            fill(&registry, 1900);
            let found = Arc::new(ChannelSurvey::default()).survey(&registry);
            assert_eq!((found.count, found.age_ns), (1901, 0));
            assert_eq!(found.total.published, 19 * 4950);
            // Those with the most messages, and of these the first ones by name.
            assert_eq!((found.top.len(), found.top[0].messages.published), (CANDIDATES, 99));
            let last = &found.top[CANDIDATES - 1];
            assert_eq!((last.messages.published, &*last.name), (78, "/c/1078"));
            // Others are told of where they are asked for, and each once.
            let name = |name: &str| ChannelName { host: String::new(), name: name.to_owned() };
            let wanted = ["/c/3", "/c/1899", "/c/none", "/one"].map(name);
            let found = Arc::new(ChannelSurvey::default()).take_with(&registry, &wanted);
            assert!(!found.has_all);
            let published = |name: &str| {
                let told = found.top.iter().filter(|channel| channel.name == name);
                told.map(|channel| channel.messages.published).collect::<Vec<_>>()
            };
            assert_eq!((published("/c/3"), published("/c/1899")), (vec![3], vec![99]));
            assert_eq!((published("/c/none"), published("/one")), (vec![0], vec![0]));
        });
    }

    #[test]
    fn many_channels_are_counted_by_a_task_for_all_viewers() {
        Runtime::new().unwrap().block_on(async {
            let registry = registry();
            fill(&registry, 5000);
            // Begins again where this process was kept from running until another look was due.
            for _ in 0..10 {
                let survey = Arc::new(ChannelSurvey::default());
                let begun = Instant::now();
                assert_eq!(survey.survey(&registry), ChannelsTraffic::default());
                assert!(survey.state().is_under_way);
                while survey.state().is_under_way {
                    time::sleep(NAP).await;
                }
                let found = survey.survey(&registry);
                assert_eq!((found.count, found.total.published), (5001, 50 * 4950));
                assert!(found.age_ns > 0 && found.top.len() == CANDIDATES);
                // The next one shares it, and no look begins before its time.
                survey.survey(&registry);
                if !survey.state().is_under_way {
                    return;
                }
                assert!(begun.elapsed() >= SHORTEST_PAUSE, "another look has begun early");
            }
            panic!("another look is always due");
        });
    }
}
