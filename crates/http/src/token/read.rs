//! Reading the keys that a configuration names.

use superpoll_config::{KeySource, TokenRule, bounded_file};

use super::Verifier;
use super::keys::LARGEST_FILE;

impl Verifier {
    /// Reads the keys of a rule.
    ///
    /// # Errors
    ///
    /// A key cannot be read, or is none; the text names its place and has nothing of it.
    pub fn read(rule: &TokenRule) -> Result<Verifier, String> {
        let (audience, leeway) = (rule.audience.as_deref(), rule.leeway);
        if let Some(path) = &rule.jwks {
            let place = format!("the set of keys {}", path.display());
            let set = bounded_file::read(path, LARGEST_FILE)
                .map_err(|error| format!("cannot read {place}: {error}"))?;
            let read = Verifier::with_set(&set, audience, leeway);
            return read.map_err(|what| format!("{place} is {what}"));
        }
        let key = rule.key.as_ref().ok_or("tokens without a key")?;
        let (key, place) = read_source(key)?;
        let read = Verifier::with_key(&key, audience, leeway);
        read.map_err(|what| format!("{place} is {what}"))
    }
}

/// Returns the key, and the words for its place.
fn read_source(source: &KeySource) -> Result<(Vec<u8>, String), String> {
    let (mut key, place) = match source {
        KeySource::Text(text) => return Ok((text.clone().into_bytes(), "key".to_owned())),
        KeySource::File(path) => {
            let place = format!("the key in {}", path.display());
            let key = bounded_file::read(path, LARGEST_FILE)
                .map_err(|error| format!("cannot read {place}: {error}"))?;
            (key, place)
        }
        KeySource::Variable(name) => {
            let key = std::env::var_os(name).ok_or_else(|| {
                format!("the variable {name} is not set in the environment, expected a key")
            })?;
            (key.into_encoded_bytes(), format!("the variable {name}"))
        }
    };
    // The line end that editors and shells leave belongs to no secret.
    while key.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        key.pop();
    }
    Ok((key, place))
}
