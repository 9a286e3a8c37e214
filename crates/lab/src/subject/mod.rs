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

use crate::by_name::by_name;
use crate::channel::Pairs;
use crate::error::{Error, Result};

mod batch;
mod floor;
#[cfg(feature = "rivals-c")]
mod libev;
#[cfg(feature = "rivals-c")]
mod libevent;
#[cfg(feature = "rivals-c")]
mod libuv;
#[cfg(feature = "rival-mio")]
mod mio;
mod ours;
#[cfg(feature = "rival-polling")]
mod polling;
mod raw_epoll;
mod raw_poll;
mod work;

pub(crate) use work::{ReadLog, Subject};

/// Makes a subject that watches the readers of these pairs.
pub(crate) type Build = fn(&Pairs) -> Result<Box<dyn Subject + '_>>;

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
    build: Build,
    /// The feature that it needs and that is not built in.
    missing: Option<&'static str>,
}

by_name!(Entry);

pub(crate) const fn entry(name: &'static str, about: &'static str, build: Build) -> Entry {
    Entry { name, about, adapts: false, small_numbers: false, rings: false, build, missing: None }
}

const fn adapting(name: &'static str, about: &'static str, build: Build) -> Entry {
    Entry { adapts: true, ..entry(name, about, build) }
}

#[cfg(not(all(feature = "rivals-c", feature = "rival-mio", feature = "rival-polling")))]
const fn absent(name: &'static str, about: &'static str, feature: &'static str) -> Entry {
    Entry { missing: Some(feature), ..entry(name, about, floor::build) }
}

/// All subjects, the yardsticks first.
pub(crate) const ALL: &[Entry] = &[
    entry("floor", "perfect knowledge: only the reads", floor::build),
    entry("raw-poll", "a C programmer's poll loop", raw_poll::build),
    entry("raw-epoll-lt", "a C programmer's epoll loop, level-triggered", raw_epoll::build_level),
    entry("raw-epoll-et", "a C programmer's epoll loop, edge-triggered", raw_epoll::build_edge),
    Entry { small_numbers: true, ..entry("select", "back-end select", ours::build_select) },
    entry("poll", "back-end poll", ours::build_poll),
    entry("epoll-lt", "back-end epoll, level-triggered", ours::build_epoll_level),
    entry("epoll-et", "back-end epoll, edge-triggered", ours::build_epoll_edge),
    entry("epoll-oneshot", "back-end epoll, armed again each time", ours::build_epoll_oneshot),
    Entry { rings: true, ..entry("uring", "back-end uring, edge-triggered", ours::build_uring) },
    adapting("adaptive", "back-end adaptive, either trigger", ours::build_adaptive),
    adapting("auto", "back-end auto: adaptive or uring, either trigger", ours::build_auto),
    adapting("adaptive-lt", "back-end adaptive, level-triggered", ours::build_adaptive_level),
    adapting(
        "adaptive-threshold",
        "back-end adaptive with one ratio per set",
        ours::build_adaptive_threshold,
    ),
    entry(
        "adaptive-fixed-hot",
        "back-end adaptive with everything in the array",
        ours::build_adaptive_fixed_hot,
    ),
    entry("batch-epoll", "batch reader on epoll: plain reads", batch::build_epoll),
    adapting("batch-adaptive", "batch reader on adaptive: plain reads", batch::build_adaptive),
    Entry {
        rings: true,
        ..entry("batch-uring", "batch reader on uring, everything watched", batch::build_watching)
    },
    Entry {
        rings: true,
        ..adapting(
            "adaptive-uring",
            "batch reader on uring, busy ones unwatched",
            batch::build_uring,
        )
    },
    #[cfg(feature = "rival-mio")]
    entry("mio", "the crate mio", mio::build),
    #[cfg(not(feature = "rival-mio"))]
    absent("mio", "the crate mio", "rival-mio"),
    #[cfg(feature = "rival-polling")]
    entry("polling", "the crate polling, level-triggered", polling::build),
    #[cfg(not(feature = "rival-polling"))]
    absent("polling", "the crate polling, level-triggered", "rival-polling"),
    #[cfg(feature = "rivals-c")]
    entry("libevent", "the C library libevent", libevent::build),
    #[cfg(not(feature = "rivals-c"))]
    absent("libevent", "the C library libevent", "rivals-c"),
    #[cfg(feature = "rivals-c")]
    entry("libev", "the C library libev", libev::build),
    #[cfg(not(feature = "rivals-c"))]
    absent("libev", "the C library libev", "rivals-c"),
    #[cfg(feature = "rivals-c")]
    entry("libuv", "the C library libuv", libuv::build),
    #[cfg(not(feature = "rivals-c"))]
    absent("libuv", "the C library libuv", "rivals-c"),
];

impl Entry {
    /// Returns whether it is built in.
    pub(crate) fn is_built_in(&self) -> bool {
        self.missing.is_none()
    }

    /// Returns the subject of this name.
    pub(crate) fn named(name: &str) -> Result<Entry> {
        Ok(crate::options::subjects(Some(name), &[])?[0])
    }

    /// Returns the same entry, if it is built in.
    pub(crate) fn present(self) -> Result<Entry> {
        match self.missing {
            None => Ok(self),
            Some(feature) => Err(Error::usage(format!(
                "subject {} is not built in: build with --features {feature}{}",
                self.name,
                if feature == "rivals-c" {
                    " (needs libevent-dev, libev-dev, libuv1-dev)"
                } else {
                    ""
                }
            ))),
        }
    }

    /// Returns whether it can watch these readers at all.
    pub(crate) fn suits(&self, pairs: &Pairs) -> bool {
        let works = !self.rings || superpoll::BackendKind::Uring.is_available();
        works && !(self.small_numbers && pairs.readers().iter().any(|&fd| fd >= 1024))
    }

    /// Builds the subject over these pairs.
    pub(crate) fn build<'a>(&self, pairs: &'a Pairs) -> Result<Box<dyn Subject + 'a>> {
        (self.build)(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Kind;
    use crate::sys::descriptor;

    #[test]
    fn every_subject_does_rounds_of_every_size_on_every_kind() {
        crate::channel::most_pairs();
        for kind in Kind::ALL {
            let pairs = Pairs::open(kind, 24).unwrap();
            for entry in ALL.iter().filter(|entry| entry.is_built_in()) {
                if !entry.suits(&pairs) {
                    assert!(entry.rings, "{}", entry.name);
                    continue;
                }
                let mut subject = entry.build(&pairs).unwrap();
                let mut log = ReadLog::new(pairs.len());
                for round in 0..120u32 {
                    let active: Vec<u32> =
                        (0..24).filter(|n| round % 24 == *n || n % (1 + round / 24) == 0).collect();
                    let byte = round as u8;
                    for &pair in &active {
                        assert!(descriptor::write_byte(pairs.writers()[pair as usize], byte));
                    }
                    subject.round(&active, &mut log).unwrap();
                    log.close(entry.name, &active, byte).unwrap();
                }
            }
        }
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
            match entry.missing {
                None => assert_eq!(Entry::named(entry.name).unwrap(), *entry),
                Some(feature) => {
                    let error = Entry::named(entry.name).unwrap_err().to_string();
                    assert!(error.contains(&format!("--features {feature}")), "{error}");
                }
            }
        }
    }
}
