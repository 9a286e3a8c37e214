//! Facts about a process from `/proc`: whether it can be watched, its name and processor time, and
//! the descriptors that are registered in its epoll sets.
//!
//! Reading `fdinfo` of an epoll set holds the set's lock, for 20 ms with 9,900 descriptors. So it
//! is read when a set is first seen and once at the end. In between, successful `epoll_ctl` calls
//! are counted. The difference at the end is the *drift*: descriptors that were closed without
//! `EPOLL_CTL_DEL`, and changes by another process that shares the set.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use superpoll::diagnostics::Kind as CostKind;

use crate::error::Error;

/// The number of the machine's first namespace of processes (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Whether the numbers of processes here are those that the kernel's programs see.
pub(crate) fn has_machine_numbers() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|found| found.ino() == FIRST_NAMESPACE)
}

/// Returns the fields of `/proc/PID/stat` from the state on.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Returns the user with whose rights this process opens files.
///
/// # Errors
///
/// There is no `/proc`.
pub(crate) fn own_user() -> io::Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    // Uid: the real one, the effective one, that of before, and that of files.
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = users.and_then(|users| users.split_whitespace().nth(3)?.parse().ok());
    user.ok_or_else(|| io::Error::other("/proc/self/status names no user"))
}

/// Checks that a process can be watched.
pub(crate) fn check(process: u32) -> Result<(), Error> {
    let Ok(found) = fs::metadata(format!("/proc/{process}")) else {
        return Err(Error::NoProcess(process));
    };
    // Threads have folders there, too, which a listing does not show.
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    if field("Tgid:").is_some_and(|group| group != process.to_string()) {
        return Err(Error::NoProcess(process));
    }
    if field("State:").is_some_and(|state| has_ended(process, &state)) {
        return Err(Error::Ended(process));
    }
    if field("Kthread:").is_some_and(|is_one| is_one == "1") {
        return Err(Error::KernelThread(process));
    }
    if let Err(error) = fs::read_dir(format!("/proc/{process}/fdinfo")) {
        return Err(match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Foreign { process, user: found.uid() },
            _ => Error::NoProcess(process),
        });
    }
    if is_32_bit(&format!("/proc/{process}/exe")) {
        Err(Error::ThirtyTwoBit(process))
    } else {
        Ok(())
    }
}

/// Whether a file is a 32-bit program.
fn is_32_bit(path: &str) -> bool {
    let mut head = [0; 5];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"\x7fELF\x01"
}

/// Returns the threads of a process.
pub(crate) fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the process of a thread.
pub(crate) fn of_thread(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Returns the process that traces this one, if any.
pub(crate) fn tracer(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let found = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse();
    found.ok().filter(|tracer| *tracer != 0).and_then(of_thread)
}

/// Returns the name of a process.
pub(crate) fn name(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Returns the processor time of a process, in seconds, with a resolution of 10 ms.
pub(crate) fn processor_time(process: u32) -> Option<f64> {
    let fields = stat(process)?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // The kernel counts in hundredths of a second for programs, whatever its own clock.
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

/// Returns when a process was started, in the kernel's unit: another process that gets its number
/// has another time.
pub(crate) fn began(process: u32) -> Option<u64> {
    stat(process)?.get(19)?.parse().ok()
}

/// The same of a process that has not ended.
pub(crate) fn started(process: u32) -> Option<u64> {
    if has_ended(process, stat(process)?.first()?) { None } else { began(process) }
}

/// Whether a process in this state has ended: it may go on without its first thread.
fn has_ended(process: u32, state: &str) -> bool {
    state.starts_with(['Z', 'X']) && threads(process).len() < 2
}

/// Returns the processor times of all processes.
pub(crate) fn all_processor_times() -> BTreeMap<u32, f64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| Some((number, processor_time(number)?))).collect()
}

/// The descriptors that are registered in an epoll set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Registered {
    /// Descriptors by kind: `tcp`, `unix`, `pipe`, `eventfd`, ...
    pub kinds: BTreeMap<String, u64>,
}

impl Registered {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// The kind of most of them, as costs are known by it.
    pub(crate) fn cost_kind(&self) -> CostKind {
        let of =
            |names: &[&str]| -> u64 { names.iter().filter_map(|name| self.kinds.get(*name)).sum() };
        let (tcp, unix, pipe) = (of(&["tcp", "udp", "socket"]), of(&["unix"]), of(&["pipe"]));
        match tcp.max(unix).max(pipe) {
            0 => CostKind::Unknown,
            most if most == tcp => CostKind::Tcp,
            most if most == unix => CostKind::Unix,
            _ => CostKind::Pipe,
        }
    }
}

/// Reads the registered descriptors of every epoll set of a process, by the set's descriptor.
pub(crate) fn epoll_sets(process: u32) -> BTreeMap<u32, Registered> {
    let mut sockets = None;
    let sets = set_descriptors(process).into_iter();
    sets.map(|set| (set, registered(process, set, &mut sockets))).collect()
}

/// Returns the descriptors of the epoll sets of a process.
pub(crate) fn set_descriptors(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let sets = entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == SET))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    sets.collect()
}

