//! The assignment of processors: the load generator on one, each server on another.

use crate::say;
use crate::sys::process;

/// The processors of an experiment with servers.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<usize>,
}

impl Processors {
    /// Returns the processors of this process. Prints a note if there is only one.
    pub(crate) fn here() -> Processors {
        let all = process::processors();
        if all.len() < 2 {
            say::note("there is one processor: servers and load generator take turns on it");
        }
        Processors { all }
    }

    /// Returns the load generator's processor.
    pub(crate) fn client(&self) -> Option<usize> {
        self.all.first().copied()
    }

    /// Returns a processor for the servers alone, if there is one.
    pub(crate) fn server(&self) -> Option<usize> {
        self.all.get(1).copied()
    }

    /// Measures with this thread on the load generator's processor. `measure` gets the servers'
    /// processor.
    pub(crate) fn apart<T>(&self, measure: impl FnOnce(Option<usize>) -> T) -> T {
        let pinned = self.client().is_some_and(|client| process::pin(&[client]).is_ok());
        let measured = measure(self.server().or(self.client()));
        if pinned {
            // If this fails, the following work runs on one processor.
            let _ = process::pin(&self.all);
        }
        measured
    }
}
