//! The memory of servers and of the kernel.

use crate::error::{Error, Result};
use crate::record;
use crate::sys::process;

/// A server's memory is at rest when it has been the same this many times in a row.
const LOOKS: usize = 4;

/// Between two looks.
const PAUSE_NS: u64 = 100_000_000;

/// The longest wait for a server's memory to come to rest.
const PATIENCE_NS: u64 = 20_000_000_000;

/// The memory in use at a time, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// The private memory of the server's processes.
    pub user: u64,
    /// The kernel's slabs.
    pub slab: u64,
    /// The kernel's pages for TCP.
    pub sockets: u64,
}

/// Waits until the memory of these processes no longer changes, for at least `least_ns`, and reads
/// it.
pub(crate) fn at_rest(pids: &[i32], least_ns: u64) -> Result<Memory> {
    let user = settled(least_ns, || pids.iter().map(|&pid| own(pid)).sum())?;
    Ok(Memory { user, ..of_machine()? })
}

/// Waits for at least `least_ns`, until a size no longer changes, and returns it.
pub(crate) fn settled(least_ns: u64, size: impl Fn() -> Result<u64>) -> Result<u64> {
    let sizes = || vec![size()];
    steady(least_ns, sizes).pop().unwrap_or(Ok(0))
}

/// Waits for at least `least_ns`, until the memory of no group of processes changes any more, and
/// returns the proportional memory of each group: a page that several processes share counts once,
/// in equal parts. A group with a process that has ended has an error.
pub(crate) fn shares_at_rest(groups: &[Vec<i32>], least_ns: u64) -> Vec<Result<u64>> {
    let share = |pids: &Vec<i32>| pids.iter().map(|&pid| of_process(pid, "Pss:")).sum();
    steady(least_ns, || groups.iter().map(share).collect())
}

/// Waits for at least `least_ns`, until none of these sizes changes any more, and returns them.
fn steady(least_ns: u64, look: impl Fn() -> Vec<Result<u64>>) -> Vec<Result<u64>> {
    process::sleep(least_ns);
    let begun = process::now();
    let (mut same, mut last) = (0, look());
    while same < LOOKS && process::now() - begun < PATIENCE_NS {
        process::sleep(PAUSE_NS);
        let now = look();
        let is_same =
            |(one, other): (&Result<u64>, &Result<u64>)| one.as_ref().ok() == other.as_ref().ok();
        same = if now.iter().zip(&last).all(is_same) { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Returns the kernel's memory in use now, without any process' own memory.
pub(crate) fn of_machine() -> Result<Memory> {
    let slab = field(&record::read("/proc/meminfo")?, "Slab:").unwrap_or(0);
    Ok(Memory { user: 0, slab, sockets: pages(&record::read("/proc/net/sockstat")?) * 4096 })
}

/// Returns the memory of a process that is no file's, in bytes: heap, stacks, and written data.
pub(crate) fn anonymous(pid: i32) -> Result<u64> {
    of_process(pid, "Anonymous:")
}

fn own(pid: i32) -> Result<u64> {
    of_process(pid, "Private_Dirty:")
}

/// Returns a field of a process' memory, in bytes.
fn of_process(pid: i32, name: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    field(&record::read(&path)?, name)
        .ok_or_else(|| Error::usage(format!("{path} has no field {name}")))
}

/// Returns a field in KiB, as bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Returns the pages of TCP sockets: the number after `mem`.
fn pages(sockstat: &str) -> u64 {
    let tcp = sockstat.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let mut words = tcp.split_whitespace().skip_while(|word| *word != "mem");
    words.nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_a_process_that_is_not_there_is_named() {
        assert_eq!(
            field("Rss:  9 kB\nPrivate_Dirty:    12 kB\n", "Private_Dirty:"),
            Some(12 << 10)
        );
        assert_eq!(field("Rss:  9 kB\n", "Private_Dirty:"), None);
        assert_eq!(
            pages("sockets: used 1\nTCP: inuse 5 orphan 0 tw 0 alloc 9 mem 7\nUDP: mem 9"),
            7
        );
        let pid = i32::try_from(std::process::id()).unwrap();
        // The amount depends on other tests that fork just now, and share the memory with this
        // process.
        assert!(at_rest(&[pid], 0).unwrap().slab > 0);
        let error = own(-1).unwrap_err().to_string();
        assert!(error.contains("/proc/-1/smaps_rollup"), "{error}");
        let shares = shares_at_rest(&[vec![pid], vec![pid, -1]], 0);
        assert!(shares[0].as_ref().is_ok_and(|bytes| *bytes > 0) && shares[1].is_err());
    }
}
