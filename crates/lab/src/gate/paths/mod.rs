//! The counted paths, one file each, with their set-up and their operation.
//!
//! A path is a small piece of work on one thread, without randomness or a clock. Seeds are fixed.
//! Costs are the assumed ones where a placement depends on them. No task waits for anything that is
//! not there already. Each path contains both ends of its traffic, because the process has no other
//! part: the figure of a request includes the client's reads and writes. The exception is the
//! origin of `http-proxy`, a process that is not counted. A check makes sure that each operation
//! has done its work.
//!
//! The paths of the runtime and above run on epoll. The adaptive back-end of a runtime measures the
//! cost of watching when it starts, and places descriptors accordingly: its counts would depend on
//! the moment.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use superpoll::BackendKind;
use superpoll_rt::{Runtime, spawn};

use crate::error::{Error, Result};
use crate::gate::measure::{Counted, Counts};
use crate::sys::descriptor;

mod http;
mod poller;
mod runtime;

/// A path by name.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Its name.
    pub name: &'static str,
    /// The operation, in words.
    pub operation: &'static str,
    /// How many operations are counted.
    pub operations: u64,
    /// The tolerated increase as a share, where it differs from the default.
    pub tolerance: Option<f64>,
    /// The back-end that the path needs, if a system may lack it.
    needs: Option<BackendKind>,
    set_up: fn() -> Result<Box<dyn Work>>,
}

crate::by_name::by_name!(Path);

const fn path(
    name: &'static str,
    operations: u64,
    operation: &'static str,
    set_up: fn() -> Result<Box<dyn Work>>,
) -> Path {
    Path { name, operation, operations, tolerance: None, needs: None, set_up }
}

impl Path {
    /// Sets the tolerance of paths through timers and the web server, which check files, slots and
    /// limits by the clock.
    const fn by_clock(self) -> Path {
        Path { tolerance: Some(0.06), ..self }
    }

    /// Sets the tolerance of paths through several crates. The compiler's inlining between crates
    /// depends on the folder that a checkout lies in; the difference has been up to 2 % so far.
    const fn by_build(self) -> Path {
        Path { tolerance: Some(0.05), ..self }
    }

    const fn needs(self, kind: BackendKind) -> Path {
        Path { needs: Some(kind), ..self }
    }
}

/// All paths, from the poller up.
pub(super) const ALL: &[Path] = &[
    path("wait-select", 4000, "select finds one of 8 pipes, which is read", || {
        poller::set_up_wait(BackendKind::Select)
    }),
    path("wait-poll", 4000, "poll finds one of 8 pipes, which is read", || {
        poller::set_up_wait(BackendKind::Poll)
    }),
    path("wait-epoll", 4000, "epoll finds one of 8 pipes, which is read", || {
        poller::set_up_wait(BackendKind::Epoll)
    }),
    path(
        "wait-adaptive",
        4000,
        "the adaptive back-end finds one of 8 pipes, which is read",
        || poller::set_up_wait(BackendKind::Adaptive),
    ),
    path("wait-uring", 4000, "io_uring finds one of 8 pipes, which is read", || {
        poller::set_up_wait(BackendKind::Uring)
    })
    .needs(BackendKind::Uring),
    path(
        "adaptive-moves",
        3840,
        "a pass in which 6 of 24 pipes are ready, others every 64",
        poller::set_up_adaptive_moves,
    ),
    path("register-epoll", 4000, "a pipe is registered with epoll and deregistered", || {
        poller::set_up_registration(BackendKind::Epoll)
    }),
    path("register-adaptive", 4000, "the same by the adaptive back-end", || {
        poller::set_up_registration(BackendKind::Adaptive)
    }),
    path("interest-undone", 4000, "an interest is changed four times, and back", || {
        poller::set_up_interest(4)
    }),
    path("interest-applied", 4000, "an interest is changed three times, and applied", || {
        poller::set_up_interest(3)
    }),
    path(
        "wake",
        4000,
        "a handle wakes a poller that does not sleep, and it waits",
        poller::set_up_wake,
    ),
    path(
        "wake-asleep",
        4000,
        "a handle wakes a poller that sleeps in another",
        poller::set_up_wake_asleep,
    ),
    path(
        "timer",
        20_000,
        "a timer is set among a hundred others, and taken back",
        runtime::set_up_timer,
    )
    .by_clock(),
    path("task", 4000, "a task is spawned, gives way once, and is joined", runtime::set_up_task)
        .by_build(),
    path(
        "hop",
        4000,
        "a task reads a byte and writes it to the next one's pipe",
        runtime::set_up_hop,
    )
    .by_build(),
    path(
        "hop-peers",
        4000,
        "the same where the ends of a pipe know each other",
        runtime::set_up_hop_peers,
    )
    .by_build(),
    path(
        "echo",
        1000,
        "a request of 64 bytes over TCP comes back, both ends",
        runtime::set_up_echo,
    )
    .by_build(),
    path("relay", 500, "the same through the TCP relay, all ends", runtime::set_up_relay)
        .by_build(),
    path(
        "http-file",
        1000,
        "a request for a file of 1 KiB, kept alive, both ends",
        http::set_up_http_file,
    )
    .by_clock(),
    path(
        "http-proxy",
        500,
        "the same through the reverse proxy, without the origin",
        http::set_up_http_proxy,
    )
    .by_clock(),
    path(
        "http-long-poll",
        500,
        "a request waits in the parking lot until a message is published, both ends",
        http::set_up_http_long_poll,
    )
    .by_clock(),
];

