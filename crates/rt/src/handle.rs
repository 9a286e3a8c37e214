//! Reaching a runtime from any thread.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine;
use crate::error::{Error, Result};
use crate::remote::{Engines, Message, Remote};
use crate::stats::Stats;
use crate::task::{self, JoinHandle};

/// Spawns on a runtime, from any thread, inside it or outside. Cloning is cheap. It does not keep
/// the runtime alive.
#[derive(Clone)]
pub struct Handle(Arc<Engines>);

impl Handle {
    pub(crate) fn new(engines: Arc<Engines>) -> Handle {
        Handle(engines)
    }

    pub(crate) fn remotes(&self) -> &[Arc<Remote>] {
        &self.0.0
    }

    /// Returns the runtime whose engine runs on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] outside of a runtime, [`Error::Ended`] while its last tasks are
    /// dropped.
    pub fn current() -> Result<Handle> {
        let engines = engine::with(|engine| engine.remote.runtime()).ok_or(Error::NoRuntime)?;
        engines.map(Handle).ok_or(Error::Ended)
    }

    /// Returns the number of engines.
    pub fn engines(&self) -> usize {
        self.0.0.len()
    }

    /// Returns the number of the engine that runs on this thread, if it belongs to this runtime.
    pub fn engine(&self) -> Option<usize> {
        let id = engine::with(|engine| engine.remote.id)?;
        self.0.0.iter().position(|remote| remote.id == id)
    }

    /// Spawns a task on the engine that has the fewest tasks, where it stays. On a runtime that has
    /// ended the task is cancelled at once.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        // The compiler shows this line to those whose future is not `Send`.
        F: Future + Send + 'static, // or `superpoll_rt::spawn`, which stays on this engine
        F::Output: Send + 'static,
    {
        // Of equals it prefers the own engine, which needs no message.
        let own = engine::with(|engine| engine.remote.id);
        let fewest =
            self.0.0.iter().min_by_key(|remote| {
                (remote.tasks.load(Ordering::Relaxed), Some(remote.id) != own)
            });
        task::spawn_anywhere(fewest.expect("a runtime has an engine"), future)
    }

    /// Spawns a task on a given engine. Engines are numbered from zero; zero is the engine of the
    /// thread that blocks on the runtime.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEngine`].
    pub fn spawn_on<F>(&self, engine: usize, future: F) -> Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Ok(task::spawn_anywhere(self.remote(engine)?, future))
    }

    /// Calls a function on an engine's thread, where it can [`spawn`](crate::spawn) futures that
    /// are not `Send`. It is called between two tasks and must not block. A panic in it is counted
    /// like a task's panic. An accepted call is made in any case, at the latest while the engine
    /// ends: tasks that it spawns then are cancelled.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEngine`], or [`Error::Ended`].
    pub fn call_on(&self, engine: usize, call: impl FnOnce() + Send + 'static) -> Result<()> {
        let remote = self.remote(engine)?;
        remote.send(Message::Call(Box::new(call))).map_err(|_| Error::Ended)
    }

    /// Makes all engines measure their turns with the precise clock while the returned value lives.
    /// See [`Stats::slowest`](crate::Stats::slowest).
    pub fn watch_turns(&self) -> TurnWatch {
        TurnWatch::new(self.clone())
    }

    fn remote(&self, engine: usize) -> Result<&Arc<Remote>> {
        let engines = self.engines();
        self.0.0.get(engine).ok_or(Error::NoSuchEngine { engine, engines })
    }
}

superpoll::debug_fields!(Handle, it => engines: it.engines());

/// While one of these lives, the engines of a runtime measure their turns with the precise clock,
/// which is read twice a turn at about four times the price of the coarse clock. See
/// [`Handle::watch_turns`].
#[derive(Debug)]
#[must_use = "turns are measured precisely only as long as this lives"]
pub struct TurnWatch(Handle);

impl TurnWatch {
    fn new(handle: Handle) -> TurnWatch {
        for remote in handle.remotes() {
            remote.turn_watches.fetch_add(1, Ordering::Relaxed);
        }
        TurnWatch(handle)
    }
}

impl Drop for TurnWatch {
    fn drop(&mut self) {
        for remote in self.0.remotes() {
            remote.turn_watches.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Stats {
    /// Returns the counters of the engine that runs on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] outside of a runtime.
    pub fn current() -> Result<Stats> {
        engine::with(|engine| engine.stats()).ok_or(Error::NoRuntime)
    }
}
