//! The TCP relay: passes bytes between clients and an upstream, TCP or Unix on either side.
//!
//! A pair is one task for both directions. Each direction tries to read before it waits, writes at
//! once the bytes that it has read, and owns memory only while its target is slower than its
//! source; a bulk transfer is spliced within the kernel. Half-closed connections stay half-closed,
//! and a side that breaks makes the relay reset the other side.
//!
//! That is the pair of two plain sockets (`pair`). A pair of which an end is encrypted (`sealed`)
//! has the same two directions over other streams, and nothing else in common with it. What comes
//! before a pair is a connection's introduction (`introduction`): headers of the PROXY protocol,
//! the handshake of TLS, the server name that the client asks for (`client_hello`), the choice of a
//! destination (`destination`) and the connection to it. A connection that needs none of these
//! begins as a pair, at no further cost.
//!
//! The cost of a connection is the number of its system calls, and the relay makes no call whose
//! answer another call gives as well: the first write to the upstream tells whether it is
//! connected, accepted sockets inherit `TCP_NODELAY`, upstream sockets get it before their second
//! write, and no socket is asked for an address.
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
mod client_hello;
mod concurrency_limit;
mod deferral;
mod deferred;
mod destination;
mod failure;
mod flow;
mod introduction;
mod pair;
mod pool;
mod sealed;
mod servers;
mod shared;
mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_channel::oneshot;
use superpoll_http::connection_limits::ConnectionLimits;
use superpoll_http::listen::{Bound, Listener};
use superpoll_http::log::{AccessLogSink, BrokenBy, LogFailure};
use superpoll_http::telemetry::counters::EngineCounters;
use superpoll_http::transport::Plain;
use superpoll_http::upstream::{self, Group};
use superpoll_rt::{Handle, Runtime, spawn, time};

use crate::config::Address;
use crate::inherited::Inherited;
use calls::{Call, count};
pub use calls::{Calls, calls};
use concurrency_limit::{ConcurrencyLimit, Permit};
use destination::NameLookup;
pub(crate) use destination::{Destination, Routes};
pub use failure::Failure;
use introduction::introduce;
use pair::{Candidates, Pair, Relaying};
use servers::Servers;
use shared::{ActivePair, Local, Shared};
pub use shared::{Counters, Options};
pub(crate) use shared::{Rules, Settings};

/// How long a listener pauses when accepting has failed because there is no memory or no
/// descriptor, not even for a client that is closed at once.
const PAUSE: Duration = Duration::from_millis(10);

/// The reason for which a relay did not start.
#[derive(thiserror::Error, Debug)]
#[error("{what}: {error}{}", remedy(.error))]
pub struct Error {
    what: String,
    #[source]
    error: io::Error,
}

impl Error {
    fn new(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error { what, error }
    }

    /// Returns the kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }
}

/// Returns the advice for an address that cannot be listened on.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; choose another address, or end the program that listens there"
        }
        io::ErrorKind::PermissionDenied => "; choose another address, or get the permission",
        _ => "",
    }
}

/// A running relay. Dropping it stops listening; pairs continue as long as the runtime does.
pub struct Relay {
    shared: Arc<Shared>,
    limit: Arc<ConcurrencyLimit>,
    listening: Address,
    /// `None` once the relay is stopped.
    bound: Mutex<Option<Arc<Bound>>>,
    /// One for each task that accepts: cancelled when it has closed its listener.
    accepting: Mutex<Vec<oneshot::Receiver<()>>>,
    /// These count only active pairs; empty for a part of a server.
    engine_counters: Vec<Arc<EngineCounters>>,
}

/// Ends the seconds of the engines' ratios for as long as there is a relay, or a pair of it. It has
/// a thread: with a timer that is due once a second each wait of an engine needs to know the time,
/// which costs a relay a fifth of its instructions.
fn end_seconds(handle: &Handle, counters: &[Weak<EngineCounters>]) {
    loop {
        thread::sleep(Duration::from_secs(1));
        for (engine, counters) in counters.iter().enumerate() {
            let Some(counters) = counters.upgrade() else { return };
            let ended = handle.call_on(engine, move || counters.ratio.end_second());
            if ended.is_err() {
                return;
            }
        }
    }
}

