//! A request as its server gets it: lines for HTTP/1.1, and a map made of them for HTTP/2.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use memchr::memchr;
use memchr::memmem::find;
use superpoll_config::Address;
use superpoll_http1::{
    After, Asked, BodyWriter, FieldValue, Method as Http1Method, Refusal, Target, Writer,
};

use super::heads::{self, Changes, ClientFacts, ClientHead};
use super::outgoing::Outgoing;

/// The room for a head at first: enough for most.
const ROOM: usize = 1 << 10;

/// The end of the first line, and the name of the field after it.
const BEFORE_HOST: &[u8] = b"\r\nhost: ";

/// Returns a server's address where a host is required.
pub(super) fn address_as_host(address: &Address) -> HeaderValue {
    let text = match address {
        Address::Unix(_) | Address::Tcp { host: None, .. } => "localhost".to_owned(),
        tcp => tcp.to_string(),
    };
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static("localhost"))
}

/// A request for a server.
pub(super) struct ServerRequest {
    pub head: ServerHead,
    pub body: Outgoing,
}

/// The head of a request for a server.
pub(super) struct ServerHead {
    /// As HTTP/1.1 writes it.
    pub lines: Vec<u8>,
    /// How the body is written then.
    pub writer: BodyWriter,
    pub asked: Asked,
    /// Its client has named no host, as HTTP/1.0 allows.
    lacks_host: bool,
}

impl ServerRequest {
    /// Returns a client's request as its server gets it.
    pub(super) fn from_client(
        head: &ClientHead<'_>,
        client: &ClientFacts,
        changes: Changes<'_>,
        body: Outgoing,
    ) -> ServerRequest {
        let mut lines = Vec::with_capacity(ROOM);
        let asked = Asked {
            is_head: head.method == Http1Method::Head,
            is_connect: false,
            has_upgrade: head.upgrade.is_some(),
        };
        let lacks_host = changes.host.is_none() && head.host.is_none();
        let writer = heads::request(head, client, changes, &mut lines);
        ServerRequest { head: ServerHead { lines, writer, asked, lacks_host }, body }
    }

    /// Returns a request of this server's own.
    ///
    /// # Errors
    ///
    /// It cannot be written, or has no host.
    pub(super) fn own(request: Request<Outgoing>) -> Result<ServerRequest, Refusal> {
        let (parts, body) = request.into_parts();
        let method = Http1Method::new(parts.method.as_str()).ok_or(Refusal::Method)?;
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let host = parts.headers.get(HOST).map(FieldValue::from).ok_or(Refusal::HostMissing)?;
        let mut lines = Vec::with_capacity(ROOM);
        let mut writer = Writer::request(&mut lines, method, Target::new(method, target)?, host);
        parts.headers.iter().for_each(|(name, value)| writer.field(name.into(), value.into()));
        let framing = body.framing(parts.headers.contains_key(CONTENT_LENGTH));
        let writer = writer.body(framing, After::Stays);
        let asked = Asked { is_head: method == Http1Method::Head, ..Asked::default() };
        Ok(ServerRequest { head: ServerHead { lines, writer, asked, lacks_host: false }, body })
    }
}

impl ServerHead {
    /// Names a server as the host, if the client has named none.
    pub(super) fn name_server(&mut self, address: &Address) {
        if self.lacks_host
            && let Some(at) = find(&self.lines, BEFORE_HOST)
        {
            let start = at + BEFORE_HOST.len();
            let end = memchr(b'\r', &self.lines[start..]).map_or(start, |length| start + length);
            self.lines.splice(start..end, address_as_host(address).as_bytes().iter().copied());
        }
    }

    /// Returns the request for a server of HTTP/2; `None` if its target is none there.
    pub(super) fn to_h2(&self, body: Outgoing, is_encrypted: bool) -> Option<Request<Outgoing>> {
        // The values share it.
        let head = Bytes::copy_from_slice(&self.lines);
        let mut request = Request::new(body);
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let mut words = lines.next()?.split(|byte| *byte == b' ');
        *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
        let target = PathAndQuery::from_maybe_shared(head.slice_ref(words.next()?)).ok()?;
        let mut authority = None;
        for line in lines.take_while(|line| !line.is_empty()) {
            // The name of a field has no colon, and a value here neither begins nor ends with a
            // blank (RFC 9113, section 8.2.1).
            let (name, value) = line.split_at(memchr(b':', line)?);
            let value = head.slice_ref(value[1..].trim_ascii_start());
            match name {
                b"host" => authority = Authority::from_maybe_shared(value).ok(),
                // They are about a connection of HTTP/1.1.
                b"connection" | b"transfer-encoding" | b"upgrade" => {}
                name => {
                    let name = HeaderName::from_bytes(name).ok()?;
                    request.headers_mut().append(name, HeaderValue::from_maybe_shared(value).ok()?);
                }
            }
        }
        let uri = Uri::builder()
            .scheme(if is_encrypted { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(authority.unwrap_or_else(|| Authority::from_static("localhost")))
            .path_and_query(target);
        *request.uri_mut() = uri.build().ok()?;
        *request.version_mut() = Version::HTTP_2;
        Some(request)
    }
}
