//! The subjects that pass bytes on: our runtime, foreign runtimes, and the two yardsticks.
//!
//! A runtime's part is a [`Link`]: how it reads a pipe and writes the next. The tasks on top are
//! the same for all ([`pass`], [`drive`]), and compiled separately for each.

use superpoll::BackendKind;

use crate::by_name::by_name;
use crate::error::{Error, Result};
use crate::go::{self, Program};
use crate::programs;
use crate::ring::course::{Course, Pipes};
use crate::ring::tasks::{Built, Ring, numbers};
use crate::ring::{floor, go as ring_go, ours, raw_epoll};

#[cfg(feature = "rivals-c")]
use crate::ring::c_loops;
#[cfg(feature = "rival-mio")]
use crate::ring::mio;
#[cfg(feature = "rival-polling")]
use crate::ring::polling;
#[cfg(feature = "rivals-rt")]
use crate::ring::{compio, monoio, smol, tokio};

type Build = fn(&Course, Pipes) -> Result<Box<dyn Ring>>;

/// How a subject gets its ring.
#[derive(Clone, Copy)]
enum Make {
    /// Over given pipes.
    Over(Build),
    /// Ours, over given pipes.
    Ours(BackendKind),
    /// Ours, with pipes of its own making.
    Peers,
    /// Over given pipes, by a program that is compiled at run time.
    Program(fn() -> &'static Program, Build),
    /// Not at all: it needs this feature.
    #[cfg_attr(
        all(
            feature = "rivals-rt",
            feature = "rivals-c",
            feature = "rival-mio",
            feature = "rival-polling"
        ),
        expect(dead_code, reason = "all rivals are built in")
    )]
    Absent(&'static str),
}

/// A subject by name.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Its description, for lists.
    pub about: &'static str,
    make: Make,
}

by_name!(Entry);

const fn ours(name: &'static str, about: &'static str, kind: BackendKind) -> Entry {
    Entry { name, about, make: Make::Ours(kind) }
}

const fn over(name: &'static str, about: &'static str, build: Build) -> Entry {
    Entry { name, about, make: Make::Over(build) }
}

macro_rules! rival {
    ($feature:literal, $name:literal, $about:literal, $($build:tt)*) => {
        Entry {
            name: $name,
            about: $about,
            #[cfg(feature = $feature)]
            make: Make::Over($($build)*),
            #[cfg(not(feature = $feature))]
            make: Make::Absent($feature),
        }
    };
}

/// All subjects, the yardsticks first.
pub(crate) const ALL: &[Entry] = &[
    over("read+write", "perfect knowledge: only reads and writes", floor::build),
    over("raw-epoll-lt", "a C programmer's epoll loop, level-triggered", raw_epoll::build),
    ours("superpoll-rt-select", "our runtime, back-end select", BackendKind::Select),
    ours("superpoll-rt-poll", "our runtime, back-end poll", BackendKind::Poll),
    ours("superpoll-rt-epoll", "our runtime, back-end epoll", BackendKind::Epoll),
    ours("superpoll-rt-adaptive", "our runtime, back-end adaptive", BackendKind::Adaptive),
    ours("superpoll-rt-uring", "our runtime, back-end uring", BackendKind::Uring),
    Entry {
        name: "superpoll-rt-peers",
        about: "our runtime with pipes whose ends know each other",
        make: Make::Peers,
    },
    rival!("rival-mio", "mio", "the crate mio, edge-triggered", mio::build),
    rival!("rival-polling", "polling", "the crate polling, level-triggered", polling::build),
    rival!("rivals-c", "libevent", "the C library libevent", c_loops::build_libevent),
    rival!("rivals-c", "libev", "the C library libev", c_loops::build_libev),
    rival!("rivals-c", "libuv", "the C library libuv", c_loops::build_libuv),
    rival!("rivals-rt", "tokio", "tokio's current_thread runtime", tokio::build_current_thread),
    rival!("rivals-rt", "tokio-multi", "tokio's multi_thread runtime", tokio::build_multi_thread),
    rival!("rivals-rt", "smol", "smol's LocalExecutor on async-io", smol::build),
    rival!("rivals-rt", "monoio-epoll", "monoio on epoll", monoio::build_epoll),
    rival!("rivals-rt", "monoio-uring", "monoio on io_uring", monoio::build_uring),
    rival!("rivals-rt", "compio-poll", "compio on epoll", compio::build_poll),
    rival!("rivals-rt", "compio-uring", "compio on io_uring", compio::build_uring),
    Entry {
        name: "go",
        about: "Go's netpoll, a goroutine for each, GOMAXPROCS=1",
        make: Make::Program(|| &ring_go::PROGRAM, ring_go::build),
    },
];

