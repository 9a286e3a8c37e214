//! The names of upstream servers, and how they are looked up.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::scalar;
use crate::address::{Address, AddressError};
use crate::table::table;

/// The port of DNS servers.
pub const DNS_PORT: u16 = 53;

table! {
    /// How the names of the servers of an upstream are looked up.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Dns {
        /// The servers of DNS that are asked, one after the other. Then `/etc/hosts` and the search
        /// list do not count. Default: those of the system.
        pub resolver: Option<Vec<SocketAddr>> as "resolvers" = None,
        /// The addresses that are used. Default: `auto`.
        pub family: Family = Family::default(),
        /// The shortest time for which addresses are used before they are looked up again. Default:
        /// 1 s.
        pub min_ttl: Duration as "scalar::duration" = Duration::from_secs(1),
        /// The longest such time. Default: 5 min.
        pub max_ttl: Duration as "scalar::duration" = Duration::from_secs(300),
        /// How long addresses are used on after the answer that there are none. Default: 30 s.
        pub hold: Duration as "scalar::duration" = Duration::from_secs(30),
        /// How long a server of DNS has for an answer. Default: as `/etc/resolv.conf` says, else 5
        /// s.
        pub timeout: Option<Duration> as "scalar::some_duration" = None,
    }
}

/// The addresses of a name that are used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// The IPv4 addresses, or the IPv6 addresses if there are no others: most names that have both
    /// have them for the same servers. The default.
    #[default]
    Auto,
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// The addresses of both families, each a server.
    Both,
}

/// The address of a server, or the name of a service that has servers.
///
/// A service is written `srv:NAME`. [`Display`](fmt::Display) writes it in a way that can be read
/// again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerAddress {
    /// An address. All addresses of a name are servers.
    Address(Address),
    /// A service, whose SRV records name the servers.
    Service(String),
}

impl ServerAddress {
    /// Whether servers are found by a name. A name of this machine, as `localhost`, is not looked
    /// up: a connection goes to the first of its addresses that accepts it.
    #[must_use]
    pub fn is_looked_up(&self) -> bool {
        match self {
            ServerAddress::Service(_) => true,
            ServerAddress::Address(Address::Tcp { host: Some(host), .. }) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                let is_local = name == "localhost" || name.ends_with(".localhost");
                host.parse::<IpAddr>().is_err() && !is_local
            }
            ServerAddress::Address(_) => false,
        }
    }
}

impl<'de> Deserialize<'de> for ServerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerAddress, D::Error> {
        let expected = "an address as \"HOST:PORT\" or \"unix:PATH\", or \"srv:NAME\"";
        scalar::text(deserializer, expected, |text| {
            let Some(service) = text.strip_prefix("srv:") else {
                let address = text.parse().map(ServerAddress::Address);
                return address.map_err(|error: AddressError| error.to_string());
            };
            if !is_host_name(service) {
                let what = format!("{service:?} is no name of a service");
                let expected = "expected one as \"srv:_http._tcp.example.org\"";
                return Err(format!("{what}, {expected}"));
            }
            Ok(ServerAddress::Service(service.to_owned()))
        })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Address(address) => address.fmt(f),
            ServerAddress::Service(name) => write!(f, "srv:{name}"),
        }
    }
}

/// Whether a text can be the name of a host or of a service in the DNS.
#[must_use]
pub fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(is_known)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// The most servers of DNS.
const MOST_RESOLVERS: usize = 8;

fn read_resolver(text: &str) -> Result<SocketAddr, String> {
    let address = text
        .parse()
        .or_else(|_| text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT)));
    address
        .ok()
        .filter(|address| address.port() != 0)
        .ok_or_else(|| format!("{text:?} is no server of DNS, expected one as \"10.0.0.2:53\""))
}

/// Reads the address of a server of DNS, or a list of such addresses.
fn resolvers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    struct OneOrMore;

    impl<'de> Visitor<'de> for OneOrMore {
        type Value = Vec<SocketAddr>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a server of DNS as \"10.0.0.2:53\", or a list of such servers")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<SocketAddr>, E> {
            read_resolver(text).map(|one| vec![one]).map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<SocketAddr>, A::Error> {
            let mut all = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                all.push(read_resolver(&text).map_err(A::Error::custom)?);
            }
            if (1..=MOST_RESOLVERS).contains(&all.len()) {
                return Ok(all);
            }
            let what = format!("{} servers of DNS, expected 1 to {MOST_RESOLVERS}", all.len());
            Err(A::Error::custom(what))
        }
    }

    deserializer.deserialize_any(OneOrMore).map(Some)
}
