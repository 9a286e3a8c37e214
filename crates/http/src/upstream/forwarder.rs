//! From a request to the response of a server.
//!
//! A request is written for its server from its head, which lies where it was read or is a map of
//! fields. The servers that get it, one after another, are chosen in `attempts`. The lines of the
//! response are written to the client as they come, or it is given the response.
//!
//! ```text
//!                                      failed: another server
//!                                     +-----------------------+
//!                                     v                       |
//!   head as it was read: prepare -+-> REQUEST --> attempt ----+--> lines: pass_body
//!   head as a map: answer --------+   its small body is read  |
//!                                                             +--> a response: give
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `plain` | the requests that are written from where their heads were read |
//! | `attempt` | from a connection to the head of a response |
//! | `body`, `splice`, `lost` | the body behind lines, long ones without a copy, and its early end |
//! | `sent_file` | files that a server asks this one to send |
//! | `question` | questions to servers on behalf of the gateway itself |

mod attempt;
mod body;
mod lost;
mod plain;
mod question;
mod sent_file;
mod splice;

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, SET_COOKIE, UPGRADE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use superpoll_config::{FastCgi, HeaderChanges, Proxy, Timeouts};
use superpoll_http1::{
    Asked, BodyWriter, FieldLines, FieldValue, Framing, Method as Http1Method, Target,
    Version as Http1Version,
};

pub(super) use self::attempt::{Answer, Missed, Out, ask};
pub use self::lost::LimitTimer;
use self::plain::whole;
pub use self::question::ServerAnswer;
use self::sent_file::SentFiles;
pub(super) use self::sent_file::{AskedBytes, SentFile};
use super::attempts::{Attempts, RequestFacts};
use super::client::{Apart, Client, LinesClient, unless_gone};
use super::dial::ClientAddresses;
use super::fastcgi::{self, Records, Script};
use super::fault::{Fault, Outcome};
use super::fields;
use super::group::Group;
use super::heads::{self, Changes, ClientFacts, ClientHead};
use super::incoming::{Incoming, Relayed};
use super::pool::{Lease, Pool};
use super::request::{NotBegun, ServerRequest};
use super::rewritten::Rewritten;
use super::sticky::ClientCookie;
use super::strict;
use super::tunnel::{self, ServerStream};
use crate::answers::{self, Additions, Compression, FilledFields, KeepsBody, RequestValues};
use crate::body::Body;
use crate::buffer::WriteBuffer;
use crate::exchange::{Exchange, LocalFuture};
use crate::files::Site;
use crate::head::Fields;
use crate::io_activity::IoActivity;
use crate::message::recycle;
use crate::peer::Peer;
use crate::progress::{Passed, Progress};
use crate::reply;
use crate::trace::RequestTrace;
use crate::upload::Upload;

/// The room for a head at first: enough for most.
const HEAD_ROOM: usize = 1 << 10;

/// Marks a response of this server that no server has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// Whether a server may have got the request.
    pub was_sent: bool,
}

/// The errors for which a route has pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// None.
    None,
    /// Those that this server has found.
    Own,
    /// Those, and those of the servers.
    All,
}

/// How the scripts of a route are called.
struct ScriptCalls {
    /// The folder of the scripts as servers see it.
    root: Option<String>,
    /// Further parameters.
    more: Vec<(String, String)>,
    spools: bool,
}

/// Forwards the requests of one route on one engine.
pub struct Forwarder {
    pub(super) pool: Rc<Pool>,
    /// The route's path.
    pub(super) route: Rc<str>,
    pub(super) retries: u32,
    pub(super) trusts: bool,
    /// Whether a request is given up when its client ends its side of the connection.
    pub aborts: bool,
    /// The host that servers are told, if it is not the client's.
    pub(super) host: Option<HeaderValue>,
    /// The prefix that is taken off paths.
    prefix: Option<String>,
    /// The changes of requests' fields, and the fields that they add, as lines.
    fields: Option<(HeaderChanges, FieldLines)>,
    /// The errors that get pages.
    pub pages: Pages,
    /// Whether responses are compressed.
    compresses: bool,
    /// How scripts are called, if the servers speak FastCGI.
    scripts: Option<ScriptCalls>,
    /// The changes of fields that name places on a server.
    rewritten: Option<Rewritten>,
    /// The files that servers may ask this one to send.
    sent_files: Option<SentFiles>,
    pub(super) connect: Duration,
    pub(super) response: Duration,
    pub(super) body: Duration,
    tunnel: Duration,
}

