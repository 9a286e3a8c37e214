//! The token that comes with a request.
//!
//! Programs send it in `Authorization` (RFC 6750, section 2.1). A browser's WebSocket and
//! EventSource cannot set that field, so a page sends it in the URL, or as a cookie. The parameter
//! of the URL is `token`, or `authorization` for a hub of Mercure, or for both `access_token` (RFC
//! 6750, section 2.3). The access log leaves its value out. What a client sends on purpose counts
//! more than a cookie, which browsers add by themselves.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, Request};
use percent_encoding::percent_decode_str;

/// The parameters of the URL that may have the token of a channel.
pub(super) const OF_CHANNELS: [&str; 2] = ["token", ACCESS_TOKEN];
/// The parameters of the URL that may have the token of a hub of Mercure.
pub(super) const OF_MERCURE: [&str; 2] = ["authorization", ACCESS_TOKEN];

const ACCESS_TOKEN: &str = "access_token";

/// The token of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Found<'a> {
    None,
    One {
        token: Cow<'a, str>,
        is_cookie: bool,
    },
    /// Another reader may choose another one.
    Several,
}

/// Looks for the token of a request; `parameters` and `cookie` are the names of the parameters and
/// of the cookie that may have it.
pub(super) fn find<'a, B>(
    request: &'a Request<B>,
    parameters: [&str; 2],
    cookie: Option<&str>,
) -> Found<'a> {
    let mut fields = request.headers().get_all(AUTHORIZATION).into_iter();
    match (fields.next(), fields.next()) {
        (_, Some(_)) => return Found::Several,
        (Some(field), None) => {
            // A proxy before this server may use another scheme.
            if let Some(token) = field.to_str().ok().and_then(bearer) {
                return Found::One { token: token.into(), is_cookie: false };
            }
        }
        (None, None) => {}
    }
    let pairs = request.uri().query().unwrap_or("").split('&');
    let mut given =
        pairs.filter_map(|pair| pair.split_once('=').filter(|(name, _)| parameters.contains(name)));
    match (given.next(), given.next()) {
        (_, Some(_)) => return Found::Several,
        (Some((_, token)), None) => {
            let token = percent_decode_str(token).decode_utf8_lossy();
            return Found::One { token, is_cookie: false };
        }
        (None, None) => {}
    }
    match cookie.and_then(|name| of_cookie(request.headers(), name)) {
        Some(token) => Found::One { token: token.into(), is_cookie: true },
        None => Found::None,
    }
}

fn bearer(field: &str) -> Option<&str> {
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn of_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let fields = headers.get_all(COOKIE).into_iter();
    let mut pairs = fields.flat_map(|field| field.to_str().unwrap_or("").split(';'));
    pairs.find_map(|pair| {
        let (found, value) = pair.split_once('=')?;
        (found.trim() == name).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(uri: &str, fields: &[(&str, &str)]) -> Option<String> {
        let builder = Request::get(uri);
        let add = |builder: http::request::Builder, (name, value): &(&str, &str)| {
            builder.header(*name, *value)
        };
        let request = fields.iter().fold(builder, add).body(()).unwrap();
        match find(&request, OF_CHANNELS, Some("session")) {
            Found::None => None,
            Found::One { token, .. } => Some(token.into_owned()),
            Found::Several => Some("several".to_owned()),
        }
    }

    #[test]
    fn a_token_is_found_wherever_clients_can_put_it() {
        let cookie = ("cookie", "a=1; session=c.o.k; session=x");
        for (uri, fields, expected) in [
            ("/", &[][..], None),
            ("/", &[("authorization", "Bearer a.b.c")], Some("a.b.c")),
            ("/", &[("authorization", "bEARER  a.b.c ")], Some("a.b.c")),
            ("/", &[("authorization", "Basic eA==")], None),
            ("/", &[("authorization", "Bearer")], None),
            ("/?x=1&token=a%2Eb.c", &[], Some("a.b.c")),
            ("/?token=", &[], Some("")),
            ("/?mytoken=a&Token=b", &[], None),
            ("/", &[cookie], Some("c.o.k")),
            ("/", &[("cookie", "x=1"), ("cookie", "session=\"q\"")], Some("q")),
            ("/", &[("cookie", "other=1")], None),
            ("/?token=q", &[cookie], Some("q")),
            ("/?token=q", &[("authorization", "Bearer a"), cookie], Some("a")),
            ("/?token=q", &[("authorization", "Basic eA==")], Some("q")),
            ("/?token=q&token=r", &[], Some("several")),
            ("/?x=1&access_token=a%2Eb.c", &[], Some("a.b.c")),
            ("/?access_token=q", &[cookie], Some("q")),
            ("/?access_token=q", &[("authorization", "Bearer a")], Some("a")),
            ("/?token=q&access_token=q", &[], Some("several")),
            ("/?access_token=q&access_token=r", &[], Some("several")),
            ("/?authorization=q", &[], None),
            ("/", &[("authorization", "Bearer a"), ("authorization", "x")], Some("several")),
        ] {
            assert_eq!(found(uri, fields).as_deref(), expected, "{uri} {fields:?}");
        }
    }
}
