//! The engine's promises to its poller about descriptors.

use superpoll::{Key, Poller};

/// Allows operations under a registration that a link has made of a descriptor of its own.
///
/// Called only for the types on which operations are started and reads are made ahead: sockets,
/// listeners and ends of pipes that own their descriptor and give no way to exchange it while it is
/// used. Forgetting one of them leaves its descriptor open.
pub(crate) fn keeps_open(poller: &mut Poller, key: Key) {
    // SAFETY: on the engine's thread the registration ends before the descriptor is closed
    // (`AsyncFd` drops its link first), by a call of the poller. On another thread a link waits for
    // a read that is being made ahead (`Link::forbid_reads`), and has no operation under way: the
    // futures that have an operation borrow the descriptor, stay on the engine's thread, and end
    // the operation when they are dropped.
    unsafe { poller.assume_open(key) }
}
