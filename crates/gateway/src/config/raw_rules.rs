//! The rules of routes and hosts as they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// Fields by their names.
pub(super) type Fields = BTreeMap<Spanned<String>, Spanned<Values>>;

/// Files by the errors that they are for.
pub(super) type RawErrorPages = BTreeMap<Spanned<String>, Spanned<PathBuf>>;

/// Changes of the fields of a message.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Headers {
    pub(super) set: Fields,
    pub(super) add: Fields,
    pub(super) remove: Vec<Spanned<String>>,
}

/// The values of a field: a text, or a list of texts for a field that comes several times.
pub(super) struct Values(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Values, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of a field, or a list of values")
            }

            fn visit_str<E>(self, text: &str) -> Result<Values, E> {
                Ok(Values(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                match values.is_empty() {
                    true => Err(A::Error::invalid_length(0, &self)),
                    false => Ok(Values(values)),
                }
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

/// Users and their passwords.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BasicAuth {
    pub(super) realm: Option<Spanned<String>>,
    pub(super) users: BTreeMap<Spanned<String>, Spanned<String>>,
    pub(super) file: Option<Spanned<PathBuf>>,
}
