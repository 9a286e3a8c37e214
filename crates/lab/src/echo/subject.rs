//! The servers, by name.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;

use Software::{Other, Over, Poller, Reader, Runtime};
use superpoll::BackendKind::{self, Adaptive, Epoll, Uring};

use crate::cold;
use crate::echo::drain::{self, serve};
use crate::echo::load::{Connections, Serve};
use crate::echo::ours;
use crate::error::{Error, Result};
use crate::go::Program;
use crate::loops::{EDGE, LEVEL, RawEpoll};
use crate::server::Control;
use crate::server::subject::{self, Entry, Subject, rival};
use crate::sys::descriptor;

#[cfg(feature = "rivals-rt")]
use crate::echo::{compio, monoio, smol, tokio};

/// The software of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Software {
    /// Our poller.
    Poller(BackendKind),
    /// Our poller, back-end adaptive over another cold set than epoll.
    Over(cold::Kind),
    /// Our batch reader.
    Reader(BackendKind),
    /// Our runtime.
    Runtime(BackendKind),
    /// Another loop or runtime.
    Other(Serve),
}

impl Software {
    /// Whether it can report how often it waited.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Poller(_) | Over(_) | Reader(_) | Runtime(_))
    }

    /// Serves until its connections are closed, or until the parent no longer asks for its
    /// counters.
    pub(crate) fn serve(self, connections: Connections, control: &mut Control) -> Result<()> {
        match self {
            Poller(backend) => {
                let builder = superpoll::Poller::builder().backend(backend);
                ours::serve_polled(connections, control, builder)
            }
            Over(kind) => {
                let builder = kind.builder(connections.sockets.len())?;
                ours::serve_polled(connections, control, builder)
            }
            Reader(backend) => ours::serve_read(connections, control, backend),
            Runtime(backend) => ours::serve(connections, control, backend),
            Other(serve) => serve(connections, control),
        }
    }
}

/// All servers, the yardstick first.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new(
        "raw-epoll",
        "a C programmer's epoll loop, level-triggered",
        Other(serve::<RawEpoll<LEVEL>>),
    ),
    Entry::new(
        "raw-epoll-et",
        "a C programmer's epoll loop, edge-triggered",
        Other(serve::<RawEpoll<EDGE>>),
    ),
    Entry::new(
        "raw-uring",
        "a C programmer's ring: multishot receives, sends with the next wait",
        Other(drain::serve_by_ring),
    )
    .unless(drain::refusal),
    Entry::new("superpoll-epoll", "our poller, back-end epoll", Poller(Epoll)),
    Entry::new("superpoll-adaptive", "our poller, back-end adaptive", Poller(Adaptive)),
    Entry::new("superpoll-uring", "our poller, back-end uring", Poller(Uring)).with_ring(),
    Entry::new("superpoll-reader-epoll", "our batch reader, back-end epoll", Reader(Epoll)),
    Entry::new("superpoll-reader-uring", "our batch reader, back-end uring", Reader(Uring))
        .with_ring(),
    Entry::new("superpoll-rt-epoll", "our runtime, back-end epoll", Runtime(Epoll)),
    Entry::new("superpoll-rt-adaptive", "our runtime, back-end adaptive", Runtime(Adaptive)),
    Entry::new("superpoll-rt-uring", "our runtime, back-end uring", Runtime(Uring)).with_ring(),
    rival!("rival-mio", "mio", "the crate mio", Other(serve::<crate::loops::Mio>)),
    rival!(
        "rival-polling",
        "polling",
        "the crate polling, level-triggered",
        Other(serve::<crate::sys::polling::Polling>)
    ),
    rival!(
        "rivals-c",
        "libevent",
        "the C library libevent: persistent events",
        Other(serve::<crate::sys::libevent::Libevent<drain::Sockets>>)
    ),
    rival!(
        "rivals-c",
        "libev",
        "the C library libev",
        Other(serve::<crate::sys::libev::Libev<drain::Sockets>>)
    ),
    rival!(
        "rivals-c",
        "libuv",
        "the C library libuv: poll handles",
        Other(serve::<crate::sys::libuv::Libuv<drain::Sockets>>)
    ),
    rival!(
        "rivals-rt",
        "tokio",
        "a task for each connection on tokio's current_thread runtime",
        Other(tokio::serve)
    ),
    rival!("rivals-rt", "smol", "a task for each on smol's LocalExecutor", Other(smol::serve)),
    rival!(
        "rivals-rt",
        "monoio-epoll",
        "a task for each on monoio, epoll",
        Other(monoio::serve_epoll)
    ),
    rival!(
        "rivals-rt",
        "monoio-uring",
        "a task for each on monoio, io_uring",
        Other(monoio::serve_uring)
    )
    .with_ring(),
    rival!(
        "rivals-rt",
        "compio-poll",
        "a task for each on compio, epoll",
        Other(compio::serve_poll)
    ),
    rival!(
        "rivals-rt",
        "compio-uring",
        "a task for each on compio, io_uring",
        Other(compio::serve_uring)
    )
    .with_ring(),
    Entry::new("go", "a goroutine for each on Go's netpoll, GOMAXPROCS=1", Other(serve_in_go))
        .unless(|| GO.refusal()),
];

