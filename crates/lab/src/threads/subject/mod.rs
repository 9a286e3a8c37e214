//! The subjects that read: a thread for each descriptor (`thread_each.rs`), and event loops. Those
//! in one thread (`one_thread.rs`) are the loops of the other experiments.
//!
//! A subject is set up in a process of its own and then reads indefinitely: it takes each byte that
//! comes to the [`SharedCounters`]. It ends when a writer is gone.

use superpoll::{BackendKind, Mode, Poller};

use crate::by_name::by_name;
use crate::error::Result;
use crate::options;
use crate::subject::ours::Ours;
use crate::subject::raw_epoll::{LEVEL, RawEpoll};
use crate::subject::raw_poll::RawPoll;
use crate::threads::subject::input::{Input, Reading};

pub(super) mod input;
mod one_thread;
mod pool;
mod runtime;
mod thread_each;

type SetUp = for<'a> fn(Input<'a>) -> Result<Box<dyn Reading + 'a>>;

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
        ..events(THREADS, "a blocking read in a thread for each", thread_each::set_up)
    },
    Entry {
        spreads: true,
        ..events("pool-epoll", "a thread and an epoll set for each processor", pool::set_up)
    },
    events("raw-poll", "a C programmer's poll loop", |input| {
        one_thread::set_up(input, |pairs| Ok(RawPoll::over(pairs)))
    }),
    events("raw-epoll-lt", "a C programmer's epoll loop, level-triggered", |input| {
        one_thread::set_up(input, |pairs| RawEpoll::over(pairs.readers(), LEVEL, |_| true))
    }),
    Entry {
        adapts: true,
        ..events("superpoll", "our poller, adaptive", |input| {
            one_thread::set_up(input, |pairs| {
                let poller = Poller::builder().backend(BackendKind::Adaptive).build()?;
                Ours::over(pairs, poller, Mode::Level)
            })
        })
    },
    Entry {
        adapts: true,
        ..events("superpoll-rt", "our runtime, adaptive, a task for each", runtime::set_up)
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::channel::Kind;
    use crate::channel::Pairs;
    use crate::sys::descriptor;
    use crate::threads::counters::ANSWER;
    use crate::threads::counters::SharedCounters;

    #[test]
    fn every_subject_reads_each_byte_once_on_every_kind_until_a_writer_is_gone() {
        for kind in Kind::ALL {
            for entry in ALL {
                // A subject owns its readers, because it may make them blocking.
                let mut pairs = Pairs::open(kind, 12).unwrap();
                let writers = pairs.take_writers();
                let pairs = &pairs;
                let (counters, pipe) = SharedCounters::new(12, kind != Kind::Pipe).unwrap();
                std::thread::scope(|scope| {
                    let subject = scope.spawn(|| {
                        let input = Input { kind, pairs, counters: &counters, processors: 2 };
                        let reading = (entry.set_up)(input).unwrap();
                        assert!(reading.threads() >= 1);
                        counters.set_up(crate::threads::counters::SetUpReport::default());
                        reading.read_on()
                    });
                    let done = || descriptor::read_byte(pipe.wait.as_raw_fd());
                    assert_eq!(done(), Some(b'.'), "{}", entry.name);
                    for round in 0..200u32 {
                        let active: Vec<u32> = (0..12)
                            .filter(|n| round % 12 == *n || n % (1 + round / 24) == 0)
                            .collect();
                        let byte = round as u8;
                        counters.expect(active.len(), false);
                        for &pair in &active {
                            assert!(descriptor::write_byte(pairs.writers()[pair as usize], byte));
                        }
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
