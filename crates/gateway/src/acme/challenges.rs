//! Answers to a certificate authority that verifies whether a name leads to this server.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures_rustls::rustls::crypto::ring::sign::any_supported_type;
use futures_rustls::rustls::pki_types::PrivateKeyDer;
use futures_rustls::rustls::sign::CertifiedKey;
use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use superpoll_http::certificates::ChallengeCertificates;

use crate::config::ChallengeKind;

/// The path below which an authority asks by HTTP.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// The answers that are offered at the moment, by all listeners.
#[derive(Default, Debug)]
pub(crate) struct Challenges {
    certificates: Arc<ChallengeCertificates>,
    /// The answers to requests, by the token that is asked for.
    tokens: RwLock<HashMap<String, String>>,
}

/// An answer that is offered until the value is dropped.
#[derive(Debug)]
pub(super) struct Offer {
    challenges: Arc<Challenges>,
    kind: ChallengeKind,
    /// The name, or the token.
    key: String,
}

impl Challenges {
    /// Returns the certificates for validations by TLS.
    pub(crate) fn certificates(&self) -> &Arc<ChallengeCertificates> {
        &self.certificates
    }

    /// Returns the answer to a request of an authority, if the path is that of one.
    pub(crate) fn answer(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(WELL_KNOWN)?;
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.get(token).cloned()
    }

    /// Offers the answer for a name.
    pub(super) fn offer(
        self: &Arc<Challenges>,
        kind: ChallengeKind,
        name: &str,
        token: &str,
        answer: &KeyAuthorization,
    ) -> Result<Offer, String> {
        let key = match kind {
            ChallengeKind::TlsAlpn01 => {
                let certificate = certificate(name, answer.digest().as_ref())?;
                self.certificates.put(name, Arc::new(certificate));
                name.to_owned()
            }
            ChallengeKind::Http01 => {
                // The bytes of base64url only (RFC 8555, section 8.3).
                let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                if token.is_empty() || !token.bytes().all(is_token) {
                    return Err(format!("the token {token:?} is none"));
                }
                let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
                tokens.insert(token.to_owned(), answer.as_str().to_owned());
                token.to_owned()
            }
        };
        Ok(Offer { challenges: self.clone(), kind, key })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        match self.kind {
            ChallengeKind::TlsAlpn01 => self.challenges.certificates.remove(&self.key),
            ChallengeKind::Http01 => {
                let tokens = &self.challenges.tokens;
                tokens.write().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
            }
        }
    }
}

/// Makes the certificate that proves the control of a name (RFC 8737, section 3).
fn certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    let failed = |error: rcgen::Error| format!("making a certificate for the challenge: {error}");
    let mut params = CertificateParams::new([name.to_owned()]).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = any_supported_type(&key)
        .map_err(|error| format!("making a certificate for the challenge: {error}"))?;
    // Its critical extension is for the authority alone, and rustls would refuse to read it.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}
