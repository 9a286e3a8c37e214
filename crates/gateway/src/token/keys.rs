//! Keys as operators have them: a secret, a public key as PEM, or a set of keys (JWKS).

use data_encoding::BASE64URL_NOPAD;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::Key;

/// The shortest secret, in bytes (RFC 7518, section 3.2).
const SHORTEST_SECRET: usize = 32;

/// The lengths of an RSA key, in bits, that signatures are verified with.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The largest file of keys.
pub(crate) const LARGEST_FILE: u64 = 1 << 20;

/// The most keys of a set.
const MOST_KEYS: usize = 100;

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// The tags of ASN.1 that public keys have.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// Reads a secret, or a public key as PEM; the error says why it is none.
pub(super) fn read_key(bytes: &[u8]) -> Result<Key, String> {
    if let Some(section) = section(bytes) {
        return match section {
            "PUBLIC KEY" => public_key(bytes),
            "CERTIFICATE" => Err("a certificate, expected its public key: \
                 openssl x509 -pubkey -noout"
                .to_owned()),
            "RSA PUBLIC KEY" => Err("a PEM section RSA PUBLIC KEY, expected PUBLIC KEY: \
                 openssl rsa -RSAPublicKey_in -pubout"
                .to_owned()),
            kind if kind.contains("PRIVATE KEY") => Err(
                "a private key, which only the signer of tokens needs, expected its public key: \
                 openssl pkey -pubout"
                    .to_owned(),
            ),
            _ => {
                Err("a PEM section of another kind, expected -----BEGIN PUBLIC KEY-----".to_owned())
            }
        };
    }
    if bytes.is_empty() {
        return Err("empty, expected a secret or -----BEGIN PUBLIC KEY-----".to_owned());
    }
    if is_der(bytes) {
        return Err("a key in DER, expected PEM: openssl pkey -pubin -inform DER".to_owned());
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Err(
            "JSON, expected a secret or a PEM file; a set of keys is jwks = FILE".to_owned()
        );
    }
    if bytes.len() < SHORTEST_SECRET {
        let found = bytes.len();
        return Err(format!(
            "a secret of {found} bytes, expected at least {SHORTEST_SECRET}, as from \
             openssl rand -hex 32"
        ));
    }
    let decoding = DecodingKey::from_secret(bytes);
    Ok(Key { id: None, algorithm: Algorithm::HS256, decoding })
}

/// Returns the kind of the first PEM section.
fn section(bytes: &[u8]) -> Option<&str> {
    const BEGIN: &[u8] = b"-----BEGIN";
    let at = bytes.windows(BEGIN.len()).position(|window| window == BEGIN)?;
    let line = bytes[at + BEGIN.len()..].split(|&byte| byte == b'\n').next()?;
    let kind = std::str::from_utf8(line).unwrap_or("").trim();
    Some(kind.strip_suffix("-----").unwrap_or(kind).trim())
}

fn public_key(bytes: &[u8]) -> Result<Key, String> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(bytes)
        .map_err(|_| "no PEM file of a public key: it is cut off, or no base64".to_owned())?;
    let (kind, key) = subject_public_key(&der).ok_or("a public key that cannot be read")?;
    let is = |known: AlgorithmIdentifier| kind == known.as_ref();
    let (algorithm, decoding) = if is(alg_id::RSA_ENCRYPTION) {
        let (modulus, exponent) = rsa_components(key).ok_or("an RSA key that cannot be read")?;
        (Algorithm::RS256, rsa(modulus, exponent)?)
    } else if is(alg_id::ECDSA_P256) {
        (Algorithm::ES256, p256(key)?)
    } else if is(alg_id::ED25519) {
        (Algorithm::EdDSA, ed25519(key)?)
    } else {
        return Err("a public key of another kind, expected RSA, P-256 or Ed25519".to_owned());
    };
    Ok(Key { id: None, algorithm, decoding })
}

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<DecodingKey, String> {
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if !RSA_BITS.contains(&bits) {
        let (least, most) = RSA_BITS.into_inner();
        return Err(format!("an RSA key of {bits} bits, expected {least} to {most}"));
    }
    Ok(DecodingKey::from_rsa_raw_components(modulus, exponent))
}

