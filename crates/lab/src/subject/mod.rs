//! The subjects of a measurement: pollers of every make, each with its whole inner loop.
//!
//! A subject is built for a set of readers and then does rounds: it waits until all active readers
//! were reported, and reads one byte of each when it is reported. The loop over the events is in
//! the subject, so the harness adds one dynamic call per round, not per event, and adds it to all
//! alike. Each subject does one look-up per event, as its users would: the descriptor under the
//! number or key that the poller returns.
//!
//! All subjects request as many events per wait as there are descriptors, where users can choose
//! that number.

use superpoll::{BackendKind, Mode, Poller};
use work::Polled;
pub(crate) use work::{ReadLog, Subject};

use crate::by_name::by_name;
use crate::channel::Pairs;
use crate::cold;
use crate::error::{Error, Result};
#[cfg(feature = "rival-mio")]
use crate::loops::Mio;
use crate::loops::{EDGE, Kqueue, LEVEL, RawEpoll, RawPoll, Watch};
use crate::sys;
#[cfg(feature = "rival-polling")]
use crate::sys::polling::Polling;
#[cfg(feature = "rivals-c")]
use crate::sys::{libev::Libev, libevent::Libevent, libuv::Libuv};

pub(crate) mod ours;
mod work;

/// Makes a subject that watches the readers of these pairs.
pub(crate) type Build = fn(&Pairs) -> Result<Box<dyn Subject + '_>>;

/// How a subject is made.
#[derive(Clone, Copy)]
enum Make {
    /// By a function.
    By(Build),
    /// A poller of ours.
    Ours(BackendKind, Mode),
    /// A batch reader of ours, and whether it reads busy descriptors on speculation.
    Batch(BackendKind, bool),
    /// The adaptive back-end over another cold set than epoll.
    Over(cold::Kind),
}

/// A subject by name.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// A description for the reader.
    pub about: &'static str,
    /// Whether it needs rounds to find its placement.
    pub adapts: bool,
    /// Whether readers must have numbers below 1024.
    pub small_numbers: bool,
    /// Whether it needs io_uring.
    pub rings: bool,
    /// Returns why it is not here, if it is not.
    missing: fn() -> Option<String>,
    make: Make,
}

by_name!(Entry);

const fn made(name: &'static str, about: &'static str, make: Make) -> Entry {
    let missing = || None;
    Entry { name, about, adapts: false, small_numbers: false, rings: false, missing, make }
}

pub(crate) const fn entry(name: &'static str, about: &'static str, build: Build) -> Entry {
    made(name, about, Make::By(build))
}

const fn ours(name: &'static str, about: &'static str, kind: BackendKind, mode: Mode) -> Entry {
    Entry {
        adapts: matches!(kind, BackendKind::Adaptive | BackendKind::Auto),
        small_numbers: matches!(kind, BackendKind::Select),
        rings: matches!(kind, BackendKind::Uring),
        ..made(name, about, Make::Ours(kind, mode))
    }
}

/// A batch reader; it adapts if it leaves busy descriptors unwatched and reads them on speculation.
const fn batch(
    name: &'static str,
    about: &'static str,
    kind: BackendKind,
    speculates: bool,
) -> Entry {
    Entry {
        adapts: speculates || matches!(kind, BackendKind::Adaptive),
        rings: matches!(kind, BackendKind::Uring),
        ..made(name, about, Make::Batch(kind, speculates))
    }
}

/// The adaptive back-end over another cold set.
const fn over(name: &'static str, about: &'static str, kind: cold::Kind) -> Entry {
    let missing = match kind {
        cold::Kind::Kqueue => sys::libkqueue::missing,
        cold::Kind::Aio => sys::aio::missing,
        cold::Kind::Signals => || None,
    };
    Entry { adapts: true, missing, ..made(name, about, Make::Over(kind)) }
}

/// Makes the subject whose loop needs nothing but the readers.
fn polled<L: Watch<ReadLog> + 'static>(pairs: &Pairs) -> Result<Box<dyn Subject + '_>> {
    Ok(Box::new(Polled(L::watch(pairs.readers(), pairs.len())?)))
}

/// A subject that a feature builds in.
macro_rules! rival {
    ($name:literal, $about:literal, $feature:literal, $build:expr) => {{
        #[cfg(feature = $feature)]
        let entry = entry($name, $about, $build);
        #[cfg(not(feature = $feature))]
        let entry = Entry {
            missing: || {
                let needs = match $feature {
                    "rivals-c" => " (needs libevent-dev, libev-dev, libuv1-dev)",
                    _ => "",
                };
                Some(format!("it is not built in: build with --features {}{needs}", $feature))
            },
            ..entry($name, $about, |_| Err(Error::usage(concat!("without ", $feature))))
        };
        entry
    }};
}

