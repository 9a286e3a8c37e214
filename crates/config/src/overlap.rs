//! Whether two addresses cannot be listened on at the same time.

use std::net::{IpAddr, Ipv6Addr};

use crate::address::Address;

/// The addresses of this machine that an address stands for.
enum Scope<'a> {
    /// All addresses of both families, which `[::]` stands for too.
    All,
    Ip(IpAddr),
    Name(&'a str),
}

fn scope(host: Option<&str>) -> Scope<'_> {
    match host.map(|host| (host, host.parse::<IpAddr>())) {
        None | Some((_, Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))) => Scope::All,
        Some((_, Ok(ip))) => Scope::Ip(ip.to_canonical()),
        Some((name, Err(_))) => Scope::Name(name),
    }
}

/// Names are compared as text: the address behind a name may be another tomorrow.
pub(super) fn overlap(one: &Address, other: &Address) -> bool {
    let (host, other_host) = match (one, other) {
        (Address::Unix(path), Address::Unix(other)) => return path == other,
        (Address::Tcp { host, port }, Address::Tcp { host: other, port: other_port })
            if port == other_port && *port != 0 =>
        {
            (host.as_deref(), other.as_deref())
        }
        _ => return false,
    };
    match (scope(host), scope(other_host)) {
        (Scope::All, _) | (_, Scope::All) => true,
        (Scope::Ip(one), Scope::Ip(other)) => {
            let is_any = one.is_unspecified() || other.is_unspecified();
            one == other || (is_any && one.is_ipv4() == other.is_ipv4())
        }
        (Scope::Name(one), Scope::Name(other)) => one.eq_ignore_ascii_case(other),
        // It is assumed that each of this machine's names has an address of the older family.
        (Scope::Name(_), Scope::Ip(ip)) | (Scope::Ip(ip), Scope::Name(_)) => {
            ip.is_unspecified() && ip.is_ipv4()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_addresses_are_found() {
        for (one, other, expected) in [
            (":80", ":80", true),
            (":80", ":81", false),
            (":0", ":0", false),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            (":80", "[::1]:80", true),
            ("[::1]:80", "[0:0::1]:80", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("localhost:80", "LOCALHOST:80", true),
            ("localhost:80", ":80", true),
            ("localhost:80", "0.0.0.0:80", true),
            ("localhost:80", "127.0.0.1:80", false),
            ("unix:/a", "/a", true),
            ("unix:/a", "/b", false),
            ("unix:/a", ":80", false),
        ] {
            let [one, other] = [one, other].map(|text| text.parse::<Address>().unwrap());
            assert_eq!(overlap(&one, &other), expected, "{one} {other}");
            assert_eq!(overlap(&other, &one), expected, "{other} {one}");
        }
    }
}
