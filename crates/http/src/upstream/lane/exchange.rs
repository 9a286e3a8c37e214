//! A request's way to a server and back.
//!
//! The rules for servers, retries and limits are those of other requests, see `forwarder`. A
//! handler gets a request to which nothing was answered.
//!
//! Interim responses are passed on as they come (RFC 9110, section 15.2), each once the client has
//! taken the one before. `100 Continue` is not, since no request of the lane asks for it. There are
//! at most a hundred of them, within the limit of time of the response.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use superpoll_http1::{
    After, Asked, BodyReader, BodyWriter, FieldLines, Framing, Method as Http1Method,
    Progress as BodyProgress, Refusal, RequestHead, Response as ReadResponse, Room, response,
};
use superpoll_rt::time;

use super::heads::{self, ClientFacts};
use super::lost::{LimitTimer, Lost};
use super::request::{Parsed, whole};
use super::splice::{self, Client};
use crate::answers::Additions;
use crate::body::Body;
use crate::buffer::{LARGEST, ReadBuffer, SIZE, WriteBuffer};
use crate::io_activity::IoActivity;
use crate::log::Entry;
use crate::reply;
use crate::trace::RequestTrace;
use crate::transport::poll_write_all;
use crate::upstream::dial::dial;
use crate::upstream::fault::Outcome;
use crate::upstream::fault::{self, FailedAttempt};
use crate::upstream::forwarder::{Forwarder, is_idempotent};
use crate::upstream::http1::{Http1Connection, LIMITS, MOST_INTERIM, SendFailure};
use crate::upstream::pool::Lease;

/// The bytes of a response that are gathered before they are written.
const PIECE: usize = 16 << 10;

/// How long the end of a client's side goes unseen where watching for it would register the
/// connection with the poller. Most responses come sooner, and many connections have one request.
const UNWATCHED: Duration = Duration::from_millis(10);

/// The outcome of a request.
pub enum Passed {
    /// Its response was passed on, to the end.
    Whole,
    /// Its response has broken off, or its client is gone, maybe before there was a response.
    Cut,
    /// Nothing was answered, and nothing was sent that may not be sent again: a handler answers it.
    Undone,
    /// It is answered with this.
    Answered(Response<Body>),
}

/// A request on its way.
pub struct Sent {
    /// The head and the body for the server.
    bytes: Vec<u8>,
    /// The bytes of the body.
    pub body: u64,
    asked: Asked,
    /// The client reads fields that follow the body of the response.
    takes_trailers: bool,
    /// It may be sent again.
    repeats: bool,
    /// The events on the client's connection.
    io_activity: Rc<IoActivity>,
    /// The request ends with the client's side, which is not watched yet.
    is_unwatched: Cell<bool>,
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

    /// Watches the client's side from now on, if the request ends with it.
    fn watch(&self) {
        if self.is_unwatched.take() {
            self.io_activity.ends_with_client.set(true);
        }
    }
}

/// The state of an answer on its way to the client.
#[derive(Default)]
pub struct Progress {
    /// The client's connection is to end with the response.
    pub is_last: Cell<bool>,
    /// The head of the response says so.
    pub says_close: Cell<bool>,
    /// The status of the response that is on its way to the client, or 0.
    pub status: Cell<u16>,
    /// The bytes of its body so far.
    pub body: Cell<u64>,
    /// The request's line of the access log, if there is a log.
    pub entry: Option<Rc<Entry>>,
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
        let Begun { reader, writer, trailers, .. } = self;
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
                        writer.end_with(trailers, to);
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
}

