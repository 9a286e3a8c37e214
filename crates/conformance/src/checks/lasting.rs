//! Errors and hang-ups that last although the caller has done all it can.
//!
//! An entry in a socket's queue of errors, a time stamp of a sent packet for example, stays until
//! it is taken out, and so does `POLLERR`. A TCP socket that is not connected is hung up. With
//! [`Mode::Auto`] such a state is reported a few times at most, and every later arrival still is.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use superpoll::{Hint, Interest, Key, Mode, Readiness, Watch};

use super::{Outcome, Problem, ensure, expect, now, numbers};
use crate::bench::Bench;
use crate::rig::Rig;
use crate::sys;

const IN: Readiness = Readiness::READABLE;
const ERR: Readiness = Readiness::ERROR;

/// Reports of a lasting state that a back-end may make before it knows that the state lasts.
const FEW: usize = 8;

fn auto(hint: Hint) -> Watch {
    Watch::new(Interest::READABLE).mode(Mode::Auto).hint(hint)
}

/// A socket with a queue of errors, and a sender to it.
struct Errors {
    socket: UdpSocket,
    address: SocketAddr,
    sender: UdpSocket,
    /// Where nothing listens, so that a datagram to it comes back as an error.
    closed: SocketAddr,
}

impl Errors {
    fn new() -> Result<Errors, Problem> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (socket, closed) = (bind()?, bind()?.local_addr()?);
        socket.set_nonblocking(true)?;
        sys::queue_errors(&socket)?;
        Ok(Errors { address: socket.local_addr()?, socket, sender: bind()?, closed })
    }

    /// Adds to the queue.
    fn fail(&self) -> Outcome {
        self.socket.send_to(b"to nobody", self.closed)?;
        let fd = self.socket.as_raw_fd();
        sys::poll(&mut [libc::pollfd { fd, events: 0, revents: 0 }], -1)?;
        Ok(())
    }

    fn send(&self) -> Outcome {
        self.sender.send_to(b"x", self.address)?;
        Ok(())
    }

    /// Receives until it would block. The error itself comes once, and stays in the queue.
    fn drain(&self) {
        use std::io::ErrorKind::WouldBlock;
        let blocks = |outcome: &std::io::Result<usize>| {
            outcome.as_ref().is_err_and(|error| error.kind() == WouldBlock)
        };
        while !blocks(&self.socket.recv(&mut [0; 16])) {}
    }
}

/// Waits, as a loop with nothing else to do, until the state of a registration is no longer
/// reported. `handle` does all that the caller can do about a report.
fn settle(rig: &mut Rig, key: Key, when: &str, handle: impl Fn()) -> Outcome {
    let mut reports = 0;
    for _ in 0..2 * FEW {
        let batch = now(rig)?;
        ensure!(batch.iter().all(|event| event.0 == key), "{when}: {batch:?}");
        reports += batch.len();
        handle();
    }
    ensure!(reports <= FEW, "{when}: {reports} reports of a state that lasts");
    let before = rig.stats();
    let batch = rig.wait(8, Some(Duration::from_millis(20)))?;
    ensure!(batch.is_empty(), "{when}: it is still reported: {batch:?}");
    let waits = rig.stats().calls.waits() - before.calls.waits();
    ensure!(waits <= 16, "{when}: it spins: {waits} waits");
    Ok(())
}

/// Waits for an event of a registration.
fn arrival(rig: &mut Rig, bench: &Bench, key: Key, what: Readiness, when: &str) -> Outcome {
    let batch = rig.wait(8, Some(bench.patience()))?;
    let found = batch.iter().any(|event| event.0 == key && event.1.contains(what));
    ensure!(found, "{when}: expected {what:?}, got {batch:?}");
    Ok(())
}

/// Registers a socket that was busy before its error began to last.
fn lasting(rig: &mut Rig, errors: &Errors, hint: Hint) -> Result<Key, Problem> {
    let key = rig.register(&errors.socket, auto(hint))?;
    for _ in 0..50 {
        errors.send()?;
        expect(rig, &[(key, IN)], "a datagram")?;
        errors.drain();
    }
    errors.fail()?;
    settle(rig, key, "an error", || errors.drain())?;
    Ok(key)
}

