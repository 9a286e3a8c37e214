//! The machine: its description for records, and how much memory is in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use superpoll::{BackendKind, Poller};
pub(crate) use superpoll_cli::environment::{Environment, PROFILE, RUSTC, field, line};

use crate::sys::process;

/// Returns the memory that is available without taking it from other programs, in bytes, if the
/// kernel reports it.
pub(crate) fn memory_available() -> Option<u64> {
    kilobytes(&field("/proc/meminfo", "MemAvailable")?)
}

/// Bytes from a number of kilobytes with its unit.
fn kilobytes(text: &str) -> Option<u64> {
    text.trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

// How many more processes and threads may be started, and which limit determines that number.
//
// An experiment that needs thousands of them looks here first and asks for fewer, with a note,
// instead of failing halfway. The values read here are a snapshot, and other programs start
// processes too: the experiment has to cope with a fork that is refused all the same.

/// The room that a limit leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// So many.
    pub most: u64,
    /// The limit, with its value and where it is set.
    pub limit: String,
}

/// Process numbers that the kernel reserves once its numbering has wrapped around.
const RESERVED_NUMBERS: u64 = 300;

/// Tasks that other programs may start meanwhile.
const OTHERS: u64 = 64;

/// Processes and threads that may still be started, by the tightest of all limits that are known.
pub(crate) fn tasks() -> Option<Room> {
    let there_are = line("/proc/loadavg").and_then(|text| all_tasks(&text)).unwrap_or(0);
    let number = |path: &str| line(path)?.parse::<u64>().ok();
    let of_system = [
        ("kernel.threads-max", number("/proc/sys/kernel/threads-max")),
        ("kernel.pid_max", number("/proc/sys/kernel/pid_max").map(|n| n - n.min(RESERVED_NUMBERS))),
    ];
    let mut rooms: Vec<Room> = of_system
        .into_iter()
        .filter_map(|(name, most)| Some(room(most?, there_are, name.to_owned())))
        .collect();
    // The superuser's number is not limited.
    if let Some(most) = process::tasks_allowed().filter(|_| process::user() != 0) {
        rooms.push(room(most, tasks_of(process::user()), "ulimit -u".to_owned()));
    }
    let of_group =
        |limit: GroupLimit| room(limit.most, limit.used, "pids.max of the cgroup".to_owned());
    rooms.extend(limits("pids").into_iter().map(of_group));
    rooms.into_iter().min_by_key(|room| room.most)
}

/// Returns how many processes or threads fit in memory, if each takes so many bytes and half of the
/// free memory is left to other programs.
pub(crate) fn in_memory(bytes: u64) -> Option<Room> {
    memory_available().map(|free| memory_room(free, bytes))
}

fn memory_room(free: u64, bytes: u64) -> Room {
    let limit = format!(
        "half of the {} MB of memory that are free, at {} KB for each",
        free / 1_000_000,
        bytes / 1_000
    );
    Room { most: free / 2 / bytes.max(1), limit }
}

fn room(most: u64, used: u64, name: String) -> Room {
    let left = most.saturating_sub(used).saturating_sub(OTHERS);
    Room { most: left, limit: format!("{name} is {most}, of which {used} are taken") }
}

