//! The sites whose pages may use a channel.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::authority::Authority;

/// The sites, in addition to the server's own, whose pages may use a channel in a browser. Clones
/// are cheap.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Origins(Arc<[String]>);

impl Origins {
    /// Whether the pages of all origins may use it.
    #[inline]
    #[must_use]
    pub fn allow_all(&self) -> bool {
        self.0.iter().any(|known| known == "*")
    }

    /// Whether the pages of an origin may use it.
    #[inline]
    #[must_use]
    pub fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(origin))
    }
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the text is `*`, or an origin in the form that browsers send: a scheme, a host and
/// perhaps a port.
fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_authority = |rest: &str| Authority::parse(rest.as_bytes()).is_some();
    text == "*" || rest.is_some_and(is_authority)
}

impl<'de> Deserialize<'de> for Origins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Origins, D::Error> {
        let origins = Vec::<String>::deserialize(deserializer)?;
        match origins.iter().find(|origin| !is_origin(origin)) {
            None => Ok(Origins(origins.into())),
            Some(wrong) => Err(D::Error::custom(format!(
                "{wrong:?} is no origin, expected \"https://HOST\", \"https://HOST:PORT\", the same with http, or \"*\""
            ))),
        }
    }
}
