//! Subscribers in a process of their own: one epoll set, and for each message one read and one
//! comparison by subscriber.
//!
//! They share a processor with the publisher and with the subscribers of other servers, which are
//! silent meanwhile. The set is a plain one of the kernel's: a load on our own poller would
//! measure one of the servers by a part of that server.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::fanout::message;
use crate::fanout::service::Publisher;
use crate::fanout::wire::{Subscription, Wire};
use crate::server::clients::Clients;
use crate::server::web;
use crate::sys::{descriptor, epoll, process};

/// A server that sends nothing for this long has lost a message.
const PATIENCE_MS: i32 = 20_000;

/// The most events that are taken from a wait.
const EVENTS: usize = 1024;

/// Bytes that one read takes at most.
const ROOM: usize = 1 << 16;

/// The orders for a process of subscribers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect so many subscribers more. The answer: nothing.
    Connect(usize),
    /// Receive the message with this number, at each subscriber. The answer: [`Received`].
    Receive(u64),
    /// Check that the server has sent nothing more, and has closed no connection. The answer:
    /// nothing.
    Check,
}

/// A message that all subscribers of a process have received.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Received {
    /// When the last one had it, on the monotonic clock.
    pub last_ns: u64,
    /// The processor time that the subscribers used.
    pub cpu_ns: u64,
}

/// Starts a process without subscribers. They will connect from this address, and receive messages
/// of so many bytes.
pub(super) fn start(
    subject: &'static str,
    from: Ipv4Addr,
    port: u16,
    subscription: Subscription,
    bytes: usize,
) -> Result<Clients> {
    let mut crowd: Option<Crowd> = None;
    Clients::start(subject, move |order: Order| {
        let crowd = match &mut crowd {
            Some(crowd) => crowd,
            // Descriptors that were made before the fork are closed by now.
            none => none.insert(Crowd::new(subject, from, port, subscription, bytes)?),
        };
        match order {
            Order::Connect(count) => crowd.connect(count).map(|()| Received::default()),
            Order::Receive(number) => crowd.receive(number),
            Order::Check => crowd.check().map(|()| Received::default()),
        }
    })
}

/// A function that takes bytes that a subscriber was sent, and returns the bytes to send.
type Take<'a> = dyn FnMut(&mut Subscriber, &[u8]) -> Result<Vec<u8>, String> + 'a;

struct Crowd {
    subject: &'static str,
    from: Ipv4Addr,
    port: u16,
    subscription: Subscription,
    bytes: usize,
    set: OwnedFd,
    subscribers: Vec<Subscriber>,
    events: Vec<epoll::Raw>,
    room: Vec<u8>,
}

struct Subscriber {
    socket: OwnedFd,
    wire: Wire,
    /// The number of the last message.
    last: u64,
}

impl Crowd {
    fn new(
        subject: &'static str,
        from: Ipv4Addr,
        port: u16,
        subscription: Subscription,
        bytes: usize,
    ) -> Result<Crowd> {
        Ok(Crowd {
            subject,
            from,
            port,
            subscription,
            bytes,
            set: epoll::create().doing("creating an epoll set")?,
            subscribers: Vec::new(),
            events: vec![epoll::Raw { events: 0, u64: 0 }; EVENTS],
            room: vec![0; ROOM],
        })
    }

    fn wrong(&self, found: impl Into<String>) -> Error {
        Error::Work { subject: self.subject, found: found.into() }
    }

    /// Connects subscribers, and waits until the server has accepted each.
    fn connect(&mut self, count: usize) -> Result<()> {
        let request = self.subscription.request();
        for _ in 0..count {
            let number = self.subscribers.len() as u64;
            let socket = web::connect_from(self.from, self.port).and_then(|socket| {
                epoll::add(&self.set, socket.as_raw_fd(), libc::EPOLLIN as u32, number)?;
                Ok(socket)
            });
            let socket = socket.doing(format_args!("connecting to {}", self.subject))?;
            send(&socket, &request).map_err(|found| self.wrong(found))?;
            let wire = Wire::new(&self.subscription);
            self.subscribers.push(Subscriber { socket, wire, last: 0 });
        }
        let mut waiting = self.subscribers.iter().filter(|one| !one.wire.has_begun()).count();
        while waiting > 0 {
            self.wait(PATIENCE_MS, &mut |subscriber, bytes| {
                let had_begun = subscriber.wire.has_begun();
                let early = &mut |_: &[u8]| Err("a message came before there was one".to_owned());
                let reply = subscriber.wire.take(bytes, early)?;
                waiting -= usize::from(!had_begun && subscriber.wire.has_begun());
                Ok(reply)
            })?;
        }
        Ok(())
    }

