//! The loop whose descriptors leave and come back: the cost of that, and how soon the loop wakes
//! up.
//!
//! In the part `move`, all descriptors of a batch become ready, are read, and are silent for longer
//! than necessary; the next wait makes them leave. The part measures that wait, and then the time
//! until they are back, reported and read. The keeper's clock is read after a pause, so that it
//! has carried out its orders. The time to read the thread's own clock is subtracted: for a batch
//! of one it would be a large share.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use superpoll::backend::policy::{CostBased, Fixed};
use superpoll::backend::{Rule, Tuning};
use superpoll::{Events, Interest};

use crate::channel::{Kind as Descriptors, Pairs};
use crate::error::{Error, Result};
use crate::keep::topology::{KeeperProcess, Kind, Station};
use crate::random::Random;
use crate::server::clients::Clients;
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