impl Forwarder {
    /// Creates the forwarder of a route.
    pub fn new(group: &Arc<Group>, proxy: &Proxy, path: &str, timeouts: &Timeouts) -> Forwarder {
        let prefix = path.trim_end_matches('/');
        let prefix = (proxy.strip_path && !prefix.is_empty()).then(|| prefix.to_owned());
        let (host, fields) = (proxy.host.as_deref(), &proxy.request_headers);
        Forwarder {
            pool: Pool::for_group(group),
            route: path.into(),
            retries: proxy.retries,
            trusts: proxy.trust_forwarded,
            aborts: proxy.abort_on_close,
            host: host.and_then(|host| HeaderValue::from_str(host).ok()),
            prefix,
            fields: (!fields.is_empty()).then(|| (fields.clone(), answers::lines(fields))),
            pages: Pages::None,
            compresses: proxy.compress,
            scripts: None,
            rewritten: Rewritten::new(proxy),
            sent_files: None,
            connect: timeouts.connect,
            response: timeouts.response,
            body: timeouts.body,
            tunnel: timeouts.tunnel,
        }
    }

    /// Makes it call scripts by FastCGI.
    #[must_use]
    pub fn with_scripts(mut self, config: &FastCgi) -> Forwarder {
        let absolute = |root: &PathBuf| std::path::absolute(root).unwrap_or_else(|_| root.clone());
        let root = config.server_root.clone().or_else(|| config.root.as_ref().map(absolute));
        let root = root.map(|root| root.to_string_lossy().trim_end_matches('/').to_owned());
        let more = config.params.iter().map(|(name, value)| (name.clone(), value.clone()));
        self.scripts = Some(ScriptCalls { root, more: more.collect(), spools: config.spool });
        self
    }

    /// Lets servers ask for files of these folders, each with the path that stands for it.
    pub fn send_files(&mut self, folders: impl Iterator<Item = (String, PathBuf, Site)>) {
        let mut folders = folders.peekable();
        self.sent_files = folders.peek().is_some().then(|| SentFiles::new(folders));
    }

    /// Whether its servers may speak HTTP/2.
    fn is_h2(&self) -> bool {
        self.pool.group.config().h2
    }

    /// Returns the addresses that a server is told by the PROXY protocol.
    pub(super) fn addresses_of(&self, peer: &Peer) -> ClientAddresses {
        self.pool.group.config().proxy_protocol.and_then(|_| peer.client.zip(peer.local))
    }

