//! What the C library has to be told, and the only `unsafe` code of the gateway.

/// Has the allocator give back to the kernel what it keeps without need: glibc's keeps whatever lies below something
/// that is in use, for as long as the process runs.
pub(crate) fn give_memory_back() {
    // SAFETY: the call takes a number and may be made at any time, on any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}
