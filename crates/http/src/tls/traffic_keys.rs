//! The keys that a handshake comes to, which rustls tells while it works on a record.
//!
//! rustls hands keys out afterwards as well, but makes them again for that, which is a tenth of the
//! work of a resumed handshake of TLS 1.2; and it never hands out the secrets that the next keys of
//! TLS 1.3 are made from. It tells these to a log of keys, and makes its ciphers by way of its
//! suites. The suites here are ring's. They keep each key, and count the records.
//!
//! ```text
//!   KeyLog::log             the secrets of both directions (TLS 1.3)
//!   encrypter, decrypter    a key; the last one that is made is that of the connection's data
//!   encrypt, decrypt        the number of the next record
//! ```
//!
//! The reported keys are those of one connection: the one whose [`TrafficKeys::collect`] is under
//! way in this thread. Nothing is kept otherwise.

use std::cell::RefCell;
use std::sync::LazyLock;

use futures_rustls::rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter,
    MessageEncrypter, OutboundOpaqueMessage, OutboundPlainMessage, Tls12AeadAlgorithm,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use futures_rustls::rustls::crypto::{CryptoProvider, ring};
use futures_rustls::rustls::{
    CipherSuite, CipherSuiteCommon, ConnectionTrafficSecrets, Error, KeyLog, SupportedCipherSuite,
    Tls12CipherSuite, Tls13CipherSuite,
};

use super::keys::{Cipher, Suite};
use super::keys::{Direction, RawKey, Secret, secret};

/// The secret and the key that rustls reported for a direction.
#[derive(Default)]
struct Told {
    /// The secret that the key is made of (TLS 1.3).
    secret: Option<Secret>,
    key: Option<(Suite, RawKey)>,
    /// The number of the next record with this key.
    number: u64,
}

/// The secrets and the keys that rustls reported for both directions.
#[derive(Default)]
struct Both {
    client: Told,
    server: Told,
}

/// What was told of a connection. It has one place in memory, so that no copy of a key is left.
#[derive(Default)]
pub(super) struct TrafficKeys(Option<Box<Both>>);

thread_local! {
    /// Those of the connection whose record rustls works on.
    static KEYS: RefCell<TrafficKeys> = const { RefCell::new(TrafficKeys(None)) };
}

/// Adds to the reported keys, if a caller collects them.
fn tell(act: impl FnOnce(&mut Both)) {
    KEYS.with_borrow_mut(|keys| keys.0.as_deref_mut().map(act));
}

impl Told {
    fn set(&mut self, suite: Suite, key: &[u8], iv: [&[u8]; 2]) {
        (self.key, self.number) = (Some((suite, RawKey::new(key, iv))), 0);
    }

    /// Returns the direction that continues with the key.
    fn direction(self) -> Option<(Direction, Suite)> {
        let (suite, key) = self.key?;
        let secret = match suite.is_tls13 {
            true => self.secret?,
            false => secret(&[&key.key[..key.key_len], &key.iv[..]]),
        };
        debug_assert!(key == RawKey::derive(suite, &secret), "the key is made of the secret");
        Some((Direction::with_key(suite, secret, key, self.number), suite))
    }
}

impl TrafficKeys {
    /// Collects the keys that are reported while a function runs, which works on this connection
    /// alone.
    pub(super) fn collect<R>(&mut self, work: impl FnOnce() -> R) -> R {
        KEYS.set(TrafficKeys(Some(self.0.take().unwrap_or_default())));
        let outcome = work();
        *self = KEYS.take();
        outcome
    }

    /// Returns the direction to the client with its suite, and the one from the client.
    pub(super) fn directions(self) -> Option<(Direction, Suite, Direction)> {
        let Both { client, server } = *self.0?;
        let (to_client, suite) = server.direction()?;
        let (from_client, _) = client.direction()?;
        Some((to_client, suite, from_client))
    }
}

/// The log that rustls tells secrets to, by names (RFC 9850).
#[derive(Debug)]
pub(super) struct SecretLog;

impl KeyLog for SecretLog {
    fn log(&self, label: &str, _: &[u8], bytes: &[u8]) {
        tell(|keys| match label {
            "CLIENT_TRAFFIC_SECRET_0" => keys.client.secret = Some(secret(&[bytes])),
            "SERVER_TRAFFIC_SECRET_0" => keys.server.secret = Some(secret(&[bytes])),
            _ => {}
        });
    }

    fn will_log(&self, label: &str) -> bool {
        label.ends_with("TRAFFIC_SECRET_0")
    }
}

/// Returns a provider whose suites tell their keys. Those that ring has not are left out.
pub(crate) fn telling(mut provider: CryptoProvider) -> CryptoProvider {
    let telling = |suite: SupportedCipherSuite| {
        SUITES.iter().find(|telling| telling.suite() == suite.suite()).copied()
    };
    provider.cipher_suites = provider.cipher_suites.into_iter().filter_map(telling).collect();
    provider
}

/// The suites of ring. They are made once.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| ring::ALL_CIPHER_SUITES.iter().filter_map(suite).collect());

