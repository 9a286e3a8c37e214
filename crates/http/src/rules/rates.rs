//! The most requests of one client (`rate`), of a route or of all routes of a host.
//!
//! A request counts when it is admitted by every rate that holds for it, and then once: one that a
//! rate refuses costs nothing, and one for channels of several routes counts at the rates of all of
//! them.
//!
//! The value of a field is known by a keyed hash of it, so that the table takes no more memory for
//! long values, and no client can choose values that count as one.
//!
//! All engines share a table. It outlives a configuration, if the next one has the same rate in the
//! same place.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use superpoll_config::{RateKey, RequestRate};

use crate::connection_limits;
use crate::head::Fields;
use crate::rate_table::{RateTable, TooFast};

/// A client of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    /// By its address; those of Unix sockets have none, and are one.
    Address(Option<IpAddr>),
    /// By the hash of a field.
    Field(u64),
}

/// The rate of a host or a route, and the clients that have arrived lately.
pub(super) struct RequestLimits {
    rule: RequestRate,
    hasher: RandomState,
    table: RateTable<Key>,
}

/// The rates of a configuration, by their places: the names of the host, and the path of the route.
pub(super) type ByPlace = HashMap<(String, RequestRate), Arc<RequestLimits>>;

impl RequestLimits {
    /// Returns the limits of a rate; those of the configuration before, if it has the same rate in
    /// the same place.
    pub(super) fn open(
        rule: &RequestRate,
        place: String,
        before: &ByPlace,
        all: &mut ByPlace,
    ) -> Arc<RequestLimits> {
        let place = (place, rule.clone());
        let limits = before.get(&place).cloned().unwrap_or_else(|| {
            let (rule, table) = (rule.clone(), RateTable::new(Some(rule.rate)));
            Arc::new(RequestLimits { rule, hasher: RandomState::new(), table })
        });
        all.insert(place, limits.clone());
        limits
    }

    fn key(&self, client: Option<IpAddr>, fields: Fields<'_>) -> Key {
        if let RateKey::Header(name) = &self.rule.by {
            // Of several values, the server behind may take any: a client could add one that
            // changes.
            let mut values = fields.values(name.as_str());
            if let (Some(value), None) = (values.next(), values.next()) {
                let mut hash = self.hasher.build_hasher();
                hash.write(value);
                return Key::Field(hash.finish());
            }
        }
        Key::Address(client.map(connection_limits::client))
    }
}

/// Counts a request in, if all rates admit it.
///
/// # Errors
///
/// One does not; the longest time that it takes until that rate admits it.
pub(super) fn count(
    all: &[Arc<RequestLimits>],
    client: Option<IpAddr>,
    fields: Fields<'_>,
) -> Result<(), TooFast> {
    let mut counted: Vec<(&RequestLimits, Key)> = Vec::with_capacity(all.len());
    for limits in all {
        let key = limits.key(client, fields);
        if let Err(too_fast) = limits.table.admit(key) {
            counted.iter().for_each(|(limits, key)| limits.table.give_back(*key));
            return Err(too_fast);
        }
        counted.push((limits, key));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};
    use superpoll_config::Rate;

    use super::*;

    fn limits(rate: &str, by: &str) -> Arc<RequestLimits> {
        let rule =
            RequestRate { rate: Rate::parse(rate).unwrap(), by: RateKey::parse(by).unwrap() };
        RequestLimits::open(&rule, String::new(), &ByPlace::new(), &mut ByPlace::new())
    }

    fn admits(all: &[Arc<RequestLimits>], client: &str, fields: &[(&str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        count(all, client.parse().ok(), Fields::Map(&map)).is_ok()
    }

    #[test]
    fn requests_count_by_a_field_or_else_by_address() {
        let all = [limits("1/m", "header:X-Api-Key")];
        assert!(admits(&all, "192.0.2.1", &[("x-api-key", "a")]));
        assert!(!admits(&all, "192.0.2.2", &[("x-api-key", "a"), ("x", "b")]));
        assert!(admits(&all, "192.0.2.2", &[("x-api-key", "b")]));
        // Neither is a second value, which may be another one each time.
        assert!(admits(&all, "192.0.2.3", &[("x-api-key", "a"), ("x-api-key", "b")]));
        assert!(admits(&all, "192.0.2.3", &[("x-api-key", "ab")]));
        for other in ["b", "c", "d"] {
            assert!(!admits(&all, "192.0.2.3", &[("x-api-key", "a"), ("x-api-key", other)]));
        }
        // Leaving the field out is no way around the rate.
        assert!(admits(&all, "192.0.2.2", &[]));
        assert!(!admits(&all, "192.0.2.2", &[("authorization", "a")]));
        assert!(admits(&all, "2001:db8::1", &[]));
        assert!(!admits(&all, "2001:db8::2", &[]));
        assert!(admits(&all, "no address", &[]));
        assert!(!admits(&all, "no address", &[]));
    }

    #[test]
    fn a_request_that_one_rate_refuses_costs_nothing_at_another() {
        let (wide, narrow) = (limits("1/m burst 3", "client"), limits("1/m", "header:k"));
        let both = [wide.clone(), narrow];
        assert!(admits(&both, "192.0.2.1", &[("k", "a")]));
        for _ in 0..9 {
            assert!(!admits(&both, "192.0.2.1", &[("k", "a")]));
        }
        assert!(admits(&both, "192.0.2.1", &[("k", "b")]));
        assert!(admits(&both, "192.0.2.1", &[("k", "c")]));
        assert!(!admits(&both, "192.0.2.1", &[("k", "d")]));
        assert!(!admits(&[wide], "192.0.2.1", &[]));
    }

    #[test]
    fn the_same_rate_in_the_same_place_goes_on() {
        let rule = |rate| RequestRate { rate: Rate::parse(rate).unwrap(), by: RateKey::Client };
        let (mut before, mut after) = (ByPlace::new(), ByPlace::new());
        let old = RequestLimits::open(&rule("1/m"), "a".to_owned(), &ByPlace::new(), &mut before);
        let mut open = |rate, place: &str| {
            RequestLimits::open(&rule(rate), place.to_owned(), &before, &mut after)
        };
        assert!(Arc::ptr_eq(&old, &open("1/m", "a")));
        assert!(!Arc::ptr_eq(&old, &open("2/m", "a")));
        assert!(!Arc::ptr_eq(&old, &open("1/m", "b")));
    }
}
