//! The engine's promises to its poller about descriptors.

use superpoll::{Key, Poller};

/// Allows operations under a registration that the owner of a descriptor has made.
///
/// Called only for the types on which operations are started and reads are made ahead: sockets,
/// listeners and ends of pipes that own their descriptor and give no way to exchange it while it is
/// used. Forgetting one of them leaves its descriptor open.
pub(crate) fn assume_kept_open(poller: &mut Poller, key: Key) {
    // SAFETY: on the engine's thread the registration ends before the descriptor is closed
    // (`AsyncFd` drops its registration first), by a call of the poller. On another thread the
    // registration waits for a read that is being made ahead (`IoRegistration::forbid_read_ahead`),
    // and has no operation under way: the futures that have an operation borrow the descriptor,
    // stay on the engine's thread, and end the operation when they are dropped.
    unsafe { poller.assume_open(key) }
}
