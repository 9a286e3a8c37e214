//! A request on its way to a server: lines for HTTP/1.1, and a map made of them for HTTP/2.
//!
//! A body that has come whole goes with its head. A small one is read first, before a server is
//! chosen, so that no server waits for its client, and the request can be sent again. Any other is
//! sent as it comes.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body as _;
use memchr::memchr;
use memchr::memmem::find;
use superpoll_config::{Address, encode_target};
use superpoll_http1::{
    After, Asked, BodyWriter, FieldValue, Framing, Method as Http1Method, Refusal, ResponseHead,
    Target, Version as Http1Version, Writer,
};

use super::client::Client;
use super::dial::ClientAddresses;
use super::fastcgi::{self, Records, RequestFacts, Script};
use super::forwarder::{AskedBytes, SentFile};
use super::http1::Http1Connection;
use super::outgoing::{Outgoing, UploadProgress};
use super::rewritten::Rewritten;
use super::spool::{Spool, Spooled};
use super::sticky::ClientCookie;
use crate::answers::Compression;
use crate::body::Body;
use crate::buffer::SIZE;
use crate::head::Fields;
use crate::io_activity::IoActivity;
use crate::message::Message;
use crate::peer::Peer;
use crate::progress::Passed;
use crate::reply;
use crate::upload::{Upload, UploadError};

/// The largest body that is read before its request is forwarded.
const KEPT_BODY: u64 = 64 << 10;

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

/// A request on its way to a server.
pub struct ServerRequest {
    /// The head as HTTP/1.1 writes it, and a body that has come whole.
    pub(super) bytes: Vec<u8>,
    /// The length of the head.
    pub(super) head: usize,
    /// The body that has not come whole, and how it is written, until the request is on its way.
    pub(super) upload: Option<Box<(BodyWriter, Upload)>>,
    /// The same from then on, unless it was read first.
    pub(super) stream: Option<Box<Stream>>,
    /// The bytes of a body that has come whole.
    pub body: u64,
    pub(super) asked: Asked,
    /// The version that the client speaks, if it gets the lines of the response.
    pub(super) version: Http1Version,
    /// It is for a server of FastCGI: all its bytes are records.
    pub(super) records: Option<Box<Records>>,
    /// The client speaks HTTP/2, which has trailers of its own.
    pub(super) is_h2: bool,
    /// The client reads fields that follow the body of the response.
    pub(super) takes_trailers: bool,
    /// It may be sent again.
    pub(super) repeats: bool,
    /// Its body is sent as it comes, however short: the client waits for an invitation to send it,
    /// or fields follow it.
    pub(super) streams: bool,
    /// Its client has named no host, as HTTP/1.0 allows.
    pub(super) lacks_host: bool,
    /// The protocols, instead of HTTP, that it asks for.
    pub(super) upgrade: Option<Box<HeaderValue>>,
    /// How its response is compressed, if it is.
    pub(super) compression: Option<Box<Compression>>,
    /// The places that its response names are changed.
    pub(super) is_rewritten: bool,
    /// The errors of servers get pages.
    pub(super) replaces_errors: bool,
    /// The bytes that it gets of a file that its server asks this one to send.
    pub(super) asked_bytes: Option<Box<AskedBytes>>,
    /// That file, once the server has asked.
    pub(super) sent_file: Option<Box<SentFile>>,
    /// The addresses for the PROXY protocol.
    pub(super) addresses: ClientAddresses,
    /// The cookie that it has, if the upstream gives one.
    pub(super) sticky: Option<Rc<ClientCookie>>,
    /// The events on the client's connection.
    pub(super) io_activity: Rc<IoActivity>,
    /// The request ends with the client's side, which is not watched yet.
    pub(super) is_unwatched: Cell<bool>,
}

/// A body that is sent as it comes.
pub(super) struct Stream {
    /// How HTTP/1.1 writes it.
    writer: BodyWriter,
    /// It, as long as nothing was sent and no connection has it.
    body: Cell<Option<Outgoing>>,
    pub(super) progress: Rc<UploadProgress>,
}

