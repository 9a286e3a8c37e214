//! The checked options, and the limit of the number of connections.

use std::time::Duration;

use crate::environment;
use crate::error::{Error, Result};
use crate::headroom::{Headroom, Limit};
use crate::million::{Kind, Options};
use crate::options;

/// The assumed memory of a pair of sockets with both of its ends, in bytes: 10 KB of the kernel's
/// and the rest of the processes'.
const BYTES: u64 = 12 << 10;

/// Descriptors that a server keeps for files (see `docs/memory.md`), and those of its own.
const KEPT: usize = 32;
const SHARE: usize = 32;
const OWN: usize = 32;

/// The most processes of the server.
const PROCESSES: usize = 4096;

/// The number of watched descriptors of a user.
const WATCHES: &str = "/proc/sys/fs/epoll/max_user_watches";

/// The checked options.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The kinds, in turn.
    pub kinds: Vec<Kind>,
    /// Connections to open.
    pub connections: usize,
    /// Why there are no more.
    pub limit: &'static str,
    /// Processes of the server.
    pub processes: usize,
    /// Whether each server has a keeper.
    pub has_keepers: bool,
    /// How long connections may be opened, for each kind.
    pub time: Duration,
    /// A difference from the request.
    pub note: Option<String>,
}

impl Plan {
    /// Returns the number of connections of a process of clients.
    pub(super) fn share(&self, process: usize) -> usize {
        self.connections / self.processes + usize::from(process < self.connections % self.processes)
    }
}

/// The limits of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    headroom: Headroom,
    /// Descriptors of a process.
    descriptors: usize,
    /// Descriptors that all epoll sets of a user may watch.
    watches: usize,
}

impl Machine {
    /// Looks around. The limit of descriptors is raised as far as it goes.
    pub(super) fn here() -> Machine {
        let nofile = superpoll::limits::raise_descriptors()
            .unwrap_or_else(|_| superpoll::limits::nofile().0);
        let watches = environment::line(WATCHES).and_then(|line| line.parse().ok());
        Machine {
            headroom: Headroom::here(),
            descriptors: usize::try_from(nofile).unwrap_or(usize::MAX),
            watches: watches.unwrap_or(usize::MAX),
        }
    }

    /// Returns how many connections a process may have.
    fn capacity(&self) -> usize {
        self.descriptors.saturating_sub(KEPT + self.descriptors / SHARE + OWN).max(1)
    }

    /// Returns how many connections there can be, and the limit that allows no more.
    fn most(&self, processes: Option<usize>, has_keepers: bool) -> (usize, &'static str) {
        let capacity = self.capacity();
        // A keeper is one more process for the connections of a server.
        let at_servers = if has_keepers { capacity / 2 } else { capacity };
        let (count, limit) = self.headroom.connections(BYTES, at_servers, capacity);
        // Both ends of a connection are watched.
        let all = [
            (count, limit.name()),
            (self.watches / 2, "watches"),
            (capacity.saturating_mul(processes.unwrap_or(PROCESSES)), "descriptors"),
        ];
        all.into_iter().min_by_key(|(count, _)| *count).unwrap_or(all[0])
    }

    /// Returns a limit in words.
    fn explain(&self, limit: &str) -> String {
        match limit {
            "watches" => format!("fs.epoll.max_user_watches is {}", self.watches),
            "descriptors" => format!("a process may open {} descriptors", self.descriptors),
            name if name == Limit::Memory.name() => {
                let available = self.headroom.memory >> 20;
                format!("{available} MiB of memory are available, and a quarter is left")
            }
            name if name == Limit::Files.name() => "fs.file-max allows no more".to_owned(),
            _ => "no more processes may be started".to_owned(),
        }
    }
}

