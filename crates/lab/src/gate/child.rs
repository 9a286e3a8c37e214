//! The process that is counted: it carries out so many operations of one path and says what our own counters have seen.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::gate::counted::Counted;
use crate::gate::paths::Path;
use crate::gate::trace;
use crate::sys::process;

/// Operations before those that are counted: tables have grown by then and caches are filled.
const BEFORE: u64 = 768;

/// What the process says when it is done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    /// System calls of the operations, by our own counters.
    pub counted: Counted,
    /// Whether the engine makes calls in the way that was measured to be cheaper: which of them that is, is a matter
    /// of time.
    pub refills_returns: bool,
}

/// Carries out so many operations, and says on the standard output what they called.
pub fn operate(path: Path, operations: u64) -> Result<()> {
    // Should it hang, nobody waits for it for ever.
    process::watch(path.name);
    let mut work = path.set_up()?;
    work.operate(BEFORE)?;
    let before = work.counted();
    trace::mark();
    work.operate(operations)?;
    trace::mark();
    let mut counted = work.counted();
    for (name, count) in &mut counted {
        *count -= before.get(name).copied().unwrap_or(0).min(*count);
    }
    let answer = Answer { counted, refills_returns: superpoll::diagnostics::refills_returns() };
    let text = serde_json::to_string(&answer)
        .map_err(|error| Error::usage(format!("writing what {} called: {error}", path.name)))?;
    crate::say!("{text}")
}
