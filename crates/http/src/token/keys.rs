//! Sets of keys (JWKS), and keys in the form of the library that verifies.

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use superpoll_config::{TokenKey, TokenKeyError};

use super::Key;
use super::read::KeySetError;

/// The largest file of keys.
pub(super) const LARGEST_FILE: u64 = 1 << 20;

/// The most keys of a set.
pub(super) const MOST_KEYS: usize = 100;

impl Key {
    /// Returns a key that has no name.
    pub(super) fn from_config(key: &TokenKey) -> Key {
        let (algorithm, decoding) = match key {
            TokenKey::Secret(secret) => (Algorithm::HS256, DecodingKey::from_secret(secret)),
            TokenKey::Rsa { modulus, exponent } => {
                (Algorithm::RS256, DecodingKey::from_rsa_raw_components(modulus, exponent))
            }
            TokenKey::P256(point) => (Algorithm::ES256, DecodingKey::from_ec_der(point)),
            TokenKey::Ed25519(point) => (Algorithm::EdDSA, DecodingKey::from_ed_der(point)),
        };
        Key { id: None, algorithm, decoding }
    }
}

/// Reads a set of keys; the error says why it is none. Keys of other kinds, for other algorithms or
/// for encryption are left out, as RFC 7517 (section 5) says.
pub(super) fn read_set(bytes: &[u8]) -> Result<Vec<Key>, KeySetError> {
    let set: JwkSet = serde_json::from_slice(bytes)?;
    if set.keys.len() > MOST_KEYS {
        return Err(KeySetError::TooMany(set.keys.len()));
    }
    let mut keys = Vec::new();
    for (index, jwk) in set.keys.iter().enumerate() {
        let key = of_set(jwk).map_err(|source| KeySetError::Key { number: index + 1, source })?;
        keys.extend(key);
    }
    if keys.is_empty() {
        return Err(KeySetError::NoKey);
    }
    Ok(keys)
}

/// Returns a key of a set, unless it is for other purposes.
fn of_set(jwk: &Jwk) -> Result<Option<Key>, TokenKeyError> {
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return Ok(None);
    }
    let part = |text: &str| {
        let bytes = BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes());
        bytes.map_err(|_| TokenKeyError::Malformed("no base64url"))
    };
    let (algorithm, key) = match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            (Algorithm::RS256, TokenKey::rsa(&part(&key.n)?, &part(&key.e)?))
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, TokenKey::p256_coordinates(&part(&key.x)?, &part(&key.y)?))
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, TokenKey::ed25519(&part(&key.x)?))
        }
        AlgorithmParameters::OctetKey(key) => {
            (Algorithm::HS256, TokenKey::parse(&part(&key.value)?))
        }
        _ => return Ok(None),
    };
    // An RSA key may be for RS512, and a secret for HS384.
    if jwk.common.key_algorithm.is_some_and(|known| known != KeyAlgorithm::from(algorithm)) {
        return Ok(None);
    }
    Ok(Some(Key { id: jwk.common.key_id.clone(), ..Key::from_config(&key?) }))
}
