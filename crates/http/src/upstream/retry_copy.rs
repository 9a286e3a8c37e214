//! A spare: the copy from which a request can be made once more.
//!
//! Most requests that may be sent again never are, so the copy has the form that is cheapest to
//! make: one piece of memory that the fields are written to, in place of a map with a share in each
//! name and value.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::outgoing::Outgoing;

/// Enough for the fields of most requests.
const ROOM: usize = 480;

/// A copy of a request.
pub(super) struct RetryCopy {
    method: Method,
    uri: Uri,
    body: Outgoing,
    fields: Vec<u8>,
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let (bytes, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

impl RetryCopy {
    /// Copies a request, if its body can be sent once more.
    pub(super) fn from_request(request: &Request<Outgoing>) -> Option<RetryCopy> {
        let body = request.body().again()?;
        let mut fields = Vec::with_capacity(ROOM);
        for (name, value) in request.headers() {
            fields.push(u8::from(value.is_sensitive()));
            put(&mut fields, name.as_str().as_bytes());
            put(&mut fields, value.as_bytes());
        }
        Some(RetryCopy {
            method: request.method().clone(),
            uri: request.uri().clone(),
            body,
            fields,
        })
    }

    /// Returns the request.
    pub(super) fn request(self) -> Option<Request<Outgoing>> {
        let mut headers = HeaderMap::new();
        let all = Bytes::from(self.fields);
        let mut rest = &all[..];
        while let Some((sensitive, after)) = rest.split_first() {
            rest = after;
            let name = HeaderName::from_bytes(take(&mut rest)?).ok()?;
            let mut value = HeaderValue::from_maybe_shared(all.slice_ref(take(&mut rest)?)).ok()?;
            value.set_sensitive(*sensitive != 0);
            headers.append(name, value);
        }
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = headers;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_request() {
        let mut request = Request::put("/a?b").body(Outgoing::empty()).unwrap();
        let headers = request.headers_mut();
        headers.insert("host", HeaderValue::from_static("a.example"));
        let mut secret = HeaderValue::from_bytes(b"\xfft\t \"x").unwrap();
        secret.set_sensitive(true);
        headers.append("x-own", secret);
        headers.append("x-own", HeaderValue::from_static(""));
        headers.append("x-long", HeaderValue::from_bytes(&[b'x'; 70_000]).unwrap());
        let copy = RetryCopy::from_request(&request).unwrap().request().unwrap();
        assert_eq!(copy.headers(), request.headers());
        let sensitive = |request: &Request<Outgoing>| {
            request.headers().values().map(HeaderValue::is_sensitive).collect::<Vec<_>>()
        };
        assert_eq!(sensitive(&copy), sensitive(&request));
        assert_eq!((copy.method(), copy.uri()), (request.method(), request.uri()));
    }
}
