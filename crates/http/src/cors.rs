//! The site whose page makes a browser send a request (RFC 6454, and the Fetch standard's
//! `Origin`).
//!
//! A browser lets any page open a WebSocket to any server, and send it a form. Only this field
//! tells such requests from those of the server's own pages. Programs other than browsers do not
//! send it.

use http::header::{HOST, ORIGIN, REFERER};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};

/// Returns the origin of a request if it is another site than the one that is asked.
///
/// # Errors
///
/// 400 if there are several fields, since another reader may choose another field.
pub fn of_another_site<'a>(
    headers: &'a HeaderMap,
    uri: &Uri,
) -> Result<Option<&'a HeaderValue>, StatusCode> {
    let mut fields = headers.get_all(ORIGIN).into_iter();
    let Some(origin) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(StatusCode::BAD_REQUEST);
    }
    let is_own = origin.to_str().is_ok_and(|origin| is_own_site(origin, headers, uri));
    Ok((!is_own).then_some(origin))
}

/// Whether an origin is that of the site that is asked.
pub fn is_own_site(origin: &str, headers: &HeaderMap, uri: &Uri) -> bool {
    // A proxy before this server may have taken the encryption off, so the scheme is not compared.
    let site = origin.split_once("://").map(|(_, site)| site);
    let asked = asked_site(headers, uri);
    site.zip(asked).is_some_and(|(site, asked)| site.eq_ignore_ascii_case(asked))
}

/// Returns the host that is asked, with its port if the client has named one.
pub fn asked_site<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(|authority| authority.as_str()).or(host)
}

/// Returns the origin of the page that a request comes from, by its `Referer` (RFC 9110, section
/// 10.1.3); `None` if it does not say.
pub fn referring_site(headers: &HeaderMap) -> Option<String> {
    let page: Uri = headers.get(REFERER)?.to_str().ok()?.parse().ok()?;
    Some(format!("{}://{}", page.scheme_str()?, page.authority()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_by_host_and_port_and_not_by_scheme() {
        let asks = |origin: &str, host: &str, uri: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(ORIGIN, origin), (HOST, host)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            of_another_site(&headers, &uri.parse().unwrap()).unwrap().is_some()
        };
        assert!(!asks("", "a", "/"));
        assert!(!asks("http://a", "a", "/") && !asks("https://A:81", "a:81", "/"));
        assert!(!asks("https://a", "", "https://a/"));
        assert!(asks("https://b", "a", "/") && asks("http://a:81", "a:80", "/"));
        assert!(asks("null", "null", "/") && asks("http://a", "", "/"));
        assert!(asks("https://b", "b", "https://a/"));
        for (page, expected) in [
            ("https://a:81/x?y", Some("https://a:81")),
            ("/x", None),
            ("about:blank", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(REFERER, page.parse().unwrap());
            assert_eq!(referring_site(&headers).as_deref(), expected, "{page}");
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, "a"), (ORIGIN, "http://a"), (ORIGIN, "http://b")] {
            headers.append(name, value.parse().unwrap());
        }
        let several = of_another_site(&headers, &Uri::from_static("/"));
        assert_eq!(several, Err(StatusCode::BAD_REQUEST));
    }
}
