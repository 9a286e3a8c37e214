//! Hang-ups, errors and half-closed streams.

use std::io::{Write, pipe};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use superpoll::{Interest, Mode, Readiness, Watch};

use super::{Outcome, ensure, expect, now};
use crate::bench::Bench;
use crate::sys;

const IN: Readiness = Readiness::READABLE;
const HUP: Readiness = Readiness::HANG_UP;

pub(super) fn hang_up_is_reported_to_the_armed(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, mut writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    writer.write_all(b"x")?;
    drop(writer);
    expect(&mut rig, &[(key, IN | HUP)], "hang-up with a byte unread")?;
    expect(&mut rig, &[(key, IN | HUP)], "and for as long as it lasts")?;
    let (left, right) = UnixStream::pair()?;
    let socket = rig.register(&left, Interest::READABLE)?;
    drop(right);
    expect(&mut rig, &[(key, IN | HUP), (socket, IN | HUP)], "a socket's peer is gone")
}

pub(super) fn hang_up_after_one_shot_does_not_spin(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, writer) = pipe()?;
    let key = rig.register(&reader, Watch::new(Interest::READABLE).mode(Mode::OneShot))?;
    drop(writer);
    expect(&mut rig, &[(key, HUP)], "hang-up")?;
    let before = rig.stats();
    for _ in 0..4 {
        expect(&mut rig, &[], "disarmed by its one event")?;
    }
    // A poller that keeps asking and filters the answers would wake up at once, again and again.
    let timeout = std::time::Duration::from_millis(20);
    let batch = rig.wait(8, Some(timeout))?;
    ensure!(batch.is_empty(), "disarmed: {batch:?}");
    let after = rig.stats();
    ensure!(
        after.calls.waits() - before.calls.waits() <= 16 && after.unwanted - before.unwanted <= 1,
        "it spins: {} waits, {} unwanted events",
        after.calls.waits() - before.calls.waits(),
        after.unwanted - before.unwanted
    );
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, HUP)], "armed again")
}

pub(super) fn hang_up_of_the_disarmed_does_not_spin(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, writer) = pipe()?;
    let key = rig.register(&reader, Interest::READABLE)?;
    expect(&mut rig, &[], "nothing yet")?;
    rig.modify(key, Interest::NONE)?;
    drop(writer);
    let before = rig.stats();
    let batch = rig.wait(8, Some(std::time::Duration::from_millis(20)))?;
    ensure!(batch.is_empty(), "disarmed: {batch:?}");
    for _ in 0..4 {
        expect(&mut rig, &[], "disarmed")?;
    }
    let after = rig.stats();
    ensure!(
        after.calls.waits() - before.calls.waits() <= 20 && after.unwanted - before.unwanted <= 2,
        "it spins: {} waits, {} unwanted events",
        after.calls.waits() - before.calls.waits(),
        after.unwanted - before.unwanted
    );
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, HUP)], "armed again")
}

pub(super) fn hang_up_alone_reaches_an_idle_descriptor(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (idle, writer) = pipe()?;
    let (busy, mut feed) = pipe()?;
    let key = rig.register(&idle, Watch::new(Interest::READABLE).hint(superpoll::Hint::Idle))?;
    let busy_key =
        rig.register(&busy, Watch::new(Interest::READABLE).hint(superpoll::Hint::Busy))?;
    feed.write_all(b"x")?;
    for _ in 0..8 {
        expect(&mut rig, &[(busy_key, IN)], "one busy, one idle")?;
    }
    drop(writer);
    expect(&mut rig, &[(key, HUP), (busy_key, IN)], "a hang-up without data")
}

