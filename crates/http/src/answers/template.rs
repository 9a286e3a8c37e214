//! Values of fields that depend on the request.

use std::fmt::Write;
use std::rc::Rc;

use http::{HeaderName, HeaderValue};
use superpoll_config::{Part, Template, Variable};

use crate::log::cipher_suite;
use crate::peer::Peer;
use crate::trace::RequestTrace;

/// The facts about a request that values can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestValues<'a> {
    /// The method.
    pub(crate) method: &'a str,
    /// The path with the query, as the client has sent them.
    pub(crate) uri: &'a str,
    /// The host that was asked for.
    pub(crate) host: &'a [u8],
    /// The peer of the request.
    pub(crate) peer: &'a Peer,
    /// The connection is encrypted, or a proxy that is believed says that its own is.
    pub(crate) is_encrypted: bool,
    /// The id of the request, if requests have one.
    pub(crate) trace: Option<&'a RequestTrace>,
}

/// Returns the fields that some templates make of a request. One without a value is left out.
pub(crate) fn filled(
    templates: &[(HeaderName, Template)],
    request: RequestValues<'_>,
) -> Rc<[(HeaderName, HeaderValue)]> {
    let value = |(name, template): &(HeaderName, Template)| {
        let text = fill(template, request);
        let value = HeaderValue::from_bytes(text.trim().as_bytes()).ok()?;
        (!value.is_empty()).then(|| (name.clone(), value))
    };
    templates.iter().filter_map(value).collect()
}

fn fill(Template(parts): &Template, request: RequestValues<'_>) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Variable(variable) => put(*variable, request, &mut text),
        }
    }
    text
}

fn put(variable: Variable, request: RequestValues<'_>, to: &mut String) {
    let RequestValues { method, uri, host, peer, is_encrypted, trace } = request;
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let tls = cipher_suite(peer.connection().cipher);
    // Writing to a text succeeds.
    let _ = match (variable, peer.client, peer.local) {
        (Variable::Client, Some(end), _) | (Variable::ServerAddress, _, Some(end)) => {
            write!(to, "{}", end.ip().to_canonical())
        }
        // Clients of Unix sockets have no address.
        (Variable::Client, None, _) => write!(to, "unix:"),
        (Variable::ClientPort, Some(end), _) | (Variable::ServerPort, _, Some(end)) => {
            write!(to, "{}", end.port())
        }
        (Variable::ClientPort | Variable::ServerAddress | Variable::ServerPort, ..) => Ok(()),
        (Variable::Host, ..) => write!(to, "{}", String::from_utf8_lossy(host)),
        (Variable::Method, ..) => write!(to, "{method}"),
        (Variable::Path, ..) => write!(to, "{path}"),
        (Variable::Query, ..) => write!(to, "{query}"),
        (Variable::Uri, ..) => write!(to, "{uri}"),
        (Variable::Scheme, ..) => write!(to, "{}", if is_encrypted { "https" } else { "http" }),
        (Variable::RequestId, ..) => {
            write!(to, "{}", trace.and_then(RequestTrace::id).unwrap_or_default())
        }
        (Variable::TlsCipher, ..) => tls.map_or(Ok(()), |(_, name)| to.write_str(&name)),
        (Variable::TlsVersion, ..) => tls.map_or(Ok(()), |(version, _)| to.write_str(version)),
    };
}
