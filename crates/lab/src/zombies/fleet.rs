//! A server with its zombies and its load, in the number of processes that it needs.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use Work::{Echo, Gateway, Web};
use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Select, Uring};
use tempfile::TempDir;

use crate::channel;
use crate::cold::Kind::{Aio, Kqueue, Signals};
use crate::echo::drain::{self, serve};
use crate::echo::load::Connections;
use crate::echo::subject::Software::{self, Other, Over, Poller, Runtime};
use crate::echo::{self};
use crate::error::{Doing, Result};
use crate::http::{self, BODY};
use crate::loops::{EDGE, LEVEL, RawEpoll};
use crate::server::clients;
use crate::server::crowd::{self, Crowd, Order, Settings};
use crate::server::subject::{self, Entry, rival};
use crate::server::trial::Runner;
use crate::server::web::{self, Connection, Generator};
use crate::server::wire::{ECHO, Opening};
use crate::server::{Control, ProcessOptions, Server, memory, program};
use crate::sys::{aio, libkqueue, socket};
use crate::zombies::trial::{Point, share};

/// The size of an echo server's buffer: larger than a request.
pub(super) const ROOM: usize = 512;

/// Makes connections to a server: by its name, from an address, to its ports in turn, as many as
/// given.
pub(super) type Connect<C> = fn(&'static str, Ipv4Addr, &[u16], usize) -> Result<Generator<C>>;

/// A server with its zombies and its load.
pub(super) struct Live<C: Connection> {
    /// The silent connections.
    pub crowds: Vec<Crowd>,
    /// The server, and the clients of its load.
    pub runner: Runner<Generator<C>>,
    /// The growth of the kernel's memory per zombie, in bytes: slabs and pages for sockets.
    pub kernel_bytes_per_zombie: Option<f64>,
    /// The folders that the servers serve.
    pub folders: Vec<TempDir>,
}

/// Starts a server, connects its zombies and then its busy clients, and makes each zombie send one
/// request. Both are spread over the server's processes.
pub(super) fn set_up<C: Connection>(
    subject: Subject,
    point: Point,
    active: usize,
    process: ProcessOptions,
    connect: Connect<C>,
) -> Result<Live<C>> {
    let Subject { name, start: work, .. } = subject;
    let (mut servers, mut folders) = (Vec::new(), Vec::new());
    let (mut ports, mut zombies) = (Vec::new(), Vec::new());
    let before = memory::of_machine()?;
    for worker in 0..point.workers {
        let own = share(point.zombies, point.workers, worker);
        let total = own + share(active, point.workers, worker);
        let (server, port, folder) = begin(subject, total, process)?;
        servers.push(server);
        folders.extend(folder);
        ports.push(port);
        zombies.push((port, own));
    }
    let mut crowds = gather(name, work.family(), &zombies)?;
    let load = connect(name, Ipv4Addr::LOCALHOST, &ports, active)?;
    if !matches!(work, Work::Gateway(_)) {
        servers.iter_mut().try_for_each(Server::until_ready)?;
    }
    // One of each process before all the remaining ones: a server that reads a file for its first
    // answer then has it in memory, and needs no descriptors for it when all zombies send at once.
    for count in [1, usize::MAX] {
        crowd::ask_all(&mut crowds, &Order::Ask { count, at_once: usize::MAX })?;
    }
    let now = memory::of_machine()?;
    let taken = (now.slab + now.sockets) as f64 - (before.slab + before.sockets) as f64;
    let kernel_bytes_per_zombie = (point.zombies > 0).then(|| taken / point.zombies as f64);
    let runner = Runner::of_workers(name, servers, load)?;
    Ok(Live { crowds, runner, kernel_bytes_per_zombie, folders })
}

/// Starts one process for `connections` connections. Returns its port, and the folder that it
/// serves, if any.
fn begin(
    Subject { name, start: work, .. }: Subject,
    total: usize,
    process: ProcessOptions,
) -> Result<(Server, u16, Option<TempDir>)> {
    if let Work::Gateway(backend) = work {
        // As a user would start it, with a folder of one file that must live as long.
        let folder = program::folder(name)?;
        let page = program::page(folder.path(), BODY)?;
        let config = program::configuration(&program::listener(0, None), &[page], program::PATIENT);
        let backend = ["--backend", backend.name()];
        let (server, port) =
            program::superpoll_serve(name, process, folder.path(), &config, &backend)?;
        return Ok((server, port, Some(folder)));
    }
    let listener = listen().doing("listening for a server's connections")?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let keeps = vec![listener.as_raw_fd()];
    let server = Server::begin(name, work.counts(), process, keeps, |control| match work {
        Work::Echo(software) => {
            let sockets = accept(&listener, total).doing("accepting a connection")?;
            software.serve(Connections { sockets, room: ROOM }, control)
        }
        Work::Web(serve) => {
            listener.set_nonblocking(true).doing("setting a listener up")?;
            serve(listener, control)
        }
        Work::Gateway(_) => Ok(()),
    })?;
    Ok((server, port, None))
}

/// A listener whose connections inherit the settings that all servers share.
fn listen() -> std::io::Result<TcpListener> {
    let listener = socket::listen(0, false)?;
    channel::plain_congestion(&listener);
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(false)?;
    Ok(listener)
}

pub(super) fn accept(listener: &TcpListener, count: usize) -> std::io::Result<Vec<OwnedFd>> {
    let one = || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(OwnedFd::from(stream))
    };
    (0..count).map(|_| one()).collect()
}