/// The engines of a runtime, and the facts that a relay needs about them.
#[derive(Clone)]
pub(crate) struct Engines {
    handle: Handle,
    /// Whether one waiter of several for a listener can be woken alone, and whether watching a
    /// descriptor takes a call.
    on_epoll: bool,
    /// The counters of each engine, which count pairs as active connections.
    counters: Vec<Arc<EngineCounters>>,
}

impl Engines {
    pub(crate) fn new(handle: Handle, backend: &str) -> Engines {
        let on_epoll = matches!(backend, "epoll" | "adaptive" | "uring");
        Engines { handle, on_epoll, counters: Vec::new() }
    }

    /// Makes these counters count pairs as active connections.
    pub(crate) fn counted(self, counters: Vec<Arc<EngineCounters>>) -> Engines {
        Engines { counters, ..self }
    }
}

impl Relay {
    /// Binds to an address and relays the clients that connect there, on all engines of a runtime
    /// and as long as it runs. The name of the upstream is looked up by connections, at most once a
    /// second. `report` receives each later failure, on the engine where it happens, and must not
    /// block.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened on, or if the runtime has ended.
    pub fn start(
        runtime: &Runtime,
        listen: &Address,
        to: &Address,
        options: Options,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Relay, Error> {
        Relay::start_with(runtime, &mut Inherited::default(), listen, to, options, report)
    }

    /// As [`start`](Relay::start), on a socket that listens already if one has the address.
    ///
    /// # Errors
    ///
    /// As [`start`](Relay::start).
    pub fn start_with(
        runtime: &Runtime,
        inherited: &mut Inherited,
        listen: &Address,
        to: &Address,
        options: Options,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Relay, Error> {
        Relay::start_to(
            runtime,
            inherited,
            listen,
            Destination::Address(to.clone()),
            options,
            report,
        )
    }

    /// As [`start_with`](Relay::start_with), to the servers of a group, which are balanced and
    /// checked as the group says.
    ///
    /// # Errors
    ///
    /// As [`start`](Relay::start).
    pub fn start_with_group(
        runtime: &Runtime,
        inherited: &mut Inherited,
        listen: &Address,
        group: &Arc<Group>,
        options: Options,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Relay, Error> {
        let to = Destination::Group(group.clone());
        let relay = Relay::start_to(runtime, inherited, listen, to, options, report)?;
        let checked = upstream::watch(group, &runtime.handle()).map_err(io::Error::other);
        checked.map_err(Error::new(format!("checking {}", group.name())))?;
        Ok(relay)
    }

    fn start_to(
        runtime: &Runtime,
        inherited: &mut Inherited,
        listen: &Address,
        to: Destination,
        options: Options,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Result<Relay, Error> {
        let connection_limits: Arc<ConnectionLimits> = Arc::default();
        connection_limits.limit(None, options.connections_per_client);
        let counters = || Arc::new(EngineCounters::new(connection_limits.clone()));
        let counters: Vec<_> = (0..runtime.handle().engines()).map(|_| counters()).collect();
        let report = Arc::new(report);
        let access_log = match &options.access_log {
            None => None,
            Some(wanted) => {
                let (place, report) = (wanted.place(), report.clone());
                let told = move |failure: &LogFailure| {
                    report(&Failure::AccessLog { what: failure.to_string() });
                };
                let opened = AccessLogSink::open(wanted, None, told);
                let log = opened.map_err(Error::new(format!("opening the access log {place}")))?;
                Some((Arc::new(log), listen.to_string().into()))
            }
        };
        let rules = Rules { connection_limits, access_log, ..Rules::default() };
        let failed = || Error::new(format!("relaying to {to}"));
        let settings = Settings::new(Some(to.clone()), options, rules).map_err(failed())?;
        let report = move |failure: &Failure| report(failure);
        let failed = || Error::new(format!("listening on {listen}"));
        let bound = match inherited.at(listen) {
            Some(bound) => bound,
            None => Bound::new(listen, None).map_err(failed())?,
        };
        let bound = Arc::new(bound);
        let listening = bound.address(listen).map_err(failed())?;
        let engines = Engines::new(runtime.handle(), runtime.backend()).counted(counters);
        let mut relay = Relay::on(bound, listening, settings, report);
        let listeners = relay.listeners(&engines).map_err(failed())?;
        relay.open(&engines, listeners).map_err(failed())?;
        let (handle, counters) = (engines.handle.clone(), engines.counters.iter());
        let counters: Vec<_> = counters.map(Arc::downgrade).collect();
        let seconds = thread::Builder::new().name("seconds".to_owned());
        let seconds = seconds.spawn(move || end_seconds(&handle, &counters));
        seconds.map_err(Error::new("starting the thread that ends seconds"))?;
        relay.engine_counters = engines.counters;
        Ok(relay)
    }

    /// Creates a relay on an address that is bound. It accepts no clients before it is
    /// [opened](Relay::open).
    pub(crate) fn on(
        bound: Arc<Bound>,
        listening: Address,
        settings: Settings,
        report: impl Fn(&Failure) + Send + Sync + 'static,
    ) -> Relay {
        let limit = ConcurrencyLimit::new(settings.options.max_connections.unwrap_or(usize::MAX));
        Relay {
            shared: Arc::new(Shared::new(settings, Box::new(report))),
            limit: Arc::new(limit),
            listening,
            bound: Mutex::new(Some(bound)),
            accepting: Mutex::default(),
            engine_counters: Vec::new(),
        }
    }

    fn bound(&self) -> MutexGuard<'_, Option<Arc<Bound>>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepting(&self) -> MutexGuard<'_, Vec<oneshot::Receiver<()>>> {
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a listener for each engine.
    pub(crate) fn listeners(&self, engines: &Engines) -> io::Result<Vec<Listener>> {
        let count = engines.handle.engines();
        let bound = self.bound();
        // Once the relay was stopped there are none.
        let bound = bound.iter().flat_map(|bound| std::iter::repeat_n(bound, count));
        bound.map(|bound| bound.listener(count > 1 && engines.on_epoll)).collect()
    }

    /// Accepts clients.
    pub(crate) fn open(&self, engines: &Engines, listeners: Vec<Listener>) -> io::Result<()> {
        for (engine, listener) in listeners.into_iter().enumerate() {
            let (shared, limit) = (self.shared.clone(), self.limit.clone());
            let on = self.listening.to_string();
            let watching_costs = engines.on_epoll;
            let counters = engines.counters.get(engine).cloned().unwrap_or_default();
            let (open, closes) = oneshot::channel();
            self.accepting().push(closes);
            let accept = move || {
                let local = RefCell::new(Rc::new(Local::new(shared, counters, watching_costs)));
                let shed = Cell::new(0);
                spawn(Accepting { listener, local, limit, on, shed, _open: open }.run()).detach();
            };
            engines.handle.call_on(engine, accept).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Applies these settings to new connections; existing pairs keep their settings.
    pub(crate) fn change(&self, settings: Settings) {
        self.shared.change(settings);
    }

    /// Returns the address that the relay listens on, with the port that the kernel has chosen.
    pub fn listening(&self) -> &Address {
        &self.listening
    }

    /// Returns the counters of the relay so far.
    pub fn counters(&self) -> Counters {
        self.shared.totals.read()
    }

    /// Returns the counters of each engine.
    pub(crate) fn engine_counters(&self) -> &[Arc<EngineCounters>] {
        &self.engine_counters
    }

    /// Returns the counters of the relay for those who read them later.
    pub(crate) fn totals(&self) -> RelayTotals {
        RelayTotals(self.shared.clone())
    }

    /// Stops listening; pairs continue.
    pub fn stop(&self) {
        // A socket file is removed with the relay's socket.
        drop(self.bound().take());
        self.limit.stop();
    }

    /// Stops listening, and waits until its address is free. An engine that has ended has closed
    /// its listener.
    pub(crate) async fn close(self) {
        self.stop();
        let accepting = std::mem::take(&mut *self.accepting());
        for closes in accepting {
            let _ = closes.await;
        }
    }

    /// Waits until there are no pairs left, for at most this long; returns how many there are.
    pub async fn drained(&self, patience: Duration) -> u64 {
        let end = time::sleep(patience).deadline();
        let mut nap = Duration::from_millis(1);
        loop {
            let left = self.counters().active;
            let now = time::now();
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

superpoll::debug_fields!(Relay, it =>
    listening: it.listening,
    to: it.shared.destination().map(|to| to.to_string()),
    counters: it.counters());

/// One engine's part of a relay.
struct Accepting {
    listener: Listener,
    local: RefCell<Rc<Local>>,
    limit: Arc<ConcurrencyLimit>,
    on: String,
    /// The number of clients that the listener has shed, as reported.
    shed: Cell<u64>,
    /// Dropped once the listener is closed.
    _open: oneshot::Sender<()>,
}

impl Accepting {
    async fn run(self) {
        while let Some(permit) = poll_fn(|cx| self.limit.poll_acquire(cx)).await {
            match self.accept().await {
                None => break,
                Some(Ok((client, address))) => begin(self.local(), client, address, permit),
                Some(Err(error)) => {
                    self.local().shared.not_accepted(&self.on, error);
                    time::sleep(PAUSE).await;
                }
            }
        }
        let Accepting { listener, _open, .. } = self;
        let socket = listener.into_socket();
        time::sleep(superpoll_http::listen::CLOSING).await;
        drop(socket);
    }

    /// Returns the state with the current settings.
    fn local(&self) -> Rc<Local> {
        let mut local = self.local.borrow_mut();
        if let Some(renewed) = local.renewed() {
            *local = Rc::new(renewed);
        }
        local.clone()
    }

    /// Accepts the next client; `None` when the relay is stopped.
    async fn accept(&self) -> Option<io::Result<(Plain, Option<SocketAddr>)>> {
        let mut known = false;
        poll_fn(|cx| {
            count(Call::Accept);
            let polled = self.listener.poll_accept(cx);
            let shed = self.listener.shed();
            let before = self.shed.replace(shed);
            if shed > before {
                self.local().shared.shed(&self.on, shed - before);
            }
            if let Poll::Ready(accepted) = polled {
                return Poll::Ready(Some(accepted));
            }
            // A permit that was given back at the limit has woken all, and forgotten them.
            if !std::mem::replace(&mut known, true) || self.limit.is_bounded() {
                self.limit.remember(cx);
            }
            if self.limit.is_stopped() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

/// The counters of a relay, which need not exist any more.
pub(crate) struct RelayTotals(Arc<Shared>);

impl RelayTotals {
    /// Returns the counters so far.
    pub(crate) fn read(&self) -> Counters {
        self.0.totals.read()
    }
}

fn begin(local: Rc<Local>, client: Plain, address: Option<SocketAddr>, permit: Permit) {
    local.shared.totals.accepted.fetch_add(1, Ordering::Relaxed);
    let Settings { rules, to, name, is_simple, .. } = &**local.settings();
    // Behind a proxy, the peer of the connection is not the client.
    let counted = address.filter(|_| rules.header.is_none()).map(|address| address.ip());
    let is_simple = *is_simple && name.as_ref().is_none_or(NameLookup::is_fresh);
    let Some(mut active) = ActivePair::new(local.clone(), permit, counted) else {
        local.shared.totals.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // Until it was introduced, a connection that ends was not continued by its client.
    active.begin_entry(address, if is_simple { BrokenBy::Server } else { BrokenBy::Client });
    let known = match to {
        _ if !is_simple => None,
        Some(Destination::Group(group)) if local.pool(group).is_direct() => {
            Servers::choose(group, counted, &active).map(|it| Candidates::Servers(it.into()))
        }
        Some(Destination::Group(_)) => None,
        _ => Some(Candidates::default()),
    };
    let Some(to) = known else { return spawn(introduce(client, address, active)).detach() };
    if let Some(pair) = Pair::connect(client.into_socket().into(), &[], to, active) {
        spawn(Relaying::from(pair)).detach();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_relay_that_was_at_its_limit_once_closes_its_listener_at_the_stop() {
        let runtime = Runtime::new().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap().to_string().parse().unwrap();
        // One permit of the two is the accepting task's.
        let options = Options { max_connections: Some(2), ..Options::default() };
        let listen = "127.0.0.1:0".parse().unwrap();
        let relay = Relay::start(&runtime, &listen, &to, options, |_| {}).unwrap();
        let at = relay.listening().to_string();
        runtime.block_on(async {
            let client = TcpStream::connect(at).unwrap();
            while relay.counters().active == 0 {
                time::sleep(Duration::from_millis(1)).await;
            }
            drop((server.accept().unwrap(), client));
            assert_eq!(relay.drained(Duration::from_secs(60)).await, 0);
            time::timeout(Duration::from_secs(60), relay.close()).await.expect("it closes");
        });
    }
}
