//! The reasons for which a request is refused.

use http::{Response, StatusCode};

use crate::body::Body;
use crate::reply;

/// The answer to clients that are not allowed.
const FORBIDDEN: &str = "403 Forbidden\n";

superpoll::named! {
    /// A reason of the rules for clients.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Reason {
        /// The address of the client is not allowed.
        Address = "address",
        /// Too many requests of the client.
        Rate = "rate",
        /// There is no user with a password in the request.
        NoPassword = "no-password",
        /// The password is not that of the user, or there is no such user.
        WrongPassword = "wrong-password",
        /// Too many wrong passwords of the client.
        PasswordRate = "password-rate",
        /// Too many passwords wait to be verified.
        PasswordQueue = "password-queue",
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