/// Returns the requested servers, each once, and the yardstick; and a note with the reason for each
/// server that this system cannot run.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Subject<Software>>, Vec<String>)> {
    let names = format!("{},{}", ALL[0].name, names.unwrap_or("all"));
    subject::chosen(ALL, Some(&names), "no echo server")
}

// Go's netpoll with a goroutine for each connection: a separate program (`go/main.go`), which the
// server's process executes.

/// The server.
pub(super) static GO: Program = Program::new("echo", include_str!("go/main.go"));

/// Executes the program, which reports on the line whether it is ready. Returns only if that fails.
pub(super) fn serve_in_go(connections: Connections, control: &mut Control) -> Result<()> {
    let mut command = GO.command()?;
    let failed = |e| Error::system("starting an echo server in Go", e);
    let line = control.questions()?;
    let keep = |fd: RawFd| descriptor::keep_on_exec(fd).map(|()| fd.to_string());
    let sockets = connections.sockets.iter().map(|socket| keep(socket.as_raw_fd()));
    let sockets = sockets.collect::<std::io::Result<Vec<String>>>().map_err(failed)?;
    let line = keep(line.as_raw_fd()).map_err(failed)?;
    Err(failed(command.args([line, connections.room.to_string(), sockets.join(",")]).exec()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::channel::{self, Kind};
    use crate::echo::load::load;
    use crate::server::web::Load;

    #[test]
    fn every_server_sends_every_byte_back() {
        let (subjects, _) = chosen(None).unwrap();
        assert!(subjects.len() >= 8);
        // A subject that executes another program needs a process of its own; see below.
        for subject in subjects.iter().filter(|one| one.name != "go") {
            for (kind, count, bytes, requests) in
                [(Kind::Unix, 1, 1, 50), (Kind::Unix, 70, 4096, 500), (Kind::Tcp, 40, 64, 3000)]
            {
                let pairs = channel::socket_pairs(kind, count).unwrap();
                let (sockets, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                let (line, their_line) = UnixStream::pair().unwrap();
                let mut load = load(subject.name, theirs, bytes).unwrap();
                std::thread::scope(|scope| {
                    let server = scope.spawn(move || {
                        let connections = Connections { sockets, room: 2 * bytes };
                        subject.start.serve(connections, &mut Control::new(their_line))
                    });
                    let mut line = BufReader::new(line);
                    line.read_line(&mut String::new()).unwrap();
                    for _ in 0..2 {
                        assert!(load.go(requests).unwrap() > 0, "{}", subject.name);
                    }
                    drop((load, line));
                    server.join().unwrap().unwrap_or_else(|e| panic!("{}: {e}", subject.name));
                });
            }
        }
    }

    #[test]
    fn the_yardstick_always_takes_part_and_each_only_once() {
        let names = |text| -> Vec<&str> {
            chosen(text).unwrap().0.iter().map(|subject| subject.name).collect()
        };
        let two = ["raw-epoll", "superpoll-rt-epoll"];
        assert_eq!(names(Some("superpoll-rt-epoll, raw-epoll,superpoll-rt-epoll")), two);
        assert_eq!(names(None), names(Some("raw-epoll,all")));
        let error = chosen(Some("nginx")).unwrap_err().to_string();
        assert!(error.contains("\"nginx\"") && error.contains("superpoll-reader-uring"), "{error}");
    }
}