/// The link of an epoll set.
const SET: &str = "anon_inode:[eventpoll]";

/// Kinds of sockets by their inode.
pub(crate) type Sockets = HashMap<u64, &'static str>;

fn registered(process: u32, set: u32, sockets: &mut Option<Sockets>) -> Registered {
    let mut registered = Registered::default();
    for (descriptor, _) in registrations(process, set) {
        let kind = descriptor_kind(process, descriptor, sockets);
        *registered.kinds.entry(kind).or_default() += 1;
    }
    registered
}

/// Reads the registered descriptors of an epoll set, each with its data.
pub(crate) fn registrations(process: u32, set: u32) -> Vec<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/fdinfo/{set}")).unwrap_or_default();
    let registration = |line: &str| {
        // tfd:        5 events:       19 data: ... pos:0 ino:5d sdev:9
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let descriptor = words.next()?.parse().ok()?;
        let data = words.skip_while(|word| *word != "data:").nth(1);
        Some((descriptor, u64::from_str_radix(data.unwrap_or_default(), 16).unwrap_or_default()))
    };
    text.lines().filter_map(registration).collect()
}

/// Whether a thread has a handler for a signal.
pub(crate) fn catches(thread: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1)
}

/// Whether a process has a descriptor of this number.
pub(crate) fn has_descriptor(process: u32, descriptor: i32) -> bool {
    fs::symlink_metadata(format!("/proc/{process}/fd/{descriptor}")).is_ok()
}

/// Returns the kind of a descriptor.
pub(crate) fn descriptor_kind(
    process: u32,
    descriptor: i32,
    sockets: &mut Option<Sockets>,
) -> String {
    let link = fs::read_link(format!("/proc/{process}/fd/{descriptor}")).unwrap_or_default();
    kind(&link.to_string_lossy(), || sockets.get_or_insert_with(|| tables(process)))
}

/// Returns the kind of a descriptor by the text of its link in `/proc`.
fn kind<'a>(link: &str, sockets: impl FnOnce() -> &'a mut Sockets) -> String {
    if let Some(inode) = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
        let known = inode.parse().ok().and_then(|inode: u64| sockets().get(&inode).copied());
        return known.unwrap_or("socket").to_owned();
    }
    let anonymous = link.strip_prefix("anon_inode:").map(|name| name.trim_matches(['[', ']']));
    match link {
        _ if link.starts_with("pipe:[") => "pipe",
        // A descriptor that was closed here is open in another process.
        "" => "gone",
        _ => anonymous.unwrap_or("file"),
    }
    .to_owned()
}

/// Reads the tables of sockets in the network of a process.
fn tables(process: u32) -> Sockets {
    let mut sockets = HashMap::new();
    for (name, kind, column) in [
        ("tcp", "tcp", 9),
        ("tcp6", "tcp", 9),
        ("udp", "udp", 9),
        ("udp6", "udp", 9),
        ("unix", "unix", 6),
    ] {
        let table = fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
        let inodes = table
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(column)?.parse::<u64>().ok());
        sockets.extend(inodes.map(|inode| (inode, kind)));
    }
    sockets
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use superpoll::{BackendKind, Interest, Poller};

    use super::*;

    #[test]
    fn the_sets_of_a_process_are_read_with_the_kinds_of_descriptors() {
        let mut poller = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (pipe, _writer) = io::pipe().unwrap();
        for fd in [&one, &other] {
            poller.register(fd, Interest::READABLE).unwrap();
        }
        poller.register(&listener, Interest::READABLE).unwrap();
        poller.register(&pipe, Interest::READABLE).unwrap();
        let mut events = superpoll::Events::with_limit(1024);
        poller.wait(&mut events, Some(std::time::Duration::ZERO)).unwrap();
        let expected = [("unix", 2), ("tcp", 1), ("pipe", 1)];
        let expected: BTreeMap<String, u64> =
            expected.map(|(name, count)| (name.to_owned(), count)).into();
        let sets = epoll_sets(std::process::id());
        let found = sets
            .values()
            .find(|set| expected.iter().all(|(name, count)| set.kinds.get(name) == Some(count)));
        assert_eq!(found.unwrap_or_else(|| panic!("{sets:?}")).cost_kind(), CostKind::Unix);
        assert_eq!(Registered::default().cost_kind(), CostKind::Unknown);
    }

    #[test]
    fn links_tell_the_kind() {
        let mut sockets = HashMap::from([(77, "tcp")]);
        for (link, expected) in [
            ("socket:[77]", "tcp"),
            ("socket:[78]", "socket"),
            ("pipe:[5]", "pipe"),
            ("anon_inode:[eventfd]", "eventfd"),
            ("anon_inode:inotify", "inotify"),
            ("/dev/tty", "file"),
            ("", "gone"),
        ] {
            assert_eq!(kind(link, || &mut sockets), expected);
        }
    }

    #[test]
    fn a_process_that_cannot_be_watched_is_told_apart() {
        assert!(check(std::process::id()).is_ok());
        // Above the greatest number that a process can have.
        assert!(matches!(check(1 << 22 | 1), Err(Error::NoProcess(_))));
    }
}
