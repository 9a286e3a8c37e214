//! The methods of waiting for a connection: the part of one process.
//!
//! Each process waits, accepts once when it is woken, and waits again. The wake-up of a process
//! that finds nothing was useless. Our poller and our runtime run in processes like all the other
//! methods; the runtime also runs as the engines of one process. A method that waits, rather than
//! asking the kernel to accept, waits for duplicates of the listener as well, if there are any: an
//! extreme case of a server that listens on many addresses.

use std::cell::Cell;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Poll, Waker};

use superpoll::{BackendKind, Events, Interest, Mode, Poller, Watch};
use superpoll_rt::net::{ListenOptions, Listeners, Spread, TcpListener};
use superpoll_rt::{AsyncFd, Direction, Handle, Runtime};

use crate::by_name::by_name;
use crate::sys::poll::{self, Set};
pub(super) use crate::sys::uring::listener::Request;
use crate::sys::uring::listener::{Happened, Listening};
use crate::sys::{descriptor, epoll, socket};

type Stand = fn(Post, &Report) -> io::Result<()>;

/// A method of waiting, by name.
#[derive(Clone, Copy)]
pub(super) struct Method {
    /// Its name in tables and records.
    pub name: &'static str,
    /// Waits and accepts indefinitely; returns only on an error.
    pub stand: Stand,
    /// Whether the listener blocks.
    pub blocks: bool,
    /// Whether each process has a listener of its own.
    pub own_listener: bool,
    /// The most duplicates that the method can wait for.
    pub most_dups: usize,
    /// Whether the method needs io_uring.
    pub rings: bool,
    /// The engines' method of sharing connections, if the method runs engines of one process
    /// instead of processes.
    pub engines: Option<Spread>,
}

by_name!(Method);

const fn method(name: &'static str, stand: Stand) -> Method {
    let (blocks, own_listener, rings) = (false, false, false);
    Method { name, stand, blocks, own_listener, most_dups: usize::MAX, rings, engines: None }
}

const fn engines(name: &'static str, spread: Spread) -> Method {
    // Engines do not run in separate processes, and have no use for duplicates.
    Method { engines: Some(spread), most_dups: 0, ..method(name, |_, _| Ok(())) }
}

const fn ring(name: &'static str, stand: Stand) -> Method {
    Method { rings: true, ..method(name, stand) }
}

const fn ring_accept(name: &'static str, stand: Stand) -> Method {
    // Only a listener can take a request to accept, so there is no control.
    Method { blocks: true, most_dups: 0, ..ring(name, stand) }
}

/// The name of the control.
pub(super) const ALONE: &str = "epoll-alone";

/// All methods.
pub(super) const ALL: &[Method] = &[
    // `select` cannot watch numbers above 1023. Standard streams take three, the listener one, and
    // the writing end of a pipe one.
    Method { most_dups: 1019, ..method("select", stand_by_select) },
    method("poll", stand_by_poll),
    method("epoll", stand_by_epoll),
    method(ALONE, stand_by_alone),
    method("epoll-exclusive", |post, report| {
        stand_by_epoll_with(&post, report, libc::EPOLLEXCLUSIVE)
    }),
    Method { blocks: true, most_dups: 0, ..method("accept", stand_by_accept) },
    Method { own_listener: true, ..method("reuseport", stand_by_epoll) },
    ring("uring-poll", |post, report| {
        stand_by_uring(&post, report, Request::Poll { exclusive: false, stays: true })
    }),
    ring("uring-exclusive", |post, report| {
        stand_by_uring(&post, report, Request::Poll { exclusive: true, stays: true })
    }),
    ring("uring-exclusive-oneshot", |post, report| {
        stand_by_uring(&post, report, Request::Poll { exclusive: true, stays: false })
    }),
    ring_accept("uring-accept", |post, report| {
        stand_by_uring(&post, report, Request::Accept { stays: true })
    }),
    ring_accept("uring-accept-oneshot", |post, report| {
        stand_by_uring(&post, report, Request::Accept { stays: false })
    }),
    ring("superpoll-uring-exclusive", stand_by_poller_exclusive),
    method("superpoll-rt-shared", stand_by_ours),
    method("superpoll-rt-exclusive", stand_by_ours_exclusive),
    Method { own_listener: true, ..method("superpoll-rt-reuseport", stand_by_ours) },
    ring("superpoll-rt-uring-exclusive", stand_by_ours_uring),
    engines("engines-shared", Spread::Shared),
    engines("engines-exclusive", Spread::Exclusive),
    engines("engines-reuseport", Spread::ReusePort),
    engines("engines-hand-off", Spread::HandOff),
    Method { rings: true, ..engines("engines-uring-exclusive", Spread::Exclusive) },
];

impl Method {
    /// The back-end of our runtime's engines.
    pub(super) fn backend(&self) -> BackendKind {
        if self.rings { BackendKind::Uring } else { BackendKind::Epoll }
    }
}

// The resources of a waiting process, and its reports.

