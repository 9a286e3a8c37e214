//! The channels of one route, which all engines share: one, or a channel for each name.
//!
//! A named channel is made by its first publisher or subscriber. It is dropped when it has had
//! neither for the route's time of `idle`, up to twice that: channels are looked at in turn, and
//! each once in that time. So the cost of the search does not depend on how many there are at a
//! moment, and no channel needs a timer. A channel that anyone holds is in use: requests and
//! subscribers hold it by its `Arc`, and get it under the lock under which it is dropped.
//!
//! The memory has a bound: `max_channels` channels, and `max_bytes` bytes of messages in all of
//! them. Beyond the first, new names are refused; beyond the second, a channel drops its own oldest
//! messages for a new one, and the message is refused if there are none.

mod list;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use superpoll_config::Channel;
use superpoll_rt::time::{self, timeout};

use super::callbacks::Callbacks;
use super::counters::Figures;
use super::grip::Sequences;
use super::hub::Hub;
use super::mercure::subscriptions::Subscriptions;
use super::moment::Moment;
use super::pattern::{NameError, Pattern};
use super::publish_limits::PublishLimits;
use super::route_parts::RouteParts;
use super::shared::{LogRoute, SharedChannel};
use crate::broker::{Broker, LogOptions, LogPosition, Look, Looked, Position, Unpublished};
use crate::succession::Succession;
use crate::succession::records::{ChannelRecord, MemberRecords};

pub use list::{ChannelState, ListPlace};

/// The most channels that are looked at in one go.
const LOOKS: usize = 1000;

/// The least and the longest time between two looks for idle channels.
const SHORTEST_NAP: Duration = Duration::from_millis(50);
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// The route has as many channels as it may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany(pub(crate) usize);

/// The reason for which there is no channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoChannel {
    TooMany(TooMany),
    /// Its log cannot be read.
    Unshared(Unpublished),
}

/// The logs that the channels of a route have in common with other servers.
#[derive(Clone)]
pub(super) struct SharedRoute {
    pub broker: Arc<Broker>,
    /// The first name of the route's host.
    pub host: String,
}

/// Where channels are recorded for a successor.
struct Recording {
    by: Arc<Succession>,
    /// The names of the route's host.
    hosts: Vec<String>,
    /// Whether its channel is a hub of Mercure.
    is_hub: bool,
}

impl Recording {
    /// Records a channel, in the space that it has already or in a new one.
    fn record(&self, hub: &Hub) {
        let known = hub.space();
        let space = known.unwrap_or_else(|| self.by.new_space());
        let path = hub.name().to_string();
        let names = self.hosts.iter().map(|host| (host.clone(), path.clone())).collect();
        let (epoch, is_hub) = (hub.epoch(), self.is_hub);
        self.by.keep_channel(space, &ChannelRecord { names, epoch, is_hub });
        if known.is_none() {
            hub.record_in(self.by.clone(), space);
        }
    }
}

struct State {
    options: Arc<Channel>,
    hubs: HashMap<Arc<str>, Arc<Hub>>,
    /// The counts of channels that have ended.
    ended: Figures,
    /// The named channels, each once, with the time of the last look at it.
    looks: VecDeque<(Moment, Arc<str>)>,
    /// How many of them have left the front of that list.
    passed: u64,
    recording: Option<Recording>,
    /// Another server continues with the channels.
    is_closed: bool,
    /// A task looks for idle channels.
    is_swept: bool,
}

impl State {
    /// Keeps a channel, in the place of one of this name that ends.
    fn keep(&mut self, name: &Arc<str>, hub: &Arc<Hub>) {
        self.end(name);
        self.hubs.insert(name.clone(), hub.clone());
    }

    /// Drops a channel, if there is one of this name, and keeps its counts.
    fn end(&mut self, name: &Arc<str>) {
        if let Some(hub) = self.hubs.remove(name) {
            self.ended.add(hub.counters().figures());
        }
    }
}

