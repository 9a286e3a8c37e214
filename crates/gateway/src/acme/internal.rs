//! The server's own certificate authority, for `localhost` and development.
//!
//! Its root certificate and key are made once and stored; a user who makes a browser trust the root
//! trusts every certificate that this server makes from then on. Those for the server's names are
//! made when a client asks for a name, live in memory only, and are replaced by new ones after two
//! thirds of their life. So names such as `a.localhost`, for which browsers accept no wildcard,
//! work as well, and a restart has nothing to read but the root.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::PrivateKeyDer;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::sign::CertifiedKey;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use superpoll_http::certificates;
use time::OffsetDateTime;

use super::certificate::Validity;
use super::schedule;
use super::storage::{self, Storage};
use crate::automatic_error::{AutomaticError, Damage, IssuedError, StorageError};
use crate::config::Internal;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The life of the root.
const ROOT_LIFE: Duration = DAY.saturating_mul(3652);

/// The life of a certificate for a name.
const LIFE: Duration = DAY.saturating_mul(30);

/// How much earlier certificates begin, for clients whose clock is slow.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// The most names whose certificates are kept.
const MOST_NAMES: usize = 1_000;

/// The name of the file with the root's key and certificate.
const FILE: &str = "root-with-key.pem";

/// The name of the file with the root's certificate alone, to be trusted.
const ROOT: &str = "root.pem";

/// The authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: PathBuf,
    /// The names that certificates are made for; `*.` at the start stands for one label.
    names: Vec<String>,
    made: Mutex<HashMap<String, (Arc<CertifiedKey>, SystemTime)>>,
}

superpoll::debug_fields!(Authority, it => root: it.root);