    /// Receives a message at each subscriber.
    fn receive(&mut self, number: u64) -> Result<Received> {
        let cpu = process::thread_time();
        let expected = message(number, self.bytes);
        let (mut waiting, mut last_ns) = (self.subscribers.len(), process::now());
        while waiting > 0 {
            self.wait(PATIENCE_MS, &mut |subscriber, bytes| {
                let last = &mut subscriber.last;
                let reply = subscriber.wire.take(bytes, &mut |text| {
                    if text != expected.as_bytes() || *last >= number {
                        return Err(unexpected(text, number, *last));
                    }
                    *last = number;
                    waiting -= 1;
                    Ok(())
                })?;
                if waiting == 0 {
                    last_ns = process::now();
                }
                Ok(reply)
            })?;
        }
        Ok(Received { last_ns, cpu_ns: process::thread_time() - cpu })
    }

    /// Checks that nothing has come since.
    fn check(&mut self) -> Result<()> {
        self.wait(0, &mut |subscriber, bytes| {
            let last = subscriber.last;
            subscriber.wire.take(bytes, &mut |text| Err(unexpected(text, last + 1, last)))
        })
    }

    /// Waits once for so many milliseconds, and calls `take` with each subscriber that was sent
    /// bytes. Sends the bytes that `take` returns. A wait of a
    /// positive time fails without an event.
    fn wait(&mut self, milliseconds: i32, take: &mut Take<'_>) -> Result<()> {
        let ready = epoll::wait_for(self.set.as_raw_fd(), &mut self.events, milliseconds);
        let ready = match usize::try_from(ready) {
            Ok(0) if milliseconds > 0 => {
                return Err(self.wrong("it sent some of its subscribers nothing for 20 s"));
            }
            Ok(ready) => ready,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => 0,
            Err(_) => return Err(Error::last("waiting for messages")),
        };
        for place in 0..ready {
            let number = self.events[place].u64 as usize;
            let subscriber = &mut self.subscribers[number];
            let outcome = match descriptor::read(subscriber.socket.as_raw_fd(), &mut self.room) {
                0 => Err("it closed the connection".to_owned()),
                count if count < 0 => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => Err(format!("the connection broke: {error}")),
                },
                count => take(subscriber, &self.room[..count as usize]).and_then(|reply| {
                    if reply.is_empty() { Ok(()) } else { send(&subscriber.socket, &reply) }
                }),
            };
            outcome.map_err(|found| self.wrong(format!("subscriber {number}: {found}")))?;
        }
        Ok(())
    }
}

/// Sends bytes, all of them at once.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<(), String> {
    match usize::try_from(descriptor::write(socket.as_raw_fd(), bytes)) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(count) => Err(format!("the connection took {count} of {} bytes", bytes.len())),
        Err(_) => Err(format!("the connection took no request: {}", io::Error::last_os_error())),
    }
}

/// Describes a message that is not the expected one.
fn unexpected(text: &[u8], number: u64, last: u64) -> String {
    let shown = String::from_utf8_lossy(&text[..text.len().min(60)]);
    match shown.split(' ').next().map(str::parse::<u64>) {
        Some(Ok(found)) if found != 0 && found <= last => {
            format!("message {found} came twice, or after message {last}")
        }
        Some(Ok(found)) if found > number => format!("message {found} came instead of {number}"),
        _ => format!("{} bytes came instead of message {number}: {shown:?}", text.len()),
    }
}

// The load of a server: its publisher, and the processes of its subscribers.

/// Between two looks at the states of a server's threads.
const PAUSE_NS: u64 = 500_000;

/// A server sleeps when it has been seen asleep this many times in a row.
const LOOKS: usize = 3;

/// A server that does not sleep for this long is not waited for any longer.
const PATIENCE_NS: u64 = 500_000_000;

/// Messages to a server before its pace is measured, and messages to measure its pace by.
const WARM_UP: u64 = 5;

/// A server's publisher and subscribers.
pub(super) struct Load {
    /// The processes of the subscribers.
    pub crowds: Vec<Clients>,
    publisher: Publisher,
    /// The processes of the server.
    pids: Vec<i32>,
    bytes: usize,
    /// The number of the last message.
    last: u64,
    /// The times until all subscribers had a message, for each call of `go`.
    times: Vec<Vec<f64>>,
    busy_ns: u64,
}

impl Load {
    /// Creates the load of a server with these processes, without subscribers.
    pub(super) fn new(
        publisher: Publisher,
        crowds: Vec<Clients>,
        pids: Vec<i32>,
        bytes: usize,
    ) -> Load {
        Load { crowds, publisher, pids, bytes, last: 0, times: Vec::new(), busy_ns: 0 }
    }