impl ServerRequest {
    /// Returns a request whose head and body are all in memory.
    pub(super) fn new(
        bytes: Vec<u8>,
        head: usize,
        asked: Asked,
        io_activity: Rc<IoActivity>,
    ) -> ServerRequest {
        ServerRequest {
            bytes,
            head,
            upload: None,
            stream: None,
            body: 0,
            asked,
            version: Http1Version::Http11,
            records: None,
            is_h2: false,
            takes_trailers: false,
            repeats: false,
            streams: false,
            lacks_host: false,
            upgrade: None,
            compression: None,
            is_rewritten: false,
            replaces_errors: false,
            asked_bytes: None,
            sent_file: None,
            addresses: None,
            sticky: None,
            io_activity,
            is_unwatched: Cell::new(false),
        }
    }

    /// Returns a request of this server's own.
    ///
    /// # Errors
    ///
    /// It cannot be written, or has no host.
    pub(super) fn own(request: &Request<Bytes>) -> Result<ServerRequest, Refusal> {
        let headers = request.headers();
        let method = Http1Method::new(request.method().as_str()).ok_or(Refusal::Method)?;
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let host = headers.get(HOST).map(FieldValue::from).ok_or(Refusal::HostMissing)?;
        let (mut bytes, body) = (Vec::new(), request.body());
        let mut writer = Writer::request(&mut bytes, method, Target::new(method, target)?, host);
        headers.iter().for_each(|(name, value)| writer.field(name.into(), value.into()));
        let framing = match body.is_empty() && !headers.contains_key(CONTENT_LENGTH) {
            true => Framing::None,
            false => Framing::Length(body.len() as u64),
        };
        // It has that length.
        let _ = writer.body(framing, After::Stays);
        let head = bytes.len();
        bytes.extend_from_slice(body);
        let asked = Asked { is_head: method == Http1Method::Head, ..Asked::default() };
        Ok(ServerRequest::new(bytes, head, asked, Rc::default()))
    }

    /// Returns a call of a script of this server's own, by `GET` of a path.
    pub(super) fn own_script(path: &str) -> ServerRequest {
        let (name, target) = (path.to_owned(), path.to_owned());
        let (path_info, file) = (String::new(), Some(path.to_owned()));
        let script = Script { name, path_info, file, user: None, target };
        let id = fastcgi::next_id();
        let facts = RequestFacts {
            id,
            script: &script,
            root: Some(""),
            more: &[],
            version: Version::HTTP_11,
            peer: &Peer::default(),
            is_encrypted: false,
            trusts: false,
            framing: Framing::None,
            keeps: false,
        };
        let mut bytes = Vec::new();
        let lines = [b"GET ", path.as_bytes(), b" HTTP/1.1\r\n\r\n"].concat();
        // A path of the configuration is short.
        let _ = fastcgi::head(&lines, &facts, &mut bytes);
        let head = bytes.len();
        let request = ServerRequest::new(bytes, head, Asked::default(), Rc::default());
        let records = Records { spools: false, id, script: path.into() };
        ServerRequest { records: Some(Box::new(records)), ..request }
    }

    /// Makes the body that has not come whole be sent as it comes.
    pub fn expect(&mut self, writer: BodyWriter, upload: Upload) {
        self.upload = Some(Box::new((writer, upload)));
    }

    /// Makes the request end with the client's side. On a new connection that is watched only when
    /// the response takes long.
    pub fn end_with_client(&self, is_new: bool) {
        match is_new {
            true => self.is_unwatched.set(true),
            false => self.io_activity.ends_with_client.set(true),
        }
    }

    /// Whether the client reads fields that follow the body of the response. Clients of HTTP/1.1
    /// have to accept them (RFC 9110, section 6.5.1).
    pub(super) fn reads_trailers(&self) -> bool {
        self.is_h2 || self.takes_trailers
    }

