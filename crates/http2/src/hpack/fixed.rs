//! The static table (RFC 7541, appendix A), and the names that decide something.

/// The kind of a name: whether it decides about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    /// `:status`, or an unknown name with a colon.
    OtherPseudo,
    /// A field about the connection, which HTTP/2 does not have (RFC 9113, section 8.2.2).
    Connection,
    Te,
    ContentLength,
    Cookie,
    Host,
    Expect,
    Priority,
    Other,
}

/// The number of pseudo-header fields of requests, which are the first kinds.
pub(crate) const PSEUDO: usize = 5;

impl Name {
    pub(crate) fn new(name: &[u8]) -> Name {
        match name {
            [b':', rest @ ..] => match rest {
                b"method" => Name::Method,
                b"scheme" => Name::Scheme,
                b"authority" => Name::Authority,
                b"path" => Name::Path,
                b"protocol" => Name::Protocol,
                _ => Name::OtherPseudo,
            },
            b"te" => Name::Te,
            b"host" => Name::Host,
            b"cookie" => Name::Cookie,
            b"expect" => Name::Expect,
            b"priority" => Name::Priority,
            b"content-length" => Name::ContentLength,
            _ if is_of_connection(name) => Name::Connection,
            _ => Name::Other,
        }
    }
}

/// Whether a field is about the connection, by its name in lower case.
pub(crate) fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    )
}

/// The number of entries.
pub(crate) const ENTRIES: usize = 61;

/// Returns the entry of an index from 1 to 61, with the kind of its name.
#[inline]
pub(crate) fn entry(index: usize) -> Option<(Name, &'static str, &'static str)> {
    TABLE.get(index.checked_sub(1)?).copied()
}

/// The index of a name whose value is a secret.
pub(crate) const SET_COOKIE: u8 = 55;

/// Returns the first index of the name of a response's field, which is in lower case; 0 if the
/// table does not have it.
pub(crate) fn index_of(name: &[u8]) -> u8 {
    match name {
        b"age" => 21,
        b"etag" => 34,
        b"date" => 33,
        b"vary" => 59,
        b"link" => 45,
        b"allow" => 22,
        b"server" => 54,
        b"expires" => 36,
        b"refresh" => 52,
        b"location" => 46,
        b"set-cookie" => SET_COOKIE,
        b"retry-after" => 53,
        b"content-type" => 31,
        b"cache-control" => 24,
        b"last-modified" => 44,
        b"accept-ranges" => 18,
        b"content-range" => 30,
        b"content-length" => 28,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-location" => 29,
        b"www-authenticate" => 61,
        b"proxy-authenticate" => 48,
        b"content-disposition" => 25,
        b"strict-transport-security" => 56,
        b"access-control-allow-origin" => 20,
        _ => 0,
    }
}

const OTHER: Name = Name::Other;

#[rustfmt::skip]
static TABLE: [(Name, &str, &str); ENTRIES] = [
    (Name::Authority, ":authority", ""),
    (Name::Method, ":method", "GET"),
    (Name::Method, ":method", "POST"),
    (Name::Path, ":path", "/"),
    (Name::Path, ":path", "/index.html"),
    (Name::Scheme, ":scheme", "http"),
    (Name::Scheme, ":scheme", "https"),
    (Name::OtherPseudo, ":status", "200"),
    (Name::OtherPseudo, ":status", "204"),
    (Name::OtherPseudo, ":status", "206"),
    (Name::OtherPseudo, ":status", "304"),
    (Name::OtherPseudo, ":status", "400"),
    (Name::OtherPseudo, ":status", "404"),
    (Name::OtherPseudo, ":status", "500"),
    (OTHER, "accept-charset", ""),
    (OTHER, "accept-encoding", "gzip, deflate"),
    (OTHER, "accept-language", ""),
    (OTHER, "accept-ranges", ""),
    (OTHER, "accept", ""),
    (OTHER, "access-control-allow-origin", ""),
    (OTHER, "age", ""),
    (OTHER, "allow", ""),
    (OTHER, "authorization", ""),
    (OTHER, "cache-control", ""),
    (OTHER, "content-disposition", ""),
    (OTHER, "content-encoding", ""),
    (OTHER, "content-language", ""),
    (Name::ContentLength, "content-length", ""),
    (OTHER, "content-location", ""),
    (OTHER, "content-range", ""),
    (OTHER, "content-type", ""),
    (Name::Cookie, "cookie", ""),
    (OTHER, "date", ""),
    (OTHER, "etag", ""),
    (Name::Expect, "expect", ""),
    (OTHER, "expires", ""),
    (OTHER, "from", ""),
    (Name::Host, "host", ""),
    (OTHER, "if-match", ""),
    (OTHER, "if-modified-since", ""),
    (OTHER, "if-none-match", ""),
    (OTHER, "if-range", ""),
    (OTHER, "if-unmodified-since", ""),
    (OTHER, "last-modified", ""),
    (OTHER, "link", ""),
    (OTHER, "location", ""),
    (OTHER, "max-forwards", ""),
    (OTHER, "proxy-authenticate", ""),
    (OTHER, "proxy-authorization", ""),
    (OTHER, "range", ""),
    (OTHER, "referer", ""),
    (OTHER, "refresh", ""),
    (OTHER, "retry-after", ""),
    (OTHER, "server", ""),
    (OTHER, "set-cookie", ""),
    (OTHER, "strict-transport-security", ""),
    (Name::Connection, "transfer-encoding", ""),
    (OTHER, "user-agent", ""),
    (OTHER, "vary", ""),
    (OTHER, "via", ""),
    (OTHER, "www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_indexes_are_those_of_the_table() {
        for index in 1..=ENTRIES {
            let (kind, name, _) = entry(index).unwrap();
            assert_eq!(kind, Name::new(name.as_bytes()));
            let found = usize::from(index_of(name.as_bytes()));
            assert!(found == 0 || entry(found).unwrap().1 == name, "{index}");
        }
        assert!(entry(0).is_none() && entry(62).is_none());
    }
}
