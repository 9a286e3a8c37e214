//! The paths that are counted, each a file of its own: what is set up, and what one operation is.
//!
//! A path is a small work on one thread and without a die or a clock: seeds are fixed, costs are the assumed ones where
//! a placement depends on them, and nobody waits for anything that is not there already. Both ends of what is passed on
//! are in it, as there is nobody else in the process: the figure of a request has the client's reads and writes.
//! Each operation is checked to have done what it says.
//!
//! The paths of the runtime and above are on epoll. The adaptive back-end of a runtime measures what watching costs when
//! it starts, and places by that: its counts would be those of a moment.

use superpoll::BackendKind;

use crate::error::Result;
use crate::gate::paths::work::Work;

mod adaptive_moves;
mod echo;
mod hop;
mod http;
mod http_file;
mod http_long_poll;
mod interest;
mod registration;
mod relay;
mod task;
mod timer;
mod wait;
mod wake;
mod work;

/// A path by name.
#[derive(Clone, Copy)]
pub struct Path {
    /// Its name.
    pub name: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// How many operations are counted.
    pub operations: u64,
    /// How much dearer it may get, as a share, where that is not the usual.
    pub tolerance: Option<f64>,
    /// The back-end that it needs, of those that a system may lack.
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

/// The tolerance of what timers and the web server do, which look at files, slots and limits as the clock says.
const BY_CLOCK: Option<f64> = Some(0.06);

/// The tolerance of what goes through several crates: what the compiler inlines of one in another is not the same in each
/// folder that a checkout lies in, by 2 % so far.
const BY_BUILD: Option<f64> = Some(0.05);

/// All paths, from the poller up.
pub const ALL: &[Path] = &[
    path("wait-select", 4000, "select finds one of 8 pipes, which is read", || {
        wait::set_up(BackendKind::Select)
    }),
    path("wait-poll", 4000, "poll finds one of 8 pipes, which is read", || {
        wait::set_up(BackendKind::Poll)
    }),
    path("wait-epoll", 4000, "epoll finds one of 8 pipes, which is read", || {
        wait::set_up(BackendKind::Epoll)
    }),
    path(
        "wait-adaptive",
        4000,
        "the adaptive back-end finds one of 8 pipes, which is read",
        || wait::set_up(BackendKind::Adaptive),
    ),
    Path {
        needs: Some(BackendKind::Uring),
        ..path("wait-uring", 4000, "io_uring finds one of 8 pipes, which is read", || {
            wait::set_up(BackendKind::Uring)
        })
    },
    path(
        "adaptive-moves",
        3840,
        "a pass in which 6 of 24 pipes are ready, others every 64",
        adaptive_moves::set_up,
    ),
    path("register-epoll", 4000, "epoll is told of a pipe and told to forget it", || {
        registration::set_up(BackendKind::Epoll)
    }),
    path("register-adaptive", 4000, "the same by the adaptive back-end", || {
        registration::set_up(BackendKind::Adaptive)
    }),
    path("interest-undone", 4000, "an interest is changed four times, and back", || {
        interest::set_up(4)
    }),
    path("interest-told", 4000, "an interest is changed three times, and told", || {
        interest::set_up(3)
    }),
    path("wake", 4000, "a handle wakes a poller that does not sleep, and it waits", wake::set_up),
    path(
        "wake-asleep",
        4000,
        "a handle wakes a poller that sleeps in another",
        wake::set_up_asleep,
    ),
    Path {
        tolerance: BY_CLOCK,
        ..path(
            "timer",
            20_000,
            "a timer is set among a hundred others, and taken back",
            timer::set_up,
        )
    },
    Path {
        tolerance: BY_BUILD,
        ..path("task", 4000, "a task is spawned, gives way once, and is joined", task::set_up)
    },
    Path {
        tolerance: BY_BUILD,
        ..path("hop", 4000, "a task reads a byte and writes it to the next one's pipe", hop::set_up)
    },
    Path {
        tolerance: BY_BUILD,
        ..path(
            "hop-peers",
            4000,
            "the same where the ends of a pipe know each other",
            hop::set_up_peers,
        )
    },
    Path {
        tolerance: BY_BUILD,
        ..path("echo", 1000, "a request of 64 bytes over TCP comes back, both ends", echo::set_up)
    },
    Path {
        tolerance: BY_BUILD,
        ..path("relay", 500, "the same through the TCP relay, all ends", relay::set_up)
    },
    Path {
        tolerance: BY_CLOCK,
        ..path(
            "http-file",
            1000,
            "a request for a small file, kept alive, both ends",
            http_file::set_up,
        )
    },
    Path {
        tolerance: BY_CLOCK,
        ..path(
            "http-long-poll",
            500,
            "a request waits in the parking lot until a message is published, both ends",
            http_long_poll::set_up,
        )
    },
];

impl Path {
    /// The path of this name.
    pub fn named(name: &str) -> Result<Path> {
        Ok(crate::options::named(name, ALL, |path| path.name, |_| true, "no path")?[0])
    }

    /// Why it cannot be counted here, if it cannot.
    pub fn missing(&self) -> Option<String> {
        let kind = self.needs.filter(|kind| !kind.is_available())?;
        Some(format!("the kernel does not let us have {}", kind.name()))
    }

    /// Sets it up.
    pub fn set_up(&self) -> Result<Box<dyn Work>> {
        (self.set_up)()
    }
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
                // What is undone and what is set and taken back needs no kernel, nor does a task.
                "interest-undone" | "timer" | "task" => assert!(more <= 5, "{}: {more}", path.name),
                "interest-told" => assert_eq!(more, 100, "{}", path.name),
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
