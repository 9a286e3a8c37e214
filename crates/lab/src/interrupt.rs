//! The interrupt of a run: Ctrl-C ends an experiment after its round, and the results that it has
//! are written.
//!
//! The first signal is noted and the run ends by itself; the second ends the process at once.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::Signal;

use crate::error::{Doing, Result};
use crate::sys;

/// The signal that came; zero before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Notes an interrupt or a termination from now on, instead of ending.
pub(crate) fn watch() -> Result<()> {
    sys::signal::note_once(&[Signal::SIGINT, Signal::SIGTERM], |signal| {
        SIGNAL.store(signal, Ordering::Relaxed);
    })
    .doing("watching for an interrupt")
}

/// Returns the signal that ends this run, if one has come.
pub(crate) fn signal() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
