//! The parameters of a request: those of CGI (RFC 3875, section 4.1), and those that servers of PHP
//! expect besides.
//!
//! They are made of the lines of a head for a server of HTTP/1.1, so that what is decided about
//! fields holds here too. A field becomes a parameter with an underscore for each hyphen, so a
//! field whose own name has an underscore could pass itself off as another one, and is left out.
//!
//! A script learns of its client by `REMOTE_ADDR` and `HTTPS`. Fields that say the same are left
//! out, unless a proxy in front is believed, whose way the script may want to know.

use std::net::SocketAddr;

use http::Version;
use memchr::memchr;
use superpoll_http1::Framing;

use super::records::{Params, TooLong, end_of_body};
use crate::peer::Peer;
use crate::upstream::fields::{About, about};

/// The name and version of this server.
const SOFTWARE: &str = concat!("superpoll/", env!("CARGO_PKG_VERSION"));

/// A script, and the part of the path that is for the script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The path of its URL, decoded.
    pub name: String,
    /// The rest of the path, decoded.
    pub path_info: String,
    /// The path of its file as servers see it, without the folder's.
    pub file: Option<String>,
    /// The user whose password this server has verified.
    pub user: Option<String>,
    /// The target of the request as its client has sent it.
    pub target: String,
}

/// The facts about a request that are not among its lines.
pub(in crate::upstream) struct RequestFacts<'a> {
    /// The number of the request.
    pub id: u16,
    pub script: &'a Script,
    /// The folder of the scripts as servers see it.
    pub root: Option<&'a str>,
    /// The parameters of the configuration, which come last.
    pub more: &'a [(String, String)],
    pub version: Version,
    pub peer: &'a Peer,
    pub is_encrypted: bool,
    /// The fields about earlier proxies are believed.
    pub trusts: bool,
    pub framing: Framing,
    /// The connection may stay open.
    pub keeps: bool,
}

/// Appends the beginning of a request: its parameters, and the end of its body if it has none. If
/// the length of the body is not known, the parameters do not end here: the length follows.
///
/// # Errors
///
/// A parameter fits in no record.
pub(in crate::upstream) fn head(
    lines: &[u8],
    facts: &RequestFacts<'_>,
    to: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let mut params = Params::begin(to, facts.id, facts.keeps);
    let mut lines = lines.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fields: Vec<_> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_at(memchr(b':', line)?);
            Some((name, value[1..].trim_ascii_start()))
        })
        .collect();
    let query = memchr(b'?', target).map_or(&b""[..], |at| &target[at + 1..]);
    about_request(&mut params, facts, method, query)?;
    about_ends(&mut params, facts, &fields)?;
    about_fields(&mut params, facts, &fields)?;
    for (name, value) in facts.more {
        params.push(name.as_bytes(), value.as_bytes())?;
    }
    match facts.framing {
        Framing::None => {
            params.push(b"CONTENT_LENGTH", b"")?;
            params.end();
            to.extend(end_of_body(facts.id));
        }
        Framing::Length(length) => {
            params.push(b"CONTENT_LENGTH", length.to_string().as_bytes())?;
            params.end();
        }
        Framing::Chunked | Framing::UntilClose => params.pause(),
    }
    Ok(())
}

/// Appends the length of the body to parameters that did not have it, and their end.
pub(in crate::upstream) fn end_with_length(id: u16, length: u64, to: &mut Vec<u8>) {
    let mut params = Params::more(to, id);
    // It is short.
    let _ = params.push(b"CONTENT_LENGTH", length.to_string().as_bytes());
    params.end();
}

