//! `poll(2)`.

/// Waits indefinitely and returns how many entries are ready; negative for an error, as the kernel
/// returns it.
#[inline(always)]
pub(crate) fn wait(set: &mut [libc::pollfd]) -> i32 {
    // SAFETY: the kernel reads and writes the entries of the slice, and nothing beyond.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) }
}

/// Polls without waiting and returns how many entries are ready; negative for an error, as the
/// kernel returns it.
pub(crate) fn look(set: &mut [libc::pollfd]) -> i32 {
    // SAFETY: as above.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, 0) }
}