pub(super) fn error_rings_while_armed_and_only_then(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (reader, writer) = pipe()?;
    let key = rig.register(&writer, Interest::WRITABLE)?;
    expect(&mut rig, &[(key, Readiness::WRITABLE)], "writable")?;
    drop(reader);
    for _ in 0..3 {
        let batch = now(&mut rig)?;
        ensure!(
            matches!(batch[..], [(found, readiness)] if found == key
                && readiness.contains(Readiness::ERROR)),
            "the reader is gone, and armed: expected an error, got {batch:?}"
        );
    }
    rig.modify(key, Interest::NONE)?;
    let before = rig.stats();
    for _ in 0..4 {
        expect(&mut rig, &[], "the reader is gone, and disarmed")?;
    }
    let unwanted = rig.stats().unwanted - before.unwanted;
    ensure!(unwanted <= 1, "the error still rings inside: {unwanted} unwanted events in 4 waits");
    Ok(())
}

pub(super) fn read_closed_is_reported_if_asked_for(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (asking, peer) = UnixStream::pair()?;
    let (other, other_peer) = UnixStream::pair()?;
    let key = rig.register(&asking, Interest::READABLE | Interest::READ_CLOSED)?;
    let other_key = rig.register(&other, Interest::READABLE)?;
    expect(&mut rig, &[], "open")?;
    peer.shutdown(Shutdown::Write)?;
    other_peer.shutdown(Shutdown::Write)?;
    let both = IN | Readiness::READ_CLOSED;
    expect(&mut rig, &[(key, both), (other_key, IN)], "the peers will write no more")?;
    rig.modify(key, Interest::READABLE)?;
    expect(&mut rig, &[(key, IN), (other_key, IN)], "no longer asked for")
}

pub(super) fn priority_needs_no_readable(bench: &Bench) -> Outcome {
    let modes = [Mode::Level, Mode::OneShot, Mode::Auto, Mode::Edge];
    let edge = bench.capabilities().edge;
    for mode in modes.into_iter().filter(|&mode| edge || mode != Mode::Edge) {
        for more in [Interest::NONE, Interest::READ_CLOSED, Interest::READABLE] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let stream = TcpStream::connect(listener.local_addr()?)?;
            let (mut peer, _) = listener.accept()?;
            let mut rig = bench.rig();
            let watch = Watch::new(Interest::PRIORITY | more).mode(mode);
            let key = rig.register(&stream, watch)?;
            expect(&mut rig, &[], "nothing has arrived")?;
            let asks_for_data = more == Interest::READABLE;
            if asks_for_data {
                // Most likely while the wait blocks, but that makes no difference.
                let told = std::thread::scope(|scope| {
                    scope.spawn(|| peer.write_all(b"x"));
                    rig.wait(8, Some(bench.patience()))
                })?;
                ensure!(told == [(key, IN)], "a byte that is not urgent, {mode:?}: {told:?}");
                rig.modify(key, watch.interest)?;
            }
            let told = std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    if !asks_for_data {
                        peer.write_all(b"x")?;
                        let fd = stream.as_raw_fd();
                        sys::poll(
                            &mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }],
                            -1,
                        )?;
                    }
                    sys::send_urgent(&peer)
                });
                // Data that is there is reported as a level until the urgent byte arrives.
                let told = loop {
                    let told = rig.wait(8, Some(bench.patience()))?;
                    if told != [(key, IN)] {
                        break told;
                    }
                    if mode == Mode::OneShot {
                        rig.modify(key, watch.interest)?;
                    }
                };
                sending.join().expect("it does not panic")?;
                Ok::<_, super::Problem>(told)
            })?;
            let urgent = Readiness::PRIORITY | if asks_for_data { IN } else { Readiness::NONE };
            ensure!(told == [(key, urgent)], "urgent data, {mode:?} and {more:?}: {told:?}");
        }
    }
    Ok(())
}

pub(super) fn read_closed_needs_no_readable(bench: &Bench) -> Outcome {
    let mut rig = bench.rig();
    let (asking, mut peer) = UnixStream::pair()?;
    let key = rig.register(&asking, Interest::READ_CLOSED)?;
    peer.write_all(b"x")?;
    expect(&mut rig, &[], "data is not asked for")?;
    peer.shutdown(Shutdown::Write)?;
    expect(&mut rig, &[(key, Readiness::READ_CLOSED)], "the peer will write no more")
}
