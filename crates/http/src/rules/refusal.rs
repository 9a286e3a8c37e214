//! The reasons for which a request is refused.

use http::{Response, StatusCode};

use crate::body::Body;
use crate::reply;

/// The answer to clients that are not allowed.
const FORBIDDEN: &str = "403 Forbidden\n";

/// A reason of the rules for clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The address of the client is not allowed.
    Address,
    /// Too many requests of the client.
    Rate,
    /// There is no user with a password in the request.
    NoPassword,
    /// The password is not that of the user, or there is no such user.
    WrongPassword,
    /// Too many wrong passwords of the client.
    PasswordRate,
    /// Too many passwords wait to be verified.
    PasswordQueue,
}

impl Reason {
    pub(crate) const ALL: [Reason; 6] = [
        Reason::Address,
        Reason::Rate,
        Reason::NoPassword,
        Reason::WrongPassword,
        Reason::PasswordRate,
        Reason::PasswordQueue,
    ];

    /// Returns its name in the metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Address => "address",
            Reason::Rate => "rate",
            Reason::NoPassword => "no-password",
            Reason::WrongPassword => "wrong-password",
            Reason::PasswordRate => "password-rate",
            Reason::PasswordQueue => "password-queue",
        }
    }
}

/// A request that is refused.
#[derive(Debug)]
pub struct Refused {
    pub(crate) reason: Reason,
    pub response: Response<Body>,
}

impl Refused {
    /// Refuses a client that is not allowed.
    pub(super) fn by_address() -> Box<Refused> {
        let response = reply::text(StatusCode::FORBIDDEN, FORBIDDEN);
        Refused::with(Reason::Address, response)
    }

    pub(super) fn with(reason: Reason, response: Response<Body>) -> Box<Refused> {
        Box::new(Refused { reason, response })
    }
}