pub(super) fn a_lasting_error_costs_nothing(bench: &Bench) -> Outcome {
    for hint in [Hint::None, Hint::Busy, Hint::Idle] {
        let (mut rig, errors) = (bench.rig(), Errors::new()?);
        let key = lasting(&mut rig, &errors, hint)?;
        for _ in 0..2 {
            errors.send()?;
            arrival(&mut rig, bench, key, IN, "a datagram after the error")?;
            errors.drain();
            settle(&mut rig, key, "the error after a datagram", || errors.drain())?;
            errors.fail()?;
            arrival(&mut rig, bench, key, ERR, "one more error")?;
            settle(&mut rig, key, "several errors", || errors.drain())?;
        }
        // Once the queue is empty, the descriptor is as good as any.
        while sys::take_error(&errors.socket) {}
        for _ in 0..50 {
            errors.send()?;
            expect(&mut rig, &[(key, IN)], "a datagram without an error")?;
            errors.drain();
        }
        expect(&mut rig, &[], "drained")?;
        // And the next error that lasts is no other than the first.
        errors.fail()?;
        settle(&mut rig, key, "an error after a recovery", || errors.drain())?;
        errors.send()?;
        arrival(&mut rig, bench, key, IN, "a datagram after a recovery")?;
    }
    Ok(())
}

pub(super) fn a_lasting_hang_up_costs_nothing(bench: &Bench) -> Outcome {
    let both = Interest::READABLE | Interest::WRITABLE;
    let interests = [Interest::READABLE, Interest::WRITABLE, both];
    let nested = [false, true].into_iter().filter(|&nested| !nested || bench.capabilities().nest);
    for (is_nested, interest) in nested.flat_map(|nested| interests.map(|one| (nested, one))) {
        let mut rig = bench.rig();
        if is_nested {
            rig.nest()?;
        }
        let socket = TcpStream::from(sys::tcp_socket()?);
        let watch = Watch { interest, ..auto(Hint::Busy) };
        let key = rig.register(&socket, watch)?;
        settle(&mut rig, key, "not connected", || {})?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let SocketAddr::V4(address) = listener.local_addr()? else { unreachable!("it is IPv4") };
        sys::connect(&socket, address)?;
        let (mut peer, _) = listener.accept()?;
        if interest != both {
            rig.modify(key, both)?;
        }
        arrival(&mut rig, bench, key, Readiness::WRITABLE, "connected")?;
        for _ in 0..8 {
            std::io::Write::write_all(&mut peer, b"x")?;
            arrival(&mut rig, bench, key, IN, "a byte")?;
            sys::read(socket.as_raw_fd(), 8).map_err(std::io::Error::from_raw_os_error)?;
        }
    }
    Ok(())
}

pub(super) fn a_lasting_error_leaves_the_other_modes_alone(bench: &Bench) -> Outcome {
    let (mut rig, errors) = (bench.rig(), Errors::new()?);
    let key = lasting(&mut rig, &errors, Hint::Busy)?;
    rig.modify(key, Interest::NONE)?;
    errors.send()?;
    expect(&mut rig, &[], "disarmed")?;
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN | ERR)], "armed again")?;
    errors.drain();
    settle(&mut rig, key, "armed again", || errors.drain())?;
    rig.modify_watch(key, Interest::READABLE)?;
    for _ in 0..2 * FEW {
        expect(&mut rig, &[(key, ERR)], "a level")?;
    }
    rig.modify_watch(key, Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    expect(&mut rig, &[(key, ERR)], "once")?;
    expect(&mut rig, &[], "disarmed by its one event")?;
    rig.modify_watch(key, auto(Hint::None))?;
    settle(&mut rig, key, "whatever is cheapest", || errors.drain())?;
    errors.send()?;
    arrival(&mut rig, bench, key, IN, "a datagram after all that")
}

pub(super) fn a_registration_with_a_lasting_error_ends_like_any_other(bench: &Bench) -> Outcome {
    let (mut rig, errors) = (bench.rig(), Errors::new()?);
    let key = lasting(&mut rig, &errors, Hint::Busy)?;
    rig.deregister(key)?;
    errors.send()?;
    expect(&mut rig, &[], "deregistered")?;
    errors.drain();
    // Under another key, and with a close that leaves a duplicate to the kernel.
    let key = rig.register(&errors.socket, auto(Hint::Busy))?;
    settle(&mut rig, key, "registered again", || errors.drain())?;
    errors.send()?;
    arrival(&mut rig, bench, key, IN, "registered again")?;
    errors.drain();
    rig.deregister(key)?;
    let _numbers = numbers();
    let twin = sys::duplicate_from(&errors.socket, sys::HIGH)?;
    let owned = rig.own(twin, auto(Hint::Busy))?;
    let (key, number) = (owned.key(), owned.as_raw_fd());
    settle(&mut rig, key, "a duplicate", || errors.drain())?;
    rig.close(owned);
    errors.send()?;
    let (reader, mut writer) = std::io::pipe()?;
    let reader = sys::move_to(OwnedFd::from(reader), number)?;
    let stranger = rig.register(&reader, auto(Hint::Busy))?;
    for _ in 0..4 {
        expect(&mut rig, &[], "closed, and its number is another file's")?;
        errors.send()?;
    }
    std::io::Write::write_all(&mut writer, b"x")?;
    expect(&mut rig, &[(stranger, IN)], "the other file")
}
