//! The servers, by name.

use superpoll::BackendKind;

use crate::by_name::by_name;
use crate::echo::connections::Serve;
use crate::echo::{go as echo_go, ours, poller, raw_epoll, raw_uring, reader};
use crate::error::{Error, Result};
use crate::go::{self, Program};
use crate::{options, programs};

#[cfg(feature = "rival-mio")]
use crate::echo::mio;
#[cfg(feature = "rival-polling")]
use crate::echo::polling;
#[cfg(feature = "rivals-rt")]
use crate::echo::{compio, monoio, smol, tokio};
#[cfg(feature = "rivals-c")]
use crate::echo::{libev, libevent, libuv};

/// A server by name.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its name in tables and records.
    pub name: &'static str,
    /// A description for the reader.
    pub about: &'static str,
    /// Whether it can report how often it waited.
    pub counts: bool,
    /// Returns why it cannot run here, if it needs a facility that not every system has.
    refusal: fn() -> Option<String>,
    /// The program that its process executes, if that is another program.
    program: Option<fn() -> &'static Program>,
    /// Its server function, or the feature without which it is not built in.
    serve: Result<Serve, &'static str>,
}

by_name!(Entry);

const fn other(name: &'static str, about: &'static str, serve: Serve) -> Entry {
    Entry { name, about, counts: false, refusal: || None, program: None, serve: Ok(serve) }
}

const fn ours(name: &'static str, about: &'static str, serve: Serve) -> Entry {
    Entry { counts: true, ..other(name, about, serve) }
}

const fn ring(name: &'static str, about: &'static str, serve: Serve) -> Entry {
    Entry { refusal: no_ring, ..ours(name, about, serve) }
}

fn no_ring() -> Option<String> {
    (!BackendKind::Uring.is_available()).then(crate::probe::why_no_uring)
}

fn no_go() -> Option<String> {
    programs::find("go").is_none().then(|| go::ABSENT.to_owned())
}

macro_rules! rival {
    ($feature:literal, $name:literal, $about:literal, $($serve:tt)*) => {
        Entry {
            #[cfg(not(feature = $feature))]
            serve: Err($feature),
            ..other(
                $name,
                $about,
                #[cfg(feature = $feature)]
                $($serve)*,
                #[cfg(not(feature = $feature))]
                raw_epoll::serve_level,
            )
        }
    };
}

/// All servers, the yardstick first.
pub(crate) const ALL: &[Entry] = &[
    other("raw-epoll", "a C programmer's epoll loop, level-triggered", raw_epoll::serve_level),
    other("raw-epoll-et", "a C programmer's epoll loop, edge-triggered", raw_epoll::serve_edge),
    Entry {
        refusal: raw_uring::refusal,
        ..other(
            "raw-uring",
            "a C programmer's ring: multishot receives, sends with the next wait",
            raw_uring::serve,
        )
    },
    ours("superpoll-epoll", "our poller, back-end epoll", |connections, control| {
        poller::serve(connections, control, BackendKind::Epoll)
    }),
    ours("superpoll-adaptive", "our poller, back-end adaptive", |connections, control| {
        poller::serve(connections, control, BackendKind::Adaptive)
    }),
    ring("superpoll-uring", "our poller, back-end uring", |connections, control| {
        poller::serve(connections, control, BackendKind::Uring)
    }),
    ours("superpoll-reader-epoll", "our batch reader, back-end epoll", |connections, control| {
        reader::serve(connections, control, BackendKind::Epoll)
    }),
    ring("superpoll-reader-uring", "our batch reader, back-end uring", |connections, control| {
        reader::serve(connections, control, BackendKind::Uring)
    }),
    ours("superpoll-rt-epoll", "our runtime, back-end epoll", |connections, control| {
        ours::serve(connections, control, BackendKind::Epoll)
    }),
    ours("superpoll-rt-adaptive", "our runtime, back-end adaptive", |connections, control| {
        ours::serve(connections, control, BackendKind::Adaptive)
    }),
    ring("superpoll-rt-uring", "our runtime, back-end uring", |connections, control| {
        ours::serve(connections, control, BackendKind::Uring)
    }),
    rival!("rival-mio", "mio", "the crate mio", mio::serve),
    rival!("rival-polling", "polling", "the crate polling, level-triggered", polling::serve),
    rival!("rivals-c", "libevent", "the C library libevent: persistent events", libevent::serve),
    rival!("rivals-c", "libev", "the C library libev", libev::serve),
    rival!("rivals-c", "libuv", "the C library libuv: poll handles", libuv::serve),
    rival!(
        "rivals-rt",
        "tokio",
        "a task for each connection on tokio's current_thread runtime",
        tokio::serve
    ),
    rival!("rivals-rt", "smol", "a task for each on smol's LocalExecutor", smol::serve),
    rival!("rivals-rt", "monoio-epoll", "a task for each on monoio, epoll", monoio::serve_epoll),
    Entry {
        refusal: no_ring,
        ..rival!(
            "rivals-rt",
            "monoio-uring",
            "a task for each on monoio, io_uring",
            monoio::serve_uring
        )
    },
    rival!("rivals-rt", "compio-poll", "a task for each on compio, epoll", compio::serve_poll),
    Entry {
        refusal: no_ring,
        ..rival!(
            "rivals-rt",
            "compio-uring",
            "a task for each on compio, io_uring",
            compio::serve_uring
        )
    },
    Entry {
        refusal: no_go,
        program: Some(|| &echo_go::PROGRAM),
        ..other("go", "a goroutine for each on Go's netpoll, GOMAXPROCS=1", echo_go::serve)
    },
];