    /// Whether a response changes on its way by more than fields.
    #[inline]
    pub(super) fn changes(&self, head: &ResponseHead<'_>) -> bool {
        let (status, fields) = (head.status, Fields::Lines(head.fields));
        let asks_for_file = || fields.has("x-accel-redirect") || fields.has("x-sendfile");
        self.asked.has_upgrade
            || (self.asked_bytes.is_some() && asks_for_file())
            || (self.is_rewritten && Rewritten::concern(head.fields))
            || (self.replaces_errors && (status.is_client_error() || status.is_server_error()))
            || self.compression.as_ref().is_some_and(|it| it.concerns(fields))
    }

    /// Watches the client's side from now on, if the request ends with it.
    pub(super) fn watch(&self) {
        if self.is_unwatched.take() {
            self.io_activity.ends_with_client.set(true);
        }
    }

    /// Reads a small body: up to the size of a buffer, or more if it can be sent again. Any other
    /// is sent as it comes, and so is one that its client was not invited to send.
    ///
    /// # Errors
    ///
    /// The request cannot be sent.
    pub(super) async fn begin(&mut self, client: &mut impl Client) -> Result<(), NotBegun> {
        let Some(upload) = self.upload.take() else { return Ok(()) };
        let (mut writer, mut upload) = *upload;
        let most = if self.repeats { KEPT_BODY } else { SIZE as u64 };
        if let Some(records) = &self.records {
            let is_long = writer.left().is_some_and(|length| self.streams || length > most);
            if !is_long || records.spools {
                // It is rare, and kept out of the future that each request has.
                return Box::pin(self.begin_records(writer.left(), upload, client)).await;
            }
        }
        // Trailers follow chunks only, whose sum is not known.
        if self.streams || writer.left().is_none_or(|length| length > most) {
            self.send_as_it_comes(writer, Outgoing::upload(upload));
            return Ok(());
        }
        while let Some(data) = poll_fn(|cx| poll_data(&mut upload, client, cx)).await? {
            // Not before some of it is there: a length alone shall cost no memory.
            self.bytes.reserve_exact(writer.left().unwrap_or(0) as usize);
            let written = writer.piece(&data, &mut self.bytes);
            written.map_err(|_| refusal(&UploadError::Short))?;
        }
        writer.end(&mut self.bytes);
        Ok(())
    }

    /// Returns its number among those of FastCGI.
    pub(super) fn request_id(&self) -> u16 {
        self.records.as_ref().map_or(0, |records| records.id)
    }

    /// Reads a body to its end, and makes records of it.
    async fn begin_records(
        &mut self,
        expected: Option<u64>,
        mut upload: Upload,
        client: &mut impl Client,
    ) -> Result<(), NotBegun> {
        let mut spool = Spool::default();
        let id = self.request_id();
        while let Some(data) = poll_fn(|cx| poll_data(&mut upload, client, cx)).await? {
            spool.push(&data).await.map_err(NotBegun::NotKept)?;
        }
        let length = spool.length();
        match expected {
            Some(expected) if expected != length => return Err(refusal(&UploadError::Short).into()),
            Some(_) => {}
            None => fastcgi::end_with_length(id, length, &mut self.bytes),
        }
        match spool.finish().await.map_err(NotBegun::NotKept)? {
            Spooled::Memory(data) => fastcgi::write_body(id, &data, &mut self.bytes),
            Spooled::File(file) => {
                let body = Outgoing::file(file, length);
                self.send_as_it_comes(BodyWriter::of_length(length), body);
            }
        }
        Ok(())
    }

    /// Makes the body be sent as it comes.
    pub(super) fn send_as_it_comes(&mut self, writer: BodyWriter, body: Outgoing) {
        let progress = body.report().unwrap_or_default();
        let body = Cell::new(Some(body));
        self.stream = Some(Box::new(Stream { writer, body, progress }));
        self.repeats = false;
    }

