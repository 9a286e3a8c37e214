//! JSON Web Tokens (RFC 7519): the keys that they may be signed with, and the check of one token.
//!
//! The algorithm belongs to the key and not to the token. A secret is for HS256, an RSA key for
//! RS256, a key on P-256 for ES256 and a key on Ed25519 for EdDSA; a token whose header names any
//! other algorithm is refused before its signature is looked at. So neither `alg: none` nor a
//! public key that a forger uses as the secret of HS256 gets in. A text that contains a PEM section
//! is never a secret, and a secret has at least the 32 bytes that RFC 7518 (section 3.2) demands:
//! shorter ones are found by trying them out.
//!
//! jsonwebtoken reads tokens and checks their times and audience; `provider` lends it the
//! signatures of ring, which TLS has here anyway. Three rules are added to it. A token has a
//! largest size, as anyone may send one. A token with `crit` is refused, since RFC 7515 (section
//! 4.1.11) demands that for extensions that the reader does not know. And of a set of keys (JWKS)
//! `kid` selects the key.
//!
//! `exp` is optional, as in RFC 7519; a token without it is valid until its key is changed. `exp`
//! and `nbf` may be off by the leeway, for clocks that differ.

mod keys;
mod provider;
mod read;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
pub use read::{KeyError, KeyPlace, KeySetError, read_secret};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};
use superpoll_config::{TokenKey, TokenKeyError, TokenRule};

/// The largest token.
pub(crate) const LARGEST: usize = 8 << 10;

/// A key, and the checks of the tokens that it has signed.
struct Key {
    /// Its name in a set of keys.
    id: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
}

/// The keys of tokens, and the rules for the tokens.
pub struct Verifier {
    keys: Vec<Key>,
    is_set: bool,
    /// For each algorithm of a key.
    validations: Vec<(Algorithm, Validation)>,
    leeway: u64,
    fingerprint: [u8; 32],
}

/// The contents of a valid token.
#[derive(Debug)]
pub struct Claims {
    /// The second since 1970 after which the token is no longer valid; `None`: it stays valid.
    pub valid_until: Option<u64>,
    /// All claims of the token, those in the other fields included.
    pub all: Map<String, Value>,
}

/// The reason for which a token is refused. It contains nothing of the token.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error, Debug)]
pub enum TokenError {
    /// It has more bytes than are read.
    #[error("the token has more than 8 KiB")]
    TooLarge,
    /// It is not in the form of a token.
    #[error("the token is no JSON Web Token that is signed")]
    Malformed,
    /// Its algorithm is not one of the configuration.
    #[error("the token has another algorithm than the key of this channel")]
    Algorithm,
    /// It demands an extension that is not known.
    #[error("the token has extensions (crit) that this server lacks")]
    Critical,
    /// It names a key that is not configured.
    #[error("the token names a key (kid) that this channel does not have")]
    UnknownKey,
    /// It names no key, and several are configured.
    #[error("the token names none of the keys of this channel (kid)")]
    NoKeyNamed,
    /// The signature is not that of the key.
    #[error("the token is not signed with the key of this channel")]
    Signature,
    /// Its time is over.
    #[error("the token has expired (exp)")]
    Expired,
    /// Its time has not begun.
    #[error("the token is not valid yet (nbf)")]
    NotYetValid,
    /// It is for another audience.
    #[error("the token is for another audience (aud)")]
    Audience,
    /// Its times cannot be read.
    #[error("the token has an exp or nbf that is no time")]
    Time,
}

impl From<jsonwebtoken::errors::Error> for TokenError {
    fn from(error: jsonwebtoken::errors::Error) -> TokenError {
        match error.kind() {
            ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenError::Algorithm,
            ErrorKind::InvalidSignature => TokenError::Signature,
            ErrorKind::ExpiredSignature => TokenError::Expired,
            ErrorKind::ImmatureSignature => TokenError::NotYetValid,
            ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => TokenError::Audience,
            ErrorKind::InvalidClaimFormat(_) => TokenError::Time,
            _ => TokenError::Malformed,
        }
    }
}

