//! A request's way to a server and back.
//!
//! The rules for servers and retries are those of other requests, see `attempts`. A body
//! that has come whole goes with its head. A small one is read first, before a server is chosen, so
//! that no server waits for its client. Any other is sent as it comes.
//!
//! Interim responses are passed on as they come (RFC 9110, section 15.2), each once the client has
//! taken the one before, and not to clients of HTTP/1.0. `100 Continue` is not, since this server
//! sends its own when a body is waited for. There are at most a hundred of them, within the limit
//! of time of the response.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use hyper::rt::Write as _;
use superpoll_http1::{
    After, Asked, BodyReader, BodyWriter, FieldLines, Framing, Method as Http1Method,
    Progress as BodyProgress, Refusal, RequestHead, Response as ReadResponse, Room,
    Version as Http1Version, response,
};
use superpoll_rt::time;

use super::lost::{LimitTimer, Lost};
use super::request::whole;
use super::splice::{self, Client};
use crate::answers::Additions;
use crate::body::Body;
use crate::buffer::{LARGEST, ReadBuffer, SIZE, WriteBuffer};
use crate::head::Fields;
use crate::io_activity::IoActivity;
use crate::message::Message;
use crate::peer::Peer;
use crate::progress::{Passed, Progress};
use crate::reply;
use crate::trace::RequestTrace;
use crate::transport::poll_write_all;
use crate::upload::{Upload, UploadError};
use crate::upstream::attempts::{Attempts, RequestFacts};
use crate::upstream::dial::{ClientAddresses, dial};
use crate::upstream::fault::FailedAttempt;
use crate::upstream::forwarder::{Forwarder, KEPT_BODY, is_idempotent};
use crate::upstream::heads::{self, ClientFacts, Shape};
use crate::upstream::http1::{Http1Connection, LIMITS, MOST_INTERIM, SendFailure};
use crate::upstream::outgoing::{Outgoing, UploadProgress};
use crate::upstream::pool::Lease;
use crate::upstream::sticky::ClientCookie;

/// The bytes of a response that are gathered before they are written.
const PIECE: usize = 16 << 10;

/// How long the end of a client's side goes unseen where watching for it would register the
/// connection with the poller. Most responses come sooner, and many connections have one request.
const UNWATCHED: Duration = Duration::from_millis(10);

/// A request on its way.
pub struct Sent {
    /// The head and the body for the server, as far as they are not in `stream`.
    bytes: Vec<u8>,
    /// The body that has not come whole, and how it is written, until the request is on its way.
    upload: Option<(BodyWriter, Upload)>,
    /// The same from then on, unless it was read first.
    stream: Option<Stream>,
    /// The bytes of a body that has come whole.
    pub body: u64,
    /// The version that the client speaks.
    version: Http1Version,
    asked: Asked,
    /// The client reads fields that follow the body of the response.
    takes_trailers: bool,
    /// It may be sent again.
    repeats: bool,
    /// The client waits for an invitation to send the body.
    waits: bool,
    /// The addresses for the PROXY protocol.
    addresses: ClientAddresses,
    /// The cookie that it has, if the upstream gives one.
    sticky: Option<Box<ClientCookie>>,
    /// The events on the client's connection.
    io_activity: Rc<IoActivity>,
    /// The request ends with the client's side, which is not watched yet.
    is_unwatched: Cell<bool>,
}

/// A request whose body is sent as it comes.
struct Stream {
    /// Head and body, as long as nothing was sent and no connection has them.
    message: Cell<Option<Box<Message<Outgoing>>>>,
    progress: Rc<UploadProgress>,
}

impl Sent {
    /// Makes the request end with the client's side. On a new connection that is watched only when
    /// the response takes long.
    pub fn end_with_client(&self, is_new: bool) {
        match is_new {
            true => self.is_unwatched.set(true),
            false => self.io_activity.ends_with_client.set(true),
        }
    }

    /// Makes the body that has not come whole be sent as it comes.
    pub fn expect(&mut self, writer: BodyWriter, upload: Upload) {
        self.upload = Some((writer, upload));
    }