fn absent(name: &str, feature: &str) -> Error {
    Error::usage(format!("subject {name} is not built in: build with --features {feature}"))
}

fn build_over(
    course: &Course,
    make: impl FnOnce(&Course, Pipes) -> Result<Box<dyn Ring>>,
) -> Result<Built> {
    let pipes = course.pipes()?;
    let (readers, writers) = numbers(&pipes);
    Ok(Built { ring: make(course, pipes)?, readers, writers })
}

impl Entry {
    /// Whether it is built in.
    pub(crate) fn is_built_in(&self) -> bool {
        !matches!(self.make, Make::Absent(_))
    }

    /// Returns why it cannot run here, if it needs a feature that not every system has.
    pub(crate) fn refusal(&self) -> Option<String> {
        (matches!(self.make, Make::Program(..)) && programs::find("go").is_none())
            .then(|| go::ABSENT.to_owned())
    }

    /// Compiles the programs that are compiled at run time.
    pub(crate) fn prepare(&self) -> Result<()> {
        match self.make {
            Make::Program(program, _) => program().build(),
            _ => Ok(()),
        }
    }

    /// Whether it is our runtime.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.make, Make::Ours(_) | Make::Peers)
    }

    /// Whether it takes part when our runtime is restricted to one back-end.
    pub(crate) fn suits(&self, backend: Option<BackendKind>) -> bool {
        match (self.make, backend) {
            (Make::Ours(own), Some(backend)) => own == backend,
            _ => true,
        }
    }

    /// Returns the entry itself, if it is built in.
    pub(crate) fn present(self) -> Result<Entry> {
        match self.make {
            Make::Absent(feature) => Err(absent(self.name, feature)),
            _ => Ok(self),
        }
    }

    /// Sets the ring up; our runtime with known ends takes `backend`.
    pub(crate) fn build(&self, course: &Course, backend: BackendKind) -> Result<Built> {
        match self.make {
            Make::Over(make) | Make::Program(_, make) => build_over(course, make),
            Make::Ours(kind) => {
                build_over(course, |course, pipes| ours::build(course, pipes, kind))
            }
            Make::Peers => ours::build_peers(course, backend),
            Make::Absent(feature) => Err(absent(self.name, feature)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::stage::Stage;

    #[test]
    fn every_subject_takes_every_byte_round_as_often_as_asked() {
        for entry in ALL.iter().filter(|entry| entry.is_built_in() && entry.prepare().is_ok()) {
            for (total, in_flight) in [(2, 1), (2, 2), (9, 1), (9, 4), (70, 70)] {
                let course = Course::new(total, in_flight);
                let mut stage = Stage::set_up(*entry, course.clone(), BackendKind::Epoll)
                    .unwrap_or_else(|error| panic!("{}: {error}", entry.name));
                for laps in [1, 1, 3] {
                    let slice = stage.go(laps).unwrap();
                    let hops = course.hops(laps);
                    assert!(slice.ns > 0 && slice.hops == hops);
                    assert!((1..=hops).contains(&slice.reads), "{}: {slice:?}", entry.name);
                    if in_flight == 1 {
                        assert_eq!(slice.reads, hops, "{}", entry.name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_back_end_that_cannot_watch_says_why() {
        crate::channel::most_pairs();
        let entry = *ALL.iter().find(|entry| entry.name == "superpoll-rt-select").unwrap();
        let stage = Stage::set_up(entry, Course::new(600, 1), BackendKind::Epoll);
        let error = stage.and_then(|mut stage| stage.go(1)).unwrap_err().to_string();
        assert!(error.contains("too large for back-end select"), "{error}");
    }

    #[test]
    fn an_absent_subject_names_its_feature() {
        for entry in ALL {
            match entry.make {
                Make::Absent(feature) => {
                    let error = entry.present().unwrap_err().to_string();
                    assert!(error.contains(&format!("--features {feature}")), "{error}");
                }
                _ => assert_eq!(entry.present().unwrap(), *entry),
            }
        }
    }

    #[test]
    fn a_back_end_leaves_one_of_ours_and_all_others() {
        let left: Vec<_> =
            ALL.iter().filter(|entry| entry.suits(Some(BackendKind::Poll))).collect();
        assert_eq!(left.len(), ALL.len() - 4);
        assert!(left.iter().any(|entry| entry.name == "superpoll-rt-poll"));
    }
}
