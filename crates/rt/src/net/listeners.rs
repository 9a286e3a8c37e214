//! One address, served by all engines of a runtime.
//!
//! Several threads that wait for the same listening socket are a herd: a connection wakes all of
//! them, and one gets it. There are four ways not to pay for that, or to pay knowingly; none is
//! best for all.
//!
//! * [`Spread::Shared`]: the herd itself, for comparison and for few engines. The quickest engine
//!   that is awake accepts, which suits a machine that is busy anyway.
//! * [`Spread::Exclusive`]: the kernel wakes one engine (`EPOLLEXCLUSIVE`, Linux 4.5). That would
//!   always be the engine that has waited longest on that socket, and it keeps its place. So an
//!   engine that has had its turn registers again and goes to the end of the line
//!   ([`ListenOptions::longest_turn`]).
//! * [`Spread::ReusePort`]: each engine has a socket and a queue of its own (`SO_REUSEPORT`, Linux
//!   3.9), and the kernel chooses by a hash of the addresses. No two engines ever touch the same
//!   lock; but the connections in the queue of an engine that is stuck wait for that engine.
//! * [`Spread::HandOff`]: the first engine accepts everything and gives each connection to the
//!   engine that has the fewest tasks. It costs a message per connection, and is the only way that
//!   knows how busy the other engines are.
//!
//! The first three also serve processes that share an address, without anything from this module:
//! each process adopts the listener that it inherited, or binds its own, see
//! [`ListenOptions::adopt`].

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use super::tcp_listener::{ListenOptions, TcpListener};
use super::tcp_stream::TcpStream;
use crate::counters::count;
use crate::engine;
use crate::handle::Handle;
use crate::remote::{Message, Remote};
use crate::task::spawn;
use crate::trace;

superpoll::named! {
    /// How connections are spread over the engines, see [`Listeners`].
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Spread {
        /// All engines wait for one socket, and all are woken.
        Shared = "shared",
        /// All engines wait for one socket, and the kernel wakes one engine. Needs a back-end on
        /// epoll.
        Exclusive = "exclusive",
        /// A socket for each engine.
        ReusePort = "reuseport",
        /// The first engine accepts, and hands connections over to the engine that has the fewest
        /// tasks.
        HandOff = "hand-off",
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The state that all engines that serve an address share.
#[derive(Debug)]
struct Shared {
    accepted: Vec<AtomicU64>,
    shed: AtomicU64,
    stopped: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
    failed: Mutex<Option<io::Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Each critical section is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address on which all engines of a runtime accept. Dropping it stops that; accepted
/// connections continue.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use futures_lite::AsyncWriteExt;
/// use superpoll_rt::Runtime;
/// use superpoll_rt::net::{Listeners, Spread};
///
/// let runtime = Runtime::builder().workers(2.try_into()?).build()?;
/// let address = "127.0.0.1:0".parse()?;
/// let listeners = Listeners::serve(&runtime.handle(), address, Spread::ReusePort, |mut stream, _| {
///     async move {
///         let _ = stream.write_all(b"hello\n").await;
///     }
/// })?;
/// assert_ne!(listeners.local_addr().port(), 0);
/// # Ok(())
/// # }
/// ```
pub struct Listeners {
    shared: Arc<Shared>,
    address: SocketAddr,
    spread: Spread,
}

impl Listeners {
    /// Binds to an address and makes all engines of a runtime accept there. `serve` is called on
    /// the engine that got the connection. The future that it returns is spawned there, so that it
    /// need not be `Send`. Port 0 lets the kernel choose. A panic in either costs that connection.
    ///
    /// Engines accept only while they run. The engine of the thread that blocks on the runtime runs
    /// inside [`block_on`](crate::Runtime::block_on).
    ///
    /// # Errors
    ///
    /// Any error of binding; `Unsupported` for [`Spread::Exclusive`] where the back-end is not on
    /// epoll; and an error if the runtime has ended.
    pub fn serve<S, F>(
        handle: &Handle,
        address: SocketAddr,
        spread: Spread,
        serve: S,
    ) -> io::Result<Listeners>
    where
        S: Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let remotes = handle.remotes();
        if spread == Spread::Exclusive {
            refuse_without_epoll(&remotes[0])?;
        }
        let options = ListenOptions::new()
            .reuse_port(spread == Spread::ReusePort)
            .exclusive(spread == Spread::Exclusive);
        let first = options.bind_addr(address)?;
        let address = first.local_addr()?;
        let mut listeners = vec![first];
        if spread != Spread::HandOff {
            for _ in 1..remotes.len() {
                listeners.push(match spread {
                    Spread::ReusePort => options.bind_addr(address)?,
                    _ => listeners[0].duplicate(&options)?,
                });
            }
        }
        let shared = Arc::new(Shared {
            accepted: remotes.iter().map(|_| AtomicU64::new(0)).collect(),
            shed: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            waiting: Mutex::default(),
            failed: Mutex::default(),
        });
        for (engine, listener) in listeners.into_iter().enumerate() {
            let accepting = Accepting {
                listener,
                shared: shared.clone(),
                engine,
                spread,
                remotes: remotes.to_vec(),
            };
            let serve = serve.clone();
            handle.call_on(engine, move || spawn(accepting.run(serve)).detach())?;
        }
        Ok(Listeners { shared, address, spread })
    }

    /// Returns the address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns how connections are spread.
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// Returns the number of connections that each engine has got.
    pub fn accepted(&self) -> Vec<u64> {
        self.shared.accepted.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Returns Jain's fairness index of [`accepted`](Listeners::accepted): one if all engines have
    /// got the same number, one over the number of engines if a single engine has got everything
    /// (Jain, Chiu and Hawe 1984). It is one before the first connection.
    pub fn fairness(&self) -> f64 {
        jain(&self.accepted())
    }

    /// Returns the number of connections that were closed unserved for a shortage of descriptors,
    /// see [`TcpListener`].
    pub fn shed(&self) -> u64 {
        self.shared.shed.load(Ordering::Relaxed)
    }

    /// Returns the error for which an engine has stopped accepting, if an engine has; returned
    /// once.
    pub fn take_error(&self) -> Option<io::Error> {
        lock(&self.shared.failed).take()
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *lock(&self.shared.waiting));
        for waker in waiting {
            waker.wake();
        }
    }
}

superpoll::debug_fields!(Listeners, it =>
    address: it.address, spread: it.spread, accepted: it.accepted());

fn refuse_without_epoll(remote: &Remote) -> io::Result<()> {
    match remote.backend {
        "epoll" | "adaptive" | "uring" => Ok(()),
        backend => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "listening with exclusive wake-ups: the back-end {backend} has none; choose epoll or \
                 adaptive, or spread connections by reuseport or hand-off"
            ),
        )),
    }
}

