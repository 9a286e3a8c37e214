//! Measures the cost of watching here, in a few milliseconds.
//!
//! Sixteen descriptors of a kind go through everything that placement reckons with: they are polled
//! idle and ready, added to epoll, written to, reported, parked, written to again, and removed.
//! That is repeated as often as the time allows, and of each step the shortest time counts: any
//! disturbance makes a measurement longer. Per-descriptor costs are slopes, the time for sixteen
//! less the time for one or none, so that the price of the call itself drops out. The writer's cost
//! is the time of a write less that of a write to a descriptor that nothing watches. A
//! level-triggered descriptor stays on epoll's ready list after it was reported, so a write before
//! the next wait is timed as well: it wakes no thread.
//!
//! A blocking `poll` is measured without blocking: it joins the wait queues of all slots in front
//! of the first that is ready, so one ready slot at the end is enough.
//!
//! TCP connections hold a short conversation first, because young ones behave differently.
//!
//! Kinds share a time budget in order; a kind that cannot be measured, or whose numbers make no
//! sense, keeps its assumed costs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::costs::{Costs, Kind, KindCosts};
use crate::stats::Calls;
use crate::sys::epoll::{self, Operation};
use crate::sys::poll::{self, Slot};
use crate::sys::{descriptor, epoll::Raw, returns};

#[cfg(feature = "uring")]
mod ring;

#[cfg(feature = "uring")]
pub(super) use ring::measure as measure_ring;

/// Descriptors of a kind.
pub(crate) const COUNT: usize = 16;

/// Repetitions of all steps, if the time allows.
pub(crate) const REPETITIONS: u32 = 12;

/// When to stop measuring each kind, in microseconds from the start.
const STOPS: [u64; 3] = [1_500, 4_000, 7_500];

/// How long a connection over loopback may take.
const CONNECTING: Duration = Duration::from_millis(2);

/// A young TCP connection acknowledges each segment at once, which costs its writer far more than
/// any step measured here; after a few answers it waits for data to send along.
const ANSWERS: usize = 3;

/// Prices above this are a disturbance, not a measurement.
pub(crate) const ABSURD: f32 = 50_000.0;

pub(super) fn measure() -> Costs {
    // So that calls cost here as much as they cost later.
    returns::calibrate();
    measure_until(STOPS.map(Duration::from_micros))
}

fn measure_until(stops: [Duration; 3]) -> Costs {
    let start = Instant::now();
    let mut costs = Costs::ASSUMED;
    for (kind, stop) in Kind::MEASURED.into_iter().zip(stops) {
        if let Ok((times, _)) = measure_kind(kind, start + stop) {
            take_over(&mut costs, kind, &times);
        }
    }
    costs
}

/// Takes over the costs that follow for a kind; those of pipes also price the calls. If they make
/// no sense, all stays as it was.
fn take_over(costs: &mut Costs, kind: Kind, times: &Times) {
    let Some(of_kind) = times.per_descriptor() else { return };
    if kind == Kind::Pipe {
        let Some((pass, poll_call, cold_wait)) = times.per_call() else { return };
        (costs.pass, costs.poll_call, costs.cold_wait) = (pass, poll_call, cold_wait);
    }
    match kind {
        Kind::Unix => costs.unix = of_kind,
        Kind::Tcp => costs.tcp = of_kind,
        Kind::Unknown | Kind::Pipe => costs.pipe = of_kind,
    }
    costs.measured = true;
}

macro_rules! times {
    ($($step:ident),*) => {
        /// The shortest time of each step so far, in nanoseconds.
        #[derive(Clone, Copy, Debug)]
        struct Times { $($step: f32),* }

        impl Times {
            /// No step was made yet.
            const NONE: Times = Times { $($step: f32::INFINITY),* };
        }
    };
}
#[cfg(feature = "uring")]
pub(crate) use times;

times! { poll_one, poll_idle, poll_ready, poll_last_ready, poll_blocking, poll_with_epoll, wait_idle, wait_edge, wait_level, wait_recheck, write_free, write_watched, write_queued, write_parked, add, modify, delete }