/// Returns how many tasks there are on the machine: the number behind the slash.
fn all_tasks(load: &str) -> Option<u64> {
    load.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

/// Processes and threads of a user.
fn tasks_of(user: u32) -> u64 {
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    all.filter_map(|entry| {
        let folder = entry.ok()?.path();
        folder.file_name()?.to_str()?.parse::<u32>().ok()?;
        // Linked once for itself, once from above, and once for each task.
        (folder.metadata().ok()?.uid() == user).then(|| {
            folder.join("task").metadata().map_or(1, |task| task.nlink().saturating_sub(2))
        })
    })
    .sum()
}

// This machine's spare resources for connections that have both ends here.
//
// Such a connection takes two files (`fs.file-max`), memory of the kernel at both ends, and a
// share of the processes that hold them, since one process may have only so many descriptors. An
// experiment that wants very many of them asks here first how many there can be, and which limit
// sets that number. A quarter of the memory that is available now stays with other processes.

crate::by_name::named! {
    /// The resource that limits the number of connections.
    pub(crate) enum Limit {
        /// The memory of the machine or of this control group.
        Memory = "memory",
        /// The files that the whole system may have open (`fs.file-max`).
        Files = "files",
        /// The processes that may still be started ([`tasks`]).
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
        let memory = memory_available().unwrap_or(u64::MAX);
        let of_group = limits("memory").into_iter().map(GroupLimit::left);
        Headroom {
            memory: of_group.fold(memory, u64::min),
            files: line("/proc/sys/fs/file-nr")
                .and_then(|line| files_left(&line))
                .unwrap_or(u64::MAX),
            processes: tasks().map_or(u64::MAX, |room| room.most),
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
    let range = line("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<usize>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => (last + 1).saturating_sub(first),
        // The kernel's default.
        _ => 28_232,
    }
}

// The limits of control groups.
//
// A process is in a group of each tree (one tree in version 2, one for each controller in version
// 1), and every group from its own up to the root may set a limit. Only limits whose files are
// called `CONTROLLER.max` and `CONTROLLER.current` are read: all of version 2, and `pids` of
// version 1.

/// A limit and how much of it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupLimit {
    /// So much in all.
    pub most: u64,
    /// The amount in use.
    pub used: u64,
}

impl GroupLimit {
    /// Returns the amount that is left.
    pub(crate) fn left(self) -> u64 {
        self.most.saturating_sub(self.used)
    }
}

/// Returns the limits that this process's groups and those above them set for a controller (`pids`,
/// `memory`).
pub(crate) fn limits(controller: &str) -> Vec<GroupLimit> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folders = folders(&groups, controller);
    folders.iter().filter_map(|folder| limit(folder, controller)).collect()
}

/// Returns the limit of a group; `None` if the group sets none.
fn limit(folder: &Path, controller: &str) -> Option<GroupLimit> {
    let number = |name: &str| -> Option<u64> {
        line(&folder.join(format!("{controller}.{name}")).to_string_lossy())?.parse().ok()
    };
    Some(GroupLimit { most: number("max")?, used: number("current").unwrap_or(0) })
}

/// Returns the folders that may limit a controller's resource, by `/proc/self/cgroup` (cgroups(7)):
/// a line for each tree, with its number, its controllers and the group's path.
fn folders(groups: &str, controller: &str) -> Vec<PathBuf> {
    let roots = ["", "unified", controller].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !controllers.is_empty() && !controllers.split(',').any(|name| name == controller) {
            continue;
        }
        for group in Path::new(path).ancestors() {
            let group = group.strip_prefix("/").unwrap_or(group);
            folders.extend(roots.iter().map(|root| root.join(group)));
        }
    }
    folders
}

// The reason why io_uring does not take part.

/// Returns the reason why io_uring does not work on this machine; "is not used" if it does.
pub(crate) fn why_no_uring() -> String {
    match Poller::builder().backend(BackendKind::Uring).build() {
        Err(error) => error.to_string(),
        Ok(_) => "io_uring is not used".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_kernel_says_how_much_memory_is_in_use() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn some_limit_is_known_and_leaves_room_for_this_process() {
        let room = tasks().unwrap();
        assert!(room.most > 0 && room.limit.contains(" is "), "{room:?}");
    }

    #[test]
    fn used_resources_are_subtracted() {
        let found = room(1000, 200, "kernel.pid_max".to_owned());
        assert_eq!(found.most, 1000 - 200 - OTHERS);
        assert_eq!(found.limit, "kernel.pid_max is 1000, of which 200 are taken");
        assert_eq!(room(10, 20, String::new()).most, 0);
        let found = memory_room(2_000_000_000, 500_000);
        assert_eq!(found.most, 2_000);
        assert!(found.limit.contains("2000 MB") && found.limit.contains("500 KB"), "{found:?}");
        assert_eq!(all_tasks("0.42 1.00 2.50 3/1234 99"), Some(1234));
        assert_eq!(all_tasks("0.42"), None);
    }

    #[test]
    fn threads_of_this_user_are_counted() {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let own = Path::new("/proc/self/task").metadata().unwrap().nlink() - 2;
        assert!(own >= 2 && tasks_of(process::user()) >= own, "{own}");
        drop(end);
        thread.join().unwrap().unwrap_err();
    }

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

    #[test]
    fn a_group_and_those_above_are_looked_at_in_either_version() {
        let folders = folders("8:pids:/a/b\n4:memory:/x\n0::/c\n", "pids");
        for folder in ["/sys/fs/cgroup/pids/a/b", "/sys/fs/cgroup/pids/a", "/sys/fs/cgroup/c"] {
            assert!(folders.contains(&PathBuf::from(folder)), "{folder} in {folders:?}");
        }
        assert!(!folders.iter().any(|folder| folder.ends_with("x")));
        assert!(super::folders("nonsense", "pids").is_empty());
    }

    #[test]
    fn a_group_without_a_limit_does_not_limit() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(limit(folder.path(), "pids"), None);
        write("pids.max", "max\n");
        write("pids.current", "5\n");
        assert_eq!(limit(folder.path(), "pids"), None);
        write("pids.max", "12\n");
        let found = limit(folder.path(), "pids").unwrap();
        assert_eq!((found, found.left()), (GroupLimit { most: 12, used: 5 }, 7));
    }
}
