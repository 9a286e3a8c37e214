//! The statistics of a relay.

use superpoll_rt::Runtime;

use super::subject::Subject;
use crate::relay::Relay;

impl Relay {
    /// Returns the subject for a statistics socket: the relay, and the runtime that it was started
    /// on.
    #[must_use]
    pub fn subject(&self, runtime: &Runtime) -> Subject {
        let totals = self.totals();
        let connections = move || totals.read().active;
        Subject::new("proxy", runtime.backend(), runtime.handle(), Vec::new(), connections)
    }
}