impl Times {
    /// The costs that follow; `None` if they make no sense.
    fn per_descriptor(&self) -> Option<KindCosts> {
        let count = COUNT as f32;
        let scan = (self.poll_idle - self.poll_one) / (count - 1.0);
        let event = (self.wait_edge - self.wait_idle) / count;
        let wake = ((self.write_watched - self.write_free) / count).max(0.0);
        let slope = |time: f32, less: f32| ((time - less) / count).max(0.0);
        let costs = KindCosts {
            scan,
            ready: slope(self.poll_ready, self.poll_idle),
            block: (self.poll_blocking - self.poll_last_ready).max(0.0) / (count - 1.0),
            event,
            level: slope(self.wait_level, self.wait_edge),
            recheck: slope(self.wait_recheck, self.wait_idle),
            wake,
            queued_wake: slope(self.write_queued, self.write_free).min(wake),
            parked_wake: slope(self.write_parked, self.write_free).min(wake),
            add: self.add / count,
            modify: self.modify / count,
            delete: self.delete / count,
        };
        let must_cost = [costs.scan, costs.event, wake, costs.add, costs.modify, costs.delete];
        let may_cost = [costs.ready, costs.block, costs.level, costs.recheck];
        let sensible = must_cost.iter().all(|&cost| cost > 1.0 && cost < ABSURD)
            && may_cost.iter().all(|&cost| cost < ABSURD);
        sensible.then_some(costs)
    }

    /// The prices of the calls: of an array, of a `poll`, and of an `epoll_wait`.
    fn per_call(&self) -> Option<(f32, f32, f32)> {
        let scan = (self.poll_idle - self.poll_one) / (COUNT as f32 - 1.0);
        let poll_call = self.poll_one - scan;
        let pass = self.poll_with_epoll - scan - self.wait_idle;
        let prices = (pass, poll_call, self.wait_idle);
        let sensible = [pass, poll_call, self.wait_idle];
        sensible.iter().all(|&price| price > 1.0 && price < ABSURD).then_some(prices)
    }
}

/// Descriptors of one kind, each with its writing end.
pub(crate) struct Pairs {
    pub(crate) readers: Vec<File>,
    writers: Vec<File>,
}

impl Pairs {
    pub(crate) fn new(kind: Kind) -> io::Result<Pairs> {
        let listener = match kind {
            Kind::Tcp => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            _ => None,
        };
        let mut pairs = Pairs { readers: Vec::new(), writers: Vec::new() };
        for _ in 0..COUNT {
            let (reader, writer): (OwnedFd, OwnedFd) = match (kind, &listener) {
                (Kind::Unix, _) => {
                    let (reader, writer) = UnixStream::pair()?;
                    reader.set_nonblocking(true)?;
                    (reader.into(), writer.into())
                }
                (_, Some(listener)) => connect(listener)?,
                _ => {
                    let (reader, writer) = io::pipe()?;
                    (reader.into(), writer.into())
                }
            };
            pairs.readers.push(File::from(reader));
            pairs.writers.push(File::from(writer));
        }
        if kind == Kind::Tcp {
            (0..ANSWERS).try_for_each(|_| pairs.converse())?;
        }
        Ok(pairs)
    }

    /// A byte there and a byte back on each connection.
    pub(crate) fn converse(&mut self) -> io::Result<()> {
        self.fill()?;
        self.drain()?;
        self.readers.iter_mut().try_for_each(|reader| reader.write_all(&[0]))?;
        self.writers.iter_mut().try_for_each(|writer| writer.read_exact(&mut [0]))
    }

    /// Makes all of them readable.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        self.writers.iter_mut().try_for_each(|writer| writer.write_all(&[0]))
    }

    /// Makes them unreadable again.
    fn drain(&mut self) -> io::Result<()> {
        self.readers.iter_mut().try_for_each(|reader| reader.read_exact(&mut [0]))
    }
}

fn connect(listener: &TcpListener) -> io::Result<(OwnedFd, OwnedFd)> {
    let writer = TcpStream::connect_timeout(&listener.local_addr()?, CONNECTING)?;
    let (reader, _) = listener.accept()?;
    reader.set_nonblocking(true)?;
    writer.set_nodelay(true)?;
    descriptor::reset_on_close(reader.as_fd())?;
    descriptor::reset_on_close(writer.as_fd())?;
    Ok((reader.into(), writer.into()))
}

