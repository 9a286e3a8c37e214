//! This machine's spare resources for connections that have both ends here.
//!
//! Such a connection takes two files (`fs.file-max`), memory of the kernel at both ends, and a
//! share of the processes that hold them, since one process may have only so many descriptors. An
//! experiment that wants very many of them asks here first how many there can be, and which limit
//! sets that number. A quarter of the memory that is available now stays with other processes.

use crate::{cgroup, environment, limits};

crate::by_name::named! {
    /// The resource that limits the number of connections.
    pub(crate) enum Limit {
        /// The memory of the machine or of this control group.
        Memory = "memory",
        /// The files that the whole system may have open (`fs.file-max`).
        Files = "files",
        /// The processes that may still be started ([`limits::tasks`]).
        Processes = "processes",
    }
}

/// The spare resources. A resource that the system does not report does not limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Headroom {
    /// Bytes that are available.
    pub memory: u64,
    files: u64,
    processes: u64,
}

/// Files that are left to other processes.
const FILES_OF_OTHERS: u64 = 10_000;

impl Headroom {
    /// Looks around.
    pub(crate) fn here() -> Headroom {
        let memory = environment::memory_available().unwrap_or(u64::MAX);
        let of_group = cgroup::limits("memory").into_iter().map(cgroup::Limit::left);
        Headroom {
            memory: of_group.fold(memory, u64::min),
            files: environment::line("/proc/sys/fs/file-nr")
                .and_then(|line| files_left(&line))
                .unwrap_or(u64::MAX),
            processes: limits::tasks().map_or(u64::MAX, |room| room.most),
        }
    }

    /// Returns how many connections are possible, and which limit allows no more. Each connection
    /// takes `bytes` at both ends together, and the other arguments are the connections per process
    /// at the servers and at the clients.
    pub(crate) fn connections(
        &self,
        bytes: u64,
        at_servers: usize,
        at_clients: usize,
    ) -> (usize, Limit) {
        let each = 1.0 / at_servers.max(1) as f64 + 1.0 / at_clients.max(1) as f64;
        let processes = (self.processes as f64 / each) as u64;
        let most = [
            (self.memory / 4 * 3 / bytes.max(1), Limit::Memory),
            (self.files.saturating_sub(FILES_OF_OTHERS) / 2, Limit::Files),
            (processes, Limit::Processes),
        ];
        let (count, limit) = most.into_iter().min_by_key(|(count, _)| *count).unwrap_or(most[0]);
        (usize::try_from(count).unwrap_or(usize::MAX), limit)
    }
}

/// Returns the files that `/proc/sys/fs/file-nr` leaves: the file lists the open files, the free
/// ones, and the maximum.
fn files_left(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let open: u64 = words.next()?.parse().ok()?;
    let most: u64 = words.nth(1)?.parse().ok()?;
    Some(most.saturating_sub(open))
}

/// Returns how many ports the kernel has for connections from one address to one port.
pub(crate) fn ports() -> usize {
    let range = environment::line("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<usize>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => (last + 1).saturating_sub(first),
        // The kernel's default.
        _ => 28_232,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scarcest_ends_a_number_and_is_named() {
        let here = Headroom { memory: 4 << 20, files: 30_000, processes: 100 };
        assert_eq!(here.connections(1 << 10, 1000, 1000), (3072, Limit::Memory));
        assert_eq!(here.connections(1, 1000, 1000), (10_000, Limit::Files));
        let few = Headroom { processes: 10, ..here };
        assert_eq!(few.connections(1, 1000, 1000), (5000, Limit::Processes));
        assert_eq!(few.connections(1, 0, 0).0, 5);
    }

    #[test]
    fn files_are_those_that_are_not_open() {
        assert_eq!(files_left("2000\t0\t9000"), Some(7000));
        assert_eq!((files_left("2000"), files_left("a b c")), (None, None));
        let here = Headroom::here();
        assert!(here.files > 0 && here.memory > 0 && ports() > 0);
    }
}
