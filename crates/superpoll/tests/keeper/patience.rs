//! Scenarios in which the poller waits for its keeper's answer, for as long as a poller does. On a
//! busy machine the keeper may not run for longer than that.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;

/// A scenario is tried this often.
const TRIES: usize = 5;

thread_local! {
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
}

/// A poller that notes at its end whether it has lost a keeper that did not answer in time.
pub(crate) struct Patient(pub Poller);

impl Deref for Patient {
    type Target = Poller;

    fn deref(&self) -> &Poller {
        &self.0
    }
}

impl DerefMut for Patient {
    fn deref_mut(&mut self) -> &mut Poller {
        &mut self.0
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let KeeperStatus::Lost(why) = self.0.keeper_status()
            && why.kind() == std::io::ErrorKind::TimedOut
        {
            GAVE_UP.set(true);
        }
    }
}

/// Runs a scenario, and runs it anew if it has failed after a keeper that ought to answer has not
/// done so in time.
pub(crate) fn patiently(scenario: impl Fn()) {
    for _ in 1..TRIES {
        GAVE_UP.set(false);
        match catch_unwind(AssertUnwindSafe(&scenario)) {
            Err(_) if GAVE_UP.get() => eprintln!("the keeper has not answered in time: once more"),
            Err(panic) => resume_unwind(panic),
            Ok(()) => return,
        }
    }
    scenario();
}
