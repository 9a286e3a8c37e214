//! The state that the connections of one listener on one engine share.

use std::rc::Rc;
use std::sync::Arc;

use futures_rustls::rustls::ServerConfig;
use superpoll_http::listen::Listener;

use super::worker::Worker;
use crate::config;
use crate::config::Address;

/// The parts that an engine needs for a listener.
pub(super) struct Opening {
    pub listener: Listener,
    pub on: Address,
    /// The address as the configuration has it.
    pub address: Address,
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether clients without a certificate are refused.
    pub requires_certificate: bool,
    pub proxy_protocol: bool,
    pub is_admin: bool,
}

/// One listener on one engine.
pub(super) struct ListenerContext {
    pub worker: Rc<Worker>,
    /// The listener's address as the configuration has it.
    pub address: Address,
    pub header_bytes: u32,
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether clients without a certificate are refused.
    pub requires_certificate: bool,
    /// Whether a proxy connects in the name of clients.
    pub is_behind_proxy: bool,
    /// Whether only programs on this machine reach the listener, and no proxy is known to be before
    /// it.
    pub is_private: bool,
    /// Whether requests are for the server itself rather than for its hosts.
    pub is_admin: bool,
}

impl ListenerContext {
    pub(super) fn new(worker: Rc<Worker>, opening: &Opening) -> ListenerContext {
        let header_bytes = u32::try_from(worker.limits.get().header_bytes).unwrap_or(u32::MAX);
        let is_private = config::is_private(&opening.on, opening.proxy_protocol);
        ListenerContext {
            worker,
            address: opening.address.clone(),
            header_bytes,
            tls: opening.tls.clone(),
            requires_certificate: opening.requires_certificate,
            is_behind_proxy: opening.proxy_protocol,
            is_private,
            is_admin: opening.is_admin,
        }
    }

    /// Whether connections are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}
