//! The subjects that read: a thread for each descriptor, and event loops. Those in one thread are
//! the loops of the other experiments.
//!
//! A subject is set up in a process of its own and then reads indefinitely: it takes each byte that
//! comes to the [`SharedCounters`]. It ends when a writer is gone.

use std::io;
use std::os::fd::RawFd;
use std::thread::{Builder, JoinHandle};

use futures_lite::{AsyncRead, AsyncReadExt};
use superpoll::{BackendKind, Mode, Poller};
use superpoll_rt::net::TcpStream;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{Runtime, pipe, spawn};

use crate::by_name::by_name;
use crate::channel::{Kind, Pairs};
use crate::error::{Doing, Error, Result};
use crate::loops::{LEVEL, Loop, RawEpoll, RawPoll, Watch};
use crate::options;
use crate::subject::ours::Ours;
use crate::sys::{descriptor, process};
use crate::threads::block::{Outcome, ROOM, SharedCounters};

type SetUp = fn(Input<'_>) -> Result<Reading>;

crate::by_name::named! {
    /// The kind of thread that wakes up when a byte comes.
    pub(super) enum Family {
        /// The thread of its descriptor, out of a read that blocks.
        Threads = "threads",
        /// A loop that waits for events.
        Events = "events",
    }
}

/// A subject by name.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    /// The kind of thread that wakes up.
    pub family: Family,
    /// Whether it needs rounds to find its placement.
    pub adapts: bool,
    /// Whether it differs from its neighbours only if it has several processors.
    pub spreads: bool,
    /// Sets the subject up.
    pub set_up: SetUp,
}

by_name!(Entry);

const fn events(name: &'static str, about: &'static str, set_up: SetUp) -> Entry {
    Entry { name, about, family: Family::Events, adapts: false, spreads: false, set_up }
}

/// The subject of the hypothesis: a thread for each descriptor.
pub(super) const THREADS: &str = "thread-per-descriptor";

/// All subjects.
pub(super) const ALL: &[Entry] = &[
    Entry {
        family: Family::Threads,
        ..events(THREADS, "a blocking read in a thread for each", set_up_threads)
    },
    Entry {
        spreads: true,
        ..events("pool-epoll", "a thread and an epoll set for each processor", set_up_pool)
    },
    events("raw-poll", "a C programmer's poll loop", |input| set_up_loop(input, watch::<RawPoll>)),
    events("raw-epoll-lt", "a C programmer's epoll loop, level-triggered", |input| {
        set_up_loop(input, watch::<RawEpoll<LEVEL>>)
    }),
    Entry {
        adapts: true,
        ..events("superpoll", "our poller, adaptive", |input| {
            set_up_loop(input, |pairs| {
                let poller = Poller::builder().backend(BackendKind::Adaptive).build()?;
                Ours::over(pairs, poller, Mode::Level)
            })
        })
    },
    Entry {
        adapts: true,
        ..events("superpoll-rt", "our runtime, adaptive, a task for each", set_up_tasks)
    },
];

/// Returns the subjects that a list with commas names; all if there is no list.
pub(super) fn chosen(text: Option<&str>) -> Result<Vec<Entry>> {
    options::named(
        text.unwrap_or("all"),
        ALL,
        |e| e.name,
        |_| true,
        "no subject of superpoll-lab threads",
    )
}

// The input of a subject, and its interface.

/// The input of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    /// Kind of the readers.
    pub kind: Kind,
    /// The pairs; the subject owns their readers.
    pub pairs: &'a Pairs,
    /// The counters that record the bytes.
    pub counters: &'a SharedCounters,
    /// Processors that the subject may run on.
    pub processors: usize,
}

/// A subject that is set up.
pub(crate) struct Reading {
    /// The number of its threads, including the calling one.
    pub threads: usize,
    /// Reads until the writers are gone.
    pub read_on: Box<dyn FnOnce() -> Result<()>>,
}

