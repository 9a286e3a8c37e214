//! Looking at the channels of a route, some at a time.

use std::sync::Arc;

use super::{Channels, Figures, Hub};

/// How a channel is used.
#[derive(Clone, Debug)]
pub struct ChannelState {
    /// The name of the channel.
    pub name: Arc<str>,
    /// The number of its subscribers.
    pub subscribers: usize,
    /// The counts of its messages.
    pub messages: Figures,
}

/// A place in the list of a route's channels; the default is before the first one.
///
/// The list is the one by which idle channels are found. Places are counted from its first front,
/// so that they stay right while channels leave the front. A channel that has left comes back
/// after the end that the list had at the beginning, and is not met twice. If the front has
/// overtaken the place, some channels were missed.
#[derive(Debug, Default)]
pub struct ListPlace {
    /// The place of the next channel, and the end; `None` before the first one.
    range: Option<(u64, u64)>,
    /// The counts of channels that had ended at the beginning.
    pub ended: Figures,
    /// Whether channels were missed.
    pub was_overtaken: bool,
}

impl Channels {
    /// Returns how many channels there are.
    pub fn count(&self) -> usize {
        self.state().hubs.len()
    }

    /// Returns the next channels, at most that many, and moves the place after them; `None` at the
    /// end. There may be none among the next ones, if they have ended.
    pub fn next_part(&self, place: &mut ListPlace, most: usize) -> Option<Vec<ChannelState>> {
        let hubs = self.next_hubs(place, most)?;
        super::VISITED.set(super::VISITED.get() + hubs.len());
        let of = |hub: &Arc<Hub>| ChannelState {
            name: hub.name().clone(),
            subscribers: hub.subscribers(),
            messages: hub.counters().figures(),
        };
        Some(hubs.iter().map(of).collect())
    }

    fn next_hubs(&self, place: &mut ListPlace, most: usize) -> Option<Vec<Arc<Hub>>> {
        let state = self.state();
        if place.range.is_none() {
            place.ended = state.ended;
        }
        if !self.has_names() {
            // They are in no list: there is one.
            let is_first = place.range.replace((0, 0)).is_none();
            return is_first.then(|| state.hubs.values().cloned().collect());
        }
        let listed = state.passed..state.passed + state.looks.len() as u64;
        let (next, end) = place.range.unwrap_or((listed.start, listed.end));
        place.was_overtaken |= next < listed.start;
        let next = next.max(listed.start);
        let last = next.saturating_add(most.max(1) as u64).min(end).min(listed.end);
        if next >= last {
            return None;
        }
        place.range = Some((last, end));
        let index = |place: u64| (place - listed.start) as usize;
        let names = state.looks.range(index(next)..index(last)).map(|(_, name)| name);
        Some(names.filter_map(|name| state.hubs.get(name).cloned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use superpoll_config::Channel;
    use superpoll_rt::time;

    use super::super::super::pattern::Pattern;
    use super::super::super::shared::LogRoute;
    use super::*;

    fn channels(path: &str, count: usize) -> Arc<Channels> {
        let options = Channel {
            idle: Duration::from_secs(10),
            max_channels: NonZeroUsize::new(10_000).unwrap(),
            ..Channel::default()
        };
        let channels =
            Channels::new(String::new(), Pattern::parse(path).unwrap(), options, [], None);
        for number in 0..count {
            channels.channel(&format!("/rooms/{number}").into()).unwrap();
        }
        channels
    }

    fn names(part: Vec<ChannelState>) -> impl Iterator<Item = Arc<str>> {
        part.into_iter().map(|channel| channel.name)
    }

    #[test]
    fn a_route_without_names_has_its_channel_once() {
        let channels = channels("/c", 0);
        let mut place = ListPlace::default();
        let part = channels.next_part(&mut place, 1).unwrap();
        assert_eq!(names(part).collect::<Vec<_>>(), [Arc::from("/c")]);
        assert!(channels.next_part(&mut place, 1).is_none());
        assert_eq!(channels.count(), 1);
    }

    /// The search for idle channels, the end of some of them, and other hubs in the place of those
    /// that are there, at random moments between the parts.
    #[test]
    fn no_channel_is_met_twice_and_a_look_that_has_missed_one_says_so() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut complete = 0;
        for _ in 0..500 {
            let count = next(60) as usize;
            let channels = channels("/rooms/{room}", count);
            // Channels that are held stay, the others go when they are found idle.
            let mut held: Vec<Arc<Hub>> = (0..count)
                .filter(|_| next(2) == 0)
                .map(|number| channels.find(&format!("/rooms/{number}")).unwrap())
                .collect();
            let mut now = time::now();
            let mut place = ListPlace::default();
            let mut met = BTreeSet::new();
            while let Some(part) = channels.next_part(&mut place, 1 + next(9) as usize) {
                for name in names(part) {
                    assert!(met.insert(name.clone()), "{name} twice");
                }
                if next(6) == 0 {
                    now += Duration::from_secs(next(15));
                    channels.drop_idle(now);
                }
                if next(2) == 0 && !held.is_empty() {
                    let index = next(held.len() as u64) as usize;
                    let hub = &mut held[index];
                    *hub = channels.replace(hub, (1, 7)).unwrap();
                }
                if next(3) == 0 {
                    channels.channel(&format!("/rooms/new-{}", next(1000)).into()).unwrap();
                }
            }
            let missed: Vec<_> = held.iter().filter(|hub| !met.contains(hub.name())).collect();
            assert!(missed.is_empty() || place.was_overtaken, "{missed:?} of {count}");
            complete += usize::from(!place.was_overtaken && count > 30);
        }
        assert!(complete > 20, "{complete} looks were complete");
    }
}
