//! Keys of tokens as operators have them: a secret, or a public key as PEM.

use std::fmt;
use std::ops::RangeInclusive;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};

/// The shortest secret, in bytes (RFC 7518, section 3.2).
const SHORTEST_SECRET: usize = 32;

/// The lengths of an RSA key, in bits, that signatures are verified with.
const RSA_BITS: RangeInclusive<usize> = 2048..=8192;

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// The tags of ASN.1 that public keys have.
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The key of tokens, which says how they are signed.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenKey {
    /// The secret of HS256.
    Secret(Vec<u8>),
    /// A public key for RS256.
    Rsa {
        /// The modulus, without zeros at its start.
        modulus: Vec<u8>,
        /// The exponent.
        exponent: Vec<u8>,
    },
    /// The uncompressed point of a public key for ES256.
    P256(Vec<u8>),
    /// A public key for EdDSA.
    Ed25519(Vec<u8>),
}

/// Shows the kind alone.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenKey::Secret(_) => "Secret",
            TokenKey::Rsa { .. } => "Rsa",
            TokenKey::P256(_) => "P256",
            TokenKey::Ed25519(_) => "Ed25519",
        })
    }
}

/// The reason for which bytes are no key of tokens. It has nothing of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub enum TokenKeyError {
    /// There are none.
    #[error("empty, expected a secret or -----BEGIN PUBLIC KEY-----")]
    Empty,
    /// They are something else, such as a private key: its name, and the remedy.
    #[error("{0}")]
    WrongKind(&'static str),
    /// They are a key that cannot be read.
    #[error("{0}")]
    Malformed(&'static str),
    /// They are a secret that can be guessed: its bytes.
    #[error(
        "a secret of {0} bytes, expected at least {SHORTEST_SECRET}, as from openssl rand -hex 32"
    )]
    ShortSecret(usize),
    /// They are an RSA key that signatures are not verified with: its bits.
    #[error(
        "an RSA key of {0} bits, expected {least} to {most}",
        least = RSA_BITS.start(),
        most = RSA_BITS.end()
    )]
    RsaLength(usize),
}

impl TokenKey {
    /// Reads a secret, or a public key as PEM.
    ///
    /// # Errors
    ///
    /// It is no key; the text says why, without the key.
    pub fn parse(bytes: &[u8]) -> Result<TokenKey, TokenKeyError> {
        if let Some(section) = section(bytes) {
            return Err(TokenKeyError::WrongKind(match section {
                "PUBLIC KEY" => return public_key(bytes),
                "CERTIFICATE" => {
                    "a certificate, expected its public key: openssl x509 -pubkey -noout"
                }
                "RSA PUBLIC KEY" => {
                    "a PEM section RSA PUBLIC KEY, expected PUBLIC KEY: \
                     openssl rsa -RSAPublicKey_in -pubout"
                }
                kind if kind.contains("PRIVATE KEY") => {
                    "a private key, which only the signer of tokens needs, expected its public key: \
                     openssl pkey -pubout"
                }
                _ => "a PEM section of another kind, expected -----BEGIN PUBLIC KEY-----",
            }));
        }
        if bytes.is_empty() {
            return Err(TokenKeyError::Empty);
        }
        if is_der(bytes) {
            let what = "a key in DER, expected PEM: openssl pkey -pubin -inform DER";
            return Err(TokenKeyError::WrongKind(what));
        }
        if bytes.trim_ascii_start().starts_with(b"{") {
            let what = "JSON, expected a secret or a PEM file; a set of keys is jwks = FILE";
            return Err(TokenKeyError::WrongKind(what));
        }
        if bytes.len() < SHORTEST_SECRET {
            return Err(TokenKeyError::ShortSecret(bytes.len()));
        }
        Ok(TokenKey::Secret(bytes.to_vec()))
    }