/// All subjects, the yardsticks first.
pub(crate) const ALL: &[Entry] = &[
    entry("floor", "perfect knowledge: only the reads", work::build_floor),
    entry("raw-poll", "a C programmer's poll loop", polled::<RawPoll>),
    entry(
        "raw-epoll-lt",
        "a C programmer's epoll loop, level-triggered",
        polled::<RawEpoll<LEVEL>>,
    ),
    entry("raw-epoll-et", "a C programmer's epoll loop, edge-triggered", polled::<RawEpoll<EDGE>>),
    ours("select", "back-end select", BackendKind::Select, Mode::Level),
    ours("poll", "back-end poll", BackendKind::Poll, Mode::Level),
    ours("epoll-lt", "back-end epoll, level-triggered", BackendKind::Epoll, Mode::Level),
    ours("epoll-et", "back-end epoll, edge-triggered", BackendKind::Epoll, Mode::Edge),
    ours(
        "epoll-oneshot",
        "back-end epoll, armed again each time",
        BackendKind::Epoll,
        Mode::OneShot,
    ),
    ours("uring", "back-end uring, edge-triggered", BackendKind::Uring, Mode::Auto),
    ours("adaptive", "back-end adaptive, either trigger", BackendKind::Adaptive, Mode::Auto),
    ours("auto", "back-end auto: adaptive or uring, either trigger", BackendKind::Auto, Mode::Auto),
    ours("adaptive-lt", "back-end adaptive, level-triggered", BackendKind::Adaptive, Mode::Level),
    Entry {
        adapts: true,
        ..entry(
            "adaptive-threshold",
            "back-end adaptive with one ratio per set",
            ours::build_adaptive_threshold,
        )
    },
    Entry {
        adapts: true,
        ..entry("idle-server", "the same, thresholds of that name", ours::build_idle_server)
    },
    Entry {
        adapts: true,
        ..entry("media-server", "the same, thresholds of that name", ours::build_media_server)
    },
    entry(
        "adaptive-fixed-hot",
        "back-end adaptive with everything in the array",
        ours::build_adaptive_fixed_hot,
    ),
    over(
        "adaptive-signals",
        "back-end adaptive, idle ones watched by signals (F_SETSIG)",
        cold::Kind::Signals,
    ),
    over("adaptive-aio", "back-end adaptive, idle ones watched by Linux AIO", cold::Kind::Aio),
    over("adaptive-kqueue", "back-end adaptive, idle ones in libkqueue", cold::Kind::Kqueue),
    batch("batch-epoll", "batch reader on epoll: plain reads", BackendKind::Epoll, false),
    batch("batch-adaptive", "batch reader on adaptive: plain reads", BackendKind::Adaptive, false),
    batch("batch-uring", "batch reader on uring, everything watched", BackendKind::Uring, false),
    batch("adaptive-uring", "batch reader on uring, busy ones unwatched", BackendKind::Uring, true),
    rival!("mio", "the crate mio", "rival-mio", polled::<Mio>),
    rival!("polling", "the crate polling, level-triggered", "rival-polling", polled::<Polling>),
    rival!("libevent", "the C library libevent", "rivals-c", polled::<Libevent<ReadLog>>),
    rival!("libev", "the C library libev", "rivals-c", polled::<Libev<ReadLog>>),
    rival!("libuv", "the C library libuv", "rivals-c", polled::<Libuv<ReadLog>>),
    Entry {
        missing: sys::libkqueue::missing,
        ..entry("libkqueue", "the C library libkqueue, level-triggered", polled::<Kqueue>)
    },
];

impl Entry {
    /// Returns whether it is built in, with its library at hand.
    pub(crate) fn is_here(&self) -> bool {
        self.missing().is_none()
    }

    /// Returns why it is not here: its feature is not built in, or the library that it loads is not
    /// installed.
    pub(crate) fn missing(&self) -> Option<String> {
        (self.missing)()
    }

    /// Returns the subject of this name, which may be absent here.
    pub(crate) fn known(name: &str) -> Result<Entry> {
        let chosen = crate::options::named(name, ALL, |entry| entry.name, |_| true, "no subject");
        Ok(chosen?[0])
    }

    /// Returns the subject of this name.
    pub(crate) fn named(name: &str) -> Result<Entry> {
        Ok(crate::options::subjects(Some(name), &[])?[0])
    }

    /// Returns the same entry, if it is here.
    pub(crate) fn present(self) -> Result<Entry> {
        match self.missing() {
            Some(reason) => Err(Error::usage(format!("subject {}: {reason}", self.name))),
            None => Ok(self),
        }
    }

    /// Returns whether it can watch these readers at all.
    pub(crate) fn suits(&self, pairs: &Pairs) -> bool {
        let works = !self.rings || BackendKind::Uring.is_available();
        works && !(self.small_numbers && pairs.readers().iter().any(|&fd| fd >= 1024))
    }

