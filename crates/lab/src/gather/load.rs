//! Messages at a pace, the loop that reads them, and the relay that forwards them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use superpoll::{BackendKind, Events, Interest, KeyMap, Poller};
use superpoll_gateway::relay::{Options, Relay};
use superpoll_rt::{Runtime, time};

use crate::error::{Doing, Error, Result};
use crate::random::Random;
use crate::sys::process;

/// A message: the time of its writing, in nanoseconds.
const MESSAGE: usize = size_of::<u64>();

/// How long a message may be under way before it is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A back-end, and the time for which its waits gather.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subject {
    pub backend: BackendKind,
    pub gather: Duration,
}

/// The messages of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub descriptors: usize,
    pub interval: Duration,
    pub messages: usize,
    pub seed: u64,
}

/// The figures of a round.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Processor time of the loop, in nanoseconds.
    pub processor_ns: u64,
    pub waits: u64,
    /// Of each message, in nanoseconds.
    pub late: Vec<f64>,
}

/// The messages that were read, as they are checked.
struct Inbox {
    /// The time in the last message, by descriptor.
    last: Vec<u64>,
    late: Vec<f64>,
}

impl Inbox {
    fn new(plan: &Plan) -> Inbox {
        Inbox { last: vec![0; plan.descriptors], late: Vec::with_capacity(plan.messages) }
    }

    /// Reads what has come on a descriptor.
    fn read(&mut self, place: usize, stream: &mut impl Read) -> Result<()> {
        let mut room = [0; 64 * MESSAGE];
        loop {
            let count = match stream.read(&mut room) {
                Ok(0) => return Err(wrong("the stream has ended")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Error::system("reading a message", error)),
            };
            let now = process::now();
            let (messages, rest) = room[..count].as_chunks::<MESSAGE>();
            if !rest.is_empty() {
                return Err(wrong("a message has come in part"));
            }
            for message in messages {
                let written = u64::from_ne_bytes(*message);
                if written <= self.last[place] || written > now {
                    return Err(wrong("a message is out of order or was not written"));
                }
                self.last[place] = written;
                self.late.push((now - written) as f64);
            }
            if count < room.len() {
                return Ok(());
            }
        }
    }
}

fn wrong(found: &str) -> Error {
    Error::Work { subject: "gather", found: found.to_owned() }
}

/// Writes the messages of a round, each at its time; calls a function while it waits for that.
fn write_all(
    plan: &Plan,
    writers: &mut [impl Write],
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut random = Random::new(plan.seed);
    let (start, interval) = (process::now(), plan.interval.as_nanos() as u64);
    for number in 0..plan.messages as u64 {
        while process::now() < start + number * interval {
            meanwhile()?;
        }
        let place = random.below(writers.len());
        let written = writers[place].write(&process::now().to_ne_bytes());
        if written.doing("writing a message")? != MESSAGE {
            return Err(wrong("a message was written in part"));
        }
    }
    Ok(())
}

