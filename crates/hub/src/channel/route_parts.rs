//! The parts that all channels of a route have in common.

use std::sync::Arc;

use super::budget::Budget;
use super::callbacks::Callbacks;
use super::presence::Unsettled;

/// The parts that all channels of a route have in common.
pub(super) struct RouteParts {
    pub budget: Arc<Budget>,
    /// The channels whose members are about to change.
    pub unsettled: Unsettled,
    /// The events that the application is to be told.
    pub callbacks: Arc<Callbacks>,
}

impl RouteParts {
    /// Returns the parts of a route of this name, whose channels keep at most so many bytes.
    pub(super) fn new(name: String, most_bytes: u64) -> Arc<RouteParts> {
        let (budget, callbacks) = (Budget::new(most_bytes), Callbacks::new(name));
        let (budget, callbacks) = (Arc::new(budget), Arc::new(callbacks));
        Arc::new(RouteParts { budget, unsettled: Unsettled::default(), callbacks })
    }
}
