//! The rules of routes and hosts as they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::matcher::Expected;

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
    pub(super) failures: Option<Spanned<String>>,
}

/// Users and their passwords, or `false` for none.
pub(super) enum Login {
    Off,
    Users(BasicAuth),
}

impl<'de> Deserialize<'de> for Login {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Login, D::Error> {
        struct UsersOrFalse;

        impl<'de> Visitor<'de> for UsersOrFalse {
            type Value = Login;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of users, or false for a route without a password")
            }

            fn visit_bool<E: Error>(self, is_on: bool) -> Result<Login, E> {
                match is_on {
                    true => Err(E::invalid_value(Unexpected::Bool(true), &self)),
                    false => Ok(Login::Off),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Login, A::Error> {
                BasicAuth::deserialize(MapAccessDeserializer::new(table)).map(Login::Users)
            }
        }

        deserializer.deserialize_any(UsersOrFalse)
    }
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Expected, D::Error> {
        struct TextOrNot;

        impl Visitor<'_> for TextOrNot {
            type Value = Expected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, true for any value, or false for none")
            }

            fn visit_bool<E>(self, is_there: bool) -> Result<Expected, E> {
                Ok(if is_there { Expected::Present } else { Expected::Absent })
            }

            fn visit_str<E>(self, text: &str) -> Result<Expected, E> {
                Ok(Expected::Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(TextOrNot)
    }
}

/// The most requests of one client: a table, or the text of its key `limit`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RateTable {
    pub(super) limit: Option<Spanned<String>>,
    pub(super) by: Option<Spanned<String>>,
}

/// The most requests of one client.
pub(super) enum RequestRate {
    Text(String),
    Table(RateTable),
}

impl<'de> Deserialize<'de> for RequestRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestRate, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = RequestRate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate as \"20/s burst 40\", or a table with limit and by")
            }

            fn visit_str<E>(self, text: &str) -> Result<RequestRate, E> {
                Ok(RequestRate::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<RequestRate, A::Error> {
                let table = RateTable::deserialize(MapAccessDeserializer::new(table))?;
                Ok(RequestRate::Table(table))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// The rules for clients, of a host or of a route.
#[derive(Default)]
pub(super) struct ClientRules {
    pub(super) allow: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) deny: Vec<Spanned<String>>,
    pub(super) rate: Option<Spanned<RequestRate>>,
    pub(super) basic_auth: Option<Spanned<Login>>,
}
