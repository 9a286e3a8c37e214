//! Certificates of clients.

use std::sync::Arc;

use futures_rustls::rustls::RootCertStore;
use futures_rustls::rustls::crypto::CryptoProvider;
use futures_rustls::rustls::server::WebPkiClientVerifier;
use futures_rustls::rustls::server::danger::ClientCertVerifier;

use super::{CertificateError, chain};
use crate::config::ClientCertificates;

/// Returns the verification of the certificates that clients show.
pub(super) fn verifier(
    rule: &ClientCertificates,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let path = rule.ca.display();
    let wrong = |what: String| {
        let expected = "expected the certificates of the authorities that issue to clients";
        CertificateError::new(format!("{path} cannot vouch for clients: {what}, {expected}"))
    };
    let mut roots = RootCertStore::empty();
    for certificate in chain(&rule.ca)? {
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if rule.is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| wrong(error.to_string()))
}