impl Reading {
    fn in_threads(
        threads: usize,
        read_on: impl FnOnce() -> Result<()> + 'static,
    ) -> Result<Reading> {
        Ok(Reading { threads, read_on: Box::new(read_on) })
    }
}

// A loop over events in one thread.

fn set_up_loop<L: Loop<SharedCounters> + 'static>(
    input: Input<'_>,
    build: impl FnOnce(&Pairs) -> Result<L>,
) -> Result<Reading> {
    do_not_block(input)?;
    let (run, counters) = (build(input.pairs)?, input.counters.clone());
    Reading::in_threads(1, || read_all(run, counters))
}

fn watch<L: Watch<SharedCounters>>(pairs: &Pairs) -> Result<L> {
    L::watch(pairs.readers(), pairs.len())
}

/// Has the readers not block, whatever the subject before has made of them.
fn do_not_block(input: Input<'_>) -> Result<()> {
    input.pairs.readers().iter().try_for_each(|&fd| {
        descriptor::set_blocking(fd, false).doing(format_args!("having descriptor {fd} not block"))
    })
}

fn read_all(mut run: impl Loop<SharedCounters>, mut counters: SharedCounters) -> Result<()> {
    while run.turn(&mut counters)? {}
    Ok(())
}

// As many threads as processors, each with its own epoll set over its share of the descriptors,
// like servers with worker threads. The shares are dealt out in turn, so that neighbours are on
// different threads.

fn set_up_pool(input: Input<'_>) -> Result<Reading> {
    do_not_block(input)?;
    let workers = input.processors.clamp(1, input.pairs.len().max(1));
    let (readers, room) = (input.pairs.readers(), input.pairs.len().div_ceil(workers));
    let share = |worker| RawEpoll::<LEVEL>::over(readers, room, |pair| pair % workers == worker);
    let mut others = Vec::with_capacity(workers - 1);
    for worker in 1..workers {
        let (share, counters) = (share(worker)?, input.counters.clone());
        let thread = Builder::new().spawn(|| read_all(share, counters));
        others.push(thread.doing("starting a worker thread")?);
    }
    let (own, counters) = (share(0)?, input.counters.clone());
    Reading::in_threads(workers, || {
        read_all(own, counters)?;
        join(others)
    })
}

/// Waits until these threads have ended. A thread that panicked has printed a message, and its
/// bytes are missing.
fn join(threads: Vec<JoinHandle<Result<()>>>) -> Result<()> {
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
}

// Our runtime in one thread: a task for each descriptor. A task reads like a thread per descriptor
// would, and yields instead of blocking. A runtime owns its descriptors, so each task has a
// duplicate of its descriptor.

fn set_up_tasks(input: Input<'_>) -> Result<Reading> {
    let runtime = Runtime::builder().backend(BackendKind::Adaptive).build()?;
    let start_all = async {
        let start = |(pair, &fd): (usize, &RawFd)| {
            let (own, counters) = (descriptor::duplicate(fd)?, input.counters.clone());
            io::Result::Ok(match input.kind {
                Kind::Pipe => spawn(read(pair, fd, counters, pipe::reader_from(own)?)),
                Kind::Unix => spawn(read(pair, fd, counters, UnixStream::from_std(own.into())?)),
                Kind::Tcp => spawn(read(pair, fd, counters, TcpStream::from_std(own.into())?)),
            })
        };
        input.pairs.readers().iter().enumerate().map(start).collect::<io::Result<Vec<_>>>()
    };
    let tasks = runtime.try_block_on(start_all)?.doing("handing a descriptor to the runtime")?;
    Reading::in_threads(1, move || {
        let ended = async {
            for task in tasks {
                // A task that panicked has printed a message, and its bytes are missing.
                let _ = task.await;
            }
        };
        runtime.try_block_on(ended).map_err(Error::from)
    })
}

