//! The machine: its description for records, and how much memory is in use.

pub(crate) use superpoll_cli::environment::{Environment, PROFILE, RUSTC, field, line};

/// Returns the memory that is available without taking it from other programs, in bytes, if the
/// kernel reports it.
pub(crate) fn memory_available() -> Option<u64> {
    kilobytes(&field("/proc/meminfo", "MemAvailable")?)
}

/// Returns the size of the kernel stacks of all threads of the machine, in bytes, if the kernel
/// reports it.
pub(crate) fn kernel_stacks() -> Option<u64> {
    kilobytes(&field("/proc/meminfo", "KernelStack")?)
}

/// Returns the memory that this process has written to and does not share, in bytes, if the kernel
/// reports it.
pub(crate) fn memory_touched() -> Option<u64> {
    kilobytes(&field("/proc/self/smaps_rollup", "Private_Dirty")?)
}

/// Bytes from a number of kilobytes with its unit.
fn kilobytes(text: &str) -> Option<u64> {
    text.trim_end_matches("kB").trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_much_memory_is_in_use() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
        assert!(memory_touched().is_some_and(|bytes| bytes > 1 << 12));
        assert!(kernel_stacks().is_some_and(|bytes| bytes > 1 << 12));
    }
}
