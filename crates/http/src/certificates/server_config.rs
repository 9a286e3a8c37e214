//! The parameters of TLS towards clients: the one place that makes them.

use std::sync::Arc;

use ::ring::digest::{Context, SHA256};
use futures_rustls::rustls::crypto::{CryptoProvider, ring};
use futures_rustls::rustls::pki_types::CertificateDer;
use futures_rustls::rustls::server::danger::ClientCertVerifier;
use futures_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use futures_rustls::rustls::version::{TLS12, TLS13};
use futures_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use http::HeaderValue;
use superpoll_config::{ClientCertificates, Tls, TlsVersion};
use webpki::EndEntityCert;

use super::store::ACME_TLS;
use super::tickets::Ticketer;
use super::{CertificateError, CertificateStore, TicketSecrets, chain, subject};

/// The protocols that connections speak, in the order of preference.
pub(super) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns the parameters of a listener, of a relay or of HTTP, whose certificates come from
/// `store` with each handshake, and the keys of whose tickets are made of `secrets`.
///
/// # Errors
///
/// The certificates that vouch for clients cannot be used.
pub fn server_config(
    tls: &Tls,
    is_relay: bool,
    store: Arc<CertificateStore>,
    secrets: &Arc<TicketSecrets>,
) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(crate::tls::telling(crypto_provider()));
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
        .map_err(CertificateError::Versions)?;
    let (builder, purpose) = match &tls.client {
        Some(client) => {
            let (verifier, purpose) = client_verifier(client, provider)?;
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

// Key exchanges: those of ring, and one that quantum computers do not break.
//
// X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem) combines X25519 with ML-KEM-768: an attacker who
// records a connection today must break both. Browsers offer it. ring has no ML-KEM; graviola has
// it, for processors with these instructions.

/// Returns the algorithms of handshakes.
pub(super) fn crypto_provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
    if is_able() {
        provider.kx_groups.insert(0, rustls_graviola::kx::X25519MLKEM768);
    }
    provider
}

/// Whether the processor has the instructions of graviola.
#[cfg(target_arch = "x86_64")]
fn is_able() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("adx")
        && has!("aes")
        && has!("avx")
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("pclmulqdq")
        && has!("ssse3")
}

/// Whether the processor has the instructions of graviola.
#[cfg(target_arch = "aarch64")]
fn is_able() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("aes") && has!("neon") && has!("pmull") && has!("sha2")
}

// Certificates of clients.

/// Returns the verification of the certificates that clients show, and a text that differs for each
/// set of certificates that vouch for clients.
pub(super) fn client_verifier(
    rule: &ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Vec<u8>), CertificateError> {
    let wrong = |source| CertificateError::ClientAuthorities { path: rule.ca.clone(), source };
    let mut roots = RootCertStore::empty();
    let mut digest = Context::new(&SHA256);
    digest.update(&[u8::from(rule.is_required)]);
    for certificate in chain(&rule.ca)? {
        digest.update(&(certificate.len() as u64).to_le_bytes());
        digest.update(&certificate);
        roots.add(certificate).map_err(|error| wrong(error.into()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if rule.is_required { builder } else { builder.allow_unauthenticated() };
    let verifier = builder.build().map_err(|error| wrong(error.into()))?;
    Ok((verifier, digest.finish().as_ref().to_vec()))
}

/// The verified certificate of a client. Upstreams learn about it with each request, so that it is
/// kept as the client sent it, and written out when it is needed: an idle connection keeps one
/// copy.
#[derive(Debug)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Returns the certificate that a connection's client has shown, if any. rustls has verified
    /// it.
    pub fn shown(chain: Option<&[CertificateDer<'static>]>) -> Option<ClientCertificate> {
        chain?.first().map(|first| ClientCertificate(first.clone().into_owned()))
    }

    /// Returns the value of `Client-Cert` (RFC 9440, section 2.2).
    pub(crate) fn field(&self) -> Option<HeaderValue> {
        let text = format!(":{}:", data_encoding::BASE64.encode(&self.0));
        HeaderValue::try_from(text).ok()
    }

    /// Returns the certificate's subject as a text of RFC 4514, for example `CN=ada,O=Example`.
    pub(crate) fn subject(&self) -> Option<HeaderValue> {
        let parsed = EndEntityCert::try_from(&self.0).ok()?;
        HeaderValue::try_from(subject::text(parsed.subject())?).ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_rustls::rustls::NamedGroup;

    use super::*;

    /// A client that knows the new exchange gets it, and others are served as ever.
    #[test]
    fn the_new_exchange_comes_first_where_the_processor_allows_it() {
        let groups: Vec<NamedGroup> =
            crypto_provider().kx_groups.iter().map(|one| one.name()).collect();
        let classic = [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
        assert!(groups.ends_with(&classic), "{groups:?}");
        let is_first = groups[0] == NamedGroup::X25519MLKEM768;
        #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
        assert_eq!(is_first, is_able());
        assert_eq!(groups.len(), classic.len() + usize::from(is_first));
    }
}
