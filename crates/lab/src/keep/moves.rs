//! The loop whose descriptors leave and come back: the cost of that, and how soon the loop wakes
//! up.
//!
//! In the part `move`, all descriptors of a batch become ready, are read, and are silent for longer
//! than necessary; the next wait makes them leave. The part measures that wait, and then the time
//! until they are back, reported and read. The keeper's clock is read after a pause, so that it
//! has carried out its orders. The time to read the thread's own clock is subtracted: for a batch
//! of one it would be a large share.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use superpoll::backend::policy::{CostBased, Fixed, Policy};
use superpoll::backend::{Rule, Topology, Tuning};
use superpoll::{BackendKind, Events, Interest, Poller};
use superpoll_keeper::Control;
use tempfile::TempDir;

use crate::channel::{Kind as Descriptors, Pairs};
use crate::error::{Doing, Error, Result};
use crate::random::Random;
use crate::server::clients::Clients;
use crate::server::fleet::start_keeper;
use crate::server::{Server, program};
use crate::statistics;
use crate::sys::{descriptor, process};
use crate::waking::Writer;

/// Descriptors of the part `wake`, if the limit allows as many; batches are a part of them.
pub(super) const WATCHED: usize = 1000;

/// How long a descriptor is idle before it leaves: longer than it takes for a batch to come back.
const IDLE: Duration = Duration::from_millis(8);

/// After this time all descriptors are due, and so is the next round of the hand.
const PAUSE_NS: u64 = 12_000_000;

/// How long the keeper may take to carry out its orders.
const SETTLING_NS: u64 = 1_000_000;

/// How often a batch may fail to leave at once because another process had the processor.
const ATTEMPTS: usize = 50;

/// How long a batch may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);

/// The quiet before a wake-up, in nanoseconds.
const QUIET_NS: u64 = 2_000_000;

/// The commands for a loop. It answers with numbers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Make a batch leave together and come back, several times. The answer: nanoseconds for one
    /// descriptor, of leaving in the main loop and in the keeper, and of coming back in both.
    Move {
        /// Descriptors.
        batch: usize,
        /// How often.
        times: usize,
    },
    /// Be woken by a descriptor that is away, several times. The answer: the nanoseconds of each
    /// wake-up.
    Wake {
        /// How often.
        times: usize,
        /// Chooses the descriptor that becomes ready.
        seed: u64,
    },
}

/// Starts a loop with `watched` descriptors in a process of its own. It keeps to the processor
/// `main`, its peer to `writers`.
pub(super) fn start(
    kind: Kind,
    keeper: Option<&KeeperProcess>,
    main: Option<usize>,
    writers: Option<usize>,
    watched: usize,
) -> Result<Clients> {
    let mut station = Station::new(kind, keeper, main);
    let mut state: Option<(Pairs, Writer)> = None;
    Clients::start(kind.name(), move |order: Order| {
        if state.is_none() {
            // The writer is forked while this process has one thread.
            let pairs = Pairs::open(Descriptors::Unix, watched)?;
            let writer = Writer::start(&pairs, writers.as_slice())?;
            state = Some((pairs, writer));
        }
        match (order, &state) {
            (Order::Move { batch, times }, Some((pairs, _))) => {
                moves(&mut station, pairs, batch, times)
            }
            (Order::Wake { times, seed }, Some((pairs, writer))) => {
                wake_ups(&mut station, pairs, writer, times, seed)
            }
            (_, None) => Ok(Vec::new()),
        }
    })
}

/// The time to read this thread's clock twice.
fn clock_ns() -> f64 {
    let all: Vec<f64> = (0..1000)
        .map(|_| {
            let before = process::thread_time();
            (process::thread_time() - before) as f64
        })
        .collect();
    statistics::median(&all)
}

fn wrong(station: &Station, found: impl Into<String>) -> Error {
    Error::Work { subject: station.kind.name(), found: found.into() }
}