fn p256(point: &[u8]) -> Result<DecodingKey, String> {
    match point {
        [UNCOMPRESSED, rest @ ..] if rest.len() == 64 => Ok(DecodingKey::from_ec_der(point)),
        _ => Err("a key on P-256 whose point is no uncompressed one".to_owned()),
    }
}

fn ed25519(point: &[u8]) -> Result<DecodingKey, String> {
    match point.len() {
        32 => Ok(DecodingKey::from_ed_der(point)),
        _ => Err("a key on Ed25519 that has not 32 bytes".to_owned()),
    }
}

/// Reads a set of keys; the error says why it is none. Keys of other kinds, for other algorithms or
/// for encryption are left out, as RFC 7517 (section 5) says.
pub(super) fn read_set(bytes: &[u8]) -> Result<Vec<Key>, String> {
    let set: JwkSet = serde_json::from_slice(bytes)
        .map_err(|error| format!("no set of keys, expected {{\"keys\":[...]}}: {error}"))?;
    if set.keys.len() > MOST_KEYS {
        return Err(format!("a set of {} keys, expected at most {MOST_KEYS}", set.keys.len()));
    }
    let mut keys = Vec::new();
    for (index, jwk) in set.keys.iter().enumerate() {
        let key = of_set(jwk).map_err(|what| format!("a set whose key {} is {what}", index + 1))?;
        keys.extend(key);
    }
    if keys.is_empty() {
        let what = "a set without a key for HS256, RS256, ES256 or EdDSA";
        return Err(format!("{what}, expected one"));
    }
    Ok(keys)
}

/// Returns a key of a set, unless it is for other purposes.
fn of_set(jwk: &Jwk) -> Result<Option<Key>, String> {
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return Ok(None);
    }
    let part = |text: &str| {
        let bytes = BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes());
        bytes.map_err(|_| "no base64url".to_owned())
    };
    let (algorithm, decoding) = match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            let (modulus, exponent) = (part(&key.n)?, part(&key.e)?);
            let start = modulus.iter().position(|&byte| byte != 0).unwrap_or(0);
            (Algorithm::RS256, rsa(&modulus[start..], &exponent))
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            let point = [vec![UNCOMPRESSED], part(&key.x)?, part(&key.y)?].concat();
            (Algorithm::ES256, p256(&point))
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, ed25519(&part(&key.x)?))
        }
        AlgorithmParameters::OctetKey(key) => {
            (Algorithm::HS256, read_key(&part(&key.value)?).map(|key| key.decoding))
        }
        _ => return Ok(None),
    };
    // An RSA key may be for RS512, and a secret for HS384.
    if jwk.common.key_algorithm.is_some_and(|known| known != KeyAlgorithm::from(algorithm)) {
        return Ok(None);
    }
    Ok(Some(Key { id: jwk.common.key_id.clone(), algorithm, decoding: decoding? }))
}

/// Splits off an element of DER: returns its contents, and the bytes behind it.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length)).flatten()
}

/// Returns the kind of a public key and the key (RFC 5280, section 4.1.2.7).
fn subject_public_key(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (whole, after) = element(SEQUENCE, der)?;
    let (kind, rest) = element(SEQUENCE, whole)?;
    let (bits, more) = element(BIT_STRING, rest)?;
    let (unused, key) = bits.split_first()?;
    (*unused == 0 && after.is_empty() && more.is_empty()).then_some((kind, key))
}

/// Returns the modulus and the exponent of an RSA key (RFC 8017, section A.1.1).
fn rsa_components(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (whole, after) = element(SEQUENCE, der)?;
    let (modulus, rest) = element(INTEGER, whole)?;
    let (exponent, more) = element(INTEGER, rest)?;
    // A zero byte shows that a number is positive.
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    (after.is_empty() && more.is_empty()).then_some((modulus, exponent))
}

fn is_der(bytes: &[u8]) -> bool {
    element(SEQUENCE, bytes).is_some_and(|(_, after)| after.is_empty())
}
