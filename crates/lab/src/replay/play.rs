//! A recording played to each way to wait.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use superpoll::Hint;
use superpoll::backend::policy::{CostBased, Policy, RatioPolicy, Thresholds};
use superpoll::diagnostics::{Costs, Kind as CostKind, RingCosts};
use superpoll_watch::{End, Entry, Key, Kind, RecordingError, RecordingReader, Wait};

use crate::simulator::{Machine, Pure, Ring, Setting, Spent};

/// The costs that are played with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    /// Those of `poll` and epoll.
    pub costs: Costs,
    /// Those of io_uring, where it is permitted.
    pub ring: Option<RingCosts>,
}

/// A wait that takes no more than this above the cost of its call has not slept.
const SLEEP_NS: f64 = 5_000.0;

/// A way to wait, and its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub name: &'static str,
    /// Waiting, registering and moving, and the writers' part. Reads are the same for all, and are
    /// left out.
    pub spent: Spent,
    /// Moves between the array and epoll.
    pub moves: Option<u64>,
}

type Adaptive = Machine<Box<dyn Policy>>;

/// A set of the recording, with all ways to wait for its descriptors.
pub(super) struct Play {
    pub key: Key,
    pub thread: u32,
    pub kind: CostKind,
    pub is_kind_known: bool,
    pub waits: u64,
    /// Waits that had to wait for their events, or in vain.
    pub blocked: u64,
    pub events: u64,
    /// The most descriptors at a time.
    pub most: usize,
    /// Descriptors that joined or left after the first wait.
    pub changes: u64,
    members: usize,
    costs: Costs,
    pure: Pure,
    ring: Option<Ring>,
    adaptive: [(&'static str, Adaptive); 3],
}

impl fmt::Debug for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Play").field("key", &self.key).field("ways", &self.ways()).finish()
    }
}

/// Reads a recording to its end. One without an end, as its watch was killed, is taken to end with
/// its last wait, and `true` is returned.
pub(super) fn end(mut reader: RecordingReader<impl Read>) -> Result<(End, bool), RecordingError> {
    let mut until = 0;
    while let Some(entry) = next(&mut reader)? {
        match entry {
            Entry::Wait(wait) => until = wait.at_ns.max(until),
            Entry::End(end) => return Ok((end, false)),
            _ => {}
        }
    }
    Ok((End { duration_ns: until, ..End::default() }, true))
}

/// Returns the next record of those that are whole.
fn next(reader: &mut RecordingReader<impl Read>) -> Result<Option<Entry>, RecordingError> {
    match reader.entry() {
        Err(RecordingError::Truncated) => Ok(None),
        entry => entry,
    }
}

/// Plays a recording, whose end is known.
pub(super) fn play(
    mut reader: RecordingReader<impl Read>,
    end: &End,
    prices: &Prices,
) -> Result<Vec<Play>, RecordingError> {
    let mut sets: Vec<Set> = Vec::new();
    while let Some(entry) = next(&mut reader)? {
        match entry {
            Entry::Set { key, thread } => {
                let kind = end.kinds.get(sets.len()).copied().unwrap_or_default();
                sets.push(Set { key, thread, kind, play: None });
            }
            Entry::Join { set, member } => sets[set as usize].play(prices).join(member),
            Entry::Leave { set, member } => sets[set as usize].play(prices).leave(member),
            Entry::Wait(wait) => sets[wait.set as usize].play(prices).wait(&wait),
            Entry::End(_) => {}
        }
    }
    Ok(sets.into_iter().filter_map(|set| set.play).map(|play| *play).collect())
}

/// A set of the recording. It is played from its first descriptor or wait on: a play is much larger
/// than the record of a set.
struct Set {
    key: Key,
    thread: u32,
    kind: CostKind,
    play: Option<Box<Play>>,
}

impl Set {
    fn play(&mut self, prices: &Prices) -> &mut Play {
        let Set { key, thread, kind, .. } = *self;
        self.play.get_or_insert_with(|| Box::new(Play::new(key, thread, kind, prices)))
    }
}