// The clients that have sent one request and are silent.

/// Makes the given number of connections to each of these ports, without a request. Each port has
/// the addresses to itself: 127.0.0.2 and up, one for each process.
fn gather(subject: &'static str, family: Family, ports: &[(u16, usize)]) -> Result<Vec<Crowd>> {
    let opening = match family {
        Family::Echo => Opening::Echo,
        Family::Web => Opening::Get(BODY),
    };
    let mut crowds = Vec::new();
    let each = clients::most();
    for &(port, zombies) in ports {
        for (number, first) in (0..zombies).step_by(each).enumerate() {
            let from = clients::address(number);
            let settings = Settings { subject, from, port, opening, bytes: 0, tls: None };
            let mut crowd = Crowd::start(settings)?;
            crowd.order(&Order::Connect(each.min(zombies - first)))?;
            crowds.push(crowd);
        }
    }
    crowds.iter_mut().try_for_each(|crowd| crowd.done().map(drop))?;
    Ok(crowds)
}

/// Connections to an echo server, to each of its ports in turn.
pub(super) fn echo_load(
    subject: &'static str,
    from: Ipv4Addr,
    ports: &[u16],
    count: usize,
) -> Result<Generator<echo::load::Connection>> {
    let ports = ports.iter().cycle().take(count);
    let sockets: std::io::Result<Vec<OwnedFd>> =
        ports.map(|&port| web::connect_from(from, port)).collect();
    let sockets = sockets.doing(format_args!("connecting {count} times to {subject}"))?;
    echo::load::load(subject, sockets, ECHO)
}

// The servers, by name.

crate::by_name::named! {
    /// The requests and the answers of a server.
    pub(crate) enum Family {
        /// Messages of 64 bytes that come back.
        Echo = "echo",
        /// Requests over HTTP/1, answered with thirteen bytes.
        Web = "web",
    }
}

/// How a server is started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// It gets its connections.
    Echo(Software),
    /// It accepts its connections.
    Web(fn(TcpListener, &mut Control) -> Result<()>),
    /// It is the command's own server.
    Gateway(BackendKind),
}

impl Work {
    /// Whether the server can say how often it waited.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Echo(software) if software.counts())
    }

    /// Whether the server may refuse more connections than it can watch.
    pub(crate) fn is_limited(self) -> bool {
        matches!(self, Echo(Poller(Select)))
    }

    /// Whether the server treats connections differently a while after they fell silent.
    pub(crate) fn parks(self) -> bool {
        matches!(self, Gateway(_))
    }

    /// Returns the family of its answers.
    pub(crate) fn family(self) -> Family {
        match self {
            Echo(_) => Family::Echo,
            Web(_) | Gateway(_) => Family::Web,
        }
    }
}

/// A server that takes part.
pub(crate) type Subject = subject::Subject<Work>;

const fn echo(name: &'static str, about: &'static str, software: Software) -> Entry<Work> {
    Entry::new(name, about, Echo(software))
}

const fn gateway(name: &'static str, about: &'static str, backend: BackendKind) -> Entry<Work> {
    Entry::new(name, about, Gateway(backend))
}

