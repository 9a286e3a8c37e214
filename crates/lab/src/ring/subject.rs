//! The subjects that pass bytes on: our runtime, foreign runtimes, and the two yardsticks.
//!
//! A runtime's part is a [`Link`]: how it reads a pipe and writes the next. The tasks on top are
//! the same for all ([`pass`], [`drive`]), and compiled separately for each.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use superpoll::BackendKind;

use crate::error::{Error, Result};
use crate::go::Program;
use crate::loops::{LEVEL, RawEpoll};
use crate::ring::course::{Course, Pipes, Station, Trip, ends};
use crate::ring::passing::{self, build};
use crate::ring::renewed;
use crate::ring::tasks::{self, Built, Ring, numbers};
use crate::server::subject::{self, Entry};
use crate::sys::{descriptor, process};

#[cfg(feature = "rivals-rt")]
use crate::ring::{compio, monoio, smol, tokio};

type Build = fn(&Course, Pipes) -> Result<Box<dyn Ring>>;

/// How a subject gets its ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Make {
    /// Over given pipes.
    Over(Build),
    /// Ours, over given pipes.
    Ours(BackendKind),
    /// Ours, with pipes of its own making.
    Peers,
}

/// A subject.
pub(crate) type Subject = subject::Subject<Make>;

const fn over(name: &'static str, about: &'static str, build: Build) -> Entry<Make> {
    Entry::new(name, about, Make::Over(build))
}

const fn ours(name: &'static str, about: &'static str, kind: BackendKind) -> Entry<Make> {
    Entry::new(name, about, Make::Ours(kind))
}

macro_rules! rival {
    ($feature:literal, $name:literal, $about:literal, $build:expr) => {
        subject::rival!($feature, $name, $about, Make::Over($build))
    };
}

/// All subjects, the yardsticks first.
pub(crate) const ALL: &[Entry<Make>] = &[
    over("read+write", "perfect knowledge: only reads and writes", passing::build_floor),
    over("raw-epoll-lt", "a C programmer's epoll loop, level-triggered", build::<RawEpoll<LEVEL>>),
    ours("superpoll-rt-select", "our runtime, back-end select", BackendKind::Select),
    ours("superpoll-rt-poll", "our runtime, back-end poll", BackendKind::Poll),
    ours("superpoll-rt-epoll", "our runtime, back-end epoll", BackendKind::Epoll),
    ours("superpoll-rt-adaptive", "our runtime, back-end adaptive", BackendKind::Adaptive),
    ours("superpoll-rt-uring", "our runtime, back-end uring", BackendKind::Uring),
    Entry::new(
        "superpoll-rt-peers",
        "our runtime with pipes whose ends know each other",
        Make::Peers,
    ),
    over(
        "raw-epoll-renewed-deregister",
        "an epoll loop that deregisters each pipe, closes it and opens another one",
        renewed::plain_deregisters,
    ),
    over(
        "raw-epoll-renewed-close",
        "an epoll loop that closes each pipe and opens another one",
        renewed::plain_closes,
    ),
    over(
        "superpoll-epoll-renewed-deregister",
        "our poller, which deregisters each pipe before it is closed",
        renewed::ours_deregisters,
    ),
    over(
        "superpoll-epoll-renewed-close",
        "our poller, told that each pipe is closed",
        renewed::ours_closes,
    ),
    rival!("rival-mio", "mio", "the crate mio, edge-triggered", build::<crate::loops::Mio>),
    rival!(
        "rival-polling",
        "polling",
        "the crate polling, level-triggered",
        build::<crate::sys::polling::Polling>
    ),
    rival!(
        "rivals-c",
        "libevent",
        "the C library libevent",
        build::<crate::sys::libevent::Libevent<passing::Passing>>
    ),
    rival!(
        "rivals-c",
        "libev",
        "the C library libev",
        build::<crate::sys::libev::Libev<passing::Passing>>
    ),
    rival!(
        "rivals-c",
        "libuv",
        "the C library libuv",
        build::<crate::sys::libuv::Libuv<passing::Passing>>
    ),
    rival!("rivals-rt", "tokio", "tokio's current_thread runtime", tokio::build_current_thread),
    rival!("rivals-rt", "tokio-multi", "tokio's multi_thread runtime", tokio::build_multi_thread),
    rival!("rivals-rt", "smol", "smol's LocalExecutor on async-io", smol::build),
    rival!("rivals-rt", "monoio-epoll", "monoio on epoll", monoio::build_epoll),
    rival!("rivals-rt", "monoio-uring", "monoio on io_uring", monoio::build_uring),
    rival!("rivals-rt", "compio-poll", "compio on epoll", compio::build_poll),
    rival!("rivals-rt", "compio-uring", "compio on io_uring", compio::build_uring),
    Entry::new("go", "Go's netpoll, a goroutine for each, GOMAXPROCS=1", Make::Over(build_in_go))
        .unless(|| GO.refusal()),
];