/// Returns a suite like that of ring, which lives as long as the process.
fn suite(made: &SupportedCipherSuite) -> Option<SupportedCipherSuite> {
    let cipher = cipher(made.suite())?;
    Some(match made {
        SupportedCipherSuite::Tls13(made) => {
            let suite = Suite { is_tls13: true, cipher };
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&made.common),
                hkdf_provider: made.hkdf_provider,
                aead_alg: Box::leak(Box::new(TellingCipher { made: made.aead_alg, suite })),
                quic: None,
            })))
        }
        SupportedCipherSuite::Tls12(made) => {
            let suite = Suite { is_tls13: false, cipher };
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&made.common),
                prf_provider: made.prf_provider,
                kx: made.kx,
                sign: made.sign,
                aead_alg: Box::leak(Box::new(TellingCipher { made: made.aead_alg, suite })),
            })))
        }
    })
}

fn common(made: &CipherSuiteCommon) -> CipherSuiteCommon {
    let CipherSuiteCommon { suite, hash_provider, confidentiality_limit } = *made;
    CipherSuiteCommon { suite, hash_provider, confidentiality_limit }
}

fn cipher(suite: CipherSuite) -> Option<Cipher> {
    use CipherSuite as Name;
    Some(match suite {
        Name::TLS13_AES_128_GCM_SHA256
        | Name::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | Name::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
        Name::TLS13_AES_256_GCM_SHA384
        | Name::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | Name::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
        Name::TLS13_CHACHA20_POLY1305_SHA256
        | Name::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | Name::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Cipher::ChaCha20Poly1305,
        _ => return None,
    })
}

/// A cipher of a suite, which tells its keys.
struct TellingCipher<A: 'static + ?Sized> {
    made: &'static A,
    suite: Suite,
}

impl Tls13AeadAlgorithm for TellingCipher<dyn Tls13AeadAlgorithm> {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        tell(|keys| keys.server.set(self.suite, key.as_ref(), [iv.as_ref(), &[]]));
        Box::new(Counted(self.made.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        tell(|keys| keys.client.set(self.suite, key.as_ref(), [iv.as_ref(), &[]]));
        Box::new(Counted(self.made.decrypter(key, iv)))
    }

    fn key_len(&self) -> usize {
        self.made.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.made.extract_keys(key, iv)
    }
}

impl Tls12AeadAlgorithm for TellingCipher<dyn Tls12AeadAlgorithm> {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        tell(|keys| keys.server.set(self.suite, key.as_ref(), [iv, extra]));
        Box::new(Counted(self.made.encrypter(key, iv, extra)))
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        // The rest of AES-GCM's nonces is in the records.
        tell(|keys| keys.client.set(self.suite, key.as_ref(), [iv, &[]]));
        Box::new(Counted(self.made.decrypter(key, iv)))
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        self.made.key_block_shape()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.made.extract_keys(key, iv, explicit)
    }
}

/// A key of rustls whose records are counted.
struct Counted<C: ?Sized>(Box<C>);

impl MessageEncrypter for Counted<dyn MessageEncrypter> {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        number: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        tell(|keys| keys.server.number = number + 1);
        self.0.encrypt(message, number)
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        self.0.encrypted_payload_len(length)
    }
}

impl MessageDecrypter for Counted<dyn MessageDecrypter> {
    fn decrypt<'a>(
        &mut self,
        message: InboundOpaqueMessage<'a>,
        number: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        tell(|keys| keys.client.number = number + 1);
        self.0.decrypt(message, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_of_ring_tells_its_keys() {
        let suites = telling(ring::default_provider()).cipher_suites;
        let names = |suites: &[SupportedCipherSuite]| -> Vec<CipherSuite> {
            suites.iter().map(SupportedCipherSuite::suite).collect()
        };
        assert_eq!(names(&suites), names(ring::ALL_CIPHER_SUITES));
        for suite in suites {
            let name = format!("{:?}", suite.suite());
            let expected = match cipher(suite.suite()).unwrap() {
                Cipher::Aes128Gcm => "AES_128_GCM",
                Cipher::Aes256Gcm => "AES_256_GCM",
                Cipher::ChaCha20Poly1305 => "CHACHA20_POLY1305",
            };
            assert!(name.contains(expected), "{name}");
        }
    }

    #[test]
    fn nothing_is_kept_that_nobody_collects() {
        SecretLog.log("SERVER_TRAFFIC_SECRET_0", &[], &[7; 32]);
        let mut keys = TrafficKeys::default();
        keys.collect(|| SecretLog.log("CLIENT_TRAFFIC_SECRET_0", &[], &[8; 32]));
        SecretLog.log("SERVER_TRAFFIC_SECRET_0", &[], &[9; 32]);
        keys.collect(|| ());
        let both = keys.0.unwrap();
        assert_eq!(both.client.secret, Some(secret(&[&[8; 32]])));
        assert!(both.server.secret.is_none() && KEYS.take().0.is_none());
    }
}