async fn read(
    pair: usize,
    fd: RawFd,
    counters: SharedCounters,
    mut reader: impl AsyncRead + Unpin,
) {
    let mut buffer = [0; ROOM];
    loop {
        let outcome = match reader.read(&mut buffer).await {
            Ok(0) => Outcome::Ended,
            Ok(count) => counters.took(pair, &buffer[..count], fd),
            Err(error) => counters.broken(&error),
        };
        if outcome == Outcome::Ended {
            return;
        }
    }
}

// A thread for each descriptor, asleep in a read. There is no poller at all: the kernel's
// scheduler is the dispatcher.

/// Address space for a stack. Only the pages that are touched take memory: two or three.
const STACK: usize = 64 * 1024;

fn set_up_threads(input: Input<'_>) -> Result<Reading> {
    let readers = input.pairs.readers();
    let mut threads = Vec::with_capacity(readers.len());
    for (pair, &fd) in readers.iter().enumerate() {
        descriptor::set_blocking(fd, true).doing(format_args!("having descriptor {fd} block"))?;
        let counters = input.counters.clone();
        let read = move || {
            counters.arrive();
            while counters.read(pair, fd) != Outcome::Ended {}
            Ok(())
        };
        let thread = Builder::new().stack_size(STACK).spawn(read);
        threads.push(
            thread.inspect_err(|_| input.counters.has_threads(pair)).doing(format_args!(
                "starting thread {} of {}",
                pair + 1,
                readers.len()
            ))?,
        );
    }
    while input.counters.arrived() < threads.len() as u64 {
        process::sleep(200_000);
    }
    Reading::in_threads(threads.len() + 1, || join(threads))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::channel::{Kind, Pairs};
    use crate::sys::descriptor;
    use crate::threads::block::{ANSWER, SharedCounters};

    #[test]
    fn every_subject_reads_each_byte_once_on_every_kind_until_a_writer_is_gone() {
        for kind in Kind::ALL {
            for entry in ALL {
                // A subject owns its readers, because it may make them blocking.
                let mut pairs = Pairs::open(kind, 12).unwrap();
                let writers = pairs.take_writers();
                let pairs = &pairs;
                let (counters, wait, _wake) = SharedCounters::new(12, kind != Kind::Pipe).unwrap();
                std::thread::scope(|scope| {
                    let subject = scope.spawn(|| {
                        let input = Input { kind, pairs, counters: &counters, processors: 2 };
                        let reading = (entry.set_up)(input).unwrap();
                        assert!(reading.threads >= 1);
                        counters.wake_writer();
                        (reading.read_on)()
                    });
                    let done = || descriptor::read_byte(wait.as_raw_fd());
                    assert_eq!(done(), Some(b'.'), "{}", entry.name);
                    for round in 0..200u32 {
                        let active: Vec<u32> = (0..12)
                            .filter(|n| round % 12 == *n || n % (1 + round / 24) == 0)
                            .collect();
                        let byte = round as u8;
                        counters.expect(active.len(), false);
                        pairs.write(&active, byte).unwrap();
                        assert_eq!(done(), Some(b'.'), "{}", entry.name);
                        counters.close(entry.name, &active, byte).unwrap();
                        for &pair in active.iter().filter(|_| kind != Kind::Pipe) {
                            let answer = loop {
                                let fd = pairs.writers()[pair as usize];
                                if let Some(answer) = descriptor::read_byte(fd) {
                                    break answer;
                                }
                            };
                            assert_eq!(answer, byte.wrapping_add(ANSWER));
                        }
                    }
                    drop(writers);
                    subject.join().unwrap().unwrap();
                });
                assert!(counters.failure().is_none(), "{}: {:?}", entry.name, counters.failure());
            }
        }
    }

    #[test]
    fn subjects_are_chosen_by_name() {
        assert_eq!(chosen(None).unwrap(), ALL);
        assert_eq!(chosen(Some("raw-poll,all")).unwrap().len(), ALL.len());
        let error = chosen(Some("fibres")).unwrap_err().to_string();
        assert!(error.contains("\"fibres\"") && error.contains(THREADS), "{error}");
    }
}
