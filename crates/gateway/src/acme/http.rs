//! Requests to a certificate authority, on the engine of the task that makes them.
//!
//! instant-acme leaves the transport to its user, and wants a future that may move to another
//! thread. Sockets and timers belong to an engine, so a task of this engine makes the exchange, and
//! the future waits for the task.
//!
//! The authority is not trusted further than necessary. Each exchange has one time limit for
//! everything from the lookup of the name to the end of the body; the body has a largest size;
//! redirects are not followed; and a body of a type that ACME does not have is an error that names
//! the type, rather than an error in JSON.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_rustls::TlsConnector;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, RootCertStore};
use http::header::{CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Collected};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use superpoll_http::transport::Upstream;
use superpoll_http::upstream::{self, authorities};
use superpoll_rt::spawn;
use superpoll_rt::time::timeout;

use crate::automatic_error::AutomaticError;
use crate::config::Address;

/// The time for an exchange with the authority.
const EXCHANGE: Duration = Duration::from_secs(30);

/// The largest body of a response. A chain of certificates has about 5 KiB.
const LARGEST_BODY: usize = 256 << 10;

const AGENT: &str = concat!("superpoll/", env!("CARGO_PKG_VERSION"), " instant-acme");

/// The types of the bodies that an authority sends.
const TYPES: [&str; 3] =
    ["application/json", "application/problem+json", "application/pem-certificate-chain"];

/// The reason for which there is no answer of the authority.
#[derive(thiserror::Error, Debug)]
pub(super) enum ExchangeError {
    /// No connection, or no complete answer.
    #[error("{0}")]
    Unreachable(String),
    /// An answer that is none of ACME.
    #[error("{0}")]
    Nonsense(String),
}

fn unreachable(what: impl fmt::Display) -> ExchangeError {
    ExchangeError::Unreachable(what.to_string())
}

fn nonsense(what: impl fmt::Display) -> ExchangeError {
    ExchangeError::Nonsense(what.to_string())
}

/// A client of a certificate authority. Clones share the time that the authority asked for last.
#[derive(Clone)]
pub(super) struct CaClient {
    tls: TlsConnector,
    retry_after: Arc<Mutex<Option<SystemTime>>>,
}

/// Returns a connector that trusts the certificates in a file, or those of the system.
pub(super) fn connector(ca: Option<&Path>) -> Result<TlsConnector, AutomaticError> {
    let roots = match ca {
        Some(path) => authorities(path)
            .map_err(|source| AutomaticError::DirectoryCa { path: path.to_path_buf(), source })?,
        None => {
            let mut roots = RootCertStore::empty();
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(AutomaticError::NoSystemAuthorities);
            }
            roots
        }
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(AutomaticError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl CaClient {
    pub(super) fn new(tls: TlsConnector) -> CaClient {
        CaClient { tls, retry_after: Arc::default() }
    }

    /// Takes the time at which the last response asked to try again.
    pub(super) fn take_retry_after(&self) -> Option<SystemTime> {
        self.retry_after.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, retry_after) = (self.tls.clone(), self.retry_after.clone());
        let task = spawn(async move {
            let host = request.uri().authority().map_or_else(String::new, ToString::to_string);
            match timeout(EXCHANGE, exchange(&tls, request)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let limit = EXCHANGE.as_secs();
                    Err(unreachable(format!("{host} has not answered within {limit} seconds")))
                }
            }
        });
        Box::pin(async move {
            let outcome = task.await.unwrap_or_else(|error| Err(unreachable(error)));
            let response = outcome.map_err(|error| Error::Other(Box::new(error)))?;
            let asked = read_retry_after(&response.parts.headers, SystemTime::now());
            *retry_after.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            Ok(response)
        })
    }
}

/// Returns the time in `Retry-After`: a date, or a number of seconds.
fn read_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<SystemTime> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse::<u32>() {
        Ok(seconds) => Some(now + Duration::from_secs(seconds.into())),
        Err(_) => httpdate::parse_http_date(text).ok(),
    }
}

/// Makes one exchange, on a connection of its own.
async fn exchange(
    tls: &TlsConnector,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, ExchangeError> {
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("https") {
        return Err(nonsense(format!("the URL {uri:?} does not begin with https:")));
    }
    let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
        return Err(nonsense(format!("the URL {uri:?} names no host")));
    };
    // An IPv6 address is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let failed = |what: &str, error: io::Error| unreachable(format!("{what} {authority}: {error}"));
    let address = Address::Tcp { host: Some(host.clone()), port: uri.port_u16().unwrap_or(443) };
    let plain = upstream::connect(&address, EXCHANGE).await;
    let plain = plain.map_err(|error| failed("connecting to", error))?;
    let name = ServerName::try_from(host).map_err(|error| nonsense(format!("{uri:?}: {error}")))?;
    let stream = tls.connect(name, plain).await;
    let stream = stream.map_err(|error| failed("the TLS handshake with", error))?;
    let headers = request.headers_mut();
    let value = HeaderValue::from_str(authority.as_str()).map_err(nonsense)?;
    headers.insert(HOST, value);
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(nonsense)?;
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).map_err(nonsense)?;
    let stream = Upstream::from(stream);
    let answered =
        upstream::exchange(stream, Request::from_parts(parts, body), EXCHANGE, LARGEST_BODY).await;
    let broken = |what| unreachable(format!("the exchange with {authority}: {what}"));
    let (parts, body) = answered.map_err(broken)?.into_parts();
    if parts.status.is_redirection() {
        let to = parts.headers.get(LOCATION).map_or("", |to| to.to_str().unwrap_or(""));
        return Err(nonsense(format!("{uri} redirects to {to:?}, which is not followed")));
    }
    check_type(&parts, &body, &uri)?;
    Ok(BytesResponse { parts, body: Box::new(body) })
}

/// Refuses an answer that is not of ACME, as a page of a proxy.
fn check_type(parts: &http::response::Parts, body: &Bytes, uri: &Uri) -> Result<(), ExchangeError> {
    let kind = parts.headers.get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or(""));
    let essence = kind.split(';').next().unwrap_or("").trim();
    if body.is_empty() || TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence)) {
        return Ok(());
    }
    let status = parts.status;
    let what = format!("{uri} answers {status} with {kind:?}, which no server of ACME sends");
    // A server that is overloaded or being repaired often answers by a page for people.
    Err(if status.is_server_error() { unreachable(what) } else { nonsense(what) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_understood() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let read = |text: &'static str| {
            let header = (RETRY_AFTER, HeaderValue::from_static(text));
            let read = read_retry_after(&std::iter::once(header).collect(), now)?;
            Some(read.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(read("30"), Some(1_030));
        assert_eq!(read(" 0 "), Some(1_000));
        assert_eq!(read("Thu, 01 Jan 1970 00:20:00 GMT"), Some(1_200));
        for text in ["", "-1", "soon", "99999999999999999999"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
