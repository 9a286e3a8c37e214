//! Reaching a runtime from any thread.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine;
use crate::error::{Error, Result};
use crate::remote::{Message, Remote};
use crate::task::{self, JoinHandle};
use crate::turns::TurnWatch;

/// The engines of a runtime.
#[derive(Debug)]
pub(crate) struct Engines(pub Vec<Arc<Remote>>);

/// Spawns on a runtime, from any thread, inside it or outside. Cloning is cheap. It does not keep the
/// runtime alive.
#[derive(Clone)]
pub struct Handle(Arc<Engines>);

impl Handle {
    pub(crate) fn new(engines: Arc<Engines>) -> Handle {
        Handle(engines)
    }

    pub(crate) fn remotes(&self) -> &[Arc<Remote>] {
        &self.0.0
    }

    /// The runtime whose engine runs on this thread.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] outside of one, [`Error::Ended`] while its last tasks are dropped.
    pub fn current() -> Result<Handle> {
        let engines = engine::with(|engine| engine.remote.runtime()).ok_or(Error::NoRuntime)?;
        engines.map(Handle).ok_or(Error::Ended)
    }

    /// How many engines there are.
    pub fn engines(&self) -> usize {
        self.0.0.len()
    }

    /// The number of the engine that runs on this thread, if it is one of this runtime's.
    pub fn engine(&self) -> Option<usize> {
        let id = engine::with(|engine| engine.remote.id)?;
        self.0.0.iter().position(|remote| remote.id == id)
    }

    /// Spawns a task on the engine that has the fewest, where it stays. On a runtime that has ended it
    /// is cancelled at once.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // Of equals the own engine, which needs no message.
        let own = engine::with(|engine| engine.remote.id);
        let fewest =
            self.0.0.iter().min_by_key(|remote| {
                (remote.tasks.load(Ordering::Relaxed), Some(remote.id) != own)
            });
        task::spawn_anywhere(fewest.expect("a runtime has an engine"), future)
    }

    /// Spawns a task on a given engine, numbered from zero; that of the thread which blocks on the
    /// runtime is zero.
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

    /// Calls a function on an engine's thread, where it can [`spawn`](crate::spawn) what is not `Send`.
    /// It is called between two tasks and must not block. A panic in it is counted as a task's. One that was accepted
    /// is called in any case, if not before then while the engine ends: what it spawns is cancelled then.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchEngine`], or [`Error::Ended`].
    pub fn call_on(&self, engine: usize, call: impl FnOnce() + Send + 'static) -> Result<()> {
        let remote = self.remote(engine)?;
        remote.send(Message::Call(Box::new(call))).map_err(|_| Error::Ended)
    }

    /// Has all engines measure their turns with the precise clock for as long as what this returns lives. See
    /// [`Stats::slowest`](crate::Stats::slowest).
    pub fn watch_turns(&self) -> TurnWatch {
        TurnWatch::new(self.clone())
    }

    fn remote(&self, engine: usize) -> Result<&Arc<Remote>> {
        let engines = self.engines();
        self.0.0.get(engine).ok_or(Error::NoSuchEngine { engine, engines })
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("engines", &self.engines()).finish_non_exhaustive()
    }
}
