//! The head of a request as routes, rules and handlers see it, whichever version of HTTP it came
//! by.
//!
//! It is borrowed: it lies where it was read, or decoded. A handler that waits, or passes its request on, gets an `http::Request` instead; most requests
//! need none.

use headers::{Header, HeaderMapExt};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Uri, Version};
use superpoll_config::RequestFacts;
use superpoll_http1::{
    Field, FieldIter, FieldValue, Fields as Lines, Form, Method, RequestHead,
    Version as Http1Version,
};

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The version of HTTP that it came by.
    pub version: Version,
    /// The fields.
    pub fields: Fields<'a>,
    /// The path of the target: `*` for a request about the whole server.
    pub path: &'a str,
    /// The query without its `?`.
    pub query: Option<&'a str>,
    /// The scheme of the target, if it has one.
    pub scheme: Option<&'a str>,
    /// The host and port of the target, if it has them.
    pub authority: Option<&'a str>,
    /// The one host that the request names, where that was found out before.
    pub host: Option<&'a str>,
}

impl Head<'_> {
    /// Whether the response has no body, as the method is `HEAD`.
    #[must_use]
    #[inline]
    pub fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    /// Whether the method is `GET` or `HEAD`.
    #[must_use]
    #[inline]
    pub fn is_read(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head)
    }

    /// Returns the target.
    #[must_use]
    pub fn target(&self) -> String {
        let scheme = self.scheme.map(|scheme| format!("{scheme}://")).unwrap_or_default();
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}{}{}{query}", self.authority.unwrap_or_default(), self.path)
    }
}

impl RequestFacts for Head<'_> {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn has_value(&self, name: &str, is: impl FnMut(&[u8]) -> bool) -> bool {
        self.fields.values(name).any(is)
    }
}

impl<'a> From<&RequestHead<'a>> for Head<'a> {
    fn from(head: &RequestHead<'a>) -> Head<'a> {
        let authority = head.target.authority().map(|authority| authority.as_str());
        Head {
            method: head.method,
            version: match head.version {
                Http1Version::Http10 => Version::HTTP_10,
                Http1Version::Http11 => Version::HTTP_11,
            },
            fields: Fields::Lines(head.fields),
            path: head.target.path(),
            query: head.target.query(),
            scheme: match (head.target.form(), head.target.is_https()) {
                (Form::Absolute, true) => Some("https"),
                (Form::Absolute, false) => Some("http"),
                _ => None,
            },
            authority,
            host: head.host.map(|host| host.as_str()),
        }
    }
}

impl<'a> From<&superpoll_http2::RequestHead<'a>> for Head<'a> {
    fn from(head: &superpoll_http2::RequestHead<'a>) -> Head<'a> {
        let host = Some(head.host.as_str());
        Head {
            method: head.method,
            version: Version::HTTP_2,
            fields: Fields::Lines(head.fields),
            path: head.target.path(),
            query: head.target.query(),
            scheme: head.scheme,
            authority: host,
            host,
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Head<'a> {
        Head::of_parts(&parts.method, &parts.uri, parts.version, &parts.headers)
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Head<'a> {
        Head::of_parts(request.method(), request.uri(), request.version(), request.headers())
    }
}

impl<'a> Head<'a> {
    fn of_parts(
        method: &'a http::Method,
        uri: &'a Uri,
        version: Version,
        headers: &'a HeaderMap,
    ) -> Head<'a> {
        Head {
            // Both take all tokens.
            method: Method::new(method.as_str()).unwrap_or(Method::Get),
            version,
            fields: Fields::Map(headers),
            path: uri.path(),
            query: uri.query(),
            scheme: uri.scheme_str(),
            authority: uri.authority().map(|authority| authority.as_str()),
            host: None,
        }
    }
}