    /// Builds the subject over these pairs.
    pub(crate) fn build<'a>(&self, pairs: &'a Pairs) -> Result<Box<dyn Subject + 'a>> {
        match self.make {
            Make::By(build) => build(pairs),
            Make::Ours(kind, mode) => ours::build(pairs, Poller::builder().backend(kind), mode),
            Make::Batch(kind, speculates) => ours::build_batch(pairs, kind, speculates),
            Make::Over(kind) => ours::build(pairs, kind.builder(pairs.len())?, Mode::Auto),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use superpoll_test_support::alone;

    use super::*;
    use crate::channel::Kind;
    use crate::sys::descriptor;

    /// Writes to the active pairs, lets a subject do its part of the round, and checks it.
    pub(crate) fn do_round(
        subject: &mut dyn Subject,
        pairs: &Pairs,
        active: &[u32],
        byte: u8,
        log: &mut ReadLog,
    ) {
        for &pair in active {
            assert!(descriptor::write_byte(pairs.writers()[pair as usize], byte));
        }
        subject.round(active, log).unwrap();
        log.close("test", active, byte).unwrap();
        pairs.answer(active).unwrap();
    }

    /// Lets a subject do rounds of every size; returns it.
    pub(crate) fn do_rounds<'a>(entry: &Entry, pairs: &'a Pairs) -> Box<dyn Subject + 'a> {
        let total = pairs.len() as u32;
        let (mut subject, mut log) = (entry.build(pairs).unwrap(), ReadLog::new(pairs.len()));
        for round in 0..5 * total {
            let is_active = |n: &u32| round % total == *n || n.is_multiple_of(1 + round / total);
            let active: Vec<u32> = (0..total).filter(is_active).collect();
            do_round(&mut *subject, pairs, &active, round as u8, &mut log);
        }
        subject
    }

    #[test]
    fn more_readers_than_a_call_reports_are_all_reported() {
        if let Some(reason) = sys::libkqueue::missing() {
            println!("skipped: {reason}");
            return;
        }
        crate::channel::most_pairs();
        let pairs = Pairs::open(Kind::Pipe, 600).unwrap();
        let mut subject = polled::<Kqueue>(&pairs).unwrap();
        let mut log = ReadLog::new(pairs.len());
        let all: Vec<u32> = (0..600).collect();
        for round in 0..5u8 {
            do_round(&mut *subject, &pairs, &all, round, &mut log);
        }
        assert_eq!(log.empty(), 0);
    }

    /// In a process of its own: other tests open thousands of descriptors for a moment, and
    /// `select` suits only small numbers.
    #[test]
    fn every_subject_does_rounds_of_every_size_on_every_kind() {
        alone(|| {
            crate::channel::most_pairs();
            for kind in Kind::ALL {
                let pairs = Pairs::open(kind, 24).unwrap();
                for entry in ALL.iter().filter(|entry| entry.is_here()) {
                    if !entry.suits(&pairs) {
                        assert!(entry.rings, "{}", entry.name);
                        continue;
                    }
                    do_rounds(entry, &pairs);
                }
            }
        });
    }

    #[test]
    fn a_log_detects_each_kind_of_wrong_work() {
        let pairs = Pairs::open(Kind::Pipe, 2).unwrap();
        let (readers, writers) = (pairs.readers(), pairs.writers());
        let found = |active: &[u32], reads: &[usize], written: &[(usize, u8)]| {
            let mut log = ReadLog::new(2);
            for &(pair, byte) in written {
                assert!(descriptor::write_byte(writers[pair], byte));
            }
            for &pair in reads {
                log.read(pair, readers[pair]);
            }
            let outcome = log.close("test", active, 5).map_err(|error| error.to_string());
            for &fd in readers {
                while descriptor::read_byte(fd).is_some() {}
            }
            outcome
        };
        assert_eq!(found(&[0, 1], &[0, 1], &[(0, 5), (1, 5)]), Ok(()));
        assert!(found(&[0, 1], &[0], &[(0, 5), (1, 5)]).unwrap_err().contains("1 read"));
        assert!(found(&[0, 1], &[0, 1], &[(0, 5), (1, 6)]).unwrap_err().contains("other bytes"));
        assert!(found(&[0, 1], &[0, 0], &[(0, 5), (0, 5)]).unwrap_err().contains("2 times"));
        assert!(found(&[0], &[1], &[(1, 5)]).unwrap_err().contains("pair 0 was read 0 times"));
        assert!(found(&[0], &[0, 1], &[(0, 5), (1, 5)]).unwrap_err().contains("2 read"));
    }

    #[test]
    fn unknown_and_absent_subjects_have_different_errors() {
        let error = Entry::named("kqueue").unwrap_err().to_string();
        assert!(error.contains("\"kqueue\"") && error.contains("raw-epoll-lt"), "{error}");
        for entry in ALL {
            match entry.missing() {
                Some(reason) => {
                    let error = Entry::named(entry.name).unwrap_err().to_string();
                    assert_eq!(error, format!("subject {}: {reason}", entry.name));
                    let has_feature = reason.contains("--features rival");
                    assert!(has_feature || entry.name.ends_with("kqueue"), "{error}");
                }
                None => assert_eq!(Entry::named(entry.name).unwrap(), *entry),
            }
        }
    }
}
