//! A path at work, its parts, and how it reports errors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll_rt::{BackendKind, Runtime, spawn};

use crate::error::{Error, Result};
use crate::gate::measure::{Counted, Counts};
use crate::sys::descriptor;

/// A path that is set up.
pub(crate) trait Work {
    /// Carries out `count` operations.
    fn operate(&mut self, count: u64) -> Result<()>;

    /// The system calls that our own counters have seen since the set-up.
    fn counted(&self) -> Counted;

    /// The number of a process that takes part but is not counted.
    fn uncounted(&self) -> Option<i32> {
        None
    }
}

/// Operations on an engine.
struct OnEngine<Engine, Operate> {
    operate: Operate,
    engine: Engine,
}

impl<Engine, Operate> Work for OnEngine<Engine, Operate>
where
    Engine: Counts,
    Operate: FnMut(&mut Engine, u64) -> Result<()>,
{
    fn operate(&mut self, count: u64) -> Result<()> {
        (self.operate)(&mut self.engine, count)
    }

    fn counted(&self) -> Counted {
        let mut calls = Counted::new();
        self.engine.add_to(&mut calls);
        calls
    }
}

/// Returns a path that carries out its operations on an engine.
pub(super) fn on<Engine: Counts + 'static>(
    engine: Engine,
    operate: impl FnMut(&mut Engine, u64) -> Result<()> + 'static,
) -> Result<Box<dyn Work>> {
    Ok(Box::new(OnEngine { operate, engine }))
}

/// Returns a path that carries out its operations in a task on a runtime. Each task has `state`
/// while it works, and returns it; `doing` describes the work in errors.
pub(super) fn in_tasks<State, Task>(
    runtime: Runtime,
    state: State,
    doing: &'static str,
    mut task: impl FnMut(State, u64) -> Task + 'static,
) -> Result<Box<dyn Work>>
where
    State: Send + 'static,
    Task: Future<Output = io::Result<State>> + Send + 'static,
{
    let mut state = Some(state);
    on(runtime, move |runtime, count| {
        let Some(own) = state.take() else {
            return Err(Error::usage(format!("{doing} has failed before")));
        };
        let task = task(own, count);
        let ended = runtime.try_block_on(async { spawn(task).await }).map_err(said)?;
        let ended = ended.map_err(said)?;
        state = Some(ended.map_err(|e| Error::system(doing, e))?);
        Ok(())
    })
}

/// Creates a runtime on epoll.
pub(super) fn runtime() -> Result<Runtime> {
    Runtime::builder().backend(BackendKind::Epoll).build().map_err(said)
}

/// A pipe whose ends are read and written without waiting.
pub(super) struct Pipe {
    pub reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    pub(super) fn open() -> Result<Pipe> {
        let (reader, writer) =
            descriptor::pipe().map_err(|e| Error::system("opening a pipe", e))?;
        Ok(Pipe { reader, writer })
    }

    /// Writes a byte.
    // Inlined, like `read`, so that the count is the same whatever features are built in.
    #[inline(always)]
    pub(super) fn write(&self) -> Result<()> {
        match descriptor::write_byte(self.writer.as_raw_fd(), b'o') {
            true => Ok(()),
            false => Err(Error::last("writing to a pipe")),
        }
    }

    /// Reads the byte.
    #[inline(always)]
    pub(super) fn read(&self) -> Result<()> {
        match descriptor::read_byte(self.reader.as_raw_fd()) {
            Some(b'o') => Ok(()),
            _ => Err(Error::last("reading from a pipe")),
        }
    }
}

/// Converts an error of the engine, a runtime or the server.
pub(super) fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Reports a fault in the work of a path.
pub(super) fn wrong<T>(path: &'static str, found: impl Into<String>) -> Result<T> {
    Err(Error::Work { subject: path, found: found.into() })
}
