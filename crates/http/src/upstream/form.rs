//! The form of a request in the version of HTTP that a server speaks.

use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use http_body::Body as _;

use super::fields;
use super::outgoing::Outgoing;
use super::pool::PooledServer;
use superpoll_config::Address;

/// Returns a server's address where a host is required.
pub(super) fn address_as_host(address: &Address) -> HeaderValue {
    let text = match address {
        Address::Unix(_) | Address::Tcp { host: None, .. } => "localhost".to_owned(),
        tcp => tcp.to_string(),
    };
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static("localhost"))
}

/// Gives a request the form of HTTP/1.1.
pub(super) fn for_h1(
    request: &mut Request<Outgoing>,
    server: &PooledServer,
    host: Option<&HeaderValue>,
) {
    if let Some(authority) = request.uri().authority() {
        let said = HeaderValue::from_str(authority.as_str()).ok();
        if let Some(said) = host.cloned().or(said) {
            request.headers_mut().insert(HOST, said);
        }
        if let Some(target) = fields::target(request.uri(), None) {
            *request.uri_mut() = target;
        }
    }
    *request.version_mut() = Version::HTTP_11;
    if !request.headers().contains_key(HOST) {
        // Requests of HTTP/1.0 may have no host.
        let host = address_as_host(server.named_address());
        request.headers_mut().insert(HOST, host);
    }
    let body = request.body();
    let has_trailers = matches!(body, Outgoing::Memory { trailers: Some(_), .. });
    if has_trailers || (!body.is_end_stream() && body.size_hint().exact().is_none()) {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    } else if !body.is_end_stream() {
        // No field follows a body whose length is given before.
        request.headers_mut().remove(TRAILER);
    }
}

/// Gives a request the form of HTTP/2.
pub(super) fn for_h2(request: &mut Request<Outgoing>, is_encrypted: bool) {
    let host = request.headers_mut().remove(HOST);
    let headers = request.headers_mut();
    headers.remove(TRANSFER_ENCODING);
    headers.remove(CONNECTION);
    headers.remove(UPGRADE);
    let authority = match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => host.and_then(|host| Authority::try_from(host.as_bytes()).ok()),
    };
    let scheme = if is_encrypted { Scheme::HTTPS } else { Scheme::HTTP };
    let path = request.uri().path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority.unwrap_or_else(|| Authority::from_static("localhost")))
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = uri.build() {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
}