impl Out {
    /// Writes the interim responses to the client.
    fn poll_show(
        &mut self,
        client: &mut impl Client,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.bytes.0.is_empty() {
            ready!(poll_write_all(client, cx, &self.bytes.0, &mut self.shown))?;
            self.bytes.0.clear();
            self.shown = 0;
        }
        Poll::Ready(Ok(()))
    }
}

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
    /// Prepares a regular request, with its body of at most `most` bytes at the beginning of
    /// `behind`. Returns the length of the body there, too.
    pub fn prepare(
        &self,
        head: &RequestHead<'_>,
        (behind, most): (&[u8], u64),
        (client, is_of_trusted_proxy): (&ClientFacts, bool),
        io_activity: &Rc<IoActivity>,
        trace: Option<&RequestTrace>,
    ) -> Parsed<(Sent, usize)> {
        let mut size = 0;
        let taken = match head.framing {
            Framing::Length(length) if length > most.min((SIZE - head.len) as u64) => {
                return Parsed::Irregular;
            }
            framing => whole(framing, behind, |data| size += data.len()),
        };
        let taken = match taken {
            Parsed::Regular(taken) if size as u64 <= most => taken,
            Parsed::Partial if size as u64 <= most => return Parsed::Partial,
            _ => return Parsed::Irregular,
        };
        let mut bytes = Vec::with_capacity(head.len + size + 256);
        let trusts = self.trusts || is_of_trusted_proxy;
        if trusts {
            trace.into_iter().for_each(RequestTrace::believe);
        }
        let mut body = heads::request(head, client, self.changes(trusts, trace), &mut bytes);
        // All data in one piece; no length is exceeded.
        let _ = body.begin_piece(size as u64, &mut bytes);
        whole(head.framing, behind, |data| bytes.extend_from_slice(data));
        body.end(&mut bytes);
        let sent = Sent {
            bytes,
            body: size as u64,
            asked: Asked { is_head: head.method == Http1Method::Head, ..Asked::default() },
            takes_trailers: head.wants.trailers,
            // As elsewhere, where a body without a length is not kept.
            repeats: is_idempotent(&Method::from(head.method)) && head.framing != Framing::Chunked,
            io_activity: io_activity.clone(),
            is_unwatched: Cell::new(false),
        };
        Parsed::Regular((sent, taken))
    }

    /// Forwards a request and passes the response on. Flushing the client's stream tells whether
    /// the client is gone.
    ///
    /// # Cancel safety
    ///
    /// A cancelled request ends the server's connection. The client's connection must end, too.
    pub async fn pass_on(
        &self,
        way: Way<'_>,
        client: &mut impl Client,
        address: Option<IpAddr>,
        timer: &mut LimitTimer,
    ) -> Passed {
        let (sent, additions, group) = (way.0, way.1, &self.pool.group);
        let trace = additions.trace.as_ref();
        let Some(mut server) = self.pool.choose(address, &[]) else { return Passed::Undone };
        let (mut tried, mut left, mut must_dial) = (Vec::new(), self.retries, false);
        let mut out = Out::default();
        loop {
            let (route, entry) = (self.route.clone(), way.2.entry.clone());
            let mut lease = Lease::new(self.pool.clone(), server.clone(), None, route, entry);
            lease.trace = trace.cloned();
            let outcome = (&mut out, &mut *timer);
            let attempt = self.attempt_raw(&mut lease, must_dial, way, client, outcome).await;
            let (failed, is_sent) = match attempt {
                Ok(begun) => {
                    lease.answered(begun.status);
                    return self.pass_body(way, lease, begun, (out.bytes, timer), client).await;
                }
                Err(Missed::ClientGone) => return Passed::Cut,
                Err(Missed::Failed(failed, is_sent)) => (failed, is_sent),
            };
            let status = failed.status();
            let FailedAttempt { fault, was_idle, may_go_on } = failed;
            let may_repeat = sent.repeats || !is_sent;
            if was_idle && !must_dial {
                if may_repeat {
                    must_dial = true;
                    continue;
                }
            } else {
                group.attempt_failed(&server, &fault);
                self.pool.note_tried(&server, &fault, &mut tried);
            }
            let other = match may_go_on && may_repeat && left > 0 {
                true => self.pool.choose(address, &tried),
                false => None,
            };
            let Some(other) = other else {
                let outcome = Outcome::Answered(status);
                group.report_failure(&server, &self.route, &fault, outcome, trace);
                let rest = poll_fn(|cx| out.poll_show(client, cx));
                return match rest.await {
                    Ok(()) => Passed::Answered(fault::response(status)),
                    Err(_) => Passed::Cut,
                };
            };
            group.report_failure(&server, &self.route, &fault, Outcome::Retried, trace);
            (server, must_dial) = (other, false);
            left -= 1;
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
        if !must_dial && let Some(connection) = lease.server.take_usable(None).await {
            let connection = lease.connection.insert(connection);
            return self.ask_raw(connection, true, way, client, (out, timer)).await;
        }
        way.0.watch();
        // Rare cases are kept out of the future that each request has.
        let dialled = Box::pin(dial(&lease.pool.group, &lease.server, None, self.connect));
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
        let (due, mut at) = (begun + limit, 0);
        let mut interim = 0;
        poll_fn(|cx| {
            let lost = |lost, at| {
                let failed = FailedAttempt::lost(lost, was_idle, limit);
                Poll::Ready(Err(Missed::Failed(failed, at > 0)))
            };
            let broken = |error: io::Error, at| lost(SendFailure::Broken(error.into()), at);
            // A server may answer before it has read all of the request, and read no more.
            let written = connection.poll_send(cx, &sent.bytes, &mut at);
            loop {
                match out.poll_show(client, cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Missed::ClientGone)),
                    Poll::Pending => break,
                }
                match begin(connection, (sent, additions, progress), &mut out.bytes.0) {
                    Ok(Some(Head::Final(mut begun))) => {
                        begun.stays &= matches!(written, Poll::Ready(Ok(())));
                        if written.is_pending() {
                            connection.send_along(&sent.bytes[at..]);
                        }
                        return Poll::Ready(Ok(begun));
                    }
                    Ok(Some(Head::Interim)) => {
                        interim += 1;
                        if interim > MOST_INTERIM {
                            out.bytes.0.clear();
                            let what = "too many interim responses".to_owned();
                            return lost(SendFailure::Malformed(what), at);
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(why) => return lost(why.into(), at),
                }
                match connection.poll_read(cx) {
                    Poll::Ready(Ok(0)) => return lost(SendFailure::at_end(), at),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return broken(error, at),
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(Err(error)) = written {
                return broken(error, at);
            }
            if sent.is_unwatched.get() {
                ready!(timer.poll(cx, due.min(begun + UNWATCHED)));
                sent.watch();
            }
            if let Poll::Ready(Err(_)) = Pin::new(&mut *client).poll_flush(cx) {
                return Poll::Ready(Err(Missed::ClientGone));
            }
            timer.poll(cx, due).map(|()| {
                // It has not even taken the interim responses.
                if !out.bytes.0.is_empty() {
                    return Err(Missed::ClientGone);
                }
                let failed = FailedAttempt::lost(SendFailure::TimedOut, false, limit);
                Err(Missed::Failed(failed, true))
            })
        })
        .await
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
                        false => poll_write_all(client, cx, out, &mut at),
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
                        match more(connection, client, limit).await {
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
            lease.cut_off(error);
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
        match Pin::new(&mut *client).poll_flush(cx) {
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
    out: &mut Vec<u8>,
) -> Result<Option<Head>, Refusal> {
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
            // No request of the lane asks for a 100.
            if head.status != StatusCode::CONTINUE {
                heads::interim(&head, additions, out);
            }
            let len = head.len;
            connection.read.consume(len);
            return Ok(Some(Head::Interim));
        }
        Some(ReadResponse::Switches(_)) => return Err(Refusal::UpgradeUnasked),
    };
    let is_last = progress.is_last.get();
    progress.says_close.set(is_last);
    let shape = (sent.asked, sent.takes_trailers, is_last);
    let writer = heads::response(&head, additions, shape, out);
    let begun = Begun {
        status: head.status,
        reader: BodyReader::new(head.framing),
        is_plain: matches!(head.framing, Framing::Length(_)) && !writer.drops_data(),
        writer: Some(writer),
        trailers: sent.takes_trailers.then(FieldLines::new),
        stays: head.after == After::Stays,
    };
    let len = head.len;
    connection.read.consume(len);
    Ok(Some(Head::Final(begun)))
}

/// Reads more bytes of a body, or its end.
fn poll_more(connection: &mut Http1Connection, cx: &mut Context<'_>) -> Poll<Result<usize, Lost>> {
    connection.poll_read(cx).map_err(Lost::Server)
}

/// Waits for more bytes of a body, or for its end.
async fn more(
    connection: &mut Http1Connection,
    client: &mut impl Client,
    (limit, timer): (Duration, &mut LimitTimer),
) -> Result<usize, Lost> {
    let due = time::now() + limit;
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = poll_more(connection, cx) {
            return Poll::Ready(outcome);
        }
        if let Poll::Ready(Err(_)) = Pin::new(&mut *client).poll_flush(cx) {
            return Poll::Ready(Err(Lost::Client));
        }
        timer.poll(cx, due).map(|()| Err(Lost::Server(io::ErrorKind::TimedOut.into())))
    })
    .await
}

/// Answers with a file: the lines of its fields, and its bytes unless the request was `HEAD`.
pub async fn pass_file(
    (lines, bytes): (&FieldLines, &Bytes),
    is_head: bool,
    additions: &Additions,
    progress: &Progress,
    client: &mut impl Client,
) -> Passed {
    let mut out = WriteBuffer::default();
    progress.says_close.set(progress.is_last.get());
    let asked = Asked { is_head, ..Asked::default() };
    let content = (lines, bytes.len() as u64);
    let body = heads::file(content, additions, (asked, progress.is_last.get()), &mut out.0);
    progress.status.set(200);
    let (head, bytes) = (&out.0, if body.drops_data() { &[][..] } else { bytes });
    let mut at = 0;
    let written = poll_fn(|cx| {
        while at < head.len() + bytes.len() {
            // The transport joins short pieces, and sends a file region without a copy.
            let parts = [
                IoSlice::new(head.get(at..).unwrap_or_default()),
                IoSlice::new(&bytes[at.saturating_sub(head.len())..]),
            ];
            let parts = if at < head.len() { &parts[..] } else { &parts[1..] };
            match ready!(Pin::new(&mut *client).poll_write_vectored(cx, parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => at += count,
            }
            progress.body.set(at.saturating_sub(head.len()) as u64);
        }
        Pin::new(&mut *client).poll_flush(cx)
    })
    .await;
    match written {
        Ok(()) => Passed::Whole,
        Err(_) => Passed::Cut,
    }
}

/// Writes bytes to a client.
async fn write_all(client: &mut impl Client, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    poll_fn(|cx| poll_write_all(client, cx, bytes, &mut at)).await
}