/// Checks the options.
pub(super) fn plan(options: &Options, machine: Machine) -> Result<Plan> {
    let kinds = options::named(&options.kinds, &Kind::ALL, |one| one.name(), |_| true, "no kind")?;
    let is_quick = options.output.quick;
    if let Some(connections) = options.connections {
        options::within("--connections", connections, 1..=usize::MAX / 2)?;
    }
    let wanted = options.processes.or(is_quick.then_some(2));
    if let Some(processes) = wanted {
        options::within("--processes", processes, 1..=PROCESSES)?;
    }
    if options.output.repetitions.is_some_and(|count| count > 1) {
        return Err(Error::usage("--repetitions has no use here: each kind is measured once"));
    }
    let has_keepers = !options.no_keeper;
    let (most, limit) = machine.most(wanted, has_keepers);
    let asked = options.connections.or(is_quick.then_some(300));
    let connections = asked.unwrap_or(most).min(most);
    if connections == 0 {
        let why = machine.explain(limit);
        return Err(Error::usage(format!("there is no room for a connection: {why}")));
    }
    let is_cut = asked.is_none_or(|asked| asked > most);
    let note = is_cut.then(|| {
        let why = machine.explain(limit);
        match asked {
            Some(asked) => format!("{most} connections instead of {asked}: {why}"),
            None => format!("{most} connections: {why}"),
        }
    });
    let needed = connections.div_ceil(machine.capacity());
    let seconds = options.output.budget(30.0, 1200.0) / kinds.len() as f64;
    Ok(Plan {
        connections,
        limit: if is_cut { limit } else { "asked" },
        processes: wanted.unwrap_or(needed).min(connections),
        has_keepers,
        // The rest is for the message, the crash and the check of each connection.
        time: Duration::from_secs_f64(seconds * 0.6),
        note,
        kinds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { headroom: Headroom::here(), descriptors: 20_000, watches: 5_000_000 }
    }

    fn of(change: fn(&mut Options)) -> Result<Plan> {
        let mut options = Options::default();
        change(&mut options);
        plan(&options, machine())
    }

    #[test]
    fn connections_are_spread_over_as_many_processes_as_they_need() {
        let capacity = machine().capacity();
        assert!((19_000..19_900).contains(&capacity), "{capacity}");
        let few = of(|options| options.connections = Some(5)).unwrap();
        assert_eq!((few.connections, few.processes, few.limit), (5, 1, "asked"));
        let spread = Plan { connections: 11, processes: 3, ..few };
        assert_eq!((0..3).map(|one| spread.share(one)).collect::<Vec<_>>(), [4, 4, 3]);
        let two = Machine { watches: 4 * capacity, ..machine() };
        let options = Options { connections: Some(capacity + 1), ..Options::default() };
        assert_eq!(plan(&options, two).unwrap().processes, 2);
    }

    #[test]
    fn the_limit_that_allows_no_more_is_named() {
        let few = Machine { watches: 100, ..machine() };
        let found = plan(&Options::default(), few).unwrap();
        assert_eq!((found.connections, found.limit), (50, "watches"));
        assert!(found.note.unwrap().contains("max_user_watches is 100"));
        let options = Options { connections: Some(51), ..Options::default() };
        let found = plan(&options, few).unwrap();
        assert!(found.note.unwrap().starts_with("50 connections instead of 51"));
        let small = Machine { descriptors: 200, ..machine() };
        let options = Options { processes: Some(2), ..Options::default() };
        let found = plan(&options, small).unwrap();
        assert_eq!((found.connections, found.limit), (2 * small.capacity(), "descriptors"));
        let none = plan(&Options::default(), Machine { watches: 1, ..machine() });
        assert!(none.unwrap_err().to_string().contains("no room for a connection"));
    }

    #[test]
    fn options_are_checked() {
        let quick = of(|options| options.output.quick = true).unwrap();
        assert_eq!((quick.connections, quick.processes), (300, 2));
        assert_eq!(quick.kinds, Kind::ALL);
        assert!(quick.has_keepers && quick.note.is_none());
        assert!(!of(|options| options.no_keeper = true).unwrap().has_keepers);
        for (change, about) in [
            ((|o| o.kinds = "telnet".to_owned()) as fn(&mut Options), "keep-alive, websocket"),
            (|o| o.connections = Some(0), "--connections 0"),
            (|o| o.processes = Some(0), "--processes 0"),
            (|o| o.processes = Some(5000), "--processes 5000"),
            (|o| o.output.repetitions = Some(2), "--repetitions"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }
}
