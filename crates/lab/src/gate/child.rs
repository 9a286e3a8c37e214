//! The counted process: it carries out a number of operations of one path and prints the system
//! calls that our own counters saw.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::gate::counted::Counted;
use crate::gate::paths::Path;
use crate::gate::trace;
use crate::sys::process;

/// Operations before the counted ones: by then, tables have grown and caches are filled.
const BEFORE: u64 = 768;

/// The answer that the process prints at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// System calls of the operations, by our own counters.
    pub counted: Counted,
    /// Whether the engine makes calls in the way that it measured to be cheaper; which way that is
    /// depends on timing.
    pub uses_return_stack_refill: bool,
    /// The number of a process that took part and whose calls do not count.
    pub uncounted: Option<i32>,
}

/// Carries out `operations` operations and prints the calls that they made on standard output.
pub(super) fn operate(path: Path, operations: u64) -> Result<()> {
    // A process that hangs is ended, so that the parent does not wait indefinitely.
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
    let answer = Answer {
        counted,
        uses_return_stack_refill: superpoll::diagnostics::uses_return_stack_refill(),
        uncounted: work.uncounted(),
    };
    let text = serde_json::to_string(&answer)
        .map_err(|error| Error::usage(format!("writing what {} called: {error}", path.name)))?;
    crate::say!("{text}")
}
