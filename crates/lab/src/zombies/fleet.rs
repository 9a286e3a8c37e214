//! A server with its zombies and its load, in as many processes as that takes.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use tempfile::TempDir;

use crate::channel::{self, Kind};
use crate::echo::connections::Connections;
use crate::error::{Error, Result};
use crate::server::generator::{Connection, Generator};
use crate::server::turns::Runner;
use crate::server::{Place, Server, memory};
use crate::sys::socket;
use crate::zombies::crowd::Crowd;
use crate::zombies::gateway;
use crate::zombies::point::{Point, share};
use crate::zombies::subject::{Entry, Work};

/// The size of an echo server's buffer: more than a request has.
const ROOM: usize = 512;

/// How connections to a server are made: by its name, from an address, to its ports in turn, so many.
pub type Connect<C> = fn(&'static str, Ipv4Addr, &[u16], usize) -> Result<Generator<C>>;

/// A server with its zombies and its load.
pub struct Live<C: Connection> {
    /// The silent ones.
    pub crowd: Crowd,
    /// The server, and those who ask it.
    pub runner: Runner<C>,
    /// What the kernel has more in use than before, by zombie, in bytes: slabs and pages for sockets.
    pub kernel_bytes_per_zombie: Option<f64>,
    /// The folders that are served.
    pub folders: Vec<TempDir>,
}

/// Starts a server, has its zombies connect and then those who ask, and has each zombie ask once. Both are spread over
/// the server's processes.
pub fn set_up<C: Connection>(
    entry: Entry,
    point: Point,
    active: usize,
    place: Place,
    connect: Connect<C>,
) -> Result<Live<C>> {
    let name = entry.name;
    let work = entry.work()?;
    let (mut servers, mut folders) = (Vec::new(), Vec::new());
    let (mut ports, mut zombies) = (Vec::new(), Vec::new());
    let before = memory::of_machine()?;
    for worker in 0..point.workers {
        let own = share(point.zombies, point.workers, worker);
        let total = own + share(active, point.workers, worker);
        let (server, port, folder) = begin(entry, work, total, place)?;
        servers.push(server);
        folders.extend(folder);
        ports.push(port);
        zombies.push((port, own));
    }
    let mut crowd = Crowd::gather(name, entry.family(), &zombies)?;
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

/// Starts one process that gets so many connections. Returns its port, and the folder that it serves, if it does.
fn begin(
    entry: Entry,
    work: Work,
    total: usize,
    place: Place,
) -> Result<(Server, u16, Option<TempDir>)> {
    let name = entry.name;
    if let Work::Gateway(backend) = work {
        let (server, port, folder) = gateway::start(name, place, backend)?;
        return Ok((server, port, Some(folder)));
    }
    let listener =
        listen().map_err(|e| Error::system("listening for a server's connections", e))?;
    let port = listener.local_addr().map_or(0, |address| address.port());
    let keeps = vec![listener.as_raw_fd()];
    let server = Server::begin(name, entry.counts, place, keeps, |control| match work {
        Work::Echo(serve) => {
            let sockets =
                accept(listener, total).map_err(|e| Error::system("accepting a connection", e))?;
            serve(Connections { kind: Kind::Tcp, sockets, room: ROOM }, control)
        }
        Work::Web(serve) => {
            listener
                .set_nonblocking(true)
                .map_err(|e| Error::system("setting a listener up", e))?;
            serve(listener, control)
        }
        Work::Gateway(_) => Ok(()),
    })?;
    Ok((server, port, None))
}

/// A listener whose connections inherit what all servers have alike.
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