    /// Gives the request to a connection, if its body is sent as it comes.
    pub(super) fn give_to(&self, connection: &mut Http1Connection) {
        let length = |stream: &Stream| stream.writer.left().unwrap_or(0);
        let body = self.stream.as_ref().map(|stream| (self.bytes.len(), length(stream)));
        let of = (self.asked.is_head, self.asked_bytes.is_some());
        connection.begin_exchange(of, self.records.as_deref(), body);
        if let Some(stream) = &self.stream
            && let Some(body) = stream.body.take()
        {
            let message = Message::new(self.bytes.clone(), stream.writer.clone(), body, true);
            connection.begin(Box::new(message.put_back()));
        }
    }

    /// Takes the body back from a connection; whether nothing of the request was sent.
    pub(super) fn take_back(&self, connection: &mut Http1Connection) -> bool {
        let body = connection.take_unused();
        let is_back = body.is_some();
        self.put_back(body);
        is_back
    }

    /// Puts a body back of which nothing was sent.
    pub(super) fn put_back(&self, body: Option<Outgoing>) {
        if let Some(stream) = &self.stream {
            stream.body.set(body);
        }
    }

    /// Returns the response to a client whose upload has ended too early.
    pub(super) fn refusal(&self) -> Option<Response<Body>> {
        let error = self.stream.as_ref()?.progress.fault.take()?;
        Some(reply::status(error.status()))
    }

    /// Names a server as the host, if the client has named none.
    pub(super) fn name_server(&mut self, address: &Address) {
        if !self.lacks_host || self.records.is_some() {
            return;
        }
        if let Some(at) = find(&self.bytes, BEFORE_HOST) {
            let start = at + BEFORE_HOST.len();
            let length = memchr(b'\r', &self.bytes[start..]).unwrap_or(0);
            let host = address_as_host(address);
            self.bytes.splice(start..start + length, host.as_bytes().iter().copied());
            self.head = self.head + host.len() - length;
        }
    }

    /// Returns the request for a server of HTTP/2; `None` if its target is none there. A body that
    /// is sent as it comes is in it, and can be [put back](ServerRequest::put_back).
    pub(super) fn to_h2(&self, is_encrypted: bool) -> Option<Request<Outgoing>> {
        let (head, behind) = self.bytes.split_at(self.head);
        let body = match &self.stream {
            None => Outgoing::Memory(Bytes::copy_from_slice(behind)),
            Some(stream) => stream.body.take()?,
        };
        h2_request(head, body, is_encrypted)
    }
}

/// The reason for which a request cannot be sent.
pub(super) enum NotBegun {
    /// The client is gone, or its response is this.
    Passed(Passed),
    /// Its body cannot be kept.
    NotKept(io::Error),
}

impl From<Passed> for NotBegun {
    fn from(passed: Passed) -> NotBegun {
        NotBegun::Passed(passed)
    }
}

/// Returns the request that some lines are the head of, for a server of HTTP/2.
fn h2_request(lines: &[u8], body: Outgoing, is_encrypted: bool) -> Option<Request<Outgoing>> {
    // The values share it.
    let head = Bytes::copy_from_slice(lines);
    let mut request = Request::new(body);
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    let target = words.next()?;
    let target = match PathAndQuery::from_maybe_shared(head.slice_ref(target)) {
        Ok(target) => target,
        Err(_) => encode_target(std::str::from_utf8(target).ok()?).try_into().ok()?,
    };
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

/// Polls for data of an upload whose length is known, as long as the client is there.
fn poll_data(
    upload: &mut Upload,
    client: &mut impl Client,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Passed>> {
    loop {
        if let Poll::Ready(frame) = Pin::new(&mut *upload).poll_frame(cx) {
            // Others follow chunks, or a body of HTTP/2, whose length was announced.
            let data = frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
            return Poll::Ready(data.transpose().map_err(|error| refusal(&error)));
        }
        match client.poll_feed(cx, false) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Passed::Cut)),
            Poll::Pending => break,
        }
    }
    match client.is_gone(cx) {
        true => Poll::Ready(Err(Passed::Cut)),
        false => Poll::Pending,
    }
}

/// Answers a client whose upload has ended too early.
fn refusal(error: &UploadError) -> Passed {
    Passed::Answered(reply::status(error.status()))
}
