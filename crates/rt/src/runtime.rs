//! Starting engines, blocking on a future, and ending in order.

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use superpoll::backend::policy::PolicyKind;
use superpoll::{BackendKind, Poller};

use crate::engine::{Engine, Settings};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::remote::Engines;
use crate::stats::Stats;
use crate::thread_hooks::{HookedThread, ThreadHooks};
#[cfg(feature = "tokio-context")]
use crate::tokio_context::TokioContext;
use crate::worker::{Start, Worker};

/// Chooses the I/O manager, the number of engines and the other settings before the start.
///
/// The back-end is the first of these that is set: the argument of [`backend`](Builder::backend),
/// the environment variable `SUPERPOLL_BACKEND`, `adaptive`. [`BackendKind::Auto`] uses io_uring
/// where it is allowed and cheaper.
#[derive(Clone, Debug)]
pub struct Builder {
    backend: Option<BackendKind>,
    policy: Option<PolicyKind>,
    workers: NonZeroUsize,
    settings: Settings,
    hooks: ThreadHooks,
    is_paused: bool,
    #[cfg(feature = "tokio-context")]
    has_tokio: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            backend: None,
            policy: None,
            workers: NonZeroUsize::MIN,
            settings: Settings::default(),
            hooks: ThreadHooks::default(),
            is_paused: false,
            #[cfg(feature = "tokio-context")]
            has_tokio: false,
        }
    }
}

impl Builder {
    /// Sets the I/O manager of all engines.
    #[must_use]
    pub fn backend(mut self, backend: BackendKind) -> Builder {
        self.backend = Some(backend);
        self
    }

