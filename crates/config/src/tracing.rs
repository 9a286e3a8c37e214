//! The part of the configuration about following requests from server to server.

use std::fmt;
use std::marker::PhantomData;

use http::HeaderName;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::ejection::Percentage;
use super::rules::ClientRange;
use crate::table::table;

/// How requests can be followed from server to server. By default they cannot.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Tracing {
    /// The ids of requests. Default: none.
    pub request_id: Option<RequestIds>,
    /// The traces that the server takes part in (W3C Trace Context). Default: none, the fields of
    /// clients are passed on as they are.
    pub trace: Option<Traces>,
    /// The name of the server in `Via`. Default: none, the server does not add itself.
    pub via: Option<String>,
}

impl Tracing {
    /// Whether requests can be followed at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.request_id.is_some() || self.trace.is_some() || self.via.is_some()
    }
}

/// The ids of requests.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestIds {
    /// The field that has the id. Default: `X-Request-Id`.
    pub field: HeaderName,
    /// Whether responses have the field as well. Default: yes.
    pub respond: bool,
    /// The clients whose ids are kept, by their addresses. Default: none.
    pub trust: Vec<ClientRange>,
}

/// The traces that the server takes part in.
#[derive(Clone, PartialEq, Debug)]
pub struct Traces {
    /// The share of new traces that is recorded. Default: 100 %.
    pub sample: Percentage,
    /// The clients whose traces go on; the requests of others begin a new one. Default: all.
    pub trust: Option<Vec<ClientRange>>,
}

table! {
    pub(super) struct RawTracing {
        pub(super) request_id: Switch<RawRequestIds>,
        pub(super) trace: Switch<RawTraces>,
        pub(super) via: Option<Spanned<String>>,
    }

    pub(super) struct RawRequestIds {
        pub(super) field: Option<Spanned<String>>,
        pub(super) respond: Option<bool>,
        pub(super) trust: Vec<Spanned<String>>,
    }

    pub(super) struct RawTraces {
        pub(super) sample: Option<Percentage>,
        pub(super) trust: Option<Vec<Spanned<String>>>,
    }
}

/// A part that is switched on by `true`, or by a table with its settings.
#[derive(Default)]
pub(super) struct Switch<T>(pub(super) Option<T>);

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Switch<T>, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Default + Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = Switch<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a table with the settings")
            }

            fn visit_bool<E: Error>(self, is_on: bool) -> Result<Switch<T>, E> {
                Ok(Switch(is_on.then(T::default)))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Switch<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(table)).map(|table| Switch(Some(table)))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}
