//! The secret by which an application and the gateway know each other.
//!
//! The gateway signs each request that it forwards (`Grip-Sig`), so that an application knows that
//! it may hold the connection. An application signs what it publishes. Both are tokens of HS256.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use ring::digest::{SHA256, digest};
use ring::hmac;
use superpoll_config::{Config, Grip, KeySource, TokenRule};
use superpoll_http::token::{KeyError, Verifier, read_secret};
use superpoll_http::unix_time::seconds_now;

/// How long a signature of the gateway is valid.
const VALID: u64 = 3600;

/// The issuer of the gateway's signatures. An application gets one with each request, and may show
/// it: it gives nobody the right to publish.
const ISSUER: &str = "superpoll";

/// By how much the clocks of publishers may differ.
const LEEWAY: Duration = Duration::from_secs(30);

/// The host of logs of items among the hosts of channels. No host has such a name.
pub(in crate::channel) const HOST: &str = "*grip";

/// The secret of a log of items, which all engines share.
pub struct GripKey {
    secret: hmac::Key,
    verifier: Verifier,
    /// The secret as a text, which publishers may send as it is.
    text: zeroize::Zeroizing<Vec<u8>>,
    source: KeySource,
}

/// A key cannot be used.
#[derive(thiserror::Error, Debug)]
#[error("reading the key of grip: {0}")]
pub struct GripKeyError(#[from] pub KeyError);

impl GripKey {
    /// Reads all keys of a configuration, each once.
    ///
    /// # Errors
    ///
    /// A key that cannot be read.
    pub fn all(config: &Config) -> Result<Vec<Arc<GripKey>>, GripKeyError> {
        let read = |grip: &Grip| {
            let text = read_secret(&grip.key)?;
            let secret = hmac::Key::new(hmac::HMAC_SHA256, &text);
            let rule =
                TokenRule { key: Some(grip.key.clone()), leeway: LEEWAY, ..TokenRule::default() };
            let verifier = Verifier::with_secret(&text, &rule);
            Ok(Arc::new(GripKey { secret, verifier, text, source: grip.key.clone() }))
        };
        config.grips().into_iter().map(read).collect()
    }

    /// Whether it is the key of a table of the configuration.
    #[must_use]
    pub fn is_of(&self, grip: &Grip) -> bool {
        self.source == grip.key
    }

    /// Returns the path of the log of items of a key among channels. Nothing of a secret can be
    /// guessed from it.
    #[must_use]
    pub fn path(source: &KeySource) -> String {
        let name = match source {
            KeySource::Text(text) => format!("text {text}"),
            KeySource::File(path) => format!("file {}", path.display()),
            KeySource::Variable(name) => format!("variable {name}"),
        };
        let digest = digest(&SHA256, format!("superpoll grip {name}").as_bytes());
        format!("/{}", HEXLOWER.encode(&digest.as_ref()[..12]))
    }

    /// Returns the field by which an application knows the gateway.
    pub(super) fn signature(&self) -> HeaderValue {
        let head = BASE64URL_NOPAD.encode(br#"{"typ":"JWT","alg":"HS256"}"#);
        let claims = format!(r#"{{"iss":"{ISSUER}","exp":{}}}"#, seconds_now() + VALID);
        let mut token = format!("{head}.{}", BASE64URL_NOPAD.encode(claims.as_bytes()));
        let signature = hmac::sign(&self.secret, token.as_bytes());
        token.push('.');
        token.push_str(&BASE64URL_NOPAD.encode(signature.as_ref()));
        // It is base64 and dots.
        HeaderValue::try_from(token).unwrap_or(HeaderValue::from_static(""))
    }

    /// Whether a publisher has shown that it knows the secret.
    ///
    /// # Errors
    ///
    /// The reason for which it has not, in words.
    pub(super) fn check(&self, fields: &HeaderMap) -> Result<(), String> {
        let mut given = fields.get_all(AUTHORIZATION).into_iter();
        let (Some(value), None) = (given.next(), given.next()) else {
            return Err("expected one field Authorization, with a token of the key".to_owned());
        };
        let value = value.to_str().unwrap_or("");
        let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            if self.is_secret(rest.as_bytes()) {
                return Ok(());
            }
            let verified = self.verifier.verify(rest).map_err(|error| error.to_string())?;
            if verified.all.get("iss").and_then(|issuer| issuer.as_str()) == Some(ISSUER) {
                return Err("the token is one of the gateway's own".to_owned());
            }
            return match verified.valid_until {
                Some(_) => Ok(()),
                None => Err("the token has no end (exp)".to_owned()),
            };
        }
        if scheme.eq_ignore_ascii_case("basic") {
            let login = BASE64.decode(rest.as_bytes()).unwrap_or_default();
            let at = login.iter().position(|byte| *byte == b':');
            return match at.is_some_and(|at| self.is_secret(&login[at + 1..])) {
                true => Ok(()),
                false => Err("the password is not the key".to_owned()),
            };
        }
        Err("expected Authorization: Bearer or Basic".to_owned())
    }

    /// Compares a text with the secret in a time that does not depend on where they differ.
    fn is_secret(&self, text: &[u8]) -> bool {
        let of = |bytes: &[u8]| hmac::sign(&self.secret, bytes);
        hmac::verify(&self.secret, text, of(&self.text).as_ref()).is_ok()
    }
}

superpoll::debug_fields!(GripKey, it => source: it.source);

#[cfg(test)]
mod tests {
    use superpoll_http::token::TokenError;

    use super::*;

    const SECRET: &str = "a secret of at least 32 bytes, yes";

    fn key() -> Arc<GripKey> {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/\"\n\
             grip = {{ key = {SECRET:?} }}\n"
        );
        let config = Config::parse("a.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        GripKey::all(&config).unwrap().remove(0)
    }

    fn with(value: &str) -> HeaderMap {
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        fields
    }

    fn token(claims: &str, secret: &str) -> String {
        let head = BASE64URL_NOPAD.encode(br#"{"alg":"HS256"}"#);
        let text = format!("{head}.{}", BASE64URL_NOPAD.encode(claims.as_bytes()));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = BASE64URL_NOPAD.encode(hmac::sign(&secret, text.as_bytes()).as_ref());
        format!("{text}.{signature}")
    }

    #[test]
    fn publishers_show_that_they_know_the_secret() {
        let (key, now) = (key(), seconds_now());
        let valid = token(&format!(r#"{{"iss":"a","exp":{}}}"#, now + 600), SECRET);
        assert_eq!(key.check(&with(&format!("Bearer {valid}"))), Ok(()));
        assert_eq!(key.check(&with(&format!("bearer {SECRET}"))), Ok(()));
        let basic = BASE64.encode(format!("a:{SECRET}").as_bytes());
        assert_eq!(key.check(&with(&format!("Basic {basic}"))), Ok(()));
        let late = token(&format!(r#"{{"exp":{}}}"#, now - 60), SECRET);
        let other =
            token(&format!(r#"{{"exp":{}}}"#, now + 60), "another secret of 32 bytes or more");
        let basic = BASE64.encode(b"a:changeme");
        for (value, what) in [
            (format!("Bearer {late}"), TokenError::Expired.to_string()),
            (format!("Bearer {other}"), TokenError::Signature.to_string()),
            (format!("Bearer {}", token("{}", SECRET)), "the token has no end (exp)".to_owned()),
            (format!("Basic {basic}"), "the password is not the key".to_owned()),
            ("Digest x".to_owned(), "expected Authorization: Bearer or Basic".to_owned()),
        ] {
            assert_eq!(key.check(&with(&value)), Err(what), "{value}");
        }
        assert!(key.check(&HeaderMap::new()).is_err());
        let own = key.signature();
        let own = format!("Bearer {}", own.to_str().unwrap());
        assert!(key.check(&with(&own)).is_err(), "an application may show it to anybody");
        let mut twice = with(&format!("Bearer {valid}"));
        twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert!(key.check(&twice).is_err());
    }

    #[test]
    fn the_signature_is_a_token_of_the_key() {
        let key = key();
        let signature = key.signature();
        let claims = key.verifier.verify(signature.to_str().unwrap()).unwrap();
        assert_eq!(claims.all["iss"], "superpoll");
        assert!(claims.valid_until.unwrap() >= seconds_now() + VALID);
    }

    #[test]
    fn the_path_of_a_log_has_nothing_of_the_secret() {
        let path = GripKey::path(&KeySource::Text(SECRET.to_owned()));
        assert_eq!(path.len(), 25);
        assert_ne!(path, GripKey::path(&KeySource::Variable(SECRET.to_owned())));
    }
}