/// The resources of one waiting process.
#[derive(Debug)]
pub(crate) struct Post {
    /// The number of the process, from zero.
    pub number: usize,
    /// The socket to accept on.
    pub listener: RawFd,
    /// The further descriptors that it waits for: duplicates of the listener, or of a pipe.
    pub besides: Vec<OwnedFd>,
    /// Whether these are duplicates of a pipe.
    pub of_pipe: bool,
}

impl Post {
    /// All descriptors to wait for.
    pub(crate) fn all(&self) -> impl Iterator<Item = RawFd> {
        std::iter::once(self.listener).chain(self.besides.iter().map(AsRawFd::as_raw_fd))
    }

    /// Opens `dups` further descriptors: duplicates of the listener, or of a pipe that stays empty.
    pub(crate) fn take_up(
        number: usize,
        listener: RawFd,
        dups: usize,
        of_pipe: bool,
    ) -> io::Result<Post> {
        let mut besides = Vec::with_capacity(dups);
        let mut origin = listener;
        if of_pipe && dups > 0 {
            let (reader, writer) = descriptor::pipe()?;
            origin = reader.as_raw_fd();
            besides.push(reader);
            // A pipe without writers would be ready, so the writing end stays open as long as the
            // process lives.
            std::mem::forget(writer);
        }
        while besides.len() < dups {
            besides.push(descriptor::duplicate(origin)?);
        }
        Ok(Post { number, listener, besides, of_pipe })
    }
}

/// The reports of a process: when it is set up, and for each connection that it has accepted.
#[derive(Clone)]
pub(crate) struct Report {
    /// The process is about to wait for the first time.
    pub ready: Rc<dyn Fn()>,
    /// The process has accepted a connection.
    pub accepted: Rc<dyn Fn()>,
}

/// Accepts the connection that woke the process, unless another process was faster.
pub(crate) fn accept_one(post: &Post, report: &Report) {
    if socket::accept_and_close(post.listener) {
        (report.accepted)();
    }
}

// A blocking `accept(2)`: since before `epoll` existed, the kernel has woken one waiter at a time.

fn stand_by_accept(post: Post, report: &Report) -> io::Result<()> {
    (report.ready)();
    loop {
        if !socket::accept_and_close(post.listener) {
            return Err(io::Error::last_os_error());
        }
        (report.accepted)();
    }
}

// The control: one process waits for connections with `epoll`, and all the remaining processes
// wait for something else that never comes. A connection finds the same number of sleeping
// processes as in a herd, and the client has spent the same time checking whether they sleep.

fn stand_by_alone(post: Post, report: &Report) -> io::Result<()> {
    if post.number == 0 {
        return stand_by_epoll(post, report);
    }
    drop(post);
    let (reader, _writer) = descriptor::pipe()?;
    wait_in_vain(&reader, report)
}

// `poll(2)`: like `select`, without its limit.

fn stand_by_poll(post: Post, report: &Report) -> io::Result<()> {
    let mut set: Vec<libc::pollfd> =
        post.all().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    (report.ready)();
    loop {
        if poll::wait(&mut set) < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(&post, report);
    }
}

// `select(2)`: it joins all wait queues before it sleeps, and leaves them when it is woken.