/// Measures until the repetitions are done or the time is up; at least once. Returns the times, and
/// how often each step was done.
fn measure_kind(kind: Kind, stop: Instant) -> io::Result<(Times, u32)> {
    let mut calls = Calls::default();
    let mut pairs = Pairs::new(kind)?;
    let set = epoll::create(&mut calls)?;
    let mut bench = Bench {
        slots: pairs
            .readers
            .iter()
            .map(|reader| Slot { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect(),
        calls,
        set,
        raw: Vec::with_capacity(COUNT + 1),
    };
    let (mut times, mut repetitions) = (Times::NONE, 0);
    while repetitions == 0 || (repetitions < REPETITIONS && Instant::now() < stop) {
        bench.repetition(&mut pairs, &mut times)?;
        repetitions += 1;
    }
    Ok((times, repetitions))
}

struct Bench {
    slots: Vec<Slot>,
    calls: Calls,
    set: OwnedFd,
    raw: Vec<Raw>,
}

/// Keeps the shorter of the time so far and the time of a step.
pub(crate) fn time<T>(shortest: &mut f32, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = Instant::now();
    let outcome = step()?;
    *shortest = shortest.min(before.elapsed().as_nanos() as f32);
    Ok(outcome)
}

/// Fails a step that did not find the expected number: it measures something else.
pub(crate) fn expect(found: usize, expected: usize) -> io::Result<()> {
    if found == expected { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Bench {
    fn poll(&mut self, shortest: &mut f32, slots: usize, ready: usize) -> io::Result<()> {
        let (calls, slots) = (&mut self.calls, &mut self.slots[..slots]);
        expect(time(shortest, || poll::wait(calls, slots, Some(Duration::ZERO)))?, ready)
    }

    fn wait(&mut self, shortest: &mut f32, ready: usize) -> io::Result<()> {
        let (calls, set, raw) = (&mut self.calls, self.set.as_fd(), &mut self.raw);
        let wait = || epoll::wait(calls, set, raw, COUNT + 1, Some(Duration::ZERO));
        expect(time(shortest, wait)?, ready)
    }

    fn control(&mut self, shortest: &mut f32, what: Operation, events: i32) -> io::Result<()> {
        let (calls, set, slots) = (&mut self.calls, self.set.as_fd(), &self.slots);
        time(shortest, || {
            slots.iter().enumerate().try_for_each(|(data, slot)| {
                epoll::control(calls, set, what, slot.fd, events as u32, data as u64)
            })
        })
    }

    fn repetition(&mut self, pairs: &mut Pairs, times: &mut Times) -> io::Result<()> {
        // Twice, because the work before this has filled the caches with other data.
        for _ in 0..2 {
            self.poll(&mut times.poll_one, 1, 0)?;
            self.poll(&mut times.poll_idle, COUNT, 0)?;
        }
        pairs.writers[COUNT - 1].write_all(&[0])?;
        self.poll(&mut times.poll_last_ready, COUNT, 1)?;
        self.poll_blocking(&mut times.poll_blocking)?;
        pairs.readers[COUNT - 1].read_exact(&mut [0])?;

        time(&mut times.write_free, || pairs.fill())?;
        self.poll(&mut times.poll_ready, COUNT, COUNT)?;
        pairs.drain()?;

        self.control(&mut times.add, Operation::Add, libc::EPOLLIN | libc::EPOLLET)?;
        for _ in 0..2 {
            self.wait(&mut times.wait_idle, 0)?;
            self.poll_with_epoll(&mut times.poll_with_epoll)?;
        }
        time(&mut times.write_watched, || pairs.fill())?;
        self.wait(&mut times.wait_edge, COUNT)?;
        pairs.drain()?;

        self.control(&mut times.modify, Operation::Modify, libc::EPOLLIN)?;
        time(&mut times.write_watched, || pairs.fill())?;
        self.wait(&mut times.wait_level, COUNT)?;
        pairs.drain()?;
        // Reported and not waited for again, they are still on the ready list.
        time(&mut times.write_queued, || pairs.fill())?;
        pairs.drain()?;
        self.wait(&mut times.wait_recheck, 0)?;

        self.control(&mut times.modify, Operation::Modify, libc::EPOLLET)?;
        time(&mut times.write_parked, || pairs.fill())?;
        pairs.drain()?;
        self.control(&mut times.delete, Operation::Delete, 0)
    }

    /// With one ready slot at the end, and with a time limit in case it is not.
    fn poll_blocking(&mut self, shortest: &mut f32) -> io::Result<()> {
        let (calls, slots) = (&mut self.calls, &mut self.slots);
        let limit = Some(Duration::from_millis(1));
        expect(time(shortest, || poll::wait(calls, slots, limit))?, 1)
    }

    /// The epoll set, in which nothing is ready, and one idle slot.
    fn poll_with_epoll(&mut self, shortest: &mut f32) -> io::Result<()> {
        let own = Slot { fd: self.set.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut slots = [own, self.slots[0]];
        let calls = &mut self.calls;
        expect(time(shortest, || poll::wait(calls, &mut slots, Some(Duration::ZERO)))?, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plausible() -> Times {
        Times {
            poll_one: 262.0,
            poll_idle: 262.0 + 15.0 * 28.0,
            poll_ready: 262.0 + 15.0 * 28.0 + 16.0 * 2.0,
            poll_last_ready: 700.0,
            poll_blocking: 700.0 + 15.0 * 90.0,
            poll_with_epoll: 402.0,
            wait_idle: 149.0,
            wait_edge: 149.0 + 16.0 * 89.0,
            wait_level: 149.0 + 16.0 * 96.0,
            wait_recheck: 149.0 + 16.0 * 44.0,
            write_free: 16.0 * 372.0,
            write_watched: 16.0 * (372.0 + 124.0),
            write_queued: 16.0 * (372.0 + 62.0),
            write_parked: 16.0 * (372.0 + 65.0),
            add: 16.0 * 836.0,
            modify: 16.0 * 310.0,
            delete: 16.0 * 724.0,
        }
    }

    #[test]
    fn costs_are_slopes() {
        let costs = plausible().per_descriptor().unwrap();
        let expected = KindCosts {
            scan: 28.0,
            ready: 2.0,
            block: 90.0,
            event: 89.0,
            level: 7.0,
            recheck: 44.0,
            wake: 124.0,
            queued_wake: 62.0,
            parked_wake: 65.0,
            add: 836.0,
            modify: 310.0,
            delete: 724.0,
        };
        assert_eq!(costs, expected);
        assert_eq!(plausible().per_call(), Some((225.0, 234.0, 149.0)));
    }

    #[test]
    fn nonsense_is_refused_and_noise_is_clamped() {
        assert_eq!(Times::NONE.per_descriptor(), None);
        assert_eq!(Times::NONE.per_call(), None);
        assert_eq!(Times { poll_idle: 262.0, ..plausible() }.per_descriptor(), None);
        assert_eq!(Times { wait_edge: 100.0, ..plausible() }.per_descriptor(), None);
        assert_eq!(Times { delete: 1e9, ..plausible() }.per_descriptor(), None);
        assert_eq!(Times { wait_idle: 0.5, ..plausible() }.per_call(), None);
        assert_eq!(Times { write_watched: 5_000.0, ..plausible() }.per_descriptor(), None);
        let noisy = Times { write_queued: 5_000.0, write_parked: 5_000.0, ..plausible() };
        let costs = noisy.per_descriptor().unwrap();
        assert_eq!((costs.queued_wake, costs.parked_wake), (0.0, 0.0));
        let noisy = Times { write_queued: 16.0 * 600.0, ..plausible() };
        assert_eq!(noisy.per_descriptor().unwrap().queued_wake, 124.0);
        let noisy = Times { write_parked: 16.0 * 600.0, ..plausible() };
        assert_eq!(noisy.per_descriptor().unwrap().parked_wake, 124.0);
    }

    #[test]
    fn a_price_is_more_than_one_and_less_than_absurd() {
        let sixteen = COUNT as f32;
        let with = |change: fn(&mut Times, f32), cost: f32| {
            let mut times = plausible();
            change(&mut times, cost * sixteen);
            times.per_descriptor().is_some()
        };
        for (cost, sensible) in
            [(0.5, false), (1.0, false), (1.5, true), (49_999.0, true), (50_000.0, false)]
        {
            assert_eq!(with(|times, cost| times.add = cost, cost), sensible, "{cost}");
            assert_eq!(with(|times, cost| times.modify = cost, cost), sensible, "{cost}");
            assert_eq!(with(|times, cost| times.delete = cost, cost), sensible, "{cost}");
            let event = |times: &mut Times, cost: f32| {
                (times.wait_idle, times.wait_edge) = (0.0, cost);
            };
            assert_eq!(with(event, cost), sensible, "{cost}");
            let wake = |times: &mut Times, cost: f32| {
                (times.write_free, times.write_watched) = (0.0, cost);
            };
            assert_eq!(with(wake, cost), sensible, "{cost}");
        }
        // These may be nothing at all.
        for (cost, sensible) in [(0.0, true), (49_999.0, true), (50_000.0, false)] {
            let ready = |times: &mut Times, cost: f32| {
                (times.poll_one, times.poll_idle, times.poll_ready) = (-150.0, 0.0, cost);
            };
            assert_eq!(with(ready, cost), sensible, "{cost}");
            let level = |times: &mut Times, cost: f32| {
                (times.wait_idle, times.wait_edge) = (-160.0, 0.0);
                times.wait_level = cost;
            };
            assert_eq!(with(level, cost), sensible, "{cost}");
            let recheck = |times: &mut Times, cost: f32| {
                (times.wait_idle, times.wait_edge, times.wait_recheck) = (0.0, 160.0, cost);
            };
            assert_eq!(with(recheck, cost), sensible, "{cost}");
        }
    }

    #[test]
    fn a_call_is_priced_within_the_same_bounds() {
        // Without a scan: the cost of a call alone, of a call with epoll in it, and of an
        // epoll_wait.
        let prices = |poll: f32, with_epoll: f32, wait: f32| {
            let times = Times {
                poll_one: poll,
                poll_idle: poll,
                poll_with_epoll: with_epoll,
                wait_idle: wait,
                ..plausible()
            };
            times.per_call()
        };
        assert_eq!(prices(30.0, 90.0, 20.0), Some((70.0, 30.0, 20.0)));
        for (price, sensible) in
            [(0.5, false), (1.0, false), (1.5, true), (49_999.0, true), (50_000.0, false)]
        {
            assert_eq!(prices(price, 90.0, 20.0).is_some(), sensible, "{price}");
            assert_eq!(prices(30.0, price + 2.0, 2.0).is_some(), sensible, "{price}");
            assert_eq!(prices(30.0, price + 2.0, price).is_some(), sensible, "{price}");
        }
    }

    #[test]
    fn each_kind_takes_over_its_own_and_pipes_the_calls() {
        let of_kind = plausible().per_descriptor().unwrap();
        for kind in Kind::MEASURED {
            let mut costs = Costs::ASSUMED;
            take_over(&mut costs, kind, &plausible());
            let mut expected = Costs { measured: true, ..Costs::ASSUMED };
            match kind {
                Kind::Unix => expected.unix = of_kind,
                Kind::Tcp => expected.tcp = of_kind,
                _ => (expected.pipe, expected.cold_wait) = (of_kind, 149.0),
            }
            assert_eq!(costs, expected, "{kind:?}");
            for nonsense in [Times::NONE, Times { delete: 0.0, ..plausible() }] {
                let mut costs = Costs::ASSUMED;
                take_over(&mut costs, kind, &nonsense);
                assert_eq!(costs, Costs::ASSUMED);
            }
        }
        // Sensible for the descriptors, but not for the calls.
        let nonsense = Times { poll_with_epoll: 100.0, ..plausible() };
        let mut costs = Costs::ASSUMED;
        take_over(&mut costs, Kind::Pipe, &nonsense);
        assert_eq!(costs, Costs::ASSUMED);
        take_over(&mut costs, Kind::Unix, &nonsense);
        assert!(costs.measured && costs.unix == of_kind);
    }

    #[test]
    fn each_kind_goes_through_all_steps_even_without_time() {
        let now = Instant::now();
        for kind in Kind::MEASURED {
            let (times, repetitions) = measure_kind(kind, now).unwrap();
            assert_eq!(repetitions, 1, "the time was up");
            let steps = [
                [times.poll_one, times.poll_idle, times.poll_ready, times.poll_last_ready],
                [times.poll_blocking, times.poll_with_epoll, times.wait_idle, times.wait_edge],
                [times.wait_level, times.wait_recheck, times.write_free, times.write_watched],
                [times.write_queued, times.write_parked, times.add, times.modify],
                [times.delete; 4],
            ];
            for time in steps.as_flattened() {
                assert!(time.is_finite() && *time > 0.0, "{kind:?}: {times:?}");
            }
        }
        let (_, repetitions) = measure_kind(Kind::Pipe, now + Duration::from_secs(3600)).unwrap();
        assert_eq!(repetitions, REPETITIONS);
    }

    #[test]
    fn a_step_that_found_something_else_is_no_measurement() {
        assert!(expect(16, 16).is_ok() && expect(0, 0).is_ok());
        assert!(expect(15, 16).is_err() && expect(17, 16).is_err());
        let mut shortest = f32::INFINITY;
        assert_eq!(time(&mut shortest, || Ok(7)).unwrap(), 7);
        assert!(shortest.is_finite());
        shortest = 0.0;
        let longer = || {
            std::thread::sleep(Duration::from_micros(1));
            Ok(7)
        };
        assert_eq!(time(&mut shortest, longer).unwrap(), 7);
        assert_eq!(shortest, 0.0, "the shorter one is kept");
        let failed: io::Result<()> = time(&mut shortest, || Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err());
    }

    #[test]
    fn measured_costs_are_plausible() {
        let costs = measure_until([Duration::from_secs(1); 3]);
        for kind in Kind::MEASURED {
            let of = costs.of(kind);
            assert!(of.scan > 0.0 && of.event > 0.0 && of.add > 0.0, "{costs:?}");
            assert!(of.parked_wake <= of.wake && of.queued_wake <= of.wake, "{costs:?}");
        }
        assert!(costs.pass > 0.0 && costs.cold_wait > 0.0);
    }
}