fn build_over(
    course: &Course,
    make: impl FnOnce(&Course, Pipes) -> Result<Box<dyn Ring>>,
) -> Result<Built> {
    let pipes = course.pipes()?;
    let (readers, writers) = numbers(&pipes);
    Ok(Built { ring: make(course, pipes)?, readers, writers })
}

impl Make {
    /// Sets the ring up.
    pub(crate) fn build(self, course: &Course) -> Result<Built> {
        match self {
            Make::Over(make) => build_over(course, make),
            Make::Ours(kind) => {
                build_over(course, |course, pipes| tasks::build_ours(course, pipes, kind))
            }
            Make::Peers => tasks::build_peers(course),
        }
    }
}

/// Returns the requested subjects, each once, and a note for each that this system cannot run.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Subject>, Vec<String>)> {
    subject::chosen(ALL, names, "no subject of the ring")
}

// Go's netpoll with a goroutine for each station: a program of its own (`go/main.go`), which
// shares the pipes with this process.
//
// The time of a trip includes an order and its answer, some 20 µs. The program counts the bytes
// that each station has passed on, and reports them after the trip.

/// The program.
pub(super) static GO: Program = Program::new("ring", include_str!("go/main.go"));

struct Go {
    child: process::Child,
    line: BufReader<UnixStream>,
    stations: Vec<Station>,
    _pipes: Pipes,
}

pub(super) fn build_in_go(course: &Course, pipes: Pipes) -> Result<Box<dyn Ring>> {
    let failed = |e| Error::system("starting a ring in Go", e);
    let mut command = GO.command()?;
    let (line, theirs) = UnixStream::pair().map_err(failed)?;
    // Non-blocking, so that Go's netpoll waits for this socket as for all the other descriptors.
    theirs.set_nonblocking(true).map_err(failed)?;
    let keep = |fd: RawFd| descriptor::keep_on_exec(fd).map(|()| fd);
    let numbers = pipes
        .iter()
        .map(|(reader, writer)| Ok((keep(reader.as_raw_fd())?, keep(writer.as_raw_fd())?)));
    let numbers = numbers.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let each = ends(numbers).into_iter().map(|(reader, writer)| format!("{reader}:{writer}"));
    command.arg(keep(theirs.as_raw_fd()).map_err(failed)?.to_string());
    command.arg(each.collect::<Vec<_>>().join(","));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (child, ..) = process::spawn(&mut command).map_err(failed)?;
    drop(theirs);
    let stations = course.stations();
    let mut ring = Go { child, line: BufReader::new(line), stations, _pipes: pipes };
    ring.answer().map_err(failed)?;
    Ok(Box::new(ring))
}

impl Go {
    fn answer(&mut self) -> io::Result<String> {
        let mut text = String::new();
        match self.line.read_line(&mut text)? {
            0 => Err(io::Error::other("the program in Go ended by itself")),
            _ => Ok(text.trim_end().to_owned()),
        }
    }

    fn order(&mut self, order: &str) -> io::Result<String> {
        self.line.get_mut().write_all(order.as_bytes())?;
        self.answer()
    }
}

impl Ring for Go {
    fn go(&mut self, trip: Trip) -> io::Result<()> {
        match self.order(&format!("trip {} {}\n", trip.arrivals, trip.onward))?.as_str() {
            "done" => Ok(()),
            other => Err(io::Error::other(other.to_owned())),
        }
    }

    fn flush_reports(&mut self) -> io::Result<()> {
        let counts = self.order("counts\n")?;
        let counts: Vec<u64> = counts.split(' ').filter_map(|number| number.parse().ok()).collect();
        if counts.len() != 2 * self.stations.len() {
            return Err(io::Error::other("the program in Go does not report its counts"));
        }
        for (station, counts) in self.stations.iter().zip(counts.chunks(2)) {
            station.counted(counts[0], counts[1]);
        }
        Ok(())
    }

    fn elsewhere(&self) -> Option<i32> {
        Some(self.child.pid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::stage::Stage;

    #[test]
    fn every_subject_takes_every_byte_round_as_often_as_asked() {
        let (subjects, _) = chosen(None).unwrap();
        assert!(subjects.len() >= 8);
        for entry in &subjects {
            for (total, in_flight) in [(2, 1), (2, 2), (9, 1), (9, 4), (70, 70)] {
                let course = Course::new(total, in_flight);
                let mut stage = Stage::set_up(*entry, course.clone())
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
        let entry = chosen(Some("superpoll-rt-select")).unwrap().0[0];
        let stage = Stage::set_up(entry, Course::new(600, 1));
        let error = stage.and_then(|mut stage| stage.go(1)).unwrap_err().to_string();
        assert!(error.contains("too large for back-end select"), "{error}");
    }

    #[test]
    fn an_absent_subject_names_its_feature() {
        for name in subject::names(ALL) {
            match chosen(Some(name)) {
                Ok((found, notes)) => assert_eq!(found.len() + notes.len(), 1, "{name}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(name) && error.contains("--features rival"), "{error}");
                }
            }
        }
    }
}