    /// Reads a small body: up to the size of a buffer, or more if it can be sent again. Any other
    /// is sent as it comes, and so is one that its client was not invited to send.
    ///
    /// # Errors
    ///
    /// The client is gone, or its response is this.
    async fn begin(&mut self, client: &mut impl Client) -> Result<(), Passed> {
        let Some((mut writer, mut upload)) = self.upload.take() else { return Ok(()) };
        let most = if self.repeats { KEPT_BODY } else { SIZE as u64 };
        // Trailers follow chunks only, whose sum is not known.
        if self.waits || writer.left().is_none_or(|length| length > most) {
            let body = Outgoing::upload(upload);
            let Some(progress) = body.report() else { return Ok(()) };
            let message = Message::new(std::mem::take(&mut self.bytes), writer, body, true);
            let message = Cell::new(Some(Box::new(message.put_back())));
            (self.stream, self.repeats) = (Some(Stream { message, progress }), false);
            return Ok(());
        }
        while let Some(data) = poll_fn(|cx| poll_data(&mut upload, client, cx)).await? {
            writer.piece(&data, &mut self.bytes).map_err(|_| refusal(&UploadError::Short))?;
        }
        writer.end(&mut self.bytes);
        Ok(())
    }

    /// Gives the request to a connection, if its body is sent as it comes.
    fn give_to(&self, connection: &mut Http1Connection) {
        let message = self.stream.as_ref().and_then(|stream| stream.message.take());
        message.into_iter().for_each(|message| connection.begin(message));
    }

    /// Takes the request back from a connection; whether nothing of it was sent.
    fn take_back(&self, connection: &mut Http1Connection) -> bool {
        let Some(stream) = &self.stream else { return false };
        let message = connection.take_unused();
        let is_back = message.is_some();
        stream.message.set(message);
        is_back
    }

    /// Returns the response to a client whose upload has ended too early.
    fn refusal(&self) -> Option<Response<Body>> {
        let error = self.stream.as_ref()?.progress.fault.take()?;
        Some(reply::status(error.status()))
    }

    /// Watches the client's side from now on, if the request ends with it.
    fn watch(&self) {
        if self.is_unwatched.take() {
            self.io_activity.ends_with_client.set(true);
        }
    }
}

/// A request, the fields that are added to its response, and the state of that.
type Way<'a> = (&'a Sent, &'a Additions, &'a Progress);

/// A response whose head is on its way to the client.
struct Begun {
    status: StatusCode,
    reader: BodyReader,
    /// `None` once the end is written.
    writer: Option<BodyWriter>,
    /// The body has as many bytes on both sides, and nothing between them.
    is_plain: bool,
    /// The fields that follow the body, if the client reads them.
    trailers: Option<FieldLines>,
    /// The server's connection can be used again.
    stays: bool,
    /// The fate of the client's connection, once the end is written.
    after: After,
}

impl Begun {
    /// Takes what has come to be written to the client, up to some bytes, and counts its data.
    ///
    /// # Errors
    ///
    /// The body is malformed.
    fn take(
        &mut self,
        from: &mut ReadBuffer,
        to: &mut Vec<u8>,
        count: &Cell<u64>,
    ) -> Result<BodyProgress, Lost> {
        let malformed = |what: String| Lost::Server(io::Error::other(what));
        let Begun { reader, writer, trailers, after, .. } = self;
        loop {
            let piece = reader.step(from.bytes()).map_err(|why| malformed(why.to_string()))?;
            let data = &from.bytes()[piece.data.clone()];
            if let Some(writer) = writer {
                writer.piece(data, to).map_err(|why| malformed(why.to_string()))?;
            }
            count.set(count.get() + data.len() as u64);
            if let (Some(trailer), Some(trailers)) = (piece.trailer, trailers.as_mut()) {
                trailers.push(trailer.name, trailer.value);
            }
            let (used, progress) = (piece.used, piece.progress);
            from.consume(used);
            match progress {
                BodyProgress::Again if to.len() < PIECE => {}
                BodyProgress::Over => {
                    if let Some(writer) = writer.take() {
                        let trailers = trailers.iter().flat_map(FieldLines::iter);
                        *after = writer.end_with(trailers, to);
                    }
                    return Ok(progress);
                }
                progress => return Ok(progress),
            }
        }
    }

