//! The reasons for which rules cannot be used.

use crate::answers::PageError;
use crate::htpasswd::UsersError;

/// The reason for which the rules of a host or a route cannot be used.
#[derive(thiserror::Error, Debug)]
pub enum RulesError {
    /// A file of users cannot be read, or has mistakes.
    #[error("{0}")]
    Users(#[from] UsersError),
    /// A page for errors cannot be read.
    #[error("{0}")]
    Page(#[from] PageError),
    /// The name of a protected area is no value of a field.
    #[error("the realm is no value of a field")]
    Realm,
    /// The system has no random bytes.
    #[error("the system has no random bytes")]
    RandomBytes,
}