fn stand_by_select(post: Post, report: &Report) -> io::Result<()> {
    let mut set = Set::new();
    if !post.all().all(|fd| set.add(fd)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    (report.ready)();
    loop {
        if set.wait() < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(&post, report);
    }
}

// `epoll(7)`, level-triggered: registered once, woken with all the other waiters or, with
// `EPOLLEXCLUSIVE`, alone.

fn stand_by_epoll(post: Post, report: &Report) -> io::Result<()> {
    stand_by_epoll_with(&post, report, 0)
}

/// Waits with these flags besides the interest.
fn stand_by_epoll_with(post: &Post, report: &Report, flags: i32) -> io::Result<()> {
    let set = epoll::create()?;
    for fd in post.all() {
        epoll::add(&set, fd, (libc::EPOLLIN | flags) as u32, 0)?;
    }
    let mut events = [epoll::Raw { events: 0, u64: 0 }; 64];
    (report.ready)();
    loop {
        if epoll::wait(set.as_raw_fd(), &mut events) < 0 {
            return Err(io::Error::last_os_error());
        }
        accept_one(post, report);
    }
}

/// Waits for a descriptor that is never ready.
fn wait_in_vain(fd: &OwnedFd, report: &Report) -> io::Result<()> {
    let set = epoll::create()?;
    epoll::add(&set, fd.as_raw_fd(), libc::EPOLLIN as u32, 0)?;
    let mut events = [epoll::Raw { events: 0, u64: 0 }; 1];
    (report.ready)();
    match epoll::wait(set.as_raw_fd(), &mut events) {
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

// Our poller's back-end `uring`, without the runtime, in each of many processes. The kernel wakes
// one process at a time, which goes to the end of the queue when its poll is armed again.

fn stand_by_poller_exclusive(post: Post, report: &Report) -> io::Result<()> {
    let mut poller = Poller::builder().backend(BackendKind::Uring).build()?;
    for fd in post.all() {
        poller.register_raw(fd, Watch::new(Interest::READABLE).mode(Mode::Exclusive))?;
    }
    let mut events = Events::with_limit(64);
    (report.ready)();
    loop {
        poller.wait(&mut events, None)?;
        if let Some((_, error)) = events.refusals().first() {
            return Err(io::Error::other(error.to_string()));
        }
        accept_one(&post, report);
    }
}

// io_uring, in a ring of each process: polls of the listener, woken with all the other waiters or
// alone, and the ring's own `accept`.
//
// A multishot poll keeps its place in the listener's queue, so a kernel that wakes only one waiter
// wakes the same one again and again. A one-shot poll joins the end of the queue when it is armed
// again.

fn stand_by_uring(post: &Post, report: &Report, request: Request) -> io::Result<()> {
    let mut listening = Listening::new(request, 1 + post.besides.len())?;
    for fd in post.all() {
        listening.start(fd)?;
    }
    (report.ready)();
    loop {
        listening.wait(|happened| match happened {
            Happened::Ready => accept_one(post, report),
            Happened::Accepted(connection) => {
                drop(connection);
                (report.accepted)();
            }
        })?;
    }
}

// Our runtime in each of many processes, as in a server that forks before it serves. All processes
// wait for one inherited listener, woken together or one at a time, or each waits for its own.
//
// For a duplicate of the listener there is a task that accepts from it, as for a second address;
// for a pipe there is a task that waits until it is readable.

fn stand_by_ours(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new(), BackendKind::Epoll)
}

fn stand_by_ours_exclusive(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new().exclusive(true), BackendKind::Epoll)
}

fn stand_by_ours_uring(post: Post, report: &Report) -> io::Result<()> {
    serve(post, report, &ListenOptions::new().exclusive(true), BackendKind::Uring)
}

/// The reason why a task has ended, and the waker to notify.
#[derive(Default)]
struct Failure {
    error: Cell<Option<io::Error>>,
    waker: Cell<Option<Waker>>,
}

/// Serves indefinitely; returns only on an error.
fn serve(
    post: Post,
    report: &Report,
    options: &ListenOptions,
    backend: BackendKind,
) -> io::Result<()> {
    let runtime = Runtime::builder().backend(backend).build()?;
    let listener = options.adopt(descriptor::duplicate(post.listener)?.into())?;
    // One reserved descriptor is enough for a process.
    let options = options.clone().shed_load(false);
    let failure = Rc::new(Failure::default());
    runtime.try_block_on(async {
        start(accept(listener, report.clone()), &failure);
        for fd in post.besides {
            if post.of_pipe {
                start(read(AsyncFd::new(File::from(fd))?), &failure);
            } else {
                start(accept(options.adopt(fd.into())?, report.clone()), &failure);
            }
        }
        (report.ready)();
        poll_fn(|cx| {
            failure.waker.set(Some(cx.waker().clone()));
            failure.error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
        })
        .await
    })?
}

fn start(task: impl Future<Output = io::Result<()>> + 'static, failure: &Rc<Failure>) {
    let failure = failure.clone();
    superpoll_rt::spawn(async move {
        failure.error.set(task.await.err());
        failure.waker.take().into_iter().for_each(Waker::wake);
    })
    .detach();
}

async fn accept(listener: TcpListener, report: Report) -> io::Result<()> {
    loop {
        drop(listener.accept().await?);
        (report.accepted)();
    }
}

/// Waits for the pipe; no process ever writes to it.
async fn read(pipe: AsyncFd<File>) -> io::Result<()> {
    pipe.perform(Direction::Read, |mut pipe| pipe.read(&mut [0])).await?;
    Err(io::ErrorKind::UnexpectedEof.into())
}

// Our runtime in one process: engines that serve one address together, in each of the four ways
// that [`Listeners`] offers. The fourth, handing over, exists only here: between processes,
// descriptors would have to be passed.

/// Serves indefinitely with `engines` engines; returns only on an error. `ready` gets the port,
/// `accepted` the number of the engine.
pub(crate) fn stand_by_engines(
    engines: usize,
    backend: BackendKind,
    spread: Spread,
    ready: impl FnOnce(u16),
    accepted: impl Fn(usize) + Clone + Send + 'static,
) -> io::Result<()> {
    let engines = NonZeroUsize::new(engines).unwrap_or(NonZeroUsize::MIN);
    let runtime = Runtime::builder().backend(backend).workers(engines).build()?;
    let handle = runtime.handle();
    let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let listeners = Listeners::serve(&handle, address, spread, move |stream, _| {
        drop(stream);
        if let Some(engine) = Handle::current().ok().and_then(|handle| handle.engine()) {
            accepted(engine);
        }
        std::future::ready(())
    })?;
    let serve = async {
        // An engine that runs this later task has begun to listen.
        for engine in 0..handle.engines() {
            let seen = handle.spawn_on(engine, async {}).map_err(io::Error::from)?;
            seen.await.map_err(|error| io::Error::other(error.to_string()))?;
        }
        ready(listeners.local_addr().port());
        std::future::pending::<io::Result<()>>().await
    };
    runtime.try_block_on(serve)?
}