fn moves(station: &mut Station, pairs: &Pairs, batch: usize, times: usize) -> Result<Vec<f64>> {
    let tuning = Tuning {
        idle: IDLE,
        batch: 1,
        rule: Rule::Regret { within: 0, doublings: 0 },
        only_with_state: false,
    };
    // The poll array would keep descriptors that are busy in every second wait.
    let mut watcher = station.poller(tuning, Some(Fixed::default()))?;
    let poller = &mut watcher.poller;
    let mut keys = Vec::with_capacity(batch);
    for fd in &pairs.reader_handles()[..batch] {
        keys.push(poller.register(fd, Interest::READABLE)?);
    }
    // A wait that reaches its limit of events lets no descriptor leave.
    let mut events = Events::with_limit(2 * batch);
    poller.wait(&mut events, Some(Duration::ZERO))?;
    let leaves = if station.kind == Kind::Nested { 0 } else { batch as u64 };
    let clock = clock_ns();
    let mut all: [Vec<f64>; 4] = Default::default();
    let mut attempts = 0;
    while all[0].len() < times {
        attempts += 1;
        if attempts > times + ATTEMPTS {
            return Err(wrong(station, format!("{batch} descriptors do not leave at once")));
        }
        process::sleep(PAUSE_NS);
        let before = poller.stats().moves_away;
        let (keeper, main) = (station.keeper_time()?, process::thread_time());
        poller.wait(&mut events, Some(Duration::ZERO))?;
        let leaving = process::thread_time() - main;
        process::sleep(SETTLING_NS);
        let their_leaving = station.keeper_time()? as f64 - keeper as f64;
        let left = poller.stats().moves_away - before;
        for (number, &fd) in pairs.writers()[..batch].iter().enumerate() {
            if !descriptor::write_byte(fd, number as u8) {
                return Err(Error::last(format!("writing to pair {number}")));
            }
        }
        let (mut unread, mut coming_back) = (batch, 0);
        while unread > 0 {
            let main = process::thread_time();
            poller.wait(&mut events, Some(PATIENCE))?;
            for event in &events {
                let number = keys.iter().position(|&key| key == event.key());
                let fd = number.map_or(-1, |number| pairs.readers()[number]);
                if descriptor::read_byte(fd) != number.map(|number| number as u8) {
                    return Err(wrong(station, "a descriptor was reported without its byte"));
                }
                unread -= 1;
            }
            coming_back += process::thread_time() - main;
            if events.is_empty() {
                return Err(wrong(station, format!("{unread} bytes were not reported")));
            }
        }
        process::sleep(SETTLING_NS);
        let their_all = station.keeper_time()? as f64 - keeper as f64;
        let moved = poller.stats().moves_away - before;
        if left != leaves || moved != left {
            continue;
        }
        let each = |ns: f64| ns.max(0.0) / batch as f64;
        all[0].push(each(leaving as f64 - clock));
        all[1].push(each(their_leaving));
        all[2].push(each(coming_back as f64 - clock));
        all[3].push(each(their_all - their_leaving));
    }
    Ok(all.iter().map(|one| statistics::median(one)).collect())
}

fn wake_ups(
    station: &mut Station,
    pairs: &Pairs,
    writer: &Writer,
    times: usize,
    seed: u64,
) -> Result<Vec<f64>> {
    // The descriptors leave on command.
    let tuning = Tuning { idle: Duration::from_secs(3600), ..Tuning::default() };
    let mut watcher = station.poller(tuning, None::<CostBased>)?;
    let poller = &mut watcher.poller;
    let mut keys = Vec::with_capacity(pairs.len());
    for fd in pairs.reader_handles() {
        keys.push(poller.register(fd, Interest::READABLE)?);
    }
    let mut events = Events::with_limit(16);
    poller.wait(&mut events, Some(Duration::ZERO))?;
    let mut random = Random::new(seed);
    let mut all = Vec::with_capacity(times);
    for number in 0..times {
        let here = poller.move_all_to_keeper();
        if station.kind != Kind::Nested && here > 0 {
            return Err(wrong(station, format!("{here} descriptors did not leave")));
        }
        let pair = random.below(pairs.len());
        writer.order(pair, QUIET_NS, number as u8)?;
        poller.wait(&mut events, Some(PATIENCE))?;
        let byte = descriptor::read_byte(pairs.readers()[pair]);
        let read_at = process::now();
        let reported: Vec<_> = events.iter().map(superpoll::Event::key).collect();
        if byte != Some(number as u8) || reported != [keys[pair]] {
            return Err(wrong(station, "a byte was written, and something else reported"));
        }
        all.push(read_at.saturating_sub(writer.written_at()) as f64);
    }
    Ok(all)
}