impl Path {
    /// The path of this name.
    pub(super) fn named(name: &str) -> Result<Path> {
        Ok(crate::options::named(name, ALL, |path| path.name, |_| true, "no path")?[0])
    }

    /// Returns why the path cannot be counted here, or `None` if it can.
    pub(super) fn missing(&self) -> Option<String> {
        let kind = self.needs.filter(|kind| !kind.is_available())?;
        Some(format!("the kernel does not let us have {}", kind.name()))
    }

    /// Sets the path up.
    pub(super) fn set_up(&self) -> Result<Box<dyn Work>> {
        (self.set_up)()
    }
}

// A path at work, its parts, and how it reports errors.

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
fn on<Engine: Counts + 'static>(
    engine: Engine,
    operate: impl FnMut(&mut Engine, u64) -> Result<()> + 'static,
) -> Result<Box<dyn Work>> {
    Ok(Box::new(OnEngine { operate, engine }))
}

/// Returns a path that carries out its operations in a task on a runtime. Each task has `state`
/// while it works, and returns it; `doing` describes the work in errors.
fn in_tasks<State, Task>(
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
fn runtime() -> Result<Runtime> {
    Runtime::builder().backend(BackendKind::Epoll).build().map_err(said)
}

/// A pipe whose ends are read and written without waiting.
struct Pipe {
    pub reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    fn open() -> Result<Pipe> {
        let (reader, writer) =
            descriptor::pipe().map_err(|e| Error::system("opening a pipe", e))?;
        Ok(Pipe { reader, writer })
    }

    /// Writes a byte.
    // Inlined, like `read`, so that the count is the same whatever features are built in.
    #[inline(always)]
    fn write(&self) -> Result<()> {
        match descriptor::write_byte(self.writer.as_raw_fd(), b'o') {
            true => Ok(()),
            false => Err(Error::last("writing to a pipe")),
        }
    }

    /// Reads the byte.
    #[inline(always)]
    fn read(&self) -> Result<()> {
        match descriptor::read_byte(self.reader.as_raw_fd()) {
            Some(b'o') => Ok(()),
            _ => Err(Error::last("reading from a pipe")),
        }
    }
}

/// Converts an error of the engine, a runtime or the server.
fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Reports a fault in the work of a path.
fn wrong<T>(path: &'static str, found: impl Into<String>) -> Result<T> {
    Err(Error::Work { subject: path, found: found.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_operates_and_counts() {
        for path in ALL.iter().filter(|path| path.missing().is_none()) {
            let mut work = path.set_up().unwrap_or_else(|error| panic!("{}: {error}", path.name));
            work.operate(150).unwrap_or_else(|error| panic!("{}: {error}", path.name));
            let before = work.counted();
            work.operate(100).unwrap_or_else(|error| panic!("{}: {error}", path.name));
            let after = work.counted();
            assert!(after.iter().all(|(name, count)| before.get(name) <= Some(count)));
            let more = after.values().sum::<u64>() - before.values().sum::<u64>();
            match path.name {
                // A change that is undone, a timer that is set and taken back, and a task need no
                // system call.
                "interest-undone" | "timer" | "task" => assert!(more <= 5, "{}: {more}", path.name),
                "interest-applied" => assert_eq!(more, 100, "{}", path.name),
                "register-epoll" => assert_eq!(after["epoll_ctl"] - before["epoll_ctl"], 200),
                "wake-asleep" => assert_eq!(after["write"] - before["write"], 100),
                _ => assert!(more >= 50, "{}: {more}", path.name),
            }
        }
    }

    #[test]
    fn names_are_unique_and_unknown_ones_are_refused() {
        for (index, path) in ALL.iter().enumerate() {
            assert_eq!(Path::named(path.name).unwrap(), *path);
            assert!(ALL[..index].iter().all(|other| other != path) && path.operations > 0);
        }
        let error = Path::named("wait-kqueue").unwrap_err().to_string();
        assert!(error.contains("\"wait-kqueue\"") && error.contains("wait-epoll"), "{error}");
    }
}