/// Jain's fairness index.
fn jain(counts: &[u64]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| count as f64).sum();
    let squares: f64 = counts.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

/// One engine's part.
struct Accepting {
    listener: TcpListener,
    shared: Arc<Shared>,
    engine: usize,
    spread: Spread,
    remotes: Vec<Arc<Remote>>,
}

impl Accepting {
    async fn run<S, F>(self, serve: S)
    where
        S: Fn(TcpStream, SocketAddr) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let shed = Cell::new(0);
        while let Some(accepted) = self.next().await {
            self.shared.shed.fetch_add(self.listener.shed() - shed.get(), Ordering::Relaxed);
            shed.set(self.listener.shed());
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    *lock(&self.shared.failed) = Some(error);
                    return;
                }
            };
            let engine = if self.spread == Spread::HandOff { self.fewest() } else { self.engine };
            self.shared.accepted[engine].fetch_add(1, Ordering::Relaxed);
            if engine == self.engine {
                let begin = AssertUnwindSafe(|| spawn(serve(stream, peer)).detach());
                if catch_unwind(begin).is_err() {
                    engine::with(|engine| count(&engine.counters.panicked));
                    trace::task_panicked();
                }
            } else {
                let serve = serve.clone();
                let call = Box::new(move || spawn(serve(stream, peer)).detach());
                // An engine that has ended takes no message; the connection is closed.
                let _ = self.remotes[engine].send(Message::Call(call));
            }
        }
    }

    /// Returns the next connection; `None` when the listener has stopped.
    async fn next(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let mut accept = std::pin::pin!(self.listener.accept());
        let mut known = false;
        poll_fn(|cx| {
            if !known {
                // Before checking the flag, so that a stop in between is not missed.
                let mut waiting = lock(&self.shared.waiting);
                if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                known = true;
            }
            if self.shared.stopped.load(Ordering::Acquire) {
                return Poll::Ready(None);
            }
            accept.as_mut().poll(cx).map(Some)
        })
        .await
    }

    /// Returns the engine that has the fewest tasks; of equals, the engine that has got the fewest
    /// connections.
    fn fewest(&self) -> usize {
        let load = |&engine: &usize| {
            let tasks = self.remotes[engine].tasks.load(Ordering::Relaxed);
            // A connection would not have to wait for the accepting task.
            let own = usize::from(engine == self.engine);
            (tasks - own.min(tasks), self.shared.accepted[engine].load(Ordering::Relaxed))
        };
        (0..self.remotes.len()).min_by_key(load).unwrap_or(self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equal_shares_and_lowest_for_a_single_owner() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 1.0);
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
    }
}