/// All servers, each family's yardstick first.
pub(crate) const ALL: &[Entry<Work>] = &[
    echo(
        "raw-epoll",
        "a C programmer's epoll loop, level-triggered",
        Other(serve::<RawEpoll<LEVEL>>),
    ),
    echo(
        "raw-epoll-et",
        "a C programmer's epoll loop, edge-triggered",
        Other(serve::<RawEpoll<EDGE>>),
    ),
    echo("raw-uring", "a C programmer's ring: multishot receives", Other(drain::serve_by_ring))
        .unless(drain::refusal),
    echo("superpoll-select", "our poller, back-end select", Poller(Select)),
    echo("superpoll-poll", "our poller, back-end poll", Poller(Poll)),
    echo("superpoll-epoll", "our poller, back-end epoll", Poller(Epoll)),
    echo("superpoll-adaptive", "our poller, back-end adaptive", Poller(Adaptive)),
    echo("superpoll-uring", "our poller, back-end uring", Poller(Uring)).with_ring(),
    echo("superpoll-rt-poll", "our runtime, back-end poll", Runtime(Poll)),
    echo("superpoll-rt-epoll", "our runtime, back-end epoll", Runtime(Epoll)),
    echo("superpoll-rt-adaptive", "our runtime, back-end adaptive", Runtime(Adaptive)),
    echo("superpoll-rt-uring", "our runtime, back-end uring", Runtime(Uring)).with_ring(),
    rival!(
        "rivals-rt",
        "tokio",
        "a task for each connection on tokio's current_thread runtime",
        Echo(Other(crate::echo::tokio::serve))
    ),
    Entry::new(
        "raw-epoll-http",
        "an epoll loop that answers canned bytes",
        Web(http::raw_epoll::serve),
    ),
    gateway("gateway-poll", "superpoll serve, back-end poll", Poll),
    gateway("gateway-epoll", "superpoll serve, back-end epoll", Epoll),
    gateway("gateway-adaptive", "superpoll serve, back-end adaptive", Adaptive),
    gateway("gateway-uring", "superpoll serve, back-end uring", Uring).with_ring(),
    rival!(
        "http",
        "hyper-tokio",
        "hyper on tokio's current_thread runtime",
        Web(http::tokio::serve)
    ),
    echo("superpoll-adaptive-signals", "the same, idle ones watched by signals", Over(Signals)),
    echo("superpoll-adaptive-aio", "the same, idle ones watched by Linux AIO", Over(Aio))
        .unless(aio::missing),
    echo("superpoll-adaptive-kqueue", "the same, idle ones in libkqueue", Over(Kqueue))
        .unless(libkqueue::missing),
];

/// The servers that take part without being named: all but the last three, over other cold sets.
const DEFAULTS: &[Entry<Work>] = ALL.split_at(ALL.len() - 3).0;

/// Returns the requested servers of each family, each once, with its yardstick first; none if no
/// other was requested. Without names these are the [`DEFAULTS`]. Also returns the reasons for
/// leaving out those that this system does not offer.
pub(crate) fn chosen(names: Option<&str>) -> Result<([Vec<Subject>; 2], Vec<String>)> {
    let all = if names.is_none() { DEFAULTS } else { ALL };
    let (chosen, notes) = subject::chosen(all, names, "no server")?;
    let mut families = [Vec::new(), Vec::new()];
    for (family, yardstick) in families.iter_mut().zip(["raw-epoll", "raw-epoll-http"]) {
        let yardstick = subject::chosen(ALL, Some(yardstick), "no server")?.0[0];
        let own = chosen.iter().filter(|one| one.start.family() == yardstick.start.family());
        if own.clone().next().is_some() {
            family.push(yardstick);
            family.extend(own.filter(|one| one.name != yardstick.name));
        }
    }
    Ok((families, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: Option<&str>) -> [Vec<&'static str>; 2] {
        chosen(text).unwrap().0.map(|family| family.iter().map(|entry| entry.name).collect())
    }

    #[test]
    fn a_family_has_its_yardstick_if_a_member_takes_part() {
        let [echo, web] = names(Some("superpoll-rt-epoll,raw-epoll"));
        assert_eq!((echo, web.len()), (vec!["raw-epoll", "superpoll-rt-epoll"], 0));
        let [echo, web] = names(Some("gateway-epoll"));
        assert_eq!((echo.len(), web), (0, vec!["raw-epoll-http", "gateway-epoll"]));
        let [echo, web] = names(None);
        assert!(echo.len() >= 8 && web.len() >= 4);
        let over = |name: &&&str| name.starts_with("superpoll-adaptive-");
        assert_eq!(echo.iter().filter(over).count(), 0);
        let [echo, _] = names(Some("all"));
        assert!(echo.iter().filter(over).count() >= 2);
    }
}
