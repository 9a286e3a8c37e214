//! The way of operations from the admin listener to the server, or to the supervisor of several.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use crate::admin::{Operation, Outcome, Refusal};
use crate::processes::SupervisorLink;
use crate::telemetry::socket::Subject;

/// The way of operations from the admin listener.
#[derive(Default)]
pub(crate) struct Administration {
    subject: RwLock<Option<Arc<Subject>>>,
    /// The connection to the supervisor, if this process is one of several.
    link: OnceLock<Weak<SupervisorLink>>,
}

impl Administration {
    /// Gives operations to this subject from now on.
    pub(crate) fn serve(&self, subject: Subject) {
        let mut known = self.subject.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::new(subject));
    }

    /// Gives operations to the supervisor.
    pub(crate) fn join(&self, link: &Arc<SupervisorLink>) {
        // A server joins one supervisor, once.
        let _ = self.link.set(Arc::downgrade(link));
    }

    /// Carries out an operation.
    pub(crate) async fn operate(&self, operation: Operation) -> Outcome {
        if let Some(link) = self.link.get() {
            return match link.upgrade() {
                Some(link) => link.operate(&operation).await,
                None => Err(Refusal::unavailable("the server is about to end")),
            };
        }
        let subject = self.subject.read().unwrap_or_else(PoisonError::into_inner).clone();
        match subject {
            Some(subject) => subject.operate(operation).await,
            None => Err(Refusal::unavailable("the server is about to begin")),
        }
    }
}