    /// Reads a secret that this server signs with, too. One that was decoded may have any bytes.
    ///
    /// # Errors
    ///
    /// It is no secret; the text says why, without the secret.
    pub fn secret(bytes: &[u8], is_decoded: bool) -> Result<Vec<u8>, TokenKeyError> {
        match TokenKey::parse(bytes) {
            Ok(TokenKey::Secret(secret)) => Ok(secret),
            Err(TokenKeyError::WrongKind(_)) if is_decoded && bytes.len() >= SHORTEST_SECRET => {
                Ok(bytes.to_vec())
            }
            Ok(_) => Err(TokenKeyError::WrongKind("a public key, expected a secret to sign with")),
            Err(error) => Err(error),
        }
    }

    /// Returns a key for RS256.
    ///
    /// # Errors
    ///
    /// It is too short or too long.
    pub fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<TokenKey, TokenKeyError> {
        let start = modulus.iter().position(|&byte| byte != 0).unwrap_or(0);
        let modulus = &modulus[start..];
        let bits =
            modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
        if !RSA_BITS.contains(&bits) {
            return Err(TokenKeyError::RsaLength(bits));
        }
        Ok(TokenKey::Rsa { modulus: modulus.to_vec(), exponent: exponent.to_vec() })
    }

    /// Returns a key for ES256, by its coordinates.
    ///
    /// # Errors
    ///
    /// These are none.
    pub fn p256_coordinates(x: &[u8], y: &[u8]) -> Result<TokenKey, TokenKeyError> {
        TokenKey::p256(&[&[UNCOMPRESSED], x, y].concat())
    }

    fn p256(point: &[u8]) -> Result<TokenKey, TokenKeyError> {
        match point {
            [UNCOMPRESSED, rest @ ..] if rest.len() == 64 => Ok(TokenKey::P256(point.to_vec())),
            _ => Err(TokenKeyError::Malformed("a key on P-256 whose point is no uncompressed one")),
        }
    }

    /// Returns a key for EdDSA.
    ///
    /// # Errors
    ///
    /// It has another length.
    pub fn ed25519(point: &[u8]) -> Result<TokenKey, TokenKeyError> {
        match point.len() {
            32 => Ok(TokenKey::Ed25519(point.to_vec())),
            _ => Err(TokenKeyError::Malformed("a key on Ed25519 that has not 32 bytes")),
        }
    }
}

/// Returns the kind of the first PEM section.
fn section(bytes: &[u8]) -> Option<&str> {
    const BEGIN: &[u8] = b"-----BEGIN";
    let at = bytes.windows(BEGIN.len()).position(|window| window == BEGIN)?;
    let line = bytes[at + BEGIN.len()..].split(|&byte| byte == b'\n').next()?;
    let kind = std::str::from_utf8(line).unwrap_or("").trim();
    Some(kind.strip_suffix("-----").unwrap_or(kind).trim())
}

fn public_key(bytes: &[u8]) -> Result<TokenKey, TokenKeyError> {
    let malformed = TokenKeyError::Malformed;
    let der = SubjectPublicKeyInfoDer::from_pem_slice(bytes)
        .map_err(|_| malformed("no PEM file of a public key: it is cut off, or no base64"))?;
    let (kind, key) =
        subject_public_key(&der).ok_or(malformed("a public key that cannot be read"))?;
    let is = |known: AlgorithmIdentifier| kind == known.as_ref();
    if is(alg_id::RSA_ENCRYPTION) {
        let (modulus, exponent) =
            rsa_components(key).ok_or(malformed("an RSA key that cannot be read"))?;
        TokenKey::rsa(modulus, exponent)
    } else if is(alg_id::ECDSA_P256) {
        TokenKey::p256(key)
    } else if is(alg_id::ED25519) {
        TokenKey::ed25519(key)
    } else {
        let what = "a public key of another kind, expected RSA, P-256 or Ed25519";
        Err(TokenKeyError::WrongKind(what))
    }
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