/// Lets a loop over one poller read the messages.
pub(super) fn fan_in(subject: Subject, plan: &Plan) -> Result<Outcome> {
    let pairs: std::io::Result<Vec<_>> =
        (0..plan.descriptors).map(|_| UnixStream::pair()).collect();
    let (readers, mut writers): (Vec<_>, Vec<_>) =
        pairs.doing("opening sockets")?.into_iter().unzip();
    for reader in &readers {
        reader.set_nonblocking(true).doing("opening sockets")?;
    }
    thread::scope(|scope| {
        let (ready, begun) = mpsc::channel();
        let reading = scope.spawn(move || read_all(subject, plan, readers, &ready));
        // An error ends the thread, and is returned by it.
        if begun.recv().is_ok() {
            write_all(plan, &mut writers, || {
                std::hint::spin_loop();
                Ok(())
            })?;
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read_all(
    subject: Subject,
    plan: &Plan,
    mut readers: Vec<UnixStream>,
    ready: &mpsc::Sender<()>,
) -> Result<Outcome> {
    let mut poller = Poller::builder().backend(subject.backend).build()?;
    poller.stay_on_thread();
    poller.gather(subject.gather)?;
    let mut places = KeyMap::new();
    for (place, reader) in readers.iter().enumerate() {
        places.insert(poller.register(reader, Interest::READABLE)?, place);
    }
    let mut events = Events::with_limit(plan.descriptors);
    poller.wait(&mut events, Some(Duration::ZERO))?;
    let mut inbox = Inbox::new(plan);
    let (before, waits) = (process::thread_time(), poller.stats().waits);
    let _ = ready.send(());
    while inbox.late.len() < plan.messages {
        if poller.wait(&mut events, Some(PATIENCE))? == 0 {
            return Err(wrong("messages are missing"));
        }
        for event in &events {
            if let Some(&place) = places.get(event.key()) {
                inbox.read(place, &mut readers[place])?;
            }
        }
    }
    let processor_ns = process::thread_time() - before;
    Ok(Outcome { processor_ns, waits: poller.stats().waits - waits, late: inbox.late })
}

/// Lets our relay forward the messages.
pub(super) fn relay(subject: Subject, plan: &Plan) -> Result<Outcome> {
    let sink = TcpListener::bind("127.0.0.1:0").doing("listening")?;
    let to = sink.local_addr().doing("listening")?.to_string();
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let relaying = scope.spawn(move || -> Result<()> {
            let failed = |error: &dyn std::fmt::Display| wrong(&error.to_string());
            let builder = Runtime::builder().backend(subject.backend).gather(subject.gather);
            let runtime = builder.build().map_err(|error| failed(&error))?;
            let listen = "127.0.0.1:0".parse().map_err(|error| failed(&error))?;
            let to = to.parse().map_err(|error| failed(&error))?;
            let relay = Relay::start(&runtime, &listen, &to, Options::default(), |_| {});
            let relay = relay.map_err(|error| failed(&error))?;
            let _ = tell.send((relay.listening().to_string(), runtime.handle()));
            runtime.block_on(async {
                // Rare enough not to be seen in the figures.
                while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    time::sleep(Duration::from_millis(50)).await;
                }
            });
            Ok(())
        });
        let outcome = match told.recv() {
            Ok((address, handle)) => through(plan, &sink, &address, &handle),
            Err(_) => Err(wrong("the relay has not started")),
        };
        drop(end);
        relaying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        outcome
    })
}

/// Sends the messages through the relay, and reads them.
fn through(
    plan: &Plan,
    sink: &TcpListener,
    address: &str,
    handle: &superpoll_rt::Handle,
) -> Result<Outcome> {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..plan.descriptors {
        let client = TcpStream::connect(address).doing("connecting to the relay")?;
        client.set_nodelay(true).doing("connecting to the relay")?;
        let (server, _) = sink.accept().doing("accepting from the relay")?;
        server.set_nonblocking(true).doing("accepting from the relay")?;
        writers.push(client);
        readers.push(server);
    }
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build()?;
    let mut places = KeyMap::new();
    for (place, reader) in readers.iter().enumerate() {
        places.insert(poller.register(reader, Interest::READABLE)?, place);
    }
    let mut events = Events::with_limit(plan.descriptors);
    let mut inbox = Inbox::new(plan);
    let mut read = |inbox: &mut Inbox, timeout| -> Result<usize> {
        let found = poller.wait(&mut events, Some(timeout))?;
        for event in &events {
            if let Some(&place) = places.get(event.key()) {
                inbox.read(place, &mut readers[place])?;
            }
        }
        Ok(found)
    };
    let counted = || {
        let stats = || (process::thread_time(), superpoll_rt::Stats::current());
        let counted = futures_lite::future::block_on(handle.spawn(async move { stats() }));
        match counted {
            Ok((time, Ok(stats))) => Ok((time, stats.poller.waits)),
            _ => Err(wrong("the relay's engine does not answer")),
        }
    };
    let before = counted()?;
    write_all(plan, &mut writers, || read(&mut inbox, Duration::ZERO).map(drop))?;
    while inbox.late.len() < plan.messages {
        if read(&mut inbox, PATIENCE)? == 0 {
            return Err(wrong("messages are missing"));
        }
    }
    let after = counted()?;
    Ok(Outcome { processor_ns: after.0 - before.0, waits: after.1 - before.1, late: inbox.late })
}
