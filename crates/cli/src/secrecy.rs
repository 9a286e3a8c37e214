//! Keys in memory, and those who could read them there.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Keeps the memory of this process out of core files, and from debuggers of the same user
/// (`PR_SET_DUMPABLE`, prctl(2)). The superuser can read it all the same.
///
/// # Errors
///
/// The kernel's error.
pub(crate) fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
