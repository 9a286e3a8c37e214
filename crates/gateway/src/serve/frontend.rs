//! The addresses that a server listens on.

use std::sync::Arc;

use superpoll_http::certificates::CertificateStore;
use superpoll_http::listen::Bound;

use crate::config;
use crate::config::Address;
use crate::relay::Relay;

/// An address that is served.
pub(super) struct Frontend {
    pub(super) asked: config::Listener,
    pub(super) listening: Address,
    pub(super) kind: Kind,
    /// The certificates, if connections are encrypted.
    pub(super) certificates: Option<Arc<CertificateStore>>,
}

impl Frontend {
    /// Returns the listener's address in the configuration and its port, if it speaks HTTPS.
    pub(super) fn encrypted_port(&self) -> Option<(Address, u16)> {
        match (&self.certificates, &self.listening) {
            (Some(_), Address::Tcp { port, .. }) if self.asked.relay.is_none() => {
                Some((self.asked.address.clone(), *port))
            }
            _ => None,
        }
    }
}

#[derive(Clone)]
pub(super) enum Kind {
    Http(Arc<Bound>),
    Relay(Arc<Bound>, Arc<Relay>),
    /// No task listens there any more.
    Closed,
}

impl Kind {
    pub(super) fn bound(&self) -> Option<&Arc<Bound>> {
        match self {
            Kind::Http(bound) | Kind::Relay(bound, _) => Some(bound),
            Kind::Closed => None,
        }
    }
}