thread_local! {
    /// How many channels were looked at for telemetry on this thread, for tests of its bounds,
    /// those of telemetry among them.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The channels of a route.
pub struct Channels {
    pattern: Pattern,
    /// The parts that all channels of the route have in common.
    parts: Arc<RouteParts>,
    /// The active subscriptions, where they are reported.
    pub(super) subscriptions: Subscriptions,
    publish_limits: Arc<PublishLimits>,
    /// The order of items that an application publishes.
    pub(super) sequences: Mutex<Sequences>,
    /// `None`: their messages are those of this server alone.
    shared: Option<SharedRoute>,
    state: Mutex<State>,
}

impl Channels {
    /// Creates the channels of a route. A path without parameters has its channel at once, unless
    /// its log has to be read first, and keeps it; `restored` are channels that another server had.
    pub(super) fn new(
        name: String,
        pattern: Pattern,
        options: Channel,
        restored: impl IntoIterator<Item = (Arc<Hub>, MemberRecords)>,
        shared: Option<SharedRoute>,
    ) -> Arc<Channels> {
        let parts = RouteParts::new(name, most_bytes(&pattern, &options));
        let publish_limits = Arc::new(PublishLimits::new(options.publish_rate));
        let options = Arc::new(options);
        let mut state = State {
            options: options.clone(),
            hubs: HashMap::new(),
            ended: Figures::default(),
            looks: VecDeque::new(),
            passed: 0,
            recording: None,
            is_closed: false,
            is_swept: false,
        };
        for (hub, members) in restored {
            hub.restore_members(members, shared.is_some());
            hub.change(options.clone());
            hub.belong_to(&parts);
            state.looks.push_back((Moment::now(), hub.name().clone()));
            state.hubs.insert(hub.name().clone(), hub);
        }
        if !pattern.has_parameters() && shared.is_none() {
            let name: Arc<str> = pattern.text().into();
            let new = || Hub::in_route(name.clone(), options, parts.clone());
            state.hubs.entry(name.clone()).or_insert_with(new);
        }
        if !pattern.has_parameters() {
            state.looks.clear();
        }
        let (subscriptions, state) = (Subscriptions::default(), Mutex::new(state));
        let sequences = Mutex::default();
        let channels = Arc::new(Channels {
            pattern,
            parts,
            subscriptions,
            publish_limits,
            sequences,
            shared,
            state,
        });
        for hub in channels.all() {
            let at = Position { epoch: hub.epoch(), id: hub.last() };
            channels.share(&hub, at, at);
        }
        channels
    }

    /// Makes the messages of a channel those of its log, which it has up to a position, and reads
    /// the log from there on.
    fn share(self: &Arc<Channels>, hub: &Arc<Hub>, at: Position, target: Position) {
        let Some(SharedRoute { broker, host }) = &self.shared else { return };
        let key = broker.key(host, hub.name());
        let place = (LogPosition { at, token: None }, target);
        let route: Weak<Channels> = Arc::downgrade(self);
        let shared = SharedChannel::new(broker.clone(), key, hub, route, place);
        hub.share(shared.clone());
        shared.follow(hub.options().message_bytes);
    }

    /// Returns the events that the application is to be told.
    pub(super) fn callbacks(&self) -> &Arc<Callbacks> {
        &self.parts.callbacks
    }

    /// Whether the channels have the same logs.
    pub(super) fn are_shared_like(&self, other: Option<&SharedRoute>) -> bool {
        match (&self.shared, other) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                Arc::ptr_eq(&one.broker, &other.broker) && one.host == other.host
            }
            _ => false,
        }
    }

    /// Whether there is a channel for each name.
    fn has_names(&self) -> bool {
        self.pattern.has_parameters()
    }

    /// Returns the channel of a name as [`channel`](Channels::channel) does. If it has a log, that
    /// is read first.
    ///
    /// # Errors
    ///
    /// If there are as many channels as there may be, or if the log cannot be read.
    pub(crate) async fn locate(
        self: &Arc<Channels>,
        name: &Arc<str>,
    ) -> Result<Arc<Hub>, NoChannel> {
        let Some(SharedRoute { broker, host }) = &self.shared else {
            return self.channel(name).map_err(NoChannel::TooMany);
        };
        let limit = broker.patience();
        if self.find(name).is_none() {
            self.has_room(&self.state()).map_err(NoChannel::TooMany)?;
            let log = self.log_options(&broker.key(host, name));
            let looked = broker.look(Look { log, place: None }).await;
            self.open(name, &looked.map_err(NoChannel::Unshared)?)?;
        }
        let caught_up = poll_fn(|cx| match self.find(name) {
            // It was idle for so long meanwhile, or it is another server's now.
            None => Poll::Ready(None),
            Some(hub) => match hub.shared() {
                Some(shared) if !hub.is_closed() => shared.poll_caught_up(cx).map(|()| Some(hub)),
                _ => Poll::Ready(Some(hub)),
            },
        });
        match timeout(limit, caught_up).await {
            Ok(Some(hub)) => Ok(hub),
            _ => Err(NoChannel::Unshared(Unpublished::Away)),
        }
    }

    /// Creates the channel of a log, unless it is there already.
    fn open(self: &Arc<Channels>, name: &Arc<str>, looked: &Looked) -> Result<(), NoChannel> {
        let mut state = self.state();
        if state.hubs.contains_key(name) {
            return Ok(());
        }
        self.has_room(&state).map_err(NoChannel::TooMany)?;
        let Looked { last, first, .. } = *looked;
        let history = state.options.history as u64;
        let after = (first.saturating_sub(1)).max(last.id.saturating_sub(history));
        let hub = self.enter(&mut state, name, (last.epoch, after));
        if self.pattern.has_parameters() {
            state.looks.push_back((Moment::now(), name.clone()));
        }
        drop(state);
        self.share(&hub, Position { id: after, ..last }, last);
        Ok(())
    }

    /// Enters a channel of a log whose messages follow the one with this number. The caller puts
    /// its name on the list.
    fn enter(&self, state: &mut State, name: &Arc<str>, place: (u64, u64)) -> Arc<Hub> {
        let options = state.options.clone();
        let hub = Hub::of_log(name.clone(), options, self.parts.clone(), place);
        if state.is_closed {
            hub.hand_over();
        }
        if let Some(recording) = &state.recording {
            recording.record(&hub);
        }
        state.keep(name, &hub);
        hub
    }

    /// Whether another channel may be made.
    fn has_room(&self, state: &State) -> Result<(), TooMany> {
        let most = state.options.max_channels.get();
        match !self.pattern.has_parameters() || state.hubs.len() < most {
            true => Ok(()),
            false => Err(TooMany(most)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the route's configuration.
    pub(crate) fn options(&self) -> Arc<Channel> {
        self.state().options.clone()
    }

    /// Returns the limits of the clients that publish to the route.
    pub(super) fn publish_limits(&self) -> &Arc<PublishLimits> {
        &self.publish_limits
    }

    /// Returns the counts of the messages of all channels, those that have ended included.
    pub(super) fn figures(&self) -> Figures {
        VISITED.set(VISITED.get() + self.count());
        let state = self.state();
        let mut figures = state.ended;
        state.hubs.values().for_each(|hub| figures.add(hub.counters().figures()));
        figures
    }

    /// Whether its channel is a hub of Mercure, which does not change.
    pub(super) fn is_hub(&self) -> bool {
        self.options().mercure.is_some()
    }

    /// Returns the name of the channel at a path of a request.
    pub(crate) fn name(&self, path: &str) -> Result<Arc<str>, NameError> {
        self.pattern.name(path)
    }

    /// Returns the name of the only channel, where the path has no parameters.
    pub(super) fn own_name(&self) -> Arc<str> {
        self.pattern.text().into()
    }

    /// Returns the channel of a name, if there is one.
    pub fn find(&self, name: &str) -> Option<Arc<Hub>> {
        self.state().hubs.get(name).cloned()
    }

    /// Returns the channel of a name that fits the pattern, a new one if there is none.
    ///
    /// # Errors
    ///
    /// If there are as many channels as there may be.
    pub fn channel(&self, name: &Arc<str>) -> Result<Arc<Hub>, TooMany> {
        let mut state = self.state();
        if let Some(hub) = state.hubs.get(name) {
            return Ok(hub.clone());
        }
        self.has_room(&state)?;
        let hub = Hub::in_route(name.clone(), state.options.clone(), self.parts.clone());
        if state.is_closed {
            hub.hand_over();
        }
        if let Some(recording) = &state.recording {
            recording.record(&hub);
        }
        state.looks.push_back((Moment::now(), name.clone()));
        state.keep(name, &hub);
        Ok(hub)
    }

    /// Returns all channels.
    pub(crate) fn all(&self) -> Vec<Arc<Hub>> {
        VISITED.set(VISITED.get() + self.count());
        self.state().hubs.values().cloned().collect()
    }

    /// Whether a channel is one of these.
    pub(super) fn has(&self, hub: &Arc<Hub>) -> bool {
        self.state().hubs.get(hub.name()).is_some_and(|known| Arc::ptr_eq(known, hub))
    }

    /// Applies another configuration.
    pub(super) fn change(&self, options: Channel) {
        let options = Arc::new(options);
        self.parts.budget.change(most_bytes(&self.pattern, &options));
        self.publish_limits.change(options.publish_rate);
        if let Some(SharedRoute { broker, .. }) = &self.shared {
            broker.allow(options.message_bytes);
        }
        let mut state = self.state();
        state.options = options.clone();
        let hubs: Vec<_> = state.hubs.values().cloned().collect();
        drop(state);
        hubs.iter().for_each(|hub| hub.change(options.clone()));
    }

    /// Records the channels for a successor from now on.
    pub(super) fn record_in(&self, by: &Arc<Succession>, hosts: Vec<String>) {
        let recording = Recording { by: by.clone(), hosts, is_hub: self.is_hub() };
        self.parts.callbacks.record_in(by.clone());
        let mut state = self.state();
        state.hubs.values().for_each(|hub| recording.record(hub));
        state.recording = Some(recording);
    }

    /// Removes the records of the channels, which no longer exist.
    pub(super) fn stop_recording(&self) {
        let mut state = self.state();
        if let Some(recording) = state.recording.take() {
            for space in state.hubs.values().filter_map(|hub| hub.stop_recording()) {
                recording.by.forget_channel(space);
            }
        }
    }

    /// Ends the channels here: another server continues with them.
    pub(super) fn hand_over(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.hubs.values().for_each(|hub| hub.hand_over());
        self.parts.callbacks.hand_over();
    }

    /// Notes that all subscribers that another server had are here.
    pub(super) fn finish_gathering(&self) {
        self.state().hubs.values().for_each(|hub| hub.finish_gathering());
    }

    /// Drops channels that have been idle for long enough, of the next ones in turn.
    fn drop_idle(&self, now: Instant) {
        let mut state = self.state();
        let state = &mut *state;
        let idle = state.options.idle;
        let is_due = |since: Moment| since.is_past(idle, now);
        for _ in 0..LOOKS.min(state.looks.len()) {
            if !state.looks.front().is_some_and(|(at, _)| is_due(*at)) {
                return;
            }
            let Some((_, name)) = state.looks.pop_front() else { return };
            state.passed += 1;
            let Some(hub) = state.hubs.get(&name) else { continue };
            // A channel whose other server's subscribers are still to come is in use, too.
            if Arc::strong_count(hub) > 1 || hub.is_gathering() || hub.has_members() {
                state.looks.push_back((Moment::at(now), name));
            } else if !is_due(hub.used_at()) {
                state.looks.push_back((hub.used_at(), name));
            } else {
                if let (Some(recording), Some(space)) = (&state.recording, hub.stop_recording()) {
                    recording.by.forget_channel(space);
                }
                state.end(&name);
            }
        }
    }

    /// Whether the log of a channel that is always there is read, if it has one.
    pub(super) fn is_ready(&self) -> bool {
        if self.shared.is_none() || self.has_names() {
            return true;
        }
        let hub = self.find(self.pattern.text());
        hub.is_some_and(|hub| hub.shared().is_some_and(|shared| shared.is_caught_up()))
    }

    /// Reads the log of a channel that is always there, for the first time.
    async fn read_log(self: Arc<Channels>) {
        let (name, route): (Arc<str>, _) = (self.pattern.text().into(), Arc::downgrade(&self));
        drop(self);
        while let Some(channels) = route.upgrade() {
            if channels.state().is_closed || channels.locate(&name).await.is_ok() {
                return;
            }
            drop(channels);
            time::sleep(LONGEST_NAP).await;
        }
    }

    /// Makes those users leave whose grace is over.
    pub(super) fn end_graces(&self, now: Instant) {
        self.parts.unsettled.settle(now);
    }

    /// Returns the time until the next look at the channels; `None` if there is nothing to look
    /// for.
    fn nap(&self) -> Option<Duration> {
        let options = self.options();
        let idle = self.has_names().then_some(options.idle);
        let grace = options.presence.then_some(options.presence_grace);
        let shortest = idle.into_iter().chain(grace).min()?;
        Some((shortest / 4).clamp(SHORTEST_NAP, LONGEST_NAP))
    }

    /// Reads the log of a channel that is always there, and looks for idle channels and for users
    /// who have left, as long as the route exists. The second call for a route does nothing.
    pub async fn sweep(self: Arc<Channels>) {
        if self.nap().is_none() {
            if self.shared.is_some() {
                self.read_log().await;
            }
            return;
        }
        if std::mem::replace(&mut self.state().is_swept, true) {
            return;
        }
        let route = Arc::downgrade(&self);
        if self.shared.is_some() && !self.has_names() {
            self.read_log().await;
        } else {
            drop(self);
        }
        loop {
            let Some(channels) = route.upgrade() else { return };
            // Perhaps for an option that another configuration has not.
            let nap = channels.nap().unwrap_or(LONGEST_NAP);
            drop(channels);
            time::sleep(nap).await;
            let Some(channels) = route.upgrade() else { return };
            let now = time::now();
            channels.end_graces(now);
            if channels.has_names() {
                channels.drop_idle(now);
            }
        }
    }
}

impl LogRoute for Channels {
    fn log_options(&self, key: &Arc<str>) -> LogOptions {
        let options = self.options();
        let idle = self.has_names().then_some(options.idle * 2);
        LogOptions { key: key.clone(), history: options.history as u64, idle }
    }

    fn replace(&self, old: &Arc<Hub>, place: (u64, u64)) -> Option<Arc<Hub>> {
        let mut state = self.state();
        let is_here = state.hubs.get(old.name()).is_some_and(|known| Arc::ptr_eq(known, old));
        if !is_here || state.is_closed {
            return None;
        }
        if let (Some(recording), Some(space)) = (&state.recording, old.stop_recording()) {
            recording.by.forget_channel(space);
        }
        // Its name keeps its place in the list, where a look counts places.
        let hub = self.enter(&mut state, old.name(), place);
        drop(state);
        if let Some(shared) = old.shared() {
            hub.share(shared.clone());
        }
        hub.take_members(old);
        old.replace();
        Some(hub)
    }
}

/// Returns the bound on the bytes of a route. One channel alone has the bound of its history.
fn most_bytes(pattern: &Pattern, options: &Channel) -> u64 {
    if pattern.has_parameters() || options.grip { options.max_bytes } else { u64::MAX }
}

superpoll::debug_fields!(Channels, it => pattern: it.pattern, channels: it.state().hubs.len());

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use superpoll_rt::Runtime;

    use super::*;
    use crate::channel::message::{Draft, Meta};

    fn channels(options: Channel) -> Arc<Channels> {
        Channels::new(String::new(), Pattern::parse("/rooms/{room}").unwrap(), options, [], None)
    }

    fn options(idle: u64, max_channels: usize) -> Channel {
        let max_channels = NonZeroUsize::new(max_channels).unwrap();
        Channel { idle: Duration::from_secs(idle), max_channels, ..Channel::default() }
    }

    #[test]
    fn a_channel_that_is_held_or_was_used_stays_and_others_go() {
        let channels = channels(options(10, 2));
        let (a, b): (Arc<str>, Arc<str>) = ("/rooms/a".into(), "/rooms/b".into());
        let held = channels.channel(&a).unwrap();
        drop(channels.channel(&b).unwrap());
        assert!(Arc::ptr_eq(&held, &channels.channel(&a).unwrap()));
        assert_eq!(channels.channel(&"/rooms/c".into()).err(), Some(TooMany(2)));
        let now = time::now();
        channels.drop_idle(now + Duration::from_secs(9));
        assert_eq!(channels.all().len(), 2);
        channels.drop_idle(now + Duration::from_secs(11));
        assert!(channels.find("/rooms/b").is_none());
        assert!(channels.find("/rooms/a").is_some());
        // There is room for another one.
        drop(channels.channel(&"/rooms/c".into()).unwrap());
        drop(held);
        channels.drop_idle(now + Duration::from_secs(40));
        assert_eq!(channels.all().len(), 0);
    }

    #[test]
    fn a_channel_is_dropped_when_its_time_is_over_and_not_earlier() {
        Runtime::builder().start_paused(true).build().unwrap().block_on(async {
            let channels = channels(options(1, 9));
            let name: Arc<str> = "/rooms/a".into();
            let meta = Meta { key: Some("key".to_owned()), ..Meta::default() };
            let draft = Draft { meta: meta.shared(), ..Draft::new("message".into()) };
            let publish = || channels.channel(&name).unwrap().publish_as(draft.clone()).unwrap();
            let is_there_after = async |nanos| {
                time::advance(Duration::from_nanos(nanos)).await;
                channels.drop_idle(time::now());
                channels.find(&name).is_some()
            };
            let short_of_a_second = 999_999_999;
            assert!(!publish().is_repeated);
            assert!(is_there_after(short_of_a_second).await);
            // A publisher that repeats its message is there as well.
            assert!(publish().is_repeated);
            assert!(is_there_after(short_of_a_second).await);
            // A moment is as long as that.
            assert!(!is_there_after(16_000_000).await);
        });
    }

    #[test]
    fn a_channel_that_is_dropped_gives_its_bytes_back() {
        let channels = channels(Channel { max_bytes: 1000, ..options(1, 9) });
        let a = channels.channel(&"/rooms/a".into()).unwrap();
        let b = channels.channel(&"/rooms/b".into()).unwrap();
        assert_eq!(a.publish(vec![0; 600]), Some(1));
        assert_eq!(b.publish(vec![0; 600]), None, "the other channel has the bytes");
        // A channel drops its own messages for new ones.
        assert_eq!(a.publish(vec![1; 700]), Some(2));
        assert_eq!(a.since(Some(super::super::Cursor { id: 0, epoch: None })).messages.len(), 1);
        drop(a);
        channels.drop_idle(time::now() + Duration::from_secs(9));
        assert_eq!(channels.parts.budget.used(), 0);
        // Its counts stay with the route.
        assert_eq!(channels.figures().published, 2);
        assert_eq!(b.publish(vec![0; 600]), Some(1));
        assert_eq!(channels.figures().published, 3);
    }

    #[test]
    fn one_channel_alone_is_always_there() {
        let pattern = Pattern::parse("/news").unwrap();
        let channels = Channels::new(String::new(), pattern, options(1, 1), [], None);
        assert_eq!(&**channels.find("/news").unwrap().name(), "/news");
        channels.drop_idle(time::now() + Duration::from_secs(100));
        assert!(channels.find("/news").is_some());
    }
}