    /// Returns the changes that it makes in a regular request.
    pub(super) fn changes<'a>(
        &'a self,
        trusts: bool,
        trace: Option<&'a RequestTrace>,
        filled: Option<&'a FilledFields>,
    ) -> Changes<'a> {
        let prefix = self.prefix.as_deref();
        let fields = self.fields.as_ref().map(|(fields, lines)| (fields, lines));
        let filled = filled.map_or(&[][..], FilledFields::fields);
        Changes { host: self.host.as_ref(), prefix, trusts, fields, filled, trace }
    }

    /// Returns the fields that requests get with values of their own. `uri` is the path with the
    /// query as the client has sent them.
    fn filled(
        &self,
        head: &ClientHead<'_>,
        uri: impl FnOnce() -> String,
        peer: &Peer,
        trusts: bool,
        trace: Option<&RequestTrace>,
    ) -> Option<FilledFields> {
        let (fields, _) =
            self.fields.as_ref().filter(|(fields, _)| !fields.templates.is_empty())?;
        let values = RequestValues {
            method: head.method.as_str(),
            uri: &uri(),
            host: head.host.map_or(b"", FieldValue::as_bytes),
            peer,
            is_encrypted: peer.is_encrypted || (trusts && head.fields.say_encrypted()),
            trace,
        };
        Some(FilledFields::new(&fields.templates, values))
    }

    /// Whether the fields about earlier proxies are believed, the id of a request among them.
    pub(super) fn believes(&self, peer: &Peer, trace: Option<&RequestTrace>) -> bool {
        let trusts = self.trusts || peer.is_of_trusted_proxy();
        if trusts {
            trace.into_iter().for_each(RequestTrace::believe);
        }
        trusts
    }

    /// Returns the cookie of a client, if the upstream gives one.
    pub(super) fn sticky(
        &self,
        fields: Fields<'_>,
        peer: &Peer,
        trusts: bool,
    ) -> Option<Rc<ClientCookie>> {
        let sticky = self.pool.group.rules.sticky.as_ref()?;
        let is_encrypted = peer.is_encrypted || (trusts && fields.say_encrypted());
        Some(Rc::new(sticky.client(fields, is_encrypted)))
    }

    /// Prepares a request whose head lies where it was read, and whose body of at most `most` bytes
    /// begins at `behind`. A target may stand in place of its own. Returns the length of the body
    /// there, if it is whole, or how to write it.
    ///
    /// `None`: the request is not plain, and [`answer`](Forwarder::answer) forwards, answers or
    /// refuses it.
    pub fn prepare(
        &self,
        (mut head, target): (ClientHead<'_>, Option<&str>),
        script: Option<&Script>,
        (behind, most): (&[u8], u64),
        (client, peer): (&ClientFacts, &Peer),
        io_activity: &Rc<IoActivity>,
        trace: Option<&RequestTrace>,
    ) -> Option<(ServerRequest, Result<usize, BodyWriter>)> {
        let framing = head.framing;
        if !plain::is_plain(&head, target)
            || trace.is_some_and(RequestTrace::is_loop)
            || matches!(framing, Framing::Length(length) if length > most)
        {
            return None;
        }
        let trusts = self.believes(peer, trace);
        let own = head.target;
        let filled = self.filled(&head, || target_text(own), peer, trusts, trace);
        if let Some(target) = target {
            head.target = Target::new(head.method, target).ok()?;
        }
        if head.version == Version::HTTP_2 {
            head.may_have_trailers = has_trailers(framing, self.is_h2());
        }
        if let Some(script) = script {
            let about = (script, peer, (trace, filled.as_ref()), trusts);
            return self.prepare_records(head, about, (behind, most), client, io_activity);
        }
        let mut size = 0;
        // A server of HTTP/2 gets no chunks.
        let is_whole = !(self.is_h2() && framing == Framing::Chunked);
        let taken = is_whole.then(|| whole(framing, behind, |data| size += data.len()));
        let taken = taken.flatten().filter(|_| size as u64 <= most);
        size = if taken.is_some() { size } else { 0 };
        let mut bytes = Vec::with_capacity(HEAD_ROOM + size);
        let mut writer =
            heads::request(&head, client, self.changes(trusts, trace, filled.as_ref()), &mut bytes);
        let len = bytes.len();
        let body = match taken {
            None => Err(writer),
            Some(taken) => {
                // All data in one piece; no length is exceeded.
                let _ = writer.begin_piece(size as u64, &mut bytes);
                whole(framing, behind, |data| bytes.extend_from_slice(data));
                writer.end(&mut bytes);
                Ok(taken)
            }
        };
        let mut request = self.written((&head, trusts), (bytes, len), peer, io_activity);
        request.body = size as u64;
        Some((request, body))
    }

    /// Prepares a request for a server of FastCGI.
    fn prepare_records(
        &self,
        head: ClientHead<'_>,
        (script, peer, (trace, filled), trusts): (
            &Script,
            &Peer,
            (Option<&RequestTrace>, Option<&FilledFields>),
            bool,
        ),
        (behind, most): (&[u8], u64),
        client: &ClientFacts,
        io_activity: &Rc<IoActivity>,
    ) -> Option<(ServerRequest, Result<usize, BodyWriter>)> {
        let mut data = Vec::new();
        let taken = whole(head.framing, behind, |piece| data.extend_from_slice(piece));
        let taken = taken.filter(|_| data.len() as u64 <= most);
        let framing = match (head.framing, taken) {
            (Framing::None, _) => Framing::None,
            (_, Some(_)) => Framing::Length(data.len() as u64),
            (framing, None) => framing,
        };
        let changes = self.changes(trusts, trace, filled);
        let about = (&head, client, script, peer);
        let mut request = self.records(about, (framing, changes), trusts, io_activity)?;
        let body = match (taken, head.framing) {
            // The end is there.
            (Some(taken), Framing::None) => Ok(taken),
            (Some(taken), _) => {
                fastcgi::write_body(request.request_id(), &data, &mut request.bytes);
                request.body = data.len() as u64;
                Ok(taken)
            }
            (None, Framing::Length(length)) => Err(BodyWriter::of_length(length)),
            // It is not used: the body is read to its end first.
            (None, _) => Err(BodyWriter::of_unknown()),
        };
        Some((request, body))
    }

    /// Returns a request of FastCGI, without a body that it has; `None` if it cannot be written.
    fn records(
        &self,
        (head, client, script, peer): (&ClientHead<'_>, &ClientFacts, &Script, &Peer),
        (framing, changes): (Framing, Changes<'_>),
        trusts: bool,
        io_activity: &Rc<IoActivity>,
    ) -> Option<ServerRequest> {
        let calls = self.scripts.as_ref()?;
        let mut lines = WriteBuffer::default();
        let _ = heads::request(head, client, changes, &mut lines.0);
        let id = fastcgi::next_id();
        let facts = fastcgi::RequestFacts {
            id,
            script,
            root: calls.root.as_deref(),
            more: &calls.more,
            version: head.version,
            peer,
            is_encrypted: peer.is_encrypted || (trusts && head.fields.say_encrypted()),
            trusts,
            framing,
            keeps: self.pool.group.config().keep_alive > 0,
        };
        let mut bytes = Vec::with_capacity(2 * HEAD_ROOM);
        fastcgi::head(&lines.0, &facts, &mut bytes).ok()?;
        let len = bytes.len();
        let mut request = self.written((head, trusts), (bytes, len), peer, io_activity);
        let (spools, script) = (calls.spools, script.name.as_str().into());
        request.records = Some(Box::new(Records { spools, id, script }));
        Some(request)
    }

    /// Returns a request whose head was written, with these bytes and this length.
    fn written(
        &self,
        (head, trusts): (&ClientHead<'_>, bool),
        (bytes, len): (Vec<u8>, usize),
        peer: &Peer,
        io_activity: &Rc<IoActivity>,
    ) -> ServerRequest {
        let is_head = head.method == Http1Method::Head;
        let has_body = head.framing != Framing::None;
        let asked = Asked { is_head, has_upgrade: head.upgrade.is_some(), ..Asked::default() };
        ServerRequest {
            version: match head.version {
                Version::HTTP_10 => Http1Version::Http10,
                _ => Http1Version::Http11,
            },
            is_h2: head.version == Version::HTTP_2,
            takes_trailers: head.takes_trailers,
            // A body without a length is not kept.
            repeats: is_idempotent(head.method) && head.framing != Framing::Chunked,
            streams: head.continues || (has_body && head.fields.has("trailer")),
            lacks_host: self.host.is_none() && head.host.is_none(),
            compression: self.compression(head.fields, is_head),
            is_rewritten: self.rewritten.is_some(),
            replaces_errors: self.pages == Pages::All,
            addresses: self.addresses_of(peer),
            sticky: self.sticky(head.fields, peer, trusts),
            asked_bytes: self
                .sent_files
                .as_ref()
                .map(|_| Box::new(AskedBytes::new(head.fields, is_head))),
            ..ServerRequest::new(bytes, len, asked, io_activity.clone())
        }
    }

    fn compression(&self, fields: Fields<'_>, is_head: bool) -> Option<Box<Compression>> {
        self.compresses.then(|| Box::new(Compression::new(fields, is_head)))
    }

    /// Answers a request with a server's response, or at once if it is not forwarded.
    pub fn answer(
        self: Rc<Forwarder>,
        request: Request<Upload>,
        script: Option<Box<Script>>,
        exchange: Exchange,
    ) -> Result<LocalFuture<Response<Body>>, StatusCode> {
        let (mut head, upload) = request.into_parts();
        let trusts = self.believes(exchange.peer(), exchange.trace.as_deref());
        strict::check(&head)?;
        if upload.is_too_large() {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if head.method == Method::OPTIONS && fields::ends_here(&mut head.headers) {
            return Ok(Box::pin(async { reply::options() }));
        }
        if let Some(trace) = exchange.trace.as_ref().filter(|trace| trace.is_loop()) {
            self.pool.group.came_back(&self.route, trace);
            return Err(StatusCode::LOOP_DETECTED);
        }
        if self.aborts {
            exchange.end_with_client();
        }
        let script = script.as_deref();
        let request = self.prepare_map(&head, upload, (script, trusts), &exchange);
        let request = request.ok_or(match script {
            None => StatusCode::BAD_REQUEST,
            Some(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        })?;
        recycle(head.headers);
        Ok(self.respond(Box::new(request), exchange))
    }

    /// Returns the response to a request that was prepared.
    pub fn respond(
        self: Rc<Forwarder>,
        mut request: Box<ServerRequest>,
        exchange: Exchange,
    ) -> LocalFuture<Response<Body>> {
        // A block has its arguments once, a function twice.
        Box::pin(async move {
            let mut client = Apart { interim: exchange.interim.clone() };
            let rules = client.interim.as_ref().and_then(|interim| interim.rules());
            let (trace, entry) = (exchange.trace.clone(), exchange.entry.clone());
            let additions = Additions { rules, trace, ..Additions::default() };
            let progress = Progress { entry, ..Progress::default() };
            let address = exchange.peer().client.map(|client| client.ip());
            let (mut out, mut timer) = (Out::default(), LimitTimer::default());
            let way = (&mut *request, &additions, &progress);
            let outcome = (&mut out, &mut timer);
            // The allocator has two small pieces of memory at hand, and would look for a large one.
            match Box::pin(self.find(way, &mut client, address, outcome)).await {
                Ok(lease) => {
                    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
                    let cx = &mut Context::from_waker(&waker);
                    let response = self.give(cx, lease, (&mut request, out), Some(&exchange));
                    match request.sent_file.take() {
                        None => response,
                        Some(file) => Box::pin(file.response(request.asked_bytes.as_deref())).await,
                    }
                }
                Err(Passed::Answered(response)) => response,
                Err(Passed::Whole | Passed::Cut) => reply::status(StatusCode::REQUEST_TIMEOUT),
            }
        })
    }

    /// Prepares a request whose head is a map of fields; `None` if its target cannot be written.
    fn prepare_map(
        &self,
        head: &Parts,
        upload: Upload,
        (script, trusts): (Option<&Script>, bool),
        exchange: &Exchange,
    ) -> Option<ServerRequest> {
        let (peer, headers) = (exchange.peer(), &head.headers);
        let is_empty = upload.is_end_stream();
        // No script speaks another protocol.
        let upgrade = match exchange.can_take_over() && is_empty && script.is_none() {
            true => fields::upgrade(headers),
            false => None,
        };
        let framing = match upload.size_hint().exact() {
            _ if is_empty && !headers.contains_key(CONTENT_LENGTH) => Framing::None,
            _ if is_empty => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        let facts = ClientFacts::from_peer(peer.connection());
        let host = fields::host(&head.uri, headers);
        let target = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let target = match target.starts_with('?') {
            // It may have a query behind its host.
            true => Cow::Owned(format!("/{target}")),
            false => Cow::Borrowed(target),
        };
        let about = (&*target, host.as_ref(), upgrade.as_ref());
        let of_client = client_head(head, about, (framing, self.is_h2()))?;
        let original = head.extensions.get::<OriginalTarget>().map(|target| target.0.as_str());
        let uri = || original.unwrap_or(&target).to_owned();
        let trace = exchange.trace.as_deref();
        let filled = self.filled(&of_client, uri, peer, trusts, trace);
        let changes = self.changes(trusts, trace, filled.as_ref());
        if let Some(script) = script {
            let about = (&of_client, &facts, script, &**peer);
            let io_activity = &exchange.io_activity;
            let mut request = self.records(about, (framing, changes), trusts, io_activity)?;
            match framing {
                Framing::None => {}
                _ if is_empty => {
                    fastcgi::write_body(request.request_id(), b"", &mut request.bytes);
                }
                Framing::Length(length) => request.expect(BodyWriter::of_length(length), upload),
                _ => request.expect(BodyWriter::of_unknown(), upload),
            }
            return Some(request);
        }
        let mut bytes = Vec::with_capacity(HEAD_ROOM);
        let writer = heads::request(&of_client, &facts, changes, &mut bytes);
        let len = bytes.len();
        let about = (&of_client, trusts);
        let mut request = self.written(about, (bytes, len), peer, &exchange.io_activity);
        request.upgrade = upgrade.map(Box::new);
        if !is_empty {
            request.expect(writer, upload);
        }
        Some(request)
    }

    /// Forwards a request and passes the response on. Flushing the client's stream tells whether
    /// the client is gone.
    ///
    /// # Cancel safety
    ///
    /// A cancelled request ends the server's connection. The client's connection must end, too.
    pub async fn pass_on(
        &self,
        request: &mut ServerRequest,
        (additions, progress): (&Additions, &Progress),
        client: &mut impl LinesClient,
        address: Option<IpAddr>,
        timer: &mut LimitTimer,
    ) -> Passed {
        let mut out = Out::default();
        let way = (&mut *request, additions, progress);
        let lease = match self.find(way, client, address, (&mut out, &mut *timer)).await {
            Ok(lease) => lease,
            Err(passed) => return passed,
        };
        if let Some(Answer::Passing(begun)) = &mut out.answer {
            let (way, to) = ((&*request, progress), (&mut out.bytes.0, timer));
            return self.pass_body(way, lease, begun, to, client).await;
        }
        // An interim response may have begun that another server has sent.
        if poll_fn(|cx| out.poll_show(client, cx)).await.is_err() {
            return Passed::Cut;
        }
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let cx = &mut Context::from_waker(&waker);
        let mut response = self.give(cx, lease, (request, out), None);
        if let Some(file) = request.sent_file.take() {
            response = Box::pin(file.response(request.asked_bytes.as_deref())).await;
        }
        match response.body().in_memory() {
            None => request.watch(),
            // A client that ends its side now gets all that it has asked for.
            Some(_) => request.io_activity.ends_with_client.set(false),
        }
        Passed::Answered(response)
    }

    /// Finds a server that answers. Its answer is in its place then.
    ///
    /// # Errors
    ///
    /// There is none. The client was answered otherwise, or is to be, or is gone.
    async fn find(
        &self,
        (request, additions, progress): (&mut ServerRequest, &Additions, &Progress),
        client: &mut impl Client,
        address: Option<IpAddr>,
        (out, timer): (&mut Out, &mut LimitTimer),
    ) -> Result<Lease, Passed> {
        match request.begin(client).await {
            Ok(()) => {}
            Err(NotBegun::Passed(passed)) => return Err(passed),
            Err(NotBegun::NotKept(error)) => {
                self.pool.group.not_kept(&self.route, &error, additions.trace.as_ref());
                return Err(out.answer(client, reply::unavailable(1)).await);
            }
        }
        let sticky = request.sticky.clone();
        let facts = RequestFacts {
            sticky: sticky.as_deref(),
            client: address,
            addresses: request.addresses,
            trace: additions.trace.as_ref(),
            entry: progress.entry.as_ref(),
        };
        let mut attempts = Attempts::new(self, facts);
        if let Some(lookup) = attempts.lookup() {
            if unless_gone(client, lookup).await.is_none() {
                return Err(Passed::Cut);
            }
            attempts.choose();
        }
        loop {
            let mut lease = match attempts.lease() {
                Ok(lease) => lease,
                Err(mut response) => {
                    response.extensions_mut().insert(Unanswered { was_sent: false });
                    return Err(out.answer(client, *response).await);
                }
            };
            request.name_server(lease.server.named_address());
            let way = (&*request, additions, progress);
            let outcome = (&mut *out, &mut *timer);
            let attempt = self.attempt(&mut lease, attempts.must_dial, way, client, outcome);
            let (failed, is_sent) = match attempt.await {
                Ok(status) => {
                    lease.answered(status);
                    return Ok(lease);
                }
                Err(Missed::ClientGone) => return Err(Passed::Cut),
                Err(Missed::Unfit) => {
                    let refusal = reply::status(StatusCode::BAD_REQUEST);
                    return Err(out.answer(client, refusal).await);
                }
                Err(Missed::NoWebSockets) => {
                    let refusal = self.report(&lease, &no_websockets());
                    return Err(out.answer(client, refusal).await);
                }
                Err(Missed::Failed(failed, is_sent)) => (failed, is_sent),
            };
            if let Some(refusal) = request.refusal() {
                return Err(out.answer(client, refusal).await);
            }
            if let Err(mut response) = attempts.failed(failed, request.repeats || !is_sent) {
                response.extensions_mut().insert(Unanswered { was_sent: is_sent });
                return Err(out.answer(client, *response).await);
            }
        }
    }

    /// Answers in place of a server whose response cannot be passed on.
    fn refuse(&self, lease: &Lease, why: &str) -> Response<Body> {
        let fault = Fault::Head(why.to_owned());
        if !lease.pool.group.is_of_script(&fault) {
            lease.failed();
        }
        self.report(lease, &fault)
    }

    /// Reports a failure, and answers in place of the server.
    fn report(&self, lease: &Lease, fault: &Fault) -> Response<Body> {
        let (group, status) = (&lease.pool.group, StatusCode::BAD_GATEWAY);
        let (outcome, trace) = (Outcome::Answered(status), lease.trace.as_ref());
        group.report_failure(&lease.server, &self.route, fault, outcome, trace);
        reply::status(status)
    }

    /// Gives a response to the client, which has its request alone. Without an exchange the
    /// protocol cannot be changed.
    fn give(
        &self,
        cx: &mut Context<'_>,
        mut lease: Lease,
        (request, Out { answer, cookie, .. }): (&mut ServerRequest, Out),
        exchange: Option<&Exchange>,
    ) -> Response<Body> {
        let Some(Answer::Given(response)) = answer else {
            return self.refuse(&lease, "it has none");
        };
        let (mut head, incoming) = response.into_parts();
        let protocol =
            request.upgrade.as_deref().and_then(|asked| fields::agreed(asked, &head.headers));
        // Those of HTTP/1 have no other fields.
        let reads_trailers = (request.reads_trailers(), request.is_h2);
        if matches!(incoming, Incoming::Http2(_))
            && let Err(why) = fields::response(&mut head, reads_trailers)
        {
            return self.refuse(&lease, why);
        }
        if let Some(rewritten) = &self.rewritten {
            rewritten.apply(&mut head.headers);
        }
        head.headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
        if let Some(trace) = &lease.trace {
            trace.add_via(head.version, &mut head.headers);
        }
        head.version = Version::HTTP_11;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let stream = match (lease.connection.take(), incoming) {
                (Some(connection), _) => Some(ServerStream::from(*connection)),
                (None, Incoming::Http2(body)) => body.into_tunnel().map(ServerStream::from),
                (None, Incoming::Http1) => None,
            };
            let (Some(protocol), Some(stream), Some(exchange)) = (protocol, stream, exchange)
            else {
                return self
                    .refuse(&lease, "it changes to a protocol that the request did not ask for");
            };
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, protocol);
            head.extensions.clear();
            let (mut lease, limit) = (lease, self.tunnel);
            // A tunnel may last for days, and nothing is told of its request any more.
            lease.trace = None;
            let io_activity = exchange.io_activity.clone();
            exchange.take_over(move |client, read| {
                Box::pin(tunnel::run(client, read, stream, lease, limit, io_activity))
            });
            return Response::from_parts(head, Body::empty());
        }
        if let Some(files) = &self.sent_files
            && let Some(asked) = files.take(&mut head.headers)
        {
            match asked {
                Ok(file) => request.sent_file = Some(Box::new(file)),
                Err(why) => return self.refuse(&lease, &why),
            }
            // Its connection can be used again if nothing of its body is left.
            let _ = Relayed::new(incoming, lease, self.body).into_body(cx);
            return Response::new(Body::empty());
        }
        if self.pages == Pages::Own {
            head.extensions.insert(KeepsBody);
        }
        let response = match Relayed::new(incoming, lease, self.body).into_body(cx) {
            Ok(body) => Response::from_parts(head, body),
            Err(_) => {
                let refusal = request.refusal();
                return refusal.unwrap_or_else(|| reply::status(StatusCode::BAD_GATEWAY));
            }
        };
        match request.compression.take() {
            Some(compression) => compression.apply(response),
            None => response,
        }
    }
}

/// The target that a client has sent, in the extensions of a request that has another one.
#[derive(Clone, Debug)]
pub struct OriginalTarget(pub PathAndQuery);

/// Returns the path and query of a target.
fn target_text(target: Target<'_>) -> String {
    match target.query() {
        None => target.path().to_owned(),
        Some(query) => format!("{}?{query}", target.path()),
    }
}

/// Returns the reason for which a server gets no request for a WebSocket.
fn no_websockets() -> Fault {
    let what = "it allows no WebSockets by HTTP/2 (SETTINGS_ENABLE_CONNECT_PROTOCOL, RFC 8441); \
                without `h2 = true` they go to it by HTTP/1.1";
    Fault::Connect(io::Error::new(io::ErrorKind::Unsupported, what))
}

/// Returns the head of a client's request, which is a map of fields; `None` if its target cannot be
/// written.
fn client_head<'a>(
    head: &'a Parts,
    (target, host, upgrade): (&'a str, Option<&'a HeaderValue>, Option<&'a HeaderValue>),
    (framing, is_h2): (Framing, bool),
) -> Option<ClientHead<'a>> {
    let method = Http1Method::new(head.method.as_str())?;
    Some(ClientHead {
        method,
        version: head.version,
        target: Target::new(method, target).ok()?,
        host: host.map(FieldValue::from),
        fields: Fields::Map(&head.headers),
        framing,
        may_have_trailers: has_trailers(framing, is_h2),
        takes_trailers: takes_trailers(head),
        continues: head.headers.contains_key(EXPECT),
        names_fields: head.headers.contains_key(CONNECTION),
        upgrade: upgrade.map(FieldValue::from),
    })
}

/// Whether fields may follow a body: by HTTP/2 they may follow any.
fn has_trailers(framing: Framing, is_h2: bool) -> bool {
    framing == Framing::Chunked || (is_h2 && framing != Framing::None)
}

/// Whether a client reads fields that follow the body of a response. HTTP/1.0 knows none.
fn takes_trailers(head: &Parts) -> bool {
    head.version > Version::HTTP_10 && Fields::Map(&head.headers).has_element("te", b"trailers")
}

/// Whether a request with a method can be carried out twice (RFC 9110, section 9.2.2).
fn is_idempotent(method: Http1Method<'_>) -> bool {
    use Http1Method::{Delete, Get, Head, Options, Put, Trace};
    matches!(method, Get | Head | Options | Put | Delete | Trace)
}