/// The fields of a request.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// Where they were read.
    Lines(Lines<'a>),
    /// In a map.
    Map(&'a HeaderMap),
}

impl<'a> From<&'a HeaderMap> for Fields<'a> {
    fn from(headers: &'a HeaderMap) -> Fields<'a> {
        Fields::Map(headers)
    }
}

impl<'a> Fields<'a> {
    /// Returns the values of all fields of a name, which is in lower case.
    #[inline]
    pub fn values<'n>(&self, name: &'n str) -> Values<'a, 'n> {
        match self {
            Fields::Lines(lines) => Values::Lines(lines.iter(), name.as_bytes()),
            Fields::Map(headers) => Values::Map(headers.get_all(name).into_iter()),
        }
    }

    /// Returns the value of the first field of a name, which is in lower case.
    #[must_use]
    #[inline]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// Whether there is a field of a name, which is in lower case.
    #[must_use]
    #[inline]
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Whether an earlier proxy says that the client's connection to it was encrypted.
    pub(crate) fn say_encrypted(&self) -> bool {
        // The first of several proxies is the one next to the client.
        let said = self.value("x-forwarded-proto").and_then(|said| std::str::from_utf8(said).ok());
        let first = said.and_then(|said| said.split(',').next());
        first.is_some_and(|first| first.trim().eq_ignore_ascii_case("https"))
    }

    /// Returns the same values as checked ones.
    pub(crate) fn checked(&self, name: &str) -> impl Iterator<Item = FieldValue<'a>> {
        let (lines, map) = match self {
            Fields::Lines(lines) => (Some(lines.values(name)), None),
            Fields::Map(headers) => (None, Some(headers.get_all(name))),
        };
        let map = map.into_iter().flatten().map(FieldValue::from);
        lines.into_iter().flatten().chain(map)
    }

    /// Whether the fields of a name, which is in lower case, have an element of a list, in any
    /// case.
    pub(crate) fn has_element(&self, name: &str, element: &[u8]) -> bool {
        let mut elements = self.checked(name).flat_map(FieldValue::elements);
        elements.any(|one| one.eq_ignore_ascii_case(element))
    }

    /// Whether a name may have an underscore.
    pub(crate) fn may_have_underscore(&self) -> bool {
        match self {
            Fields::Lines(lines) => lines.has_underscore(),
            Fields::Map(_) => true,
        }
    }

    /// Whether a test holds for the name of some field.
    pub fn has_name(&self, mut is: impl FnMut(&[u8]) -> bool) -> bool {
        match self {
            Fields::Lines(lines) => lines.iter().any(|field| is(field.name.as_bytes())),
            Fields::Map(headers) => headers.keys().any(|name| is(name.as_str().as_bytes())),
        }
    }

    /// Reads the fields of a name as one value; `None` if there are none, or they are malformed.
    #[must_use]
    pub fn typed<H: Header>(&self) -> Option<H> {
        match self {
            Fields::Map(headers) => headers.typed_get(),
            Fields::Lines(_) => {
                let values = self.values(H::name().as_str()).map(HeaderValue::from_bytes);
                let values = values.collect::<Result<Vec<_>, _>>().ok().filter(|it| !it.is_empty());
                H::decode(&mut values?.iter()).ok()
            }
        }
    }
}

/// The values of the fields of one name.
#[derive(Debug)]
pub enum Values<'a, 'n> {
    /// Of a head where it was read, with the name.
    Lines(FieldIter<'a>, &'n [u8]),
    /// Of a map.
    Map(http::header::ValueIter<'a, HeaderValue>),
}

impl<'a> Iterator for Values<'a, '_> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Values::Lines(lines, name) => {
                let found = lines.find(|field: &Field<'_>| field.name.as_bytes() == *name)?;
                Some(found.value.as_bytes())
            }
            Values::Map(values) => values.next().map(HeaderValue::as_bytes),
        }
    }
}

impl DoubleEndedIterator for Values<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Values::Lines(lines, name) => {
                let found = lines.rfind(|field: &Field<'_>| field.name.as_bytes() == *name)?;
                Some(found.value.as_bytes())
            }
            Values::Map(values) => values.next_back().map(HeaderValue::as_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use superpoll_http1::{Limits, Room, request};

    use super::*;
    use crate::message::to_request;

    /// A request means the same by both kinds of heads.
    #[test]
    fn lines_and_maps_are_the_same_head() {
        for text in [
            "GET /a?b=c&d HTTP/1.1\r\nHost: a\r\nAccept: x\r\naccept: y\r\nX-Own: \r\n\r\n",
            "PROPFIND http://b.example:80/ HTTP/1.0\r\nHost: a\r\nIf-None-Match: \"x\", W/\"y\"\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\nIf-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT\r\n\r\n",
            "HEAD https://b/? HTTP/1.1\r\nHost: a\r\nIf-None-Match: x\r\n\r\n",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        ] {
            let mut scratch = Vec::new();
            let mut room = Room::new(&mut scratch);
            let read = request(text.as_bytes(), &Limits::DEFAULT, &mut room).unwrap().unwrap();
            let made = to_request(&read, text.as_bytes(), ()).unwrap();
            let (lines, map) = (Head::from(&read), Head::from(&made));
            assert_eq!(lines.target(), made.uri().to_string(), "{text}");
            let of = |head: &Head<'_>| {
                let facts = (head.method.as_str().to_owned(), head.version, head.path.to_owned());
                let target = [head.query, head.scheme, head.authority];
                let values = ["host", "accept", "x-own", "none"].map(|name| {
                    let values = head.fields.values(name).map(<[u8]>::to_vec).collect::<Vec<_>>();
                    let mut back =
                        head.fields.values(name).rev().map(<[u8]>::to_vec).collect::<Vec<_>>();
                    back.reverse();
                    assert_eq!(values, back);
                    assert_eq!(head.fields.has(name), !values.is_empty());
                    values
                });
                let etags = head.fields.typed::<headers::IfNoneMatch>();
                let since = head.fields.typed::<headers::IfModifiedSince>();
                (facts, target.map(|it| it.map(str::to_owned)), values, etags, since)
            };
            assert_eq!(of(&lines), of(&map), "{text}");
            assert!(lines.fields.has_name(|name| name == b"host"));
        }
    }
}