fn about_request(
    params: &mut Params<'_>,
    facts: &RequestFacts<'_>,
    method: &[u8],
    query: &[u8],
) -> Result<(), TooLong> {
    let RequestFacts { script, root, .. } = facts;
    if let (Some(root), Some(file)) = (root, &script.file) {
        params.push_joined(b"SCRIPT_FILENAME", &[root.as_bytes(), file.as_bytes()], b"")?;
    }
    params.push(b"QUERY_STRING", query)?;
    params.push(b"REQUEST_METHOD", method)?;
    params.push(b"SCRIPT_NAME", script.name.as_bytes())?;
    params.push(b"REQUEST_URI", script.target.as_bytes())?;
    params.push(b"DOCUMENT_URI", script.name.as_bytes())?;
    if let Some(root) = root {
        let folder = if root.is_empty() { "/" } else { root };
        params.push(b"DOCUMENT_ROOT", folder.as_bytes())?;
    }
    params.push(b"PATH_INFO", script.path_info.as_bytes())?;
    if let Some(root) = root.filter(|_| !script.path_info.is_empty()) {
        let parts = [root.as_bytes(), script.path_info.as_bytes()];
        params.push_joined(b"PATH_TRANSLATED", &parts, b"")?;
    }
    let protocol: &[u8] = match facts.version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        _ => b"HTTP/1.1",
    };
    params.push(b"SERVER_PROTOCOL", protocol)?;
    params.push(b"GATEWAY_INTERFACE", b"CGI/1.1")?;
    params.push(b"SERVER_SOFTWARE", SOFTWARE.as_bytes())?;
    // A PHP that was built for it runs no script without this.
    params.push(b"REDIRECT_STATUS", b"200")?;
    if let Some(user) = &script.user {
        params.push(b"REMOTE_USER", user.as_bytes())?;
        params.push(b"AUTH_TYPE", b"Basic")?;
    }
    Ok(())
}

/// Tells the two ends of the client's connection.
fn about_ends(
    params: &mut Params<'_>,
    facts: &RequestFacts<'_>,
    fields: &[(&[u8], &[u8])],
) -> Result<(), TooLong> {
    let RequestFacts { peer, is_encrypted, .. } = facts;
    let texts = |end: SocketAddr| (end.ip().to_canonical().to_string(), end.port().to_string());
    // A client of a Unix socket has no address; nginx says the same.
    let (address, port) = peer.client.map_or(("unix:".to_owned(), String::new()), texts);
    params.push(b"REMOTE_ADDR", address.as_bytes())?;
    params.push(b"REMOTE_PORT", port.as_bytes())?;
    let (address, port) = peer.local.map_or(("unix:".to_owned(), String::new()), texts);
    let host = fields.iter().find(|(name, _)| *name == b"host").map_or(&b""[..], |(_, host)| host);
    let name = match host.iter().rposition(|byte| *byte == b':') {
        Some(at) if !host[at..].contains(&b']') => &host[..at],
        _ => host,
    };
    let name = if name.is_empty() { address.as_bytes() } else { name };
    params.push(b"SERVER_ADDR", address.as_bytes())?;
    params.push(b"SERVER_PORT", port.as_bytes())?;
    params.push(b"SERVER_NAME", name)?;
    let scheme: &[u8] = if *is_encrypted { b"https" } else { b"http" };
    params.push(b"REQUEST_SCHEME", scheme)?;
    if *is_encrypted {
        params.push(b"HTTPS", b"on")?;
    }
    Ok(())
}

