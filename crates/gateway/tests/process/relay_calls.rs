//! The system calls of relayed connections, by the relay's own counters, in several moods of
//! clients and upstream.
//!
//! Relay, clients and upstream take turns in one thread, so no clock decides how long an answer
//! takes: a mood is the number of the relay's turns between two of the others.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use superpoll_gateway::Inherited;
use superpoll_gateway::config::Config;
use superpoll_gateway::relay::{Options, Relay, calls};
use superpoll_gateway::upstream::Group;
use superpoll_rt::{BackendKind, Runtime, next_turn};
use superpoll_test_support::alone;

/// Connections at a time, where there are many.
const MANY: usize = 32;

const REQUEST: &[u8] = &[b'q'; 100];
const ANSWER: &[u8] = &[b'a'; 200];

/// Clients and an upstream that closes a connection with its answer.
struct Load {
    relay: String,
    at_a_time: usize,
    listener: TcpListener,
    clients: Vec<(TcpStream, Vec<u8>)>,
    upstreams: Vec<(TcpStream, Vec<u8>)>,
    done: usize,
}

/// Reads what is there. Returns whether that was all until the end.
fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    match stream.read_to_end(bytes) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

impl Load {
    /// Does all that can be done now.
    fn turn(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            self.upstreams.push((stream, Vec::new()));
        }
        self.upstreams.retain_mut(|(stream, bytes)| {
            assert!(!read(stream, bytes), "a relay passes on an end that nobody has made");
            if bytes.len() < REQUEST.len() {
                return true;
            }
            assert_eq!(bytes, REQUEST);
            stream.write_all(ANSWER).unwrap();
            false
        });
        self.clients.retain_mut(|(stream, bytes)| {
            if !read(stream, bytes) {
                return true;
            }
            assert_eq!(bytes, ANSWER);
            self.done += 1;
            false
        });
        while self.clients.len() < self.at_a_time {
            let mut stream = TcpStream::connect(&self.relay).unwrap();
            stream.write_all(REQUEST).unwrap();
            stream.set_nonblocking(true).unwrap();
            self.clients.push((stream, Vec::new()));
        }
    }
}

/// The calls of a connection.
#[derive(Debug)]
struct PerConnection {
    total: f64,
    epoll_ctl: f64,
    poll: f64,
}

struct Stage {
    runtime: Runtime,
    relay: Relay,
    load: Load,
}

/// The destination of a relay: an address, or an upstream with one server of that address.
#[derive(Clone, Copy, Debug)]
enum To {
    Address,
    Upstream,
}

impl Stage {
    fn new(backend: BackendKind, to: To, at_a_time: usize) -> Stage {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (listen, options) = ("127.0.0.1:0".parse().unwrap(), Options::default());
        let relay = match to {
            To::Address => {
                Relay::start(&runtime, &listen, &address.parse().unwrap(), options, |_| {})
            }
            To::Upstream => {
                let text = format!(
                    "[[listeners]]\naddress = \"127.0.0.1:0\"\nrelay.upstream = \"db\"\n\
                     [upstreams.db]\nservers = [{{ address = \"{address}\" }}]\n"
                );
                let config = Config::parse("test.toml", &text).unwrap();
                let group = Group::new("db", &config.upstreams["db"], None, Arc::new(|_| {}));
                let (mut inherited, group) = (Inherited::default(), group.unwrap());
                Relay::start_with_group(&runtime, &mut inherited, &listen, &group, options, |_| {})
            }
        };
        let relay = relay.unwrap();
        let load = Load {
            relay: relay.listening().to_string(),
            at_a_time,
            listener,
            clients: Vec::new(),
            upstreams: Vec::new(),
            done: 0,
        };
        Stage { runtime, relay, load }
    }

    /// Returns all calls so far, those that watch a descriptor, and the looks at several.
    fn calls(&self) -> [u64; 3] {
        let poller = self.runtime.stats()[0].poller.calls;
        let (mut all, mut epoll_ctl) = (calls().total(), 0);
        for (name, count) in poller.by_name() {
            all += count;
            epoll_ctl += if name.starts_with("epoll_ctl") { count } else { 0 };
        }
        [all, epoll_ctl, calls().poll]
    }

    /// Relays connections, with so many turns of the relay to each of the others.
    fn run(&mut self, connections: usize, turns: impl Fn(usize) -> usize) -> PerConnection {
        let (before, done) = (self.calls(), self.load.done);
        let mut round = 0;
        while self.load.done < done + connections {
            self.load.turn();
            for _ in 0..turns(round) {
                self.runtime.block_on(next_turn());
            }
            round += 1;
            assert!(round < 100 * connections, "{:?}", self.relay);
        }
        let connections = (self.load.done - done) as f64;
        let after = self.calls();
        let [total, epoll_ctl, poll] =
            [0, 1, 2].map(|index| (after[index] - before[index]) as f64 / connections);
        PerConnection { total, epoll_ctl, poll }
    }
}

/// Turns of the relay between two of the others: with one, all that the relay waits for has come
/// before its next turn; with four, the relay finds nothing to do and would sleep.
const EARLY: usize = 1;
const LATE: usize = 4;

/// A mood in which so many percent of the rounds are early, by chance that depends on nothing but
/// the round.
fn early_in(percent: usize) -> impl Fn(usize) -> usize {
    move |round| {
        let drawn = (round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if drawn % 100 < percent as u64 { EARLY } else { LATE }
    }
}

#[test]
fn the_calls_of_a_connection_follow_the_mood_and_come_back_with_it() {
    alone(|| {
        for (backend, to) in [
            (BackendKind::Epoll, To::Address),
            (BackendKind::Adaptive, To::Address),
            (BackendKind::Adaptive, To::Upstream),
        ] {
            let mut stage = Stage::new(backend, to, MANY);
            // The mood, and the most calls of a connection, in all and to watch its sockets.
            let moods = [("early", 100, 11.5, 0.1), ("late", 0, 13.5, 2.05)];
            let mixed = [("nine in ten", 90, 12.0, 0.7), ("six in ten", 60, 13.0, 1.6)];
            for (name, percent, most, most_watching) in moods.into_iter().chain(mixed) {
                // Until it has got used to the mood.
                stage.run(500, early_in(percent));
                let calls = stage.run(2000, early_in(percent));
                let fits = calls.total <= most && calls.epoll_ctl <= most_watching;
                assert!(fits, "{backend:?}, {to:?}, {name}: {calls:?}");
            }
            stage.run(1000, early_in(100));
            let calls = stage.run(1000, early_in(100));
            assert!(calls.total <= 11.5 && calls.epoll_ctl <= 0.1, "{backend:?}: {calls:?}");
        }
    });
}

#[test]
fn a_lone_connection_is_watched_because_looks_cost_more() {
    alone(|| {
        for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
            let mut stage = Stage::new(backend, To::Address, 1);
            for percent in [100, 0, 60] {
                stage.run(500, early_in(percent));
                let calls = stage.run(1000, early_in(percent));
                assert!(calls.poll <= 0.2, "{backend:?}, {percent} % early: {calls:?}");
            }
        }
    });
}
