//! The TCP relay: passes bytes between clients and an upstream, TCP or Unix on either side.
//!
//! A pair is one task for both directions. Each direction tries to read before it waits, writes at once what it
//! has read, and owns memory only while its target is slower than its source; a bulk transfer is spliced within
//! the kernel. Half-closed connections stay so, and what breaks on one side is reset on the other.
//!
//! What a connection costs is the number of system calls, and none is made that tells what another one tells as
//! well: the first write to the upstream tells whether it is connected, accepted sockets inherit `TCP_NODELAY`,
//! upstream sockets get it before their second write, and no socket is asked for an address.
//!
//! ```
//! use superpoll_gateway::relay::{Options, Relay};
//! use superpoll_rt::Runtime;
//!
//! let upstream = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let runtime = Runtime::new()?;
//! let to = upstream.local_addr()?.to_string().parse()?;
//! let listen = "127.0.0.1:0".parse()?;
//! let relay = Relay::start(&runtime, &listen, &to, Options::default(), |failure| {
//!     eprintln!("{failure}");
//! })?;
//! println!("relaying from {} to {to}", relay.listening());
//! # relay.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod flow;
mod gate;
mod guess;
mod listener;
mod pair;
mod pool;
mod shared;
mod stream;

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{Runtime, spawn, time};

use crate::Address;
use calls::{Call, count};
pub use calls::{Calls, calls};
use gate::Gate;
use listener::{Bound, Listener};
use pair::{Pair, Relaying};
pub use shared::{Counters, Failure, Options};
use shared::{Local, Member, Shared, Target};
use stream::Stream;

/// How long a listener pauses when accepting has failed: there is no descriptor to be had, not even to shed with,
/// or no memory.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a relay did not start.
#[derive(Debug)]
pub struct Error {
    what: String,
    error: io::Error,
}

impl Error {
    fn new(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error { what, error }
    }

    /// What the system said.
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => {
                f.write_str("; choose another address, or end the program that listens there")
            }
            io::ErrorKind::PermissionDenied => {
                f.write_str("; choose another address, or get the permission")
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A relay at work. Dropping it stops listening; pairs go on as long as the runtime does.
pub struct Relay {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    listening: Address,
    /// To be removed in the end.
    file: Option<PathBuf>,
}

fn look_up(host: Option<&str>, port: u16, listening: bool) -> io::Result<Vec<SocketAddr>> {
    match host {
        Some(host) => Ok((host, port).to_socket_addrs()?.collect()),
        None if listening => {
            // Both families, where there is the newer one.
            Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), ([0, 0, 0, 0], port).into()])
        }
        None => Ok(vec![([127, 0, 0, 1], port).into(), (Ipv6Addr::LOCALHOST, port).into()]),
    }
}

