//! Reading the keys that a configuration names.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use data_encoding::BASE64;
use superpoll_config::{KeySource, TokenKey, TokenKeyError, TokenRule, bounded_file};
use zeroize::Zeroizing;

use super::Verifier;
use super::keys::{LARGEST_FILE, MOST_KEYS};

/// The place of a key, which the configuration names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyPlace {
    /// The configuration itself.
    Text,
    /// A file.
    File(PathBuf),
    /// A file with a set of keys.
    Set(PathBuf),
    /// A variable of the environment.
    Variable(String),
}

/// The reason for which the keys of tokens cannot be used. It has nothing of a key.
#[derive(thiserror::Error, Debug)]
pub enum KeyError {
    /// A file cannot be read, or is too large.
    #[error("cannot read {place}: {source}")]
    Read {
        /// The file.
        place: KeyPlace,
        /// The kernel's error.
        source: io::Error,
    },
    /// A variable of the environment is not set.
    #[error("the variable {0} is not set in the environment, expected a key")]
    Unset(String),
    /// The contents of a place are no key.
    #[error("{place} is {source}")]
    Key {
        /// The place.
        place: KeyPlace,
        /// The mistake.
        source: TokenKeyError,
    },
    /// The contents of a file are no set of keys.
    #[error("{place} is {source}")]
    Set {
        /// The file.
        place: KeyPlace,
        /// The mistake.
        source: KeySetError,
    },
    /// The rule names neither a key nor a set of keys.
    #[error("tokens without a key")]
    NoKey,
}

/// The reason for which a text is no set of keys.
#[derive(thiserror::Error, Debug)]
pub enum KeySetError {
    /// It is not in the form of a set.
    #[error("no set of keys, expected {{\"keys\":[...]}}: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It has so many keys, which are too many.
    #[error("a set of {0} keys, expected at most {MOST_KEYS}")]
    TooMany(usize),
    /// A key of it cannot be used.
    #[error("a set whose key {number} is {source}")]
    Key {
        /// The number of the key, from one.
        number: usize,
        /// The mistake.
        source: TokenKeyError,
    },
    /// It has no key that tokens may be signed with.
    #[error("a set without a key for HS256, RS256, ES256 or EdDSA, expected one")]
    NoKey,
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPlace::Text => f.write_str("key"),
            KeyPlace::File(path) => write!(f, "the key in {}", path.display()),
            KeyPlace::Set(path) => write!(f, "the set of keys {}", path.display()),
            KeyPlace::Variable(name) => write!(f, "the variable {name}"),
        }
    }
}

impl Verifier {
    /// Reads the keys of a rule.
    ///
    /// # Errors
    ///
    /// A key cannot be read, or is none.
    pub fn read(rule: &TokenRule) -> Result<Verifier, KeyError> {
        let (audience, leeway) = (rule.audience.as_deref(), rule.leeway);
        if let Some(path) = &rule.jwks {
            let (set, place) = read_file(path, KeyPlace::Set)?;
            let read = Verifier::with_set(&set, audience, leeway);
            return read.map_err(|source| KeyError::Set { place, source });
        }
        let (key, place) = read_source(rule.key.as_ref().ok_or(KeyError::NoKey)?)?;
        let read = Verifier::with_key(&key, audience, leeway);
        read.map_err(|source| KeyError::Key { place, source })
    }
}

/// Reads a secret that is signed with, too. After `base64:` its bytes are in base64.
///
/// # Errors
///
/// It cannot be read, or is none.
pub fn read_secret(source: &KeySource) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (bytes, place) = read_source(source)?;
    let bytes = Zeroizing::new(bytes);
    let malformed = |_| TokenKeyError::Malformed("no base64 behind \"base64:\"");
    let secret = match bytes.strip_prefix(b"base64:") {
        None => TokenKey::secret(&bytes, false),
        Some(text) => BASE64.decode(text).map_err(malformed).and_then(|bytes| {
            let bytes = Zeroizing::new(bytes);
            TokenKey::secret(&bytes, true)
        }),
    };
    secret.map(Zeroizing::new).map_err(|source| KeyError::Key { place, source })
}

/// Returns the contents of a file, and its place.
fn read_file(
    path: &Path,
    place: impl Fn(PathBuf) -> KeyPlace,
) -> Result<(Vec<u8>, KeyPlace), KeyError> {
    let place = place(path.to_path_buf());
    match bounded_file::read(path, LARGEST_FILE) {
        Ok(bytes) => Ok((bytes, place)),
        Err(source) => Err(KeyError::Read { place, source }),
    }
}

/// Returns the key, and its place.
fn read_source(source: &KeySource) -> Result<(Vec<u8>, KeyPlace), KeyError> {
    let (mut key, place) = match source {
        KeySource::Text(text) => return Ok((text.clone().into_bytes(), KeyPlace::Text)),
        KeySource::File(path) => read_file(path, KeyPlace::File)?,
        KeySource::Variable(name) => {
            let key = std::env::var_os(name).ok_or_else(|| KeyError::Unset(name.clone()))?;
            (key.into_encoded_bytes(), KeyPlace::Variable(name.clone()))
        }
    };
    // The line end that editors and shells leave belongs to no secret.
    while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        key.pop();
    }
    Ok((key, place))
}
