//! How many more processes and threads may be started, and which limit determines that number.
//!
//! An experiment that needs thousands of them looks here first and asks for fewer, with a note,
//! instead of failing halfway. The values read here are a snapshot, and other programs start
//! processes too: the experiment has to cope with a fork that is refused all the same.

use std::os::unix::fs::MetadataExt;

use crate::cgroup;
use crate::environment::{self, line};
use crate::sys::process;

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
        |limit: cgroup::Limit| room(limit.most, limit.used, "pids.max of the cgroup".to_owned());
    rooms.extend(cgroup::limits("pids").into_iter().map(of_group));
    rooms.into_iter().min_by_key(|room| room.most)
}

/// Returns how many processes or threads fit in memory, if each takes so many bytes and half of the
/// free memory is left to other programs.
pub(crate) fn in_memory(bytes: u64) -> Option<Room> {
    environment::memory_available().map(|free| memory_room(free, bytes))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

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
}
