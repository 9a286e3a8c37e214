//! The reasons for which rules cannot be used.

use std::error::Error;
use std::fmt;

use crate::answers::PageError;
use crate::htpasswd::UsersError;

/// The reason for which the rules of a host or a route cannot be used.
#[derive(Debug)]
pub enum RulesError {
    /// A file of users cannot be read, or has mistakes.
    Users(UsersError),
    /// A page for errors cannot be read.
    Page(PageError),
    /// The name of a protected area is no value of a field.
    Realm,
    /// The system has no random bytes.
    RandomBytes,
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RulesError::Users(error) => error.fmt(f),
            RulesError::Page(error) => error.fmt(f),
            RulesError::Realm => f.write_str("the realm is no value of a field"),
            RulesError::RandomBytes => f.write_str("the system has no random bytes"),
        }
    }
}

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RulesError::Users(error) => Some(error),
            RulesError::Page(error) => Some(error),
            RulesError::Realm | RulesError::RandomBytes => None,
        }
    }
}

impl From<PageError> for RulesError {
    fn from(error: PageError) -> RulesError {
        RulesError::Page(error)
    }
}
