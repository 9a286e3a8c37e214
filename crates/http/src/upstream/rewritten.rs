//! Fields of responses that name places on a server, as its clients see these: `Location`, and the
//! paths and domains of cookies.

use std::collections::BTreeMap;

use http::header::{CONTENT_LOCATION, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use superpoll_config::Proxy;
use superpoll_http1::Fields;

/// The changes of a route. Each has beginnings of values, and what replaces them.
#[derive(Debug)]
pub(super) struct Rewritten {
    locations: BTreeMap<String, String>,
    cookie_paths: BTreeMap<String, String>,
    cookie_domains: BTreeMap<String, String>,
}

impl Rewritten {
    /// Returns the changes of a route; `None` if there are none.
    pub(super) fn new(proxy: &Proxy) -> Option<Rewritten> {
        let rewritten = Rewritten {
            locations: proxy.rewrite_location.clone(),
            cookie_paths: proxy.rewrite_cookie_path.clone(),
            cookie_domains: proxy.rewrite_cookie_domain.clone(),
        };
        let all = [&rewritten.locations, &rewritten.cookie_paths, &rewritten.cookie_domains];
        all.iter().any(|one| !one.is_empty()).then_some(rewritten)
    }

    /// Whether a response may have such a field.
    pub(super) fn concern(fields: Fields<'_>) -> bool {
        [LOCATION, CONTENT_LOCATION, SET_COOKIE]
            .iter()
            .any(|name| fields.value(name.as_str()).is_some())
    }

    /// Changes the fields of a response.
    pub(super) fn apply(&self, headers: &mut HeaderMap) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let Some(value) = headers.get_mut(&name) else { continue };
            let changed = value.to_str().ok().and_then(|text| replaced(&self.locations, text));
            if let Some(changed) = changed.and_then(|text| HeaderValue::from_str(&text).ok()) {
                *value = changed;
            }
        }
        if self.cookie_paths.is_empty() && self.cookie_domains.is_empty() {
            return;
        }
        if let http::header::Entry::Occupied(mut cookies) = headers.entry(SET_COOKIE) {
            for value in cookies.iter_mut() {
                let changed = value.to_str().ok().map(|text| self.cookie(text));
                if let Some(changed) = changed.and_then(|text| HeaderValue::from_str(&text).ok()) {
                    *value = changed;
                }
            }
        }
    }

    /// Changes the attributes of a cookie (RFC 6265, section 4.1).
    fn cookie(&self, text: &str) -> String {
        let mut parts = text.split(';');
        let mut cookie = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            cookie.push(';');
            let changed = part.split_once('=').and_then(|(name, value)| {
                let value = value.trim();
                let changed = match name.trim().to_ascii_lowercase().as_str() {
                    "path" => replaced(&self.cookie_paths, value),
                    // A dot before it has no meaning any more.
                    "domain" => {
                        let domain = value.trim_start_matches('.').to_ascii_lowercase();
                        self.cookie_domains.get(&domain).cloned()
                    }
                    _ => None,
                }?;
                Some(format!("{name}={changed}"))
            });
            cookie.push_str(changed.as_deref().unwrap_or(part));
        }
        cookie
    }
}

/// Replaces the longest of some beginnings that a text has.
fn replaced(all: &BTreeMap<String, String>, text: &str) -> Option<String> {
    let fitting = all.iter().filter_map(|(from, to)| Some((from, to, text.strip_prefix(&**from)?)));
    let (_, to, rest) = fitting.max_by_key(|(from, ..)| from.len())?;
    Some(format!("{to}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_a_server_become_those_of_clients() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
        };
        let rewritten = Rewritten {
            locations: map(&[("http://app:3000/", "/"), ("/", "/app/"), ("/static/", "/static/")]),
            cookie_paths: map(&[("/", "/app/")]),
            cookie_domains: map(&[("app", "example.org")]),
        };
        for (from, to) in [
            ("http://app:3000/a?b", "/a?b"),
            ("/a", "/app/a"),
            ("/static/a", "/static/a"),
            ("https://other/a", "https://other/a"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LOCATION, HeaderValue::from_static(from));
            rewritten.apply(&mut headers);
            assert_eq!(headers[LOCATION], to);
        }
        let mut headers = HeaderMap::new();
        headers
            .append(SET_COOKIE, HeaderValue::from_static("a=Path=/; Path=/x; Domain=.App; Secure"));
        headers.append(SET_COOKIE, HeaderValue::from_static("b=c; path=/;Domain=other"));
        headers.append(SET_COOKIE, HeaderValue::from_static("d"));
        rewritten.apply(&mut headers);
        let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        let expected = [
            "a=Path=/; Path=/app/x; Domain=example.org; Secure",
            "b=c; path=/app/;Domain=other",
            "d",
        ];
        assert_eq!(cookies, expected);
    }
}
