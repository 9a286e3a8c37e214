//! A server with its zombies and its load, in the number of processes that it needs.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use tempfile::TempDir;

use crate::channel::{self, Kind};
use crate::echo::connections::Connections;
use crate::error::{Doing, Result};
use crate::server::generator::{Connection, Generator};
use crate::server::turns::Runner;
use crate::server::{ProcessOptions, Server, memory};
use crate::sys::socket;
use crate::zombies::crowd::Crowd;
use crate::zombies::gateway;
use crate::zombies::point::{Point, share};
use crate::zombies::subject::{Subject, Work};

/// The size of an echo server's buffer: larger than a request.
const ROOM: usize = 512;

/// Makes connections to a server: by its name, from an address, to its ports in turn, as many as
/// given.
pub(super) type Connect<C> = fn(&'static str, Ipv4Addr, &[u16], usize) -> Result<Generator<C>>;

/// A server with its zombies and its load.
pub(super) struct Live<C: Connection> {
    /// The silent connections.
    pub crowd: Crowd,
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
    let mut crowd = Crowd::gather(name, work.family(), &zombies)?;
    let load = connect(name, Ipv4Addr::LOCALHOST, &ports, active)?;
    if !matches!(work, Work::Gateway(_)) {
        servers.iter_mut().try_for_each(Server::until_ready)?;
    }
    crowd.ask()?;
    let now = memory::of_machine()?;
    let taken = (now.slab + now.sockets) as f64 - (before.slab + before.sockets) as f64;
    let kernel_bytes_per_zombie = (point.zombies > 0).then(|| taken / point.zombies as f64);
    let runner = Runner::of_workers(name, servers, load)?;
    Ok(Live { crowd, runner, kernel_bytes_per_zombie, folders })
}

/// Starts one process for `connections` connections. Returns its port, and the folder that it
/// serves, if any.
fn begin(
    Subject { name, start: work, .. }: Subject,
    total: usize,
    process: ProcessOptions,
) -> Result<(Server, u16, Option<TempDir>)> {
    if let Work::Gateway(backend) = work {
        let (server, port, folder) = gateway::start(name, process, backend)?;
        return Ok((server, port, Some(folder)));
    }
    let listener = listen().doing("listening for a server's connections")?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let keeps = vec![listener.as_raw_fd()];
    let server = Server::begin(name, work.counts(), process, keeps, |control| match work {
        Work::Echo(software) => {
            let sockets = accept(listener, total).doing("accepting a connection")?;
            software.serve(Connections { kind: Kind::Tcp, sockets, room: ROOM }, control)
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

fn accept(listener: TcpListener, count: usize) -> std::io::Result<Vec<OwnedFd>> {
    let one = || {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(OwnedFd::from(stream))
    };
    (0..count).map(|_| one()).collect()
}