/// Returns the parameters of the root with a key. They follow from the key, except for the time.
fn root_params(key: &KeyPair, now: SystemTime) -> CertificateParams {
    let digest = ::ring::digest::digest(&::ring::digest::SHA256, key.public_key_raw());
    let mark = HEXLOWER.encode(&digest.as_ref()[..4]);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // Two roots of one name would make clients try the wrong one.
    params.distinguished_name.push(DnType::CommonName, format!("superpoll on this machine {mark}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) =
        (OffsetDateTime::from(now - EARLIER), OffsetDateTime::from(now + ROOT_LIFE));
    params
}

impl Authority {
    /// Opens the authority that is stored, or makes it.
    pub(crate) fn open(
        internal: &Internal,
        names: Vec<String>,
    ) -> Result<Authority, AutomaticError> {
        let root = match &internal.storage {
            Some(folder) => folder.clone(),
            None => storage::default_folder()?,
        };
        let storage = Storage::open(root)?.within("internal")?;
        Authority::open_at(&storage, names, SystemTime::now())
    }

    fn open_at(
        storage: &Storage,
        names: Vec<String>,
        now: SystemTime,
    ) -> Result<Authority, AutomaticError> {
        // Making a root takes less than a millisecond, so another process is not in the way for
        // long.
        let _lock = loop {
            match storage.try_lock("root")? {
                Some(lock) => break lock,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let known = storage.read(FILE)?.map(|text| Authority::parse(&text)).transpose();
        let known = known.map_err(|error| {
            StorageError::damaged(&storage.path(FILE), Damage::Certificate(error))
        })?;
        let key = match known {
            // The root outlives every certificate that it vouches for.
            Some((key, validity)) if validity.to > now + LIFE * 2 => key,
            _ => Authority::make(storage, now)?,
        };
        let params = root_params(&key, now);
        let issuer = Issuer::new(params, key);
        Ok(Authority { issuer, root: storage.path(ROOT), names, made: Mutex::default() })
    }

    fn parse(text: &str) -> Result<(KeyPair, Validity), IssuedError> {
        let root = certificates::Certificate::from_pem("the root", text, text)?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| IssuedError::Key(error.into()))?;
        let key =
            KeyPair::try_from(key.secret_der()).map_err(|error| IssuedError::Key(error.into()))?;
        Ok((key, Validity { from: root.not_before(), to: root.not_after() }))
    }

    fn make(storage: &Storage, now: SystemTime) -> Result<KeyPair, AutomaticError> {
        let failed = |error: rcgen::Error| AutomaticError::Authority(error.into());
        let key = KeyPair::generate().map_err(failed)?;
        let root = root_params(&key, now).self_signed(&key).map_err(failed)?.pem();
        let both = format!("{}{root}", key.serialize_pem());
        storage.write(FILE, &both)?;
        storage.write(ROOT, &root)?;
        Ok(key)
    }

    /// Whether a name is one of the server's.
    fn has(&self, name: &str) -> bool {
        let is_local =
            |name: &str| name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.names.iter().any(|known| match known.strip_prefix('*') {
            Some(rest) => name.len() > rest.len() && name.ends_with(rest),
            None => known == name,
        }) || is_local(name)
    }

    /// Returns a certificate for a name; without a name, for `localhost` and the addresses of this
    /// machine.
    fn certificate_at(&self, name: Option<&str>, now: SystemTime) -> Option<Arc<CertifiedKey>> {
        let name = name.unwrap_or("").to_ascii_lowercase();
        if !name.is_empty() && !self.has(&name) {
            return None;
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((certificate, until)) = made.get(&name)
            && now < *until
        {
            return Some(certificate.clone());
        }
        let certificate = Arc::new(self.issue(&name, now).ok()?);
        let validity = Validity { from: now - EARLIER, to: now + LIFE };
        if made.len() >= MOST_NAMES {
            made.clear();
        }
        made.insert(name, (certificate.clone(), schedule::renewal(validity, schedule::jitter())));
        Some(certificate)
    }

    fn issue(&self, name: &str, now: SystemTime) -> Result<CertifiedKey, String> {
        let names = match name {
            // A client that connects to an address sends no name.
            "" => ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            name => vec![name.to_owned()],
        };
        let failed = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "superpoll");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) =
            (OffsetDateTime::from(now - EARLIER), OffsetDateTime::from(now + LIFE));
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        CertifiedKey::from_der(vec![certificate.der().clone()], key, &ring::default_provider())
            .map_err(|error| error.to_string())
    }
}

impl certificates::Issue for Authority {
    fn certificate(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        self.certificate_at(name, SystemTime::now())
    }

    fn root(&self) -> &Path {
        &self.root
    }
}

#[cfg(test)]
mod tests {
    use futures_rustls::rustls::RootCertStore;
    use futures_rustls::rustls::client::WebPkiServerVerifier;
    use futures_rustls::rustls::client::danger::ServerCertVerifier;
    use futures_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    fn verify(root: &Path, certificate: &CertifiedKey, name: &str, at: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(root).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let verifier = verifier.build().unwrap();
        let name = ServerName::try_from(name).unwrap();
        let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        verifier.verify_server_cert(&certificate.cert[0], &[], &name, &[], at).is_ok()
    }

    #[test]
    fn clients_that_trust_the_root_accept_every_name_of_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a")).unwrap();
        let names = vec!["localhost".to_owned(), "*.localhost".to_owned()];
        let now = SystemTime::now();
        let first = Authority::open_at(&storage, names.clone(), now).unwrap();
        // The next process issues by the same root.
        let second = Authority::open_at(&storage, names, now + DAY).unwrap();
        for authority in [&first, &second] {
            for name in ["localhost", "a.localhost", "b.a.localhost"] {
                let certificate = authority.certificate_at(Some(name), now).unwrap();
                assert!(verify(&first.root, &certificate, name, now), "{name}");
                assert!(!verify(&first.root, &certificate, "other.example", now));
            }
            let certificate = authority.certificate_at(None, now).unwrap();
            for name in ["localhost", "127.0.0.1", "::1"] {
                assert!(verify(&first.root, &certificate, name, now), "{name}");
            }
        }
        assert!(first.certificate_at(Some("other.example"), now).is_none());
    }

    #[test]
    fn certificates_are_kept_until_they_are_renewed() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a")).unwrap();
        let now = SystemTime::now();
        let authority = Authority::open_at(&storage, vec!["*.localhost".to_owned()], now).unwrap();
        let first = authority.certificate_at(Some("a.localhost"), now).unwrap();
        let again = authority.certificate_at(Some("A.localhost"), now + DAY).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let later = now + LIFE * 2 / 3;
        let renewed = authority.certificate_at(Some("a.localhost"), later).unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed));
        assert!(verify(&authority.root, &first, "a.localhost", later));
        assert!(verify(&authority.root, &renewed, "a.localhost", now + LIFE * 3 / 2));
        for number in 0..=MOST_NAMES {
            authority.certificate_at(Some(&format!("{number}.localhost")), now).unwrap();
        }
        assert!(authority.made.lock().unwrap().len() <= MOST_NAMES);
    }

    #[test]
    fn a_damaged_root_is_left_as_it_is_and_one_that_ends_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a")).unwrap();
        let now = SystemTime::now();
        let authority = Authority::open_at(&storage, Vec::new(), now).unwrap();
        let before = storage.read(ROOT).unwrap();
        drop(authority);
        Authority::open_at(&storage, Vec::new(), now + ROOT_LIFE - LIFE).unwrap();
        assert_ne!(storage.read(ROOT).unwrap(), before);
        storage.write(FILE, "garbage").unwrap();
        let error = Authority::open_at(&storage, Vec::new(), now).unwrap_err();
        assert!(error.to_string().contains("left as it is"), "{error}");
        assert_eq!(storage.read(FILE).unwrap().as_deref(), Some("garbage"));
    }
}
