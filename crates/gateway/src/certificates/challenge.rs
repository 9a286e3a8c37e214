//! The certificates that answer a certificate authority which validates a name (RFC 8737).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures_rustls::rustls::sign::CertifiedKey;

/// The protocol's name in ALPN.
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// The certificates that answer validations, by the name that is validated.
#[derive(Default, Debug)]
pub(crate) struct ChallengeCertificates(RwLock<HashMap<String, Arc<CertifiedKey>>>);

#[cfg_attr(not(feature = "acme"), allow(dead_code, reason = "only ACME validates"))]
impl ChallengeCertificates {
    /// Answers validations of a name with a certificate from now on.
    pub(crate) fn put(&self, name: &str, certificate: Arc<CertifiedKey>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_ascii_lowercase(), certificate);
    }

    /// Ends the answers for a name.
    pub(crate) fn remove(&self, name: &str) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&name.to_ascii_lowercase());
    }

    /// Returns the certificate for a name, which TLS libraries report in lower case.
    pub(super) fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).or_else(|| all.get(&name.to_ascii_lowercase())).cloned()
    }
}