// The topologies by name, the keeper's process, and pollers with their keepers.

/// The name of a keeper's socket in its folder.
const SOCKET: &str = "keeper";

crate::by_name::named! {
    /// Where idle descriptors are watched.
    pub(super) enum Kind {
        /// The poller's own epoll set.
        Nested = "nested",
        /// A second thread.
        Thread = "thread",
        /// Another process.
        Process = "process",
    }
}

/// A keeper's process, which ends when this value is dropped.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    server: Server,
    folder: TempDir,
}

impl KeeperProcess {
    /// Starts the process, and waits until it listens.
    pub(super) fn start() -> Result<KeeperProcess> {
        let folder = program::folder("keep")?;
        Ok(KeeperProcess { server: start_keeper(&folder.path().join(SOCKET))?, folder })
    }
}

/// A factory for pollers of a topology.
#[derive(Debug)]
pub(super) struct Station {
    /// The topology of the pollers.
    pub kind: Kind,
    /// The path of the keeper process's socket, and its process number.
    keeper: Option<(PathBuf, i32)>,
    /// The main loop's only processor, if the loop keeps to one.
    processor: Option<usize>,
    /// All processors of this process.
    all: Vec<usize>,
    sessions: u64,
}

impl Station {
    /// Creates a station for a topology; [`Kind::Process`] needs a keeper's process.
    pub(super) fn new(
        kind: Kind,
        keeper: Option<&KeeperProcess>,
        processor: Option<usize>,
    ) -> Station {
        let of = |one: &KeeperProcess| (one.folder.path().join(SOCKET), one.server.pid());
        let keeper = keeper.map(of);
        Station { kind, keeper, processor, all: process::processors(), sessions: 0 }
    }

    /// Creates an adaptive poller, with a policy for its poll array if not the default one. From
    /// here on this thread keeps to the main loop's processor; a keeper runs where the
    /// scheduler puts it.
    pub(super) fn poller(
        &mut self,
        tuning: Tuning,
        policy: Option<impl Policy + 'static>,
    ) -> Result<Watcher> {
        let moving = |e| Error::system("moving a loop to its processor", e);
        process::pin(&self.all).map_err(moving)?;
        let (topology, session) = match (self.kind, &self.keeper) {
            (Kind::Nested, _) => (Topology::Nested, None),
            (Kind::Thread, _) => (Topology::Thread(tuning), None),
            (Kind::Process, None) => {
                return Err(Error::usage("the topology process needs a keeper"));
            }
            (Kind::Process, Some((path, _))) => {
                let refused = |error: superpoll_keeper::Error| Error::usage(error.to_string());
                self.sessions += 1;
                let session = u64::from(std::process::id()) << 32 | self.sessions;
                let control = Control::connect(path, session).map_err(refused)?;
                let line = control.link().map_err(refused)?;
                (Topology::Process(line, tuning), Some(Session(Some(control))))
            }
        };
        let builder = Poller::builder().backend(BackendKind::Adaptive).topology(topology);
        let poller = match policy {
            Some(policy) => builder.policy(policy).build()?,
            None => builder.build()?,
        };
        if let Some(processor) = self.processor {
            process::pin(&[processor]).map_err(moving)?;
        }
        Ok(Watcher { poller, _session: session })
    }

    /// The processor time that the keeper has used, in nanoseconds.
    pub(super) fn keeper_time(&self) -> Result<u64> {
        match (self.kind, &self.keeper) {
            (Kind::Nested, _) | (Kind::Process, None) => Ok(0),
            // The process has only these two threads. Their clocks are read one after the other, so
            // a difference may be off by the time between the reads.
            (Kind::Thread, _) => {
                Ok(process::processor_time().saturating_sub(process::thread_time()))
            }
            (Kind::Process, Some((_, pid))) => {
                process::processor_time_of(*pid).doing("reading the processor time of a keeper")
            }
        }
    }
}

/// A poller with its keeper.
#[derive(Debug)]
pub(super) struct Watcher {
    /// The poller. It is dropped before the session that its connection belongs to.
    pub poller: Poller,
    _session: Option<Session>,
}

/// A session with a keeper's process.
#[derive(Debug)]
struct Session(Option<Control>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(control) = self.0.take() {
            // A keeper that has gone needs no farewell.
            let _ = control.bye();
        }
    }
}
