//! Certificates of clients.

use std::sync::Arc;

use futures_rustls::rustls::RootCertStore;
use futures_rustls::rustls::crypto::CryptoProvider;
use futures_rustls::rustls::pki_types::CertificateDer;
use futures_rustls::rustls::server::WebPkiClientVerifier;
use futures_rustls::rustls::server::danger::ClientCertVerifier;

use http::HeaderValue;
use ring::digest::{Context, SHA256};
use webpki::EndEntityCert;

use super::{CertificateError, chain, subject};
use crate::config::ClientCertificates;

/// Returns the verification of the certificates that clients show, and a text that differs for each
/// set of certificates that vouch for clients.
pub(super) fn verifier(
    rule: &ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Vec<u8>), CertificateError> {
    let path = rule.ca.display();
    let wrong = |what: String| {
        let expected = "expected the certificates of the authorities that issue to clients";
        CertificateError::new(format!("{path} cannot vouch for clients: {what}, {expected}"))
    };
    let mut roots = RootCertStore::empty();
    let mut digest = Context::new(&SHA256);
    digest.update(&[u8::from(rule.is_required)]);
    for certificate in chain(&rule.ca)? {
        digest.update(&(certificate.len() as u64).to_le_bytes());
        digest.update(&certificate);
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if rule.is_required { builder } else { builder.allow_unauthenticated() };
    let verifier = builder.build().map_err(|error| wrong(error.to_string()))?;
    Ok((verifier, digest.finish().as_ref().to_vec()))
}

/// The verified certificate of a client. Upstreams learn about it with each request, so that it is
/// kept as the client sent it, and written out when it is needed: an idle connection keeps one
/// copy.
#[derive(Debug)]
pub(crate) struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Returns the certificate that a connection's client has shown, if any. rustls has verified
    /// it.
    pub(crate) fn shown(chain: Option<&[CertificateDer<'static>]>) -> Option<ClientCertificate> {
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