fn about_fields(
    params: &mut Params<'_>,
    facts: &RequestFacts<'_>,
    fields: &[(&[u8], &[u8])],
) -> Result<(), TooLong> {
    let mut content_type: &[u8] = b"";
    let (mut name, mut values) = (Vec::new(), Vec::new());
    for (place, (field, value)) in fields.iter().enumerate() {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let passes = match about(field) {
            About::Connection | About::Trailer => false,
            About::Message => *field == b"host" && !value.is_empty(),
            About::Asker => facts.trusts,
            _ => field.iter().all(is_plain),
        };
        if *field == b"content-type" {
            content_type = value;
            continue;
        }
        if !passes || fields[..place].iter().any(|(before, _)| before == field) {
            continue;
        }
        name.clear();
        name.extend_from_slice(b"HTTP_");
        name.extend(field.iter().map(|byte| match byte {
            b'-' => b'_',
            byte => byte.to_ascii_uppercase(),
        }));
        values.clear();
        let same = fields[place..].iter().filter(|(other, _)| other == field);
        values.extend(same.map(|(_, value)| *value));
        let between: &[u8] = if *field == b"cookie" { b"; " } else { b", " };
        params.push_joined(&name, &values, between)?;
    }
    params.push(b"CONTENT_TYPE", content_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::fastcgi::records::tests::parameters;

    fn made(lines: &str, change: impl FnOnce(&mut RequestFacts<'_>)) -> Vec<(String, String)> {
        let script = Script {
            name: "/a.php".to_owned(),
            path_info: "/b c".to_owned(),
            file: Some("/a.php".to_owned()),
            user: None,
            target: "/a.php/b%20c?d".to_owned(),
        };
        let peer = Peer {
            client: Some("10.1.2.3:4".parse().unwrap()),
            local: Some("[::1]:80".parse().unwrap()),
            ..Peer::default()
        };
        let mut facts = RequestFacts {
            id: 1,
            script: &script,
            root: Some("/srv"),
            more: &[],
            version: Version::HTTP_11,
            peer: &peer,
            is_encrypted: false,
            trusts: false,
            framing: Framing::None,
            keeps: true,
        };
        change(&mut facts);
        let mut bytes = Vec::new();
        head(lines.as_bytes(), &facts, &mut bytes).unwrap();
        parameters(&bytes)
    }

    fn value<'a>(of: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut found = of.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} comes twice");
        value
    }

    #[test]
    fn a_field_becomes_one_parameter() {
        let made = made(
            "GET /a.php/b%20c?d HTTP/1.1\r\nhost: a.b:81\r\nx-a: 1\r\ncookie: a=1\r\nx-a: 2\r\n\
             content-type: text/plain\r\nauthorization: Basic eA==\r\nx_b: 3\r\nproxy: http://evil\r\n\
             x-forwarded-for: 6.6.6.6\r\nhttps: on\r\ncontent-length: 9\r\n\r\nbody: none",
            |_| {},
        );
        let expected = [
            ("SCRIPT_FILENAME", Some("/srv/a.php")),
            ("SCRIPT_NAME", Some("/a.php")),
            ("PATH_INFO", Some("/b c")),
            ("PATH_TRANSLATED", Some("/srv/b c")),
            ("QUERY_STRING", Some("d")),
            ("REQUEST_URI", Some("/a.php/b%20c?d")),
            ("HTTP_HOST", Some("a.b:81")),
            ("SERVER_NAME", Some("a.b")),
            ("SERVER_ADDR", Some("::1")),
            ("SERVER_PORT", Some("80")),
            ("REMOTE_ADDR", Some("10.1.2.3")),
            ("HTTP_X_A", Some("1, 2")),
            ("HTTP_COOKIE", Some("a=1")),
            ("CONTENT_TYPE", Some("text/plain")),
            ("CONTENT_LENGTH", Some("")),
            ("HTTP_AUTHORIZATION", Some("Basic eA==")),
            ("HTTP_X_B", None),
            ("HTTP_PROXY", None),
            ("HTTP_X_FORWARDED_FOR", None),
            ("HTTP_HTTPS", Some("on")),
            ("HTTPS", None),
            ("HTTP_CONTENT_LENGTH", None),
            ("HTTP_BODY", None),
            ("REMOTE_USER", None),
        ];
        for (name, expected) in expected {
            assert_eq!(value(&made, name), expected, "{name}");
        }
    }

    #[test]
    fn a_proxy_that_is_believed_may_say_more() {
        let lines = "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";
        let made = made(lines, |facts| (facts.trusts, facts.is_encrypted) = (true, true));
        assert_eq!(value(&made, "HTTP_X_FORWARDED_FOR"), Some("6.6.6.6"));
        assert_eq!(value(&made, "HTTPS"), Some("on"));
        assert_eq!(value(&made, "REQUEST_SCHEME"), Some("https"));
    }

    #[test]
    fn a_parameter_that_fits_in_no_record_is_refused() {
        let long = "x".repeat(70_000);
        let (path_info, target) = (String::new(), String::new());
        let script = Script { name: long, path_info, file: None, user: None, target };
        let facts = RequestFacts {
            id: 1,
            script: &script,
            root: None,
            more: &[],
            version: Version::HTTP_2,
            peer: &Peer::default(),
            is_encrypted: false,
            trusts: false,
            framing: Framing::None,
            keeps: false,
        };
        assert!(head(b"GET / HTTP/1.1\r\n\r\n", &facts, &mut Vec::new()).is_err());
    }
}