    /// Counts data that has gone to the client past this.
    fn skip(&mut self, count: u64) {
        self.reader.skip(count);
        if let Some(writer) = &mut self.writer {
            // It has the length of the reader, and writes nothing before data.
            let _ = writer.begin_piece(count, &mut Vec::new());
        }
    }

    /// Ends the body with the server's side of the connection.
    fn end(&mut self) -> Result<(), Lost> {
        self.reader.end().map_err(|_| Lost::at_end())
    }
}

/// The heads for the client.
#[derive(Default)]
struct Out {
    /// Interim responses, or the head of the final one.
    bytes: WriteBuffer,
    /// So many bytes of the interim responses have gone to the client. Another attempt continues
    /// there, so that none is cut off.
    shown: usize,
    /// The cookie that the final response gives.
    cookie: Option<HeaderValue>,
}

impl Out {
    /// Writes the interim responses to the client.
    #[inline]
    fn poll_show(
        &mut self,
        client: &mut impl Client,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.bytes.0.is_empty() {
            ready!(client.poll_begun(cx))?;
            ready!(poll_write_all(client.stream(), cx, &self.bytes.0, &mut self.shown))?;
            self.bytes.0.clear();
            self.shown = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Answers with a response of this server, behind the interim ones.
    async fn answer(&mut self, client: &mut impl Client, response: Response<Body>) -> Passed {
        match poll_fn(|cx| self.poll_show(client, cx)).await {
            Ok(()) => Passed::Answered(response),
            Err(_) => Passed::Cut,
        }
    }
}

/// The client is gone.
struct ClientGone;

/// The reason for which no response is passed on.
enum Missed {
    /// The client is gone.
    ClientGone,
    /// The request may have been sent, or not.
    Failed(FailedAttempt, IsSent),
}

/// Whether a server may have something of a request.
type IsSent = bool;

impl Forwarder {
    /// Prepares a regular request, whose body of at most `most` bytes begins at `behind`. Returns
    /// the length of the body there, if it is whole, or how to write it; `None` if the request
    /// cannot be forwarded.
    pub fn prepare(
        &self,
        head: &RequestHead<'_>,
        (behind, most): (&[u8], u64),
        (client, peer): (&ClientFacts, &Peer),
        io_activity: &Rc<IoActivity>,
        trace: Option<&RequestTrace>,
    ) -> Option<(Sent, Result<usize, BodyWriter>)> {
        if matches!(head.framing, Framing::Length(length) if length > most) {
            return None;
        }
        let mut size = 0;
        let taken = whole(head.framing, behind, |data| size += data.len());
        let taken = taken.filter(|_| size as u64 <= most);
        size = if taken.is_some() { size } else { 0 };
        let mut bytes = Vec::with_capacity(head.len + size + 256);
        let trusts = self.believes(peer, trace);
        let mut writer =
            heads::request(&head.into(), client, self.changes(trusts, trace), &mut bytes);
        let body = match taken {
            None => Err(writer),
            Some(taken) => {
                // All data in one piece; no length is exceeded.
                let _ = writer.begin_piece(size as u64, &mut bytes);
                whole(head.framing, behind, |data| bytes.extend_from_slice(data));
                writer.end(&mut bytes);
                Ok(taken)
            }
        };
        let sent = Sent {
            bytes,
            upload: None,
            stream: None,
            body: size as u64,
            version: head.version,
            asked: Asked { is_head: head.method == Http1Method::Head, ..Asked::default() },
            takes_trailers: head.wants.trailers,
            // As elsewhere, where a body without a length is not kept.
            repeats: is_idempotent(&Method::from(head.method)) && head.framing != Framing::Chunked,
            waits: head.wants.continues,
            addresses: self.addresses_of(peer),
            sticky: self.sticky(Fields::Lines(head.fields), peer, trusts),
            io_activity: io_activity.clone(),
            is_unwatched: Cell::new(false),
        };
        Some((sent, body))
    }

    /// Forwards a request and passes the response on. Flushing the client's stream tells whether
    /// the client is gone.
    ///
    /// # Cancel safety
    ///
    /// A cancelled request ends the server's connection. The client's connection must end, too.
    pub async fn pass_on(
        &self,
        sent: &mut Sent,
        (additions, progress): (&Additions, &Progress),
        client: &mut impl Client,
        address: Option<IpAddr>,
        timer: &mut LimitTimer,
    ) -> Passed {
        if let Err(passed) = sent.begin(client).await {
            return passed;
        }
        let facts = RequestFacts {
            sticky: sent.sticky.as_deref(),
            client: address,
            addresses: sent.addresses,
            trace: additions.trace.as_ref(),
            entry: progress.entry.as_ref(),
        };
        let mut attempts = Attempts::new(self, facts);
        if let Some(lookup) = attempts.lookup() {
            if unless_gone(client, lookup).await.is_none() {
                return Passed::Cut;
            }
            attempts.choose();
        }
        let way = (&*sent, additions, progress);
        let mut out = Out::default();
        loop {
            let mut lease = match attempts.lease() {
                Ok(lease) => lease,
                Err(response) => return Passed::Answered(*response),
            };
            let outcome = (&mut out, &mut *timer);
            let attempt = self.attempt_raw(&mut lease, attempts.must_dial, way, client, outcome);
            let (failed, is_sent) = match attempt.await {
                Ok(begun) => {
                    lease.answered(begun.status);
                    return self.pass_body(way, lease, begun, (out.bytes, timer), client).await;
                }
                Err(Missed::ClientGone) => return Passed::Cut,
                Err(Missed::Failed(failed, is_sent)) => (failed, is_sent),
            };
            if let Some(refusal) = sent.refusal() {
                return out.answer(client, refusal).await;
            }
            if let Err(response) = attempts.failed(failed, sent.repeats || !is_sent) {
                return out.answer(client, *response).await;
            }
        }
    }

    /// Sends a request to a server, on an idle connection or on a new one, and writes the head of
    /// its response to `out`.
    async fn attempt_raw(
        &self,
        lease: &mut Lease,
        must_dial: bool,
        way: Way<'_>,
        client: &mut impl Client,
        (out, timer): (&mut Out, &mut LimitTimer),
    ) -> Result<Begun, Missed> {
        let sticky = lease.pool.group.rules.sticky.as_ref().zip(way.0.sticky.as_ref());
        out.cookie = sticky.and_then(|(sticky, client)| sticky.given(&lease.server, client));
        if !must_dial && let Some(connection) = lease.server.take_usable(lease.addresses).await {
            let connection = lease.connection.insert(connection);
            return self.ask_raw(connection, true, way, client, (out, timer)).await;
        }
        way.0.watch();
        // Rare cases are kept out of the future that each request has.
        let addresses = lease.addresses;
        let dialled = Box::pin(dial(&lease.pool.group, &lease.server, addresses, self.connect));
        let dialled = unless_gone(client, dialled).await.ok_or(Missed::ClientGone)?;
        let unsent = |error| Missed::Failed(FailedAttempt::unsent(error), false);
        let stream = dialled.map_err(unsent)?.stream;
        lease.dialled();
        let connection = lease.connection.insert(Box::new(Http1Connection::new(stream)));
        self.ask_raw(connection, false, way, client, (out, timer)).await
    }

    async fn ask_raw(
        &self,
        connection: &mut Http1Connection,
        was_idle: bool,
        (sent, additions, progress): Way<'_>,
        client: &mut impl Client,
        (out, timer): (&mut Out, &mut LimitTimer),
    ) -> Result<Begun, Missed> {
        let limit = self.response;
        let begun = time::now();
        let (mut due, mut at, mut interim) = (begun + limit, 0, 0);
        let mut moved = None;
        sent.give_to(connection);
        let answered = poll_fn(|cx| {
            let lost = |lost| Poll::Ready(Err(Err(lost)));
            let gone = Poll::Ready(Err(Ok(ClientGone)));
            loop {
                // A server may answer before it has read all of the request, and read no more.
                let written = match sent.stream {
                    None => connection.poll_send(cx, &sent.bytes, &mut at),
                    Some(_) => connection.poll_unsent(cx),
                };
                loop {
                    match out.poll_show(client, cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return gone,
                        Poll::Pending => break,
                    }
                    let way = (sent, additions, progress);
                    match begin(connection, way, out) {
                        Ok(Some(Head::Final(mut begun))) => {
                            begun.stays &= !matches!(written, Poll::Ready(Err(_)));
                            if written.is_pending() && sent.stream.is_none() {
                                connection.send_along(&sent.bytes[at..]);
                            }
                            return Poll::Ready(Ok(begun));
                        }
                        Ok(Some(Head::Interim)) => {
                            interim += 1;
                            if interim > MOST_INTERIM {
                                out.bytes.0.clear();
                                let what = "too many interim responses".to_owned();
                                return lost(SendFailure::Malformed(what));
                            }
                            continue;
                        }
                        Ok(None) => {}
                        Err(why) => return lost(why.into()),
                    }
                    match connection.poll_read(cx) {
                        Poll::Ready(Ok(0)) => return lost(SendFailure::at_end()),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return lost(SendFailure::Broken(error.into())),
                        Poll::Pending => break,
                    }
                }
                if let Poll::Ready(Err(error)) = written {
                    return lost(SendFailure::Broken(error.into()));
                }
                if sent.stream.is_none() {
                    break;
                }
                match client.poll_feed(cx, !out.bytes.0.is_empty()) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return gone,
                    Poll::Pending => break,
                }
            }
            if sent.is_unwatched.get() {
                ready!(timer.poll(cx, due.min(begun + UNWATCHED)));
                sent.watch();
            }
            if let Poll::Ready(Err(_)) = Pin::new(client.stream()).poll_flush(cx) {
                return gone;
            }
            // The time runs from the last byte of the request; for these its client has a limit.
            if sent.stream.is_some() && has_moved(connection, &mut moved) {
                due = time::now() + limit;
            }
            timer.poll(cx, due).map(|()| {
                // It has not even taken the interim responses.
                match out.bytes.0.is_empty() {
                    true => Err(Err(SendFailure::TimedOut)),
                    false => Err(Ok(ClientGone)),
                }
            })
        })
        .await;
        answered.map_err(|missed| match missed {
            Ok(ClientGone) => Missed::ClientGone,
            Err(SendFailure::TimedOut) => {
                let lost = SendFailure::TimedOut;
                Missed::Failed(FailedAttempt::lost(lost, false, limit), true)
            }
            Err(lost) => {
                let is_sent = match sent.stream {
                    None => at > 0,
                    Some(_) => !sent.take_back(connection),
                };
                Missed::Failed(FailedAttempt::lost(lost, was_idle, limit), is_sent)
            }
        })
    }

    /// Passes the body of a response on, after its head.
    async fn pass_body(
        &self,
        (sent, _, progress): Way<'_>,
        mut lease: Lease,
        mut begun: Begun,
        (mut out, timer): (WriteBuffer, &mut LimitTimer),
        client: &mut impl Client,
    ) -> Passed {
        let out = &mut out.0;
        let status = begun.status.as_u16();
        let mut may_splice = begun.is_plain;
        let has_begun = || progress.status.get() > 0;
        if sent.stream.is_some() && poll_fn(|cx| client.poll_begun(cx)).await.is_err() {
            return Passed::Cut;
        }
        let lost = loop {
            let Some(connection) = &mut lease.connection else { break Lost::Client };
            let step = match begun.take(&mut connection.read, out, &progress.body) {
                Ok(step) => step,
                Err(lost) => break lost,
            };
            if step != BodyProgress::Over {
                sent.watch();
            }
            match step {
                BodyProgress::Over => {
                    progress.status.set(status);
                    if begun.after == After::Closes {
                        progress.says_close.set(true);
                    }
                    if !begun.stays || !connection.read.is_empty() {
                        lease.connection = None;
                    }
                    // Before the client has it, so that its next request finds the connection.
                    lease.end();
                    // A client that ends its side now has all that it asked for.
                    sent.io_activity.ends_with_client.set(false);
                    let (is_last, mut at) = (progress.says_close.get(), 0);
                    let written = poll_fn(|cx| match is_last {
                        true => client.poll_write_last(cx, out, &mut at),
                        false => poll_write_all(client.stream(), cx, out, &mut at),
                    });
                    return match written.await {
                        Ok(()) => Passed::Whole,
                        Err(_) => Passed::Cut,
                    };
                }
                BodyProgress::Again => {}
                BodyProgress::More if has_begun() && !out.is_empty() => {}
                BodyProgress::More if has_begun() => {
                    let limit = (self.body, &mut *timer);
                    let length = begun.reader.run();
                    let passed = if may_splice && splice::is_for(connection, client, length) {
                        let mut left = length;
                        let passed =
                            splice::pass(connection, client, &mut left, &progress.body, limit);
                        let passed = passed.await;
                        // Without a pipe it is copied.
                        may_splice = left < length;
                        begun.skip(length - left);
                        passed
                    } else {
                        match more(connection, client, sent, limit).await {
                            Ok(0) => begun.end(),
                            outcome => outcome.map(drop),
                        }
                    };
                    if let Err(lost) = passed {
                        break lost;
                    }
                }
                // As long as the client has seen nothing, it can be told what is wrong.
                BodyProgress::More => {
                    match poll_fn(|cx| Poll::Ready(poll_more(connection, cx))).await {
                        Poll::Ready(Ok(0)) => match begun.end() {
                            Ok(()) => continue,
                            Err(lost) => break lost,
                        },
                        Poll::Ready(Ok(_)) if out.len() < PIECE => continue,
                        Poll::Ready(Err(lost)) => break lost,
                        Poll::Ready(Ok(_)) | Poll::Pending => {}
                    }
                }
            }
            if !out.is_empty() {
                progress.status.set(status);
                // What has arrived is not kept back for what has not.
                if write_all(client, out).await.is_err() {
                    break Lost::Client;
                }
                out.clear();
            }
        };
        if let Lost::Server(error) = lost {
            // The server has nothing to do with an upload that breaks off.
            match sent.refusal() {
                None => lease.cut_off(error),
                Some(refusal) if !has_begun() => return Passed::Answered(refusal),
                Some(_) => return Passed::Cut,
            }
            if !has_begun() {
                return Passed::Answered(reply::status(StatusCode::BAD_GATEWAY));
            }
        }
        Passed::Cut
    }
}

/// Waits for something as long as the client is there.
async fn unless_gone<T>(client: &mut impl Client, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        match Pin::new(client.stream()).poll_flush(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(None),
            _ => Poll::Pending,
        }
    })
    .await
}