    /// Sets where the adaptive back-end watches descriptors: by costs (the default), or by the
    /// active/total ratio of its sets. Else the environment variable `SUPERPOLL_POLICY` does. With
    /// a policy, [`BackendKind::Auto`] is the adaptive back-end, and another one is an error. The
    /// [guide](superpoll::guide::choosing) says when it pays.
    ///
    /// # Examples
    ///
    /// ```
    /// use superpoll::backend::policy::{PolicyKind, Thresholds};
    ///
    /// let thresholds = Thresholds::new(0.3, 0.6, 32)?;
    /// let runtime = superpoll_rt::Runtime::builder()
    ///     .policy(PolicyKind::Ratio(thresholds))
    ///     .build()?;
    /// assert_eq!(runtime.backend(), "adaptive");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: PolicyKind) -> Builder {
        self.policy = Some(policy);
        self
    }

    /// Sets the number of engines. One (the default) runs on the thread that blocks on the runtime,
    /// each further engine on a thread of its own. Tasks stay on the engine they were spawned on;
    /// [`Handle::spawn`] gives a new task to the engine that has the fewest.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Builder {
        self.workers = workers;
        self
    }

    /// Sets how long an engine may look again before it sleeps (zero, the default: not at all). It
    /// does so only as long as sleeps tend to be shorter than that. This takes tens of microseconds
    /// off each round of a quick exchange and costs processor time instead. Above a hundred
    /// microseconds there is little to gain.
    #[must_use]
    pub fn spin(mut self, limit: Duration) -> Builder {
        self.settings.spin = limit;
        self
    }

    /// Sets how late a timer may fire so that one wake-up of its engine serves several timers (one
    /// millisecond, the default; compare `PR_SET_TIMERSLACK`). An engine that has been woken for
    /// timers is not woken for others within the slack after that, and these fire together at its
    /// end. So no timer is early, a timer that comes alone is on time, and however many timers
    /// there are, they wake the engine at most once per slack. Each wake-up takes several
    /// microseconds of processor time.
    ///
    /// With less than 16 microseconds, zero for example, each timer has a wake-up of its own, to
    /// the resolution of 8.2 microseconds. The kernel's slack and the tasks that run before a timer
    /// come on top, see [`time`](crate::time).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// // Packets that have to leave at a pace.
    /// let precise = superpoll_rt::Runtime::builder().timer_slack(Duration::ZERO).build()?;
    /// precise.block_on(superpoll_rt::time::sleep(Duration::from_micros(100)));
    /// # Ok::<(), superpoll_rt::Error>(())
    /// ```
    #[must_use]
    pub fn timer_slack(mut self, slack: Duration) -> Builder {
        self.settings.timer_slack = slack;
        self
    }

    /// Sets the least time between two wake-ups of an engine for events, up to a second (zero, the
    /// default: none). Events that come one by one, faster than that, are then handled several at a
    /// time. That saves processor time, and each of them may be later by as much. The first event
    /// after a lull is not delayed. See [`Poller::gather`].
    ///
    /// It can pay in relays and where many senders meet, with tens of thousands of small events a
    /// second. Measure it with your load: with a time in which few events come it only delays them.
    #[must_use]
    pub fn gather(mut self, time: Duration) -> Builder {
        self.settings.gather = time;
        self
    }

    /// Sets whether the clock stands still from the start, as after
    /// [`time::pause`](crate::time::pause): for tests. Such a runtime has one engine.
    #[must_use]
    pub fn start_paused(mut self, is_paused: bool) -> Builder {
        self.is_paused = is_paused;
        self
    }

    /// Sets whether an operation is tried before its descriptor is watched (the default), which
    /// saves the wait and often the registration where there is something to do at once. If not,
    /// each direction of a descriptor is watched before it is used for the first time, as an event
    /// loop does that knows nothing but its poller: for comparison. Readiness that was reported is
    /// remembered either way.
    #[must_use]
    pub fn speculative(mut self, speculative: bool) -> Builder {
        self.settings.waits_first = !speculative;
        self
    }

    /// Sets a function that is called on the thread of each engine before the engine runs: in
    /// [`build`](Builder::build) on the thread that builds the runtime, and on each worker's thread
    /// as it starts. A library's thread-local state belongs there.
    #[must_use]
    pub fn on_thread_start(mut self, call: impl Fn() + Send + Sync + 'static) -> Builder {
        self.hooks.on_start = Some(Arc::new(call));
        self
    }

    /// Sets a function that is called on the thread of each engine when the engine has ended and
    /// its tasks are dropped.
    #[must_use]
    pub fn on_thread_stop(mut self, call: impl Fn() + Send + Sync + 'static) -> Builder {
        self.hooks.on_stop = Some(Arc::new(call));
        self
    }

    /// Sets whether each engine enters the context of a tokio runtime, for libraries that ask for
    /// one: their panics begin with "there is no reactor running" or "this functionality requires a
    /// Tokio context". The tokio runtime belongs to this runtime and has one thread,
    /// `superpoll-tokio`, which starts when a tokio task, timer or socket first needs it. Tasks of
    /// `tokio::spawn` run there; tasks of [`spawn`](crate::spawn) stay on their engines.
    ///
    /// A task must not block its engine's thread on something that tokio does: before the tokio
    /// thread has started, the engine starts it.
    #[cfg(feature = "tokio-context")]
    #[must_use]
    pub fn tokio(mut self, has_tokio: bool) -> Builder {
        self.has_tokio = has_tokio;
        self
    }

    fn poller(&self) -> superpoll::Result<Poller> {
        let builder = Poller::builder();
        let Some(policy) = self.policy else {
            return match self.backend {
                Some(backend) => builder.backend(backend).build(),
                None => builder.build(),
            };
        };
        match self.backend.map_or_else(BackendKind::from_environment, Ok)? {
            BackendKind::Adaptive | BackendKind::Auto => builder.policy_kind(policy).build(),
            backend => Err(superpoll::Error::Unsupported {
                backend: backend.name(),
                what: "a placement policy",
                instead: "choose the back-end adaptive, also in SUPERPOLL_BACKEND, or leave the \
                          policy out",
            }),
        }
    }

    /// Starts the engines.
    ///
    /// # Errors
    ///
    /// [`Error::Poller`] if the back-end or the policy is unknown or not available, or if the
    /// back-end has no policy, or if events cannot be gathered for so long, [`Error::Thread`] if a
    /// worker's thread cannot be started, [`Error::PausedEngines`] if the clock is to be paused and
    /// there are several engines, `Error::Tokio` if there are no descriptors left for the
    /// tokio runtime.
    #[cfg_attr(not(feature = "tokio-context"), expect(unused_mut, reason = "for the context"))]
    pub fn build(mut self) -> Result<Runtime> {
        let engines = self.workers.get();
        if self.is_paused && engines > 1 {
            return Err(Error::PausedEngines { engines });
        }
        #[cfg(feature = "tokio-context")]
        if self.has_tokio {
            self.hooks.tokio = Some(TokioContext::new()?);
        }
        let engine = Rc::new(Engine::new(self.poller()?, &self.settings)?);
        if self.is_paused {
            engine.pause_clock();
        }
        let thread = HookedThread::begin(&engine, self.hooks.clone())?;
        let mut workers = Vec::new();
        for number in 1..self.workers.get() {
            let start = Start {
                poller: self.poller()?,
                settings: self.settings.clone(),
                hooks: self.hooks.clone(),
            };
            workers.push(Worker::start(number, start)?);
        }
        let remotes = std::iter::once(engine.remote.clone())
            .chain(workers.iter().map(|worker| worker.remote.clone()));
        let engines = Arc::new(Engines(remotes.collect()));
        for remote in &engines.0 {
            remote.set_runtime(&engines);
        }
        let handle = Handle::new(engines);
        Ok(Runtime { engine, workers, handle, thread: Some(thread) })
    }
}

