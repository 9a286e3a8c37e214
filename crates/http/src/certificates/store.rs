//! The certificates of a listener, and the choice among them.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use futures_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use futures_rustls::rustls::sign::CertifiedKey;

use super::load::Certificate;
use super::server_config::PROTOCOLS;

/// The certificates of a listener. Handshakes take a lock for the time of a look-up, which readers
/// share; installing a certificate takes it alone for the time of an assignment.
pub struct CertificateStore {
    /// In the order of the configuration.
    certificates: RwLock<Certificates>,
    challenges: Option<Arc<ChallengeCertificates>>,
    /// Makes certificates when clients ask for a name.
    issuer: Option<Arc<dyn Issue>>,
}

/// An authority that makes certificates when clients ask for a name.
pub trait Issue: Send + Sync {
    /// Returns a certificate for a name that it may be made for. A client that connects to an
    /// address sends no name.
    fn certificate(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>>;

    /// Returns the file of the certificate that clients are to trust.
    fn root(&self) -> &Path;
}

/// The certificates of a store.
#[derive(Default)]
struct Certificates {
    all: Vec<Labelled>,
    /// Their places, by label.
    places: HashMap<String, usize>,
}

struct Labelled {
    label: String,
    certificate: Certificate,
}

impl Labelled {
    /// Whether the certificate is for exactly this name.
    fn is_for(&self, name: &str) -> bool {
        self.certificate.names().iter().any(|known| known == name)
    }

    /// Whether the certificate has a wildcard for a name: `*` stands for the first label, and for
    /// nothing else (RFC 9525, section 6.3).
    fn covers(&self, name: &str) -> bool {
        let Some((first, rest)) = name.split_once('.') else { return false };
        let fits = |known: &String| known.strip_prefix("*.").is_some_and(|known| known == rest);
        !first.is_empty() && self.certificate.names().iter().any(fits)
    }
}

/// A certificate as its operator knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CertificateState {
    /// The first name; the label, if the certificate has no name.
    pub(crate) name: String,
    pub(crate) not_after: SystemTime,
}

impl CertificateStore {
    /// Creates a store without certificates. With `challenges`, listeners answer certificate
    /// authorities that validate a name.
    pub fn new(challenges: Option<Arc<ChallengeCertificates>>) -> Arc<CertificateStore> {
        Arc::new(CertificateStore { certificates: RwLock::default(), challenges, issuer: None })
    }

    /// Creates the store of a listener whose certificates are made when clients ask for a name.
    pub fn issued_by(issuer: Arc<dyn Issue>) -> Arc<CertificateStore> {
        let (certificates, challenges) = (RwLock::default(), None);
        Arc::new(CertificateStore { certificates, challenges, issuer: Some(issuer) })
    }

    /// Returns the file of the certificate that clients are to trust, if certificates are made
    /// here.
    pub fn root(&self) -> Option<&Path> {
        self.issuer.as_ref().map(|issuer| issuer.root())
    }

    /// Makes new connections use a certificate. It replaces the certificate with the same
    /// label; if there is none, it comes last.
    pub fn install(&self, label: &str, certificate: Certificate) {
        let mut all = self.certificates.write().unwrap_or_else(PoisonError::into_inner);
        let Certificates { all, places } = &mut *all;
        match places.get(label).and_then(|place| all.get_mut(*place)) {
            Some(known) => known.certificate = certificate,
            None => {
                places.insert(label.to_owned(), all.len());
                all.push(Labelled { label: label.to_owned(), certificate });
            }
        }
    }

    /// Returns the certificate for a name; the first one, if no name is given or none has the name.
    pub(crate) fn select(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        let all = &certificates.all;
        let named = name.and_then(|name| {
            let lower = name.to_ascii_lowercase();
            let name = lower.strip_suffix('.').unwrap_or(&lower);
            let exact = all.iter().find(|known| known.is_for(name));
            exact.or_else(|| all.iter().find(|known| known.covers(name)))
        });
        named.or(all.first()).map(|known| known.certificate.key.clone())
    }

    /// Returns the state of each certificate.
    pub(crate) fn states(&self) -> Vec<CertificateState> {
        let all = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        let state = |known: &Labelled| CertificateState {
            name: known.certificate.names().first().unwrap_or(&known.label).clone(),
            not_after: known.certificate.not_after(),
        };
        all.all.iter().map(state).collect()
    }

    /// Whether certificate authorities that validate a name are answered.
    pub(super) fn has_challenges(&self) -> bool {
        self.challenges.is_some()
    }
}

impl fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CertificateStore").field(&self.states()).finish()
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(challenges) = &self.challenges
            && let Some(mut protocols) = hello.alpn()
        {
            let (mut validates, mut serves) = (false, false);
            protocols.by_ref().for_each(|protocol| {
                validates |= protocol == ACME_TLS;
                serves |= PROTOCOLS.contains(&protocol);
            });
            if validates && !serves {
                return challenges.get(hello.server_name()?);
            }
        }
        match &self.issuer {
            Some(issuer) => issuer.certificate(hello.server_name()),
            None => self.select(hello.server_name()),
        }
    }
}

// The certificates that answer a certificate authority which validates a name (RFC 8737).

/// The protocol's name in ALPN.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// The certificates that answer validations, by the name that is validated.
#[derive(Default, Debug)]
pub struct ChallengeCertificates(RwLock<HashMap<String, Arc<CertifiedKey>>>);
impl ChallengeCertificates {
    /// Answers validations of a name with a certificate from now on.
    pub fn put(&self, name: &str, certificate: Arc<CertifiedKey>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.to_ascii_lowercase(), certificate);
    }

    /// Ends the answers for a name.
    pub fn remove(&self, name: &str) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&name.to_ascii_lowercase());
    }

    /// Returns the certificate for a name, which TLS libraries report in lower case.
    pub(super) fn get(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.get(name).or_else(|| all.get(&name.to_ascii_lowercase())).cloned()
    }
}