/// The head of a response that was written for the client.
enum Head {
    /// Another one follows.
    Interim,
    Final(Begun),
}

/// Reads the head of a response, and writes that for the client to `out`; `None` if more bytes are
/// needed.
fn begin(
    connection: &mut Http1Connection,
    (sent, additions, progress): Way<'_>,
    Out { bytes: out, cookie, .. }: &mut Out,
) -> Result<Option<Head>, Refusal> {
    let out = &mut out.0;
    let bytes = connection.read.bytes();
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let head = match response(bytes, sent.asked, &LIMITS, &mut room)? {
        None => {
            connection.read.make_room(LARGEST);
            return Ok(None);
        }
        Some(ReadResponse::Final(head)) => head,
        Some(ReadResponse::Interim(head)) => {
            // The client was told by this server to continue.
            if head.status != StatusCode::CONTINUE && sent.version != Http1Version::Http10 {
                heads::interim(&head, additions, out);
            }
            let len = head.len;
            connection.read.consume(len);
            return Ok(Some(Head::Interim));
        }
        Some(ReadResponse::Switches(_)) => return Err(Refusal::UpgradeUnasked),
    };
    let length = match head.framing {
        Framing::None => Some(0),
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    // The rest of the request goes nowhere once the response is over.
    let is_over = length.is_some_and(|length| length <= (bytes.len() - head.len) as u64);
    let is_cut = is_over && sent.stream.as_ref().is_some_and(|it| !it.progress.is_over.get());
    let is_last = progress.is_last.get() || is_cut;
    progress.says_close.set(is_last);
    let shape = Shape {
        version: sent.version,
        asked: sent.asked,
        takes_trailers: sent.takes_trailers,
        is_last,
        cookie: cookie.as_ref(),
    };
    let writer = heads::response(&head, additions, shape, out);
    let begun = Begun {
        status: head.status,
        reader: BodyReader::new(head.framing),
        is_plain: matches!(head.framing, Framing::Length(_)) && !writer.drops_data(),
        writer: Some(writer),
        trailers: sent.takes_trailers.then(FieldLines::new),
        stays: head.after == After::Stays,
        after: After::Stays,
    };
    let len = head.len;
    connection.read.consume(len);
    Ok(Some(Head::Final(begun)))
}

/// Reads more bytes of a body, or its end.
fn poll_more(connection: &mut Http1Connection, cx: &mut Context<'_>) -> Poll<Result<usize, Lost>> {
    connection.poll_read(cx).map_err(Lost::Server)
}

/// Waits for more bytes of a body, or for its end. The rest of the request is sent meanwhile.
async fn more(
    connection: &mut Http1Connection,
    client: &mut impl Client,
    sent: &Sent,
    (limit, timer): (Duration, &mut LimitTimer),
) -> Result<usize, Lost> {
    let (mut due, mut moved) = (time::now() + limit, None);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(outcome) = poll_more(connection, cx) {
                return Poll::Ready(outcome);
            }
            match client.poll_feed(cx, true) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Lost::Client)),
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(_)) = Pin::new(client.stream()).poll_flush(cx) {
            return Poll::Ready(Err(Lost::Client));
        }
        // The server is not to blame as long as it gets more of the request.
        if sent.stream.is_some() && has_moved(connection, &mut moved) {
            due = time::now() + limit;
        }
        timer.poll(cx, due).map(|()| Err(Lost::Server(io::ErrorKind::TimedOut.into())))
    })
    .await
}