/// One or more engines. Dropping it ends all tasks at once; [`shutdown`](Runtime::shutdown) lets
/// them finish first.
///
/// It stays on the thread that built it, and drives that thread's engine whenever it
/// [blocks](Runtime::block_on) on a future.
///
/// A task of another runtime may build one and drop it, which ends its tasks and waits for its
/// threads. Only blocking on it is refused there; its engines that have a thread of their own work
/// without that.
pub struct Runtime {
    engine: Rc<Engine>,
    workers: Vec<Worker>,
    handle: Handle,
    /// There until the engine has ended.
    thread: Option<HookedThread>,
}

impl Runtime {
    /// Makes a runtime with one engine and the back-end that `SUPERPOLL_BACKEND` names, or
    /// `adaptive`.
    ///
    /// # Errors
    ///
    /// The same errors as [`Builder::build`].
    pub fn new() -> Result<Runtime> {
        Builder::default().build()
    }

    /// Starts a builder.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle that spawns on this runtime from any thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the name of the back-end.
    pub fn backend(&self) -> &'static str {
        self.engine.backend()
    }

    /// Runs a future until it has its result, together with the tasks of this thread's engine, and
    /// returns the result. Remaining tasks continue with the next call.
    ///
    /// # Panics
    ///
    /// Inside a runtime, this one or another: it would block the engine that has to do the work.
    /// Also if waiting fails, for which the kernel has no reason that a program could remove.
    /// [`try_block_on`](Runtime::try_block_on) returns both as errors.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self.try_block_on(future) {
            Ok(output) => output,
            Err(error) => panic!("Runtime::block_on: {error}"),
        }
    }

    /// Like [`block_on`](Runtime::block_on), with the failures of the runtime as errors.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] inside a runtime, this one or another. [`Error::Poller`] if waiting fails.
    pub fn try_block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        let enter = || self.engine.enter(|| self.drive(future)).ok_or(Error::Nested);
        match &self.thread {
            Some(thread) => thread.enter(enter)?,
            None => Err(Error::Ended),
        }
    }

    fn drive<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut future = pin!(future);
        let waker = Waker::from(self.engine.remote.clone());
        let mut cx = Context::from_waker(&waker);
        self.engine.remote.wake_root();
        loop {
            if self.engine.remote.take_root() {
                self.engine.renew_budget();
                if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
                    return Ok(result);
                }
            }
            self.engine.turn()?;
        }
    }

    /// Returns the counters of each engine, this thread's first. The counters of another thread
    /// date from its last turn or the turn before; the call asks for them and waits. An engine that
    /// does not answer within a second is left out.
    pub fn stats(&self) -> Vec<Stats> {
        let others = self.workers.iter().filter_map(Worker::stats);
        std::iter::once(self.engine.stats()).chain(others).collect()
    }

    /// Ends in order: lets the tasks of all engines finish, for at most `patience`, then ends the
    /// remaining tasks and waits for the threads, however long a future takes that does not give
    /// way. Returns how many tasks were ended so.
    ///
    /// # Errors
    ///
    /// The same errors as [`try_block_on`](Runtime::try_block_on), or the error that made a
    /// worker's engine end before its time. The runtime has ended all the same.
    pub fn shutdown(mut self, patience: Duration) -> Result<usize> {
        let remotes = self.handle.remotes().to_vec();
        let alive = move || -> usize {
            remotes.iter().map(|remote| remote.tasks.load(Ordering::Relaxed)).sum()
        };
        let left = self.try_block_on(async {
            let mut nap = Duration::from_micros(100);
            let end = crate::time::now() + patience;
            loop {
                let left = alive();
                let now = crate::time::now();
                if left == 0 || now >= end {
                    return left;
                }
                crate::time::sleep(nap.min(end - now)).await;
                nap = (nap * 2).min(Duration::from_millis(5));
            }
        })?;
        for worker in &mut self.workers {
            worker.stop()?;
        }
        Ok(left)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.workers.clear();
        let thread = self.thread.take();
        match &thread {
            Some(thread) => thread.enter(|| self.engine.end()),
            None => self.engine.end(),
        }
    }
}

superpoll::debug_fields!(Runtime, it => backend: it.backend(), engines: 1 + it.workers.len());
