//! Where a redirect leads: a text with placeholders for parts of the request.
//!
//! `{host}` is the host that the client asked for, without a port; `{path}` is the path, and
//! `{query}` is the query with its question mark, or nothing. All three are copied as the client
//! sent them and as they were checked on the way here: a host has only the characters of a name
//! or an address (see [`authority`](crate::authority)), and a path and a query have neither spaces
//! nor line ends. A path may begin with two slashes, though, which browsers take for the name of
//! another site. A destination that the configuration has not written as such (`//host`) therefore
//! never begins with more than one slash.

use std::fmt::Write;

use http::HeaderValue;

use crate::authority::Authority;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Literal(String),
    Host,
    Path,
    Query,
}

/// The destination of a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectTarget(Vec<Part>);

impl RedirectTarget {
    /// Reads a text with placeholders; the error says why it is wrong.
    pub fn parse(text: &str) -> Result<RedirectTarget, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = "expected one as \"https://example.org/\" or \"/path\", percent-encoded";
            return Err(format!("{text:?} is no URL, {expected}"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            let end = after.find('}').filter(|_| after.starts_with('{'));
            let Some(end) = end else {
                let expected = "expected {host}, {path} or {query}, and %7B and %7D for braces";
                return Err(format!("{text:?} has a brace without its other half, {expected}"));
            };
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(match &after[..=end] {
                "{host}" => Part::Host,
                "{path}" => Part::Path,
                "{query}" => Part::Query,
                other => {
                    let expected = "expected {host}, {path} or {query}";
                    return Err(format!("{other} is no part of a request, {expected}"));
                }
            });
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(RedirectTarget(parts))
    }

    /// Returns the destination of an encrypted request for the same: `https://{host}{path}{query}`
    /// with a port, unless it is that of the scheme.
    #[must_use]
    pub fn encrypted(port: u16) -> RedirectTarget {
        let mut parts = vec![Part::Literal("https://".to_owned()), Part::Host];
        if port != 443 {
            parts.push(Part::Literal(format!(":{port}")));
        }
        parts.extend([Part::Path, Part::Query]);
        RedirectTarget(parts)
    }

    /// Whether a request has to name a host.
    #[inline]
    #[must_use]
    pub fn needs_host(&self) -> bool {
        self.0.contains(&Part::Host)
    }

    /// Returns the destination for a request of this path and query; `None` if the request lacks a
    /// part.
    #[inline]
    pub fn of(
        &self,
        host: Option<Authority<'_>>,
        (path, query): (&str, Option<&str>),
    ) -> Option<HeaderValue> {
        let mut text = String::new();
        for part in &self.0 {
            // Writing to a string cannot fail.
            let _ = match part {
                Part::Literal(literal) => write!(text, "{literal}"),
                Part::Host => match host? {
                    Authority { host, .. } if host.contains(':') => write!(text, "[{host}]"),
                    Authority { host, .. } => write!(text, "{host}"),
                },
                Part::Path => write!(text, "{path}"),
                Part::Query => query.map_or(Ok(()), |query| write!(text, "?{query}")),
            };
        }
        let is_other_host =
            matches!(self.0.first(), Some(Part::Literal(literal)) if literal.starts_with("//"));
        if text.starts_with('/') && !is_other_host {
            let rest = text.trim_start_matches(['/', '\\']);
            text = format!("/{rest}");
        }
        HeaderValue::from_str(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str, host: &str, uri: &str) -> Option<String> {
        let host = (!host.is_empty()).then(|| Authority::parse(host.as_bytes()).unwrap());
        let uri: http::Uri = uri.parse().unwrap();
        let found = RedirectTarget::parse(text).unwrap().of(host, (uri.path(), uri.query()));
        found.map(|found| found.to_str().unwrap().to_owned())
    }

    #[test]
    fn placeholders_are_parts_of_the_request() {
        for (text, host, uri, expected) in [
            ("https://b.example/x", "a", "/y?z", "https://b.example/x"),
            (
                "https://{host}{path}{query}",
                "a.example:80",
                "/b/c?d=e&f",
                "https://a.example/b/c?d=e&f",
            ),
            ("https://{host}{path}{query}", "a", "/b", "https://a/b"),
            ("https://{host}{path}{query}", "a", "/b?", "https://a/b?"),
            ("https://{host}:8443{path}", "[::1]:80", "/", "https://[::1]:8443/"),
            (
                "https://{host}{path}",
                "A.example.",
                "//evil.test/%2e%2e/x",
                "https://A.example.//evil.test/%2e%2e/x",
            ),
            ("https://{host}{path}", "a", "/%0d%0aset-cookie:x", "https://a/%0d%0aset-cookie:x"),
            ("https://{host}{path}", "a", "http://b/c", "https://a/c"),
            ("{path}{query}", "a", "//evil.test/x?y", "/evil.test/x?y"),
            ("{path}", "a", "/\\evil.test", "/evil.test"),
            ("/{path}", "a", "/evil.test", "/evil.test"),
            ("/new{path}", "a", "//x", "/new//x"),
            ("//cdn.example{path}", "a", "/x", "//cdn.example/x"),
        ] {
            assert_eq!(to(text, host, uri).as_deref(), Some(expected), "{text} {host} {uri}");
        }
        assert_eq!(to("https://{host}/", "", "/"), None);
        assert_eq!(to("/x{query}", "", "/?a").as_deref(), Some("/x?a"));
    }

    #[test]
    fn unknown_placeholders_are_mistakes() {
        for (text, what) in [
            ("", "is no URL"),
            ("/a b", "is no URL"),
            ("/a\r\nb", "is no URL"),
            ("/é", "is no URL"),
            (
                "https://{hots}/",
                "{hots} is no part of a request, expected {host}, {path} or {query}",
            ),
            ("/{}", "{} is no part of a request"),
            ("/{path", "has a brace without its other half"),
            ("/path}", "has a brace without its other half"),
            ("/}{path}", "has a brace without its other half"),
            ("/{{path}}", "is no part of a request"),
        ] {
            let error = RedirectTarget::parse(text).unwrap_err();
            assert!(error.contains(what), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out() {
        let of = |port| {
            let to = RedirectTarget::encrypted(port);
            let found = to.of(Authority::parse(b"x:80"), ("/a", Some("b"))).unwrap();
            found.to_str().unwrap().to_owned()
        };
        assert_eq!(
            (of(443), of(8443)),
            ("https://x/a?b".to_owned(), "https://x:8443/a?b".to_owned())
        );
    }
}
