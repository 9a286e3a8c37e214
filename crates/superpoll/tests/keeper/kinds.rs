//! Which kinds of descriptors leave, and that those that stay are reported as ever.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use super::*;

#[path = "../sys/kinds.rs"]
mod sys;

fn leaves() -> Vec<(&'static str, OwnedFd)> {
    let (socket, other) = UnixStream::pair().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    // No code uses their other ends, but those are not closed while the test runs.
    std::mem::forget((other, writer));
    vec![
        ("a connection", socket.into()),
        ("a datagram socket", std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()),
        ("a listener", std::net::TcpListener::bind("127.0.0.1:0").unwrap().into()),
        ("a pipe", reader.into()),
        ("an event counter", sys::eventfd()),
        ("a timer", sys::timerfd()),
    ]
}

fn stays() -> Vec<(&'static str, OwnedFd)> {
    let mut all = vec![
        ("a signalfd", sys::signalfd(libc::SIGUSR1)),
        ("an epoll set", sys::epoll()),
        ("an inotify instance", sys::inotify()),
        ("a process", sys::pidfd(std::process::id())),
    ];
    match File::options().read(true).write(true).open("/dev/ptmx") {
        Ok(terminal) => all.push(("a terminal", terminal.into())),
        Err(error) => eprintln!("skipped: there are no terminals here: {error}"),
    }
    all
}

#[test]
fn descriptors_whose_readiness_depends_on_the_caller_stay() {
    patiently(|| {
        let _one = one_at_a_time();
        let keeper = KeeperHandle::start(None);
        let control = keeper.control(1);
        for topology in
            [Topology::Thread(RESTLESS), Topology::Process(control.link().unwrap(), RESTLESS)]
        {
            let name = format!("{topology:?}");
            let mut poller = poller(topology);
            let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
            let (leaving, staying) = (leaves(), stays());
            let register = |all: &[(&'static str, OwnedFd)], poller: &mut Poller| -> Vec<Key> {
                all.iter().map(|(_, fd)| poller.register(fd, watch).unwrap()).collect()
            };
            let away = register(&leaving, &mut poller);
            let here = register(&staying, &mut poller);
            let mut events = Events::with_limit(64);
            until("they do not leave", || {
                poller.wait(&mut events, ZERO).unwrap();
                poller.stats().away.len >= away.len()
            });
            // Also if all leave at once.
            poller.move_all_to_keeper();
            poller.flush();
            for ((what, _), key) in leaving.iter().zip(&away) {
                assert!(poller.is_away(*key), "{what} stays here: {name}");
            }
            for ((what, _), key) in staying.iter().zip(&here) {
                assert!(!poller.is_away(*key), "{what} leaves: {name}");
            }
            // It is asked once of each.
            let before = poller.stats().calls;
            for _ in 0..10 {
                poller.wait(&mut events, ZERO).unwrap();
            }
            assert_eq!(poller.stats().calls.since(&before).fstat, 0, "{name}");
            // Those that stay are not asked for their kind again when more come and go.
            let mut written = File::from(leaving[4].1.try_clone().unwrap());
            written.write_all(&1u64.to_ne_bytes()).unwrap();
            poller.wait(&mut events, Some(PATIENCE)).unwrap();
            assert!(events.find(away[4]).is_some(), "{name}");
            poller.deregister(away[4]).unwrap();
            assert_eq!(poller.stats().keeper_lost, 0);
        }
    });
}

#[test]
fn a_signal_for_this_thread_is_reported_after_a_long_silence() {
    patiently(|| {
        let _one = one_at_a_time();
        let keeper = KeeperHandle::start(None);
        let control = keeper.control(1);
        for topology in
            [Topology::Thread(RESTLESS), Topology::Process(control.link().unwrap(), RESTLESS)]
        {
            let name = format!("{topology:?}");
            let mut poller = poller(topology);
            let signals = sys::signalfd(libc::SIGUSR1);
            let key = poller.register(&signals, Interest::READABLE).unwrap();
            let mut events = Events::with_limit(8);
            for _ in 0..10 {
                assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
            }
            poller.flush();
            sys::raise(libc::SIGUSR1);
            poller.wait(&mut events, Some(PATIENCE)).unwrap();
            assert!(events.find(key).is_some_and(|event| event.is_readable()), "{name}");
            // It is taken, so that the next signalfd has nothing to report.
            assert!(File::from(signals).read(&mut [0; 128]).unwrap() > 0);
        }
    });
}