impl Relay {
    /// Binds to an address and relays whoever comes there, on all engines of a runtime and as long as it runs. Names
    /// are looked up now. `report` is told what fails later, on the engine where it does, and must not block.
    ///
    /// # Errors
    ///
    /// If a name has no address, if the address cannot be listened on, or if the runtime has ended.
    pub fn start(
        runtime: &Runtime,
        listen: &Address,
        to: &Address,
        options: Options,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Relay, Error> {
        let target = match to {
            Address::Unix(path) => Target::Unix(path.clone()),
            Address::Tcp { port: 0, .. } => {
                let error = io::Error::new(io::ErrorKind::InvalidInput, "nobody listens on port 0");
                return Err(Error::new(format!("relaying to {to}"))(error));
            }
            Address::Tcp { host, port } => {
                let found = look_up(host.as_deref(), *port, false);
                Target::Tcp(found.map_err(Error::new(format!("looking up {to}")))?)
            }
        };
        let failed = || Error::new(format!("listening on {listen}"));
        let (bound, listening, file) = match listen {
            Address::Unix(path) => {
                let bound = Bound::unix(path).map_err(failed())?;
                (bound, listen.clone(), Some(path.clone()))
            }
            Address::Tcp { host, port } => {
                let found = look_up(host.as_deref(), *port, true)
                    .map_err(Error::new(format!("looking up {listen}")))?;
                let bound = Bound::tcp(&found).map_err(failed())?;
                let Bound::Tcp(socket) = &bound else { unreachable!("it was made by tcp") };
                let local = socket.local_addr().map_err(failed())?;
                let host = host.as_ref().map(|_| local.ip().to_string());
                (bound, Address::Tcp { host, port: local.port() }, None)
            }
        };
        let shared = Shared::new(options, to.clone(), target, Box::new(report));
        Relay::launch(runtime, &bound, shared, listening, file)
            .map_err(Error::new(format!("listening on {listen}")))
    }

    fn launch(
        runtime: &Runtime,
        bound: &Bound,
        shared: Shared,
        listening: Address,
        file: Option<PathBuf>,
    ) -> io::Result<Relay> {
        let gate = Arc::new(Gate::new(shared.options.max_connections.unwrap_or(usize::MAX)));
        let relay = Relay { shared: Arc::new(shared), gate: gate.clone(), listening, file };
        let handle = runtime.handle();
        let engines = handle.engines();
        let on_epoll = matches!(runtime.backend(), "epoll" | "adaptive" | "uring");
        for engine in 0..engines {
            let listener = bound.listener(engines > 1 && on_epoll)?;
            let (shared, gate) = (relay.shared.clone(), gate.clone());
            let on = relay.listening.to_string();
            let accept = move || {
                let local = Rc::new(Local::new(shared, on_epoll));
                spawn(Accepting { listener, local, gate, on, shed: Cell::new(0) }.run()).detach();
            };
            handle.call_on(engine, accept).map_err(io::Error::other)?;
        }
        Ok(relay)
    }

    /// The address it listens on, with the port that the kernel has chosen.
    pub fn listening(&self) -> &Address {
        &self.listening
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.shared.totals.read()
    }

    /// Stops listening; pairs go on.
    pub fn stop(&self) {
        if !self.gate.is_stopped()
            && let Some(file) = &self.file
        {
            let _ = std::fs::remove_file(file);
        }
        self.gate.stop();
    }

    /// Waits until there are no pairs left, for at most so long; says how many there are.
    pub async fn drained(&self, patience: Duration) -> u64 {
        let end = time::sleep(patience).deadline();
        let mut nap = Duration::from_millis(1);
        loop {
            let left = self.counters().active;
            let now = std::time::Instant::now();
            if left == 0 || now >= end {
                return left;
            }
            time::sleep(nap.min(end - now)).await;
            nap = (nap * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("listening", &self.listening)
            .field("to", &self.shared.to)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// One engine's part.
struct Accepting {
    listener: Listener,
    local: Rc<Local>,
    gate: Arc<Gate>,
    on: String,
    /// How many the listener has shed, as told.
    shed: Cell<u64>,
}

impl Accepting {
    async fn run(self) {
        while let Some(place) = poll_fn(|cx| self.gate.poll_enter(cx)).await {
            match self.accept().await {
                None => return,
                Some(Ok(client)) => {
                    self.local.shared.totals.accepted.fetch_add(1, Ordering::Relaxed);
                    self.begin(client, Member::new(self.local.clone(), place));
                }
                Some(Err(error)) => {
                    self.local.shared.not_accepted(&self.on, error);
                    time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The next client; `None` when it is over.
    async fn accept(&self) -> Option<io::Result<Stream>> {
        let mut known = false;
        poll_fn(|cx| {
            let polled = self.listener.poll_accept(cx);
            let shed = self.listener.shed();
            let before = self.shed.replace(shed);
            if shed > before {
                self.local.shared.shed(&self.on, shed - before);
            }
            if let Poll::Ready(accepted) = polled
                && !self.gate.is_stopped()
            {
                return Poll::Ready(Some(accepted));
            }
            if !std::mem::replace(&mut known, true) {
                self.gate.remember(cx);
            }
            if self.gate.is_stopped() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    fn begin(&self, client: Stream, member: Member) {
        if let Target::Unix(path) = &self.local.shared.target {
            spawn(relay_to(path.clone(), client, member)).detach();
        } else if let Some(pair) = Pair::connect(client, member) {
            spawn(Relaying::from(pair)).detach();
        }
    }
}

/// Connects to a Unix socket, which waits while its queue is full, and relays.
async fn relay_to(path: PathBuf, client: Stream, member: Member) {
    count(Call::Socket);
    count(Call::Connect);
    let connect = UnixStream::connect(&path);
    let limit = member.shared().options.connect_timeout;
    match time::timeout(limit, connect).await.map_err(io::Error::from).and_then(|outcome| outcome) {
        Ok(upstream) => {
            Relaying::from(Pair::connected_to(upstream.into_std().into(), client, member)).await;
        }
        Err(error) => member.shared().not_connected(error),
    }
}
