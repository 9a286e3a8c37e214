//! The parameters of TLS towards clients: the one place that makes them.

use std::sync::Arc;

use futures_rustls::rustls::server::NoServerSessionStorage;
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

use super::challenge::ACME_TLS;
use super::client;
use super::key_exchange;
use super::tickets::Ticketer;
use super::{CertificateError, CertificateStore, TicketSecrets};
use crate::config::{Tls, TlsVersion};

/// The protocols that connections speak, in the order of preference.
pub(super) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns the parameters of a listener, of a relay or of HTTP, whose certificates come from
/// `store` with each handshake, and the keys of whose tickets are made of `secrets`.
///
/// # Errors
///
/// The certificates that vouch for clients cannot be used.
pub(crate) fn server_config(
    tls: &Tls,
    is_relay: bool,
    store: Arc<CertificateStore>,
    secrets: &Arc<TicketSecrets>,
) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(crate::tls::telling(key_exchange::provider()));
    let versions: &[&SupportedProtocolVersion] = match tls.min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let mut protocols: Vec<Vec<u8>> = match is_relay {
        true => tls.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect(),
        false => PROTOCOLS.map(<[u8]>::to_vec).into(),
    };
    // A relay without protocols of its own agrees to none, and so refuses no client for its choice.
    if store.has_challenges() && !protocols.is_empty() {
        protocols.push(ACME_TLS.to_vec());
    }
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| CertificateError::new(error.to_string()))?;
    let (builder, purpose) = match &tls.client {
        Some(client) => {
            let (verifier, purpose) = client::verifier(client, provider)?;
            (builder.with_client_cert_verifier(verifier), purpose)
        }
        None => (builder.with_no_client_auth(), Vec::new()),
    };
    let mut config = builder.with_cert_resolver(store);
    config.alpn_protocols = protocols;
    // Sessions are kept by the clients. A cache here would hold some hundred of them, each among
    // the memory of a handshake.
    config.ticketer = Arc::new(Ticketer::new(secrets.clone(), purpose));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    crate::tls::prepare(&mut config);
    Ok(config)
}