/// Whether the server has got more of a request since `before`, or the client has to send more.
fn has_moved(connection: &Http1Connection, before: &mut Option<u64>) -> bool {
    let sent = connection.sent_bytes();
    sent.is_none() || sent != std::mem::replace(before, sent)
}

/// Polls for data of an upload whose length is known, as long as the client is there.
fn poll_data(
    upload: &mut Upload,
    client: &mut impl Client,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Passed>> {
    loop {
        if let Poll::Ready(frame) = Pin::new(&mut *upload).poll_frame(cx) {
            // Only behind chunks there are other frames.
            let data = frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()));
            return Poll::Ready(data.transpose().map_err(|error| refusal(&error)));
        }
        match client.poll_feed(cx, false) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Passed::Cut)),
            Poll::Pending => break,
        }
    }
    match Pin::new(client.stream()).poll_flush(cx) {
        Poll::Ready(Err(_)) => Poll::Ready(Err(Passed::Cut)),
        _ => Poll::Pending,
    }
}

/// Answers a client whose upload has ended too early.
fn refusal(error: &UploadError) -> Passed {
    Passed::Answered(reply::status(error.status()))
}

/// Writes bytes to a client.
async fn write_all(client: &mut impl Client, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    poll_fn(|cx| poll_write_all(client.stream(), cx, bytes, &mut at)).await
}
