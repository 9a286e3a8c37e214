//! A tokio runtime for libraries that ask for one (feature `tokio-context`).
//!
//! Libraries that bring tokio's sockets and timers look for a tokio runtime in the thread's context
//! and panic without one. With [`Builder::tokio`](crate::Builder::tokio) each engine enters the
//! context of one current-thread tokio runtime, so these libraries find it. Their sockets, timers
//! and `tokio::spawn`ed tasks run on one thread, `superpoll-tokio`, next to the engines.
//!
//! That thread starts when it is needed. Until then nothing drives the tokio runtime. A spawned
//! task and a timer wake its driver through an eventfd in the driver's epoll set, and a socket
//! becomes ready in the same set. So each engine watches a duplicate of the set's descriptor, and
//! the first engine that finds it readable starts the thread:
//!
//! ```text
//!          build()            readable, on any engine             drop
//! (none) ----------> WAITING -------------------------> DRIVEN ----------> ENDED
//!                       |                                                    ^
//!                       +------------------ drop ----------------------------+
//! ```
//!
//! tokio does not give out the descriptor of its epoll set. It is the one of this process whose
//! `/proc/self/fdinfo` lists a pipe that was registered with the tokio runtime. Where `/proc` is
//! absent, the thread starts with the runtime.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::async_fd::AsyncFd;
use crate::error::{Error, Result};
use crate::sources::Direction;
use crate::sys;

/// The parts that a wake-up starts: the runtime to drive, and its thread.
#[derive(Default)]
struct Driver {
    /// The tokio runtime, as long as it is not driven.
    waiting: Option<Runtime>,
    thread: Option<JoinHandle<()>>,
}

/// The tokio runtime that belongs to a runtime.
pub(crate) struct TokioContext {
    handle: Handle,
    /// The epoll set of its driver, unless the thread was started at once.
    driver_set: Option<OwnedFd>,
    driver: Mutex<Driver>,
    stop: Arc<Notify>,
}

/// The watch of an engine, which starts the thread; dropped with the engine.
pub(crate) struct Watch {
    _set: AsyncFd<OwnedFd>,
}

impl TokioContext {
    pub(crate) fn new() -> Result<Arc<TokioContext>> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Tokio)?;
        let handle = runtime.handle().clone();
        let driver_set = driver_set(&handle).map_err(Error::Tokio)?;
        let is_watched = driver_set.is_some();
        let driver = Mutex::new(Driver { waiting: Some(runtime), thread: None });
        let context = TokioContext { handle, driver_set, driver, stop: Arc::default() };
        if !is_watched {
            context.start().map_err(Error::Thread)?;
        }
        Ok(Arc::new(context))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Makes the engine of this thread start the tokio thread when there is work for it.
    pub(crate) fn watch(self: &Arc<TokioContext>) -> Result<Option<Watch>> {
        let Some(set) = &self.driver_set else { return Ok(None) };
        let set = AsyncFd::new(set.try_clone().map_err(Error::Tokio)?).map_err(Error::Tokio)?;
        let waker = Waker::from(self.clone());
        let idle = |_: &OwnedFd| Err::<(), _>(io::ErrorKind::WouldBlock.into());
        match set.poll_perform(&mut Context::from_waker(&waker), Direction::Read, idle) {
            Poll::Pending => Ok(Some(Watch { _set: set })),
            Poll::Ready(outcome) => outcome.map(|()| None).map_err(Error::Tokio),
        }
    }

    /// Starts the thread, unless it runs or the runtime has ended.
    fn start(&self) -> io::Result<()> {
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(runtime) = driver.waiting.take() else { return Ok(()) };
        let stop = self.stop.clone();
        // Kept here until the thread runs: a failure leaves the runtime to the next wake-up.
        let runtime = Arc::new(Mutex::new(Some(runtime)));
        let own = runtime.clone();
        let spawned = thread::Builder::new().name("superpoll-tokio".to_owned()).spawn(move || {
            let Some(runtime) = take(&own) else { return };
            runtime.block_on(stop.notified());
            // Calls that block are not waited for, as a dropped runtime of this crate does not
            // wait for its own either.
            runtime.shutdown_background();
        });
        match spawned {
            Ok(thread) => driver.thread = Some(thread),
            Err(error) => {
                driver.waiting = take(&runtime);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for TokioContext {
    /// Ends the tokio runtime with its tasks, and waits for the thread.
    fn drop(&mut self) {
        let driver = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = driver.waiting.take() {
            runtime.shutdown_background();
        }
        if let Some(thread) = driver.thread.take() {
            self.stop.notify_one();
            // A runtime that is dropped by one of its own tokio tasks cannot wait for itself.
            if thread.thread().id() != thread::current().id() {
                // A panic of the thread has been printed.
                let _ = thread.join();
            }
        }
    }
}

fn take(runtime: &Mutex<Option<Runtime>>) -> Option<Runtime> {
    runtime.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Wake for TokioContext {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // There is no caller to tell: a panic here is counted like a task's, and printed.
        self.start().unwrap_or_else(|error| panic!("{}", Error::Thread(error)));
    }
}

superpoll::debug_fields!(TokioContext);

/// Returns a duplicate of the epoll set of a tokio runtime's driver; `None` without `/proc`.
fn driver_set(handle: &Handle) -> io::Result<Option<OwnedFd>> {
    let _entered = handle.enter();
    let (probe, _other) = tokio::net::unix::pipe::pipe()?;
    let Ok(list) = std::fs::read_dir("/proc/self/fdinfo") else { return Ok(None) };
    let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers {
        if lists(number, probe.as_raw_fd()) {
            return sys::descriptor::duplicate(number).map(Some);
        }
    }
    Ok(None)
}

/// Returns whether a descriptor is an epoll set that watches another (`tfd:` in `proc(5)`).
fn lists(set: RawFd, watched: RawFd) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let mut numbers = targets.filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
    numbers.any(|number: RawFd| number == watched)
}