impl Verifier {
    /// Creates the verifier of tokens that have one key: a secret, or a public key as PEM.
    ///
    /// # Errors
    ///
    /// It is no key.
    pub(crate) fn with_key(
        key: &[u8],
        audience: Option<&str>,
        leeway: Duration,
    ) -> Result<Verifier, TokenKeyError> {
        let keys = vec![Key::from_config(&TokenKey::parse(key)?)];
        Ok(Verifier::new(keys, key, audience, leeway, false))
    }

    /// Creates the verifier of tokens that have a secret, which may be any bytes.
    pub fn with_secret(secret: &[u8], rule: &TokenRule) -> Verifier {
        let keys = vec![Key::from_config(&TokenKey::Secret(secret.to_vec()))];
        Verifier::new(keys, secret, rule.audience.as_deref(), rule.leeway, false)
    }

    /// Creates the verifier of tokens that have one of a set of keys (RFC 7517, section 5).
    ///
    /// # Errors
    ///
    /// It is no set, or none of its keys is for tokens.
    pub(crate) fn with_set(
        set: &[u8],
        audience: Option<&str>,
        leeway: Duration,
    ) -> Result<Verifier, KeySetError> {
        Ok(Verifier::new(keys::read_set(set)?, set, audience, leeway, true))
    }

    fn new(
        keys: Vec<Key>,
        material: &[u8],
        audience: Option<&str>,
        leeway: Duration,
        is_set: bool,
    ) -> Verifier {
        provider::install();
        let leeway = leeway.as_secs();
        let mut validations: Vec<(Algorithm, Validation)> = Vec::new();
        for key in &keys {
            if validations.iter().any(|(known, _)| *known == key.algorithm) {
                continue;
            }
            let mut validation = Validation::new(key.algorithm);
            validation.leeway = leeway;
            validation.validate_nbf = true;
            validation.required_spec_claims.clear();
            if let Some(audience) = audience {
                validation.set_audience(&[audience]);
                validation.set_required_spec_claims(&["aud"]);
            }
            validations.push((key.algorithm, validation));
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, material).as_ref());
        Verifier { keys, is_set, validations, leeway, fingerprint }
    }

    /// Returns a number that differs where the keys differ.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Checks a token.
    ///
    /// # Errors
    ///
    /// The token is refused.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > LARGEST {
            return Err(TokenError::TooLarge);
        }
        let header = decode_header(token)?;
        if header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err(TokenError::Critical);
        }
        let mut outcome = Err(TokenError::Algorithm);
        for key in self.candidates(header.kid.as_deref())? {
            if key.algorithm != header.alg {
                continue;
            }
            let known = self.validations.iter().find(|(algorithm, _)| *algorithm == key.algorithm);
            let Some((_, validation)) = known else { continue };
            match decode::<Map<String, Value>>(token, &key.decoding, validation) {
                Ok(decoded) => return Ok(self.claims(decoded.claims)),
                Err(error) => outcome = Err(error.into()),
            }
        }
        outcome
    }

    /// Returns the keys that a token may have been signed with.
    fn candidates(&self, id: Option<&str>) -> Result<impl Iterator<Item = &Key>, TokenError> {
        let is_named = move |key: &&Key| !self.is_set || id.is_none() || key.id.as_deref() == id;
        match self.keys.iter().filter(is_named).count() {
            0 => Err(TokenError::UnknownKey),
            2.. if id.is_none() => Err(TokenError::NoKeyNamed),
            _ => Ok(self.keys.iter().filter(is_named)),
        }
    }

    fn claims(&self, all: Map<String, Value>) -> Claims {
        let expires = all.get("exp").and_then(|at| {
            // As jsonwebtoken reads it.
            at.as_u64().or_else(|| at.as_f64().map(|at| at.round() as u64))
        });
        Claims { valid_until: expires.map(|at| at.saturating_add(self.leeway)), all }
    }
}

superpoll::debug_fields!(Verifier, it => keys: it.keys.len());
