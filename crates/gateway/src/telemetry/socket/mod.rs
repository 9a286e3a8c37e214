//! The statistics socket: the activity of the engines of a process, for monitoring programs, as
//! lines of JSON, and commands to it.
//!
//! It is a Unix-domain stream socket that only the same user can open. A client that connects is
//! sent a [`Snapshot`] at once and another in each interval, an object a line. The client may set
//! the interval at any time, with a line of its own:
//!
//! ```text
//! {"interval_ms": 250}
//! ```
//!
//! from 50 to 60,000; the default is 1,000. A line that says anything else is answered with a line
//! that has `error`, and the end of the connection; a client that ends its direction ends both.
//! There are eight such clients at most. A client that does not read a snapshot within two seconds
//! is dropped: unread bytes stay in the kernel, so that no client can make a server grow.
//!
//! The first engine watches the socket, as one more idle descriptor, and while no client is
//! connected that is its whole cost: a thread of its own would make every call of an otherwise
//! single-threaded process more expensive. A task on the first engine asks each engine. An engine
//! that does not answer in time is shown as it was when it last answered, and is not asked again
//! before it has answered. While a client is connected, engines time their turns
//! [precisely](superpoll_rt::Handle::watch_turns).
//!
//! A client that sends a [`CommandRequest`] in place of an interval is sent the [`CommandReply`] of
//! the program, which takes the commands from a [`CommandQueue`]. There may be eight further
//! clients that do so, whether or not there are eight viewers.
//!
//! `path` has the path of the socket, `collector` asks the engines, `client` talks to one client,
//! `queue` takes commands to the program, and
//! `answer` answers them.

mod answer;
mod client;
mod collector;
mod path;
mod queue;
mod snapshot;
mod subject;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use superpoll_rt::net::unix::UnixListener;
use superpoll_rt::{Runtime, spawn, time};

pub use crate::config::SocketPath;
use crate::relay::Relay;
pub use client::CLIENTS;
pub(crate) use collector::Kept;
pub use path::{ProcessSocket, list, of_process};
pub use queue::{CommandCall, CommandQueue, CommandSender};
pub use snapshot::{
    Connections, Costs, Engine, Failure, INTERVALS, PlacementCosts, Request, SCHEMA, Set, Snapshot,
    Turn,
};
pub use subject::Subject;
pub(crate) use subject::carry_out;
pub use superpoll_http::admin::command::{
    COMMAND_PROTOCOL, CommandAnswer, CommandOutcome, CommandReply, CommandRequest, DrainProgress,
    EngineStatus, HandedOverStatus, LastReload, ServerCommand, ServerFacts, ServerPhase,
    ServerStatus, UpgradeState, WorkerStatus,
};
pub use superpoll_http::unix_time::seconds_now;

/// How long the server waits after accepting has failed before it tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens, but on which no client is answered yet.
#[derive(Debug)]
pub struct Socket {
    listener: std::os::unix::net::UnixListener,
    file: path::File,
}

impl Socket {
    /// Listens at a place; nowhere, if it is [`SocketPath::Off`]. A socket that an ended process
    /// has left there is replaced. With `takes_over`, the socket of a running process is replaced
    /// as well, when the new one is [opened](Socket::open).
    ///
    /// # Errors
    ///
    /// The attempt and the system's error, in one line; if the folder belongs to another user or is
    /// open to other users; if another process listens there.
    pub fn bind(place: &SocketPath, takes_over: bool) -> io::Result<Option<Socket>> {
        let path = match place {
            SocketPath::Off => return Ok(None),
            SocketPath::At(path) => std::path::absolute(path)?,
            SocketPath::Default => path::default_path()?,
        };
        let bound = path::listen(&path, takes_over).map_err(|error| {
            let what = format!("listening for statistics at {}: {error}", path.display());
            io::Error::new(error.kind(), what)
        });
        bound.map(|(listener, file)| Some(Socket { listener, file }))
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Answers clients that connect, on the first engine of the subject's runtime.
    ///
    /// # Errors
    ///
    /// If the runtime has ended, or if the socket cannot be put in the place of another.
    pub fn open(self, subject: Subject) -> io::Result<Statistics> {
        let Socket { listener, mut file } = self;
        file.put_in_place().map_err(|error| {
            let what = format!("listening for statistics at {}: {error}", file.path().display());
            io::Error::new(error.kind(), what)
        })?;
        let closing: Arc<Closing> = Arc::default();
        let (closes, handle) = (closing.clone(), subject.handle.clone());
        let begin = move || {
            // It fails only outside of an engine.
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            spawn(accept(listener, closes, Arc::new(subject))).detach();
        };
        handle.call_on(0, begin).map_err(io::Error::other)?;
        Ok(Statistics { closing, file })
    }
}

/// A statistics socket at work. Dropping it closes the socket and removes its file; clients
/// continue as long as the runtime does.
#[derive(Debug)]
pub struct Statistics {
    closing: Arc<Closing>,
    file: path::File,
}

impl Statistics {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        self.closing.close();
    }
}

/// The signal to close a socket.
#[derive(Debug, Default)]
struct Closing {
    is_closed: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Closing {
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the socket is closed; if not, the waker is woken when it is.
    fn poll(&self, waker: &Waker) -> bool {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        self.is_closed.load(Ordering::Acquire)
    }
}

/// Accepts clients.
async fn accept(listener: UnixListener, closing: Arc<Closing>, subject: Arc<Subject>) {
    let clients: Rc<Cell<usize>> = Rc::default();
    loop {
        let accepted = poll_fn(|cx| {
            if closing.poll(cx.waker()) {
                return Poll::Ready(None);
            }
            listener.poll_accept(cx).map(Some)
        });
        match accepted.await {
            None => return,
            Some(Ok((stream, _))) => {
                spawn(client::serve(stream, subject.clone(), clients.clone())).detach();
            }
            // There is no descriptor, not even for a client that is closed at once.
            Some(Err(_)) => time::sleep(PAUSE).await,
        }
    }
}

// The statistics of a relay.

impl Relay {
    /// Returns the subject for a statistics socket: the relay, and the runtime that it was started
    /// on.
    #[must_use]
    pub fn subject(&self, runtime: &Runtime) -> Subject {
        let totals = self.totals();
        let connections = move || totals.read().active;
        let counters = self.engine_counters().to_vec();
        Subject::new("proxy", runtime.backend(), runtime.handle(), counters, connections)
    }
}