impl Play {
    fn new(key: Key, thread: u32, kind: CostKind, prices: &Prices) -> Play {
        let is_kind_known = kind != CostKind::Unknown;
        let kind = if is_kind_known { kind } else { CostKind::Pipe };
        let setting = Setting { costs: prices.costs, read: 0.0, ..Setting::new(kind) };
        let ratio = |thresholds| -> Box<dyn Policy> { Box::new(RatioPolicy::new(thresholds)) };
        let adaptive: [(_, Box<dyn Policy>); 3] = [
            ("adaptive", Box::new(CostBased::new())),
            ("adaptive, idle-server", ratio(Thresholds::IDLE_SERVER)),
            ("adaptive, media-server", ratio(Thresholds::MEDIA_SERVER)),
        ];
        Play {
            key,
            thread,
            kind,
            is_kind_known,
            waits: 0,
            blocked: 0,
            events: 0,
            most: 0,
            changes: 0,
            members: 0,
            costs: prices.costs,
            pure: Pure::new(&setting, 0),
            ring: prices.ring.map(|costs| Ring::new(&setting, &costs)),
            adaptive: adaptive
                .map(|(name, policy)| (name, Machine::new(policy, &setting, 0, Hint::None))),
        }
    }

    fn join(&mut self, member: u32) {
        self.changes += u64::from(self.waits > 0);
        self.members += 1;
        self.most = self.most.max(self.members);
        self.pure.join(member);
        self.ring.iter_mut().for_each(Ring::join);
        self.adaptive.iter_mut().for_each(|(_, machine)| machine.join(member));
    }

    fn leave(&mut self, member: u32) {
        self.changes += u64::from(self.waits > 0);
        self.members -= 1;
        self.pure.leave(member);
        self.ring.iter_mut().for_each(Ring::leave);
        self.adaptive.iter_mut().for_each(|(_, machine)| machine.leave(member));
    }

    fn wait(&mut self, wait: &Wait) {
        let blocked = self.blocked(wait);
        self.waits += 1;
        self.blocked += u64::from(blocked.is_some());
        self.events += wait.ready.len() as u64;
        self.pure.wait(&wait.ready, blocked.is_some());
        self.ring.iter_mut().for_each(|ring| ring.wait(wait.ready.len()));
        self.adaptive.iter_mut().for_each(|(_, machine)| machine.wait(&wait.ready, blocked));
    }

    /// Returns how long a wait had to wait; `None` if it has returned what was there.
    fn blocked(&self, wait: &Wait) -> Option<Duration> {
        let (costs, ready) = (&self.costs, wait.ready.len() as f64);
        let of = costs.of(self.kind);
        let call = match self.key.kind {
            Kind::Poll | Kind::Select => {
                costs.poll_call + self.members as f32 * of.scan + ready as f32 * of.ready
            }
            _ => costs.cold_wait + ready as f32 * (of.event + of.level),
        };
        // One that had begun before the recording took at least as long as that.
        let took = wait.took_ns.unwrap_or(wait.at_ns);
        // The program's memory may be slower than that of the calibration.
        let has_slept = took as f64 >= SLEEP_NS + 2.0 * f64::from(call);
        let blocked = wait.timeout_ns != 0 && (has_slept || wait.ready.is_empty());
        blocked.then(|| Duration::from_nanos(took))
    }

    /// The cost of each way to wait.
    pub(super) fn ways(&self) -> Vec<Way> {
        let pure = [
            ("poll", self.pure.poll),
            ("epoll, level-triggered", self.pure.level),
            ("epoll, edge-triggered", self.pure.edge),
        ];
        let mut ways: Vec<Way> = pure.map(|(name, spent)| Way { name, spent, moves: None }).into();
        ways.extend(self.adaptive.iter().map(|(name, machine)| Way {
            name,
            spent: machine.spent(),
            moves: Some(machine.moves()),
        }));
        ways.extend(self.ring.map(|ring| Way { name: "uring", spent: ring.spent, moves: None }));
        ways
    }
}

#[cfg(test)]
mod tests;