impl Entry {
    /// Returns its server function.
    pub(crate) fn serve(&self) -> Result<Serve> {
        self.serve.map_err(|feature| {
            Error::usage(format!(
                "subject {} is not built in: build with --features {feature}",
                self.name
            ))
        })
    }

    /// Compiles its program, if that is compiled at run time.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.program.map_or(Ok(()), |program| program().build())
    }
}

/// Returns the requested servers, each once, and the yardstick; and a note with the reason for each
/// server that this system cannot run.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let names = format!("{},{}", ALL[0].name, names.unwrap_or("all"));
    let built_in = |entry: &Entry| entry.serve.is_ok();
    let chosen = options::named(&names, ALL, |entry| entry.name, built_in, "no echo server")?;
    for entry in &chosen {
        entry.serve()?;
    }
    Ok(options::without_refused(chosen, |entry| entry.name, |entry| (entry.refusal)()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::channel;
    use crate::channel::Kind;
    use crate::echo::connections::Connections;
    use crate::echo::load::load;
    use crate::server::Control;

    #[test]
    fn every_server_sends_every_byte_back() {
        let (entries, _) = chosen(None).unwrap();
        assert!(entries.len() >= 8);
        // A subject that executes another program needs a process of its own; see below.
        for entry in entries.iter().filter(|entry| entry.program.is_none()) {
            for (kind, count, bytes, requests) in
                [(Kind::Unix, 1, 1, 50), (Kind::Unix, 70, 4096, 500), (Kind::Tcp, 40, 64, 3000)]
            {
                let pairs = channel::socket_pairs(kind, count).unwrap();
                let (sockets, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
                let (line, their_line) = UnixStream::pair().unwrap();
                let mut load = load(entry.name, theirs, bytes).unwrap();
                std::thread::scope(|scope| {
                    let server = scope.spawn(move || {
                        let connections = Connections { kind, sockets, room: 2 * bytes };
                        entry.serve().unwrap()(connections, &mut Control::new(their_line))
                    });
                    let mut line = BufReader::new(line);
                    line.read_line(&mut String::new()).unwrap();
                    for _ in 0..2 {
                        assert!(load.go(requests).unwrap() > 0, "{}", entry.name);
                    }
                    drop((load, line));
                    server.join().unwrap().unwrap_or_else(|e| panic!("{}: {e}", entry.name));
                });
            }
        }
    }

    #[test]
    fn the_yardstick_always_takes_part_and_each_only_once() {
        let names = |text| -> Vec<&str> {
            chosen(text).unwrap().0.iter().map(|entry| entry.name).collect()
        };
        let two = ["raw-epoll", "superpoll-rt-epoll"];
        assert_eq!(names(Some("superpoll-rt-epoll, raw-epoll,superpoll-rt-epoll")), two);
        assert_eq!(names(None), names(Some("raw-epoll,all")));
        let error = chosen(Some("nginx")).unwrap_err().to_string();
        assert!(error.contains("\"nginx\"") && error.contains("superpoll-reader-uring"), "{error}");
        if let Err(error) = chosen(Some("tokio")) {
            assert!(error.to_string().contains("--features rivals-rt"), "{error}");
        }
    }

    #[test]
    fn refused_servers_are_left_out_with_a_reason() {
        let refuse = |entry: &Entry| entry.name.contains("uring").then(|| "no ring".to_owned());
        let (kept, notes) = options::without_refused(ALL.to_vec(), |entry| entry.name, refuse);
        assert!(kept.iter().all(|entry| !entry.name.contains("uring")));
        assert_eq!(kept.len() + notes.len(), ALL.len());
        assert_eq!(notes[0], "raw-uring left out: no ring");
    }
}