    /// Connects so many subscribers of a process, and waits until the server sleeps.
    pub(super) fn connect(&mut self, crowd: usize, count: usize) -> Result<()> {
        let _: Received = self.crowds[crowd].ask(&Order::Connect(count))?;
        until_asleep(&self.pids);
        Ok(())
    }

    /// Publishes a message. Returns the nanoseconds until all subscribers had it.
    fn deliver(&mut self) -> Result<f64> {
        self.last += 1;
        for crowd in &mut self.crowds {
            crowd.order(&Order::Receive(self.last))?;
        }
        let (begun, text) = (process::now(), message(self.last, self.bytes));
        self.publisher.publish(&text)?;
        let mut last_ns = begun;
        for crowd in &mut self.crowds {
            let received: Received = crowd.answer()?;
            last_ns = last_ns.max(received.last_ns);
            self.busy_ns += received.cpu_ns;
        }
        Ok((last_ns - begun) as f64)
    }

    /// Returns the times until all subscribers had a message, over the last so many rounds.
    pub(super) fn times(&self, rounds: usize) -> Vec<f64> {
        let first = self.times.len().saturating_sub(rounds);
        self.times[first..].concat()
    }
}

impl web::Load for Load {
    /// So that a hundred messages tell the slowest one in eleven rounds.
    const LEAST: u64 = 10;

    /// One message is under way.
    fn connections(&self) -> usize {
        1
    }

    fn go(&mut self, messages: u64) -> Result<u64> {
        let begun = process::now();
        self.busy_ns = 0;
        let mut times = Vec::new();
        for _ in 0..messages {
            times.push(self.deliver()?);
            // Long-polls are there again, and the next message finds a server at rest.
            until_asleep(&self.pids);
        }
        self.times.push(times);
        for crowd in &mut self.crowds {
            let _: Received = crowd.ask(&Order::Check)?;
        }
        Ok(process::now() - begun)
    }

    fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// A message takes so long that a few are enough.
    fn pilot(&mut self) -> Result<f64> {
        self.go(WARM_UP)?;
        Ok(self.go(WARM_UP)? as f64 / WARM_UP as f64)
    }
}

/// Waits until no thread of these processes runs. Processor time would not tell: the kernel
/// accounts that of a running thread at its next tick.
fn until_asleep(pids: &[i32]) {
    let begun = process::now();
    let mut looks = 0;
    while looks < LOOKS && process::now() - begun < PATIENCE_NS {
        process::sleep(PAUSE_NS);
        looks = if pids.iter().any(|&pid| is_running(pid)) { 0 } else { looks + 1 };
    }
}

/// Whether a thread of a process runs, or would if it had a processor.
fn is_running(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join("stat")).any(|file| {
        std::fs::read_to_string(file).is_ok_and(|stat| {
            stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R'))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::fanout::Transport;
    use crate::fanout::wire::Form;

    /// Two subscribers of events, which are sent these texts.
    fn received(one: &str, two: &str) -> Result<Received> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let path = "/events";
        let subscription = Subscription { transport: Transport::Events, path, form: Form::Plain };
        let mut crowd = Crowd::new("absent", Ipv4Addr::LOCALHOST, port, subscription, 16).unwrap();
        let server = std::thread::spawn(move || {
            let accept = || {
                let (mut stream, _) = listener.accept().unwrap();
                let count = stream.read(&mut [0; 1024]).unwrap();
                assert!(count > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                stream
            };
            [accept(), accept()]
        });
        crowd.connect(2).unwrap();
        let streams = server.join().unwrap();
        for (mut stream, text) in streams.iter().zip([one, two]) {
            Write::write_all(&mut stream, text.as_bytes()).unwrap();
        }
        let received = crowd.receive(1)?;
        crowd.check()?;
        drop(streams);
        // The ends may be on their way.
        let until = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            match crowd.check() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < until, "no end comes"),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(ended.contains("closed the connection"), "{ended}");
        Ok(received)
    }

    #[test]
    fn each_subscriber_receives_each_message_once_and_whole() {
        let event = |number| format!("data: {}\n\n", message(number, 16));
        let one = event(1);
        assert!(received(&one, &one).unwrap().last_ns > 0);
        for (text, part) in [
            (one.repeat(2), "message 1 came twice"),
            (event(2), "message 2 came instead of 1"),
            (one.clone() + &event(2), "message 2 came instead of"),
            (one.replace("hij", "hik").replace("bcd", "bce"), "16 bytes came instead of message 1"),
        ] {
            let error = received(&one, &text).unwrap_err().to_string();
            assert!(error.contains("subscriber 1") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_thread_that_runs_is_seen() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(is_running(pid) && !is_running(-1));
        let child = process::fork(|| process::sleep(60_000_000_000)).unwrap();
        until_asleep(&[child.pid()]);
        assert!(!is_running(child.pid()));
    }
}
