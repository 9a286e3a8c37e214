//! A request's way to a server and back.
//!
//! The rules for servers, retries and limits are those of the way through hyper, see `forwarder`.
//! hyper gets a request to which nothing was answered, with the bytes that it came with, and the
//! response of a server whose head is irregular.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, Response, StatusCode};
use superpoll_rt::time;

use super::body::{self, LAST_CHUNK, Length, Rest, Step};
use super::buffer::{SIZE, WriteBuffer};
use super::connection::RawConnection;
use super::connection::{LimitTimer, Lost};
use super::heads::{self, ClientFacts};
use super::request::{Parsed, RequestHead, room};
use super::response;
use super::splice::{self, Client};
use crate::answers::Additions;
use crate::body::Body;
use crate::io_activity::IoActivity;
use crate::log::Entry;
use crate::reply;
use crate::trace::RequestTrace;
use crate::transport::poll_write_all;
use crate::upstream::dial::dial;
use crate::upstream::fault::Outcome;
use crate::upstream::fault::{self, FailedAttempt};
use crate::upstream::forwarder::{Forwarder, RequestContext, is_idempotent};
use crate::upstream::http1::{Http1Connection, SendFailure};
use crate::upstream::outgoing::Outgoing;
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
    /// Nothing was answered, and nothing was sent that may not be sent again: hyper answers it.
    Undone,
    /// hyper answers it with this.
    Answered(Response<Body>),
}

/// A request on its way.
pub struct Sent {
    /// The head and the body for the server.
    bytes: Vec<u8>,
    /// The bytes of the body.
    pub body: u64,
    is_head: bool,
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

/// The head of a response that is on its way to the client.
struct Begun {
    status: StatusCode,
    length: Length,
    /// The server's connection can be used again.
    stays: bool,
}

/// The reason for which no response is passed on.
enum Missed {
    /// The client is gone.
    ClientGone,
    /// The request may have been sent, or not.
    Failed(FailedAttempt, IsSent),
    /// The head is irregular. The connection was idle before or not; so much time is left for it.
    Irregular(bool, Duration),
}

/// Whether a server may have something of a request.
type IsSent = bool;

impl Forwarder {
    /// Prepares a regular request, with its body of at most `most` bytes at the beginning of
    /// `behind`. Returns the length of the body there, too.
    pub fn prepare(
        &self,
        head: &RequestHead<'_, '_>,
        (behind, most): (&[u8], u64),
        (client, is_of_trusted_proxy): (&ClientFacts, bool),
        io_activity: &Rc<IoActivity>,
        trace: Option<&RequestTrace>,
    ) -> Parsed<(Sent, usize)> {
        let mut size = 0;
        let taken = match head.length {
            Length::Known(length) if length > most.min((SIZE - head.len) as u64) => {
                return Parsed::Irregular;
            }
            length => body::whole(length, behind, |data| size += data.len()),
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
        heads::request(head, client, self.changes(trusts, trace), &mut bytes);
        match head.length {
            Length::Chunked => {
                let mut data = Vec::with_capacity(size);
                body::whole(head.length, behind, |piece| data.extend_from_slice(piece));
                if !data.is_empty() {
                    body::chunk(&data, &mut bytes);
                }
                bytes.extend_from_slice(LAST_CHUNK);
            }
            Length::None | Length::Known(_) => bytes.extend_from_slice(&behind[..taken]),
        }
        let sent = Sent {
            bytes,
            body: size as u64,
            is_head: head.method == Method::HEAD,
            // As through hyper, where a body without a length is not kept.
            repeats: is_idempotent(&head.method) && head.length != Length::Chunked,
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
        loop {
            let (route, entry) = (self.route.clone(), way.2.entry.clone());
            let mut lease = Lease::new(self.pool.clone(), server.clone(), None, route, entry);
            lease.trace = trace.cloned();
            let mut out = WriteBuffer::default();
            let outcome = (&mut out.0, &mut *timer);
            let attempt = self.attempt_raw(&mut lease, must_dial, way, client, outcome).await;
            let (failed, is_sent) = match attempt {
                Ok(begun) => {
                    lease.answered(begun.status);
                    return self.pass_body(way, lease, begun, (out, timer), client).await;
                }
                Err(Missed::ClientGone) => return Passed::Cut,
                Err(Missed::Failed(failed, is_sent)) => (failed, is_sent),
                Err(Missed::Irregular(was_idle, left)) => {
                    sent.watch();
                    let passed = Box::pin(self.pass_irregular(lease, sent.is_head, was_idle, left));
                    match unless_gone(client, passed).await {
                        Some(Ok(response)) => return Passed::Answered(response),
                        Some(Err(failed)) => (failed, true),
                        None => return Passed::Cut,
                    }
                }
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
                return Passed::Answered(fault::response(status));
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
        (out, timer): (&mut Vec<u8>, &mut LimitTimer),
    ) -> Result<Begun, Missed> {
        if !must_dial {
            let taken = poll_fn(|cx| Poll::Ready(lease.server.take_raw(cx))).await;
            if let Some(connection) = taken {
                let connection = lease.raw.insert(connection);
                return self.ask_raw(connection, true, way, client, (out, timer)).await;
            }
        }
        way.0.watch();
        // Rare cases are kept out of the future that each request has.
        let dialled = Box::pin(dial(&lease.pool.group, &lease.server, None, self.connect));
        let dialled = unless_gone(client, dialled).await.ok_or(Missed::ClientGone)?;
        let unsent = |error| Missed::Failed(FailedAttempt::unsent(error), false);
        let stream = dialled.map_err(unsent)?.stream;
        lease.dialled();
        let connection = lease.raw.insert(Box::new(RawConnection::new(stream)));
        self.ask_raw(connection, false, way, client, (out, timer)).await
    }

    async fn ask_raw(
        &self,
        connection: &mut RawConnection,
        was_idle: bool,
        (sent, additions, progress): Way<'_>,
        client: &mut impl Client,
        (out, timer): (&mut Vec<u8>, &mut LimitTimer),
    ) -> Result<Begun, Missed> {
        let limit = self.response;
        let begun = time::now();
        let (due, mut at) = (begun + limit, 0);
        poll_fn(|cx| {
            let lost = |lost, at| {
                let failed = FailedAttempt::lost(lost, was_idle, limit);
                Poll::Ready(Err(Missed::Failed(failed, at > 0)))
            };
            let broken = |error: io::Error, at| lost(SendFailure::Broken(error.into()), at);
            // A server may answer before it has read all of the request, and read no more.
            let written = connection.poll_send(cx, &sent.bytes, &mut at);
            loop {
                if !connection.read.is_empty() {
                    let is_full = connection.read.is_full();
                    match begin(connection, (sent, additions, progress), out) {
                        Parsed::Regular(mut begun) => {
                            begun.stays &= matches!(written, Poll::Ready(Ok(())));
                            if written.is_pending() {
                                connection.send_along(&sent.bytes[at..]);
                            }
                            return Poll::Ready(Ok(begun));
                        }
                        Parsed::Partial if !is_full => {}
                        Parsed::Irregular | Parsed::Partial => {
                            // Behind a failure there is no rest to send, and no other request.
                            if !matches!(written, Poll::Ready(Ok(()))) {
                                connection.send_along(&sent.bytes[at..]);
                            }
                            let left = due.saturating_duration_since(time::now());
                            return Poll::Ready(Err(Missed::Irregular(was_idle, left)));
                        }
                    }
                }
                match connection.poll_read(cx) {
                    Poll::Ready(Ok(0)) => {
                        let what = "connection closed before message completed";
                        return broken(io::Error::new(io::ErrorKind::UnexpectedEof, what), at);
                    }
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
        begun: Begun,
        (mut out, timer): (WriteBuffer, &mut LimitTimer),
        client: &mut impl Client,
    ) -> Passed {
        let out = &mut out.0;
        let status = begun.status.as_u16();
        let (mut rest, mut may_splice) = (Rest::from_length(begun.length), true);
        let has_begun = || progress.status.get() > 0;
        let lost = loop {
            let Some(connection) = &mut lease.raw else { break Lost::Client };
            let step = rest.take(&mut connection.read, out, PIECE, &progress.body);
            if step != Step::Over {
                sent.watch();
            }
            match step {
                Step::Over => {
                    progress.status.set(status);
                    // hyper does not use a connection again after trailers either.
                    if !begun.stays || rest.has_trailers() || !connection.read.is_empty() {
                        lease.raw = None;
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
                Step::Irregular => break Lost::Server(io::Error::other("a chunk is malformed")),
                Step::Again => {}
                Step::More if has_begun() && !out.is_empty() => {}
                Step::More if has_begun() => {
                    let limit = (self.body, &mut *timer);
                    let passed = match &mut rest {
                        Rest::Known(left)
                            if may_splice && splice::is_for(connection, client, *left) =>
                        {
                            let before = *left;
                            let passed =
                                splice::pass(connection, client, left, &progress.body, limit).await;
                            // Without a pipe it is copied.
                            may_splice = *left < before;
                            passed
                        }
                        _ => more(connection, client, limit).await,
                    };
                    if let Err(lost) = passed {
                        break lost;
                    }
                }
                // As long as the client has seen nothing, it can be told what is wrong.
                Step::More => match poll_fn(|cx| Poll::Ready(poll_more(connection, cx))).await {
                    Poll::Ready(Ok(())) if out.len() < PIECE => continue,
                    Poll::Ready(Err(lost)) => break lost,
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                },
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

    /// Lets hyper read a response whose head is irregular.
    async fn pass_irregular(
        &self,
        mut lease: Lease,
        is_head: bool,
        was_idle: bool,
        left: Duration,
    ) -> Result<Response<Body>, FailedAttempt> {
        let lost = |lost| FailedAttempt::lost(lost, was_idle, self.response);
        let raw = lease.raw.take().ok_or_else(|| lost(SendFailure::Unsent))?;
        let method = if is_head { Method::HEAD } else { Method::GET };
        let request = Request::builder().method(method).header(HOST, "a").body(Outgoing::empty());
        let (stream, read, unsent) = raw.into_parts();
        let before = Bytes::copy_from_slice(read.bytes());
        let opened = Http1Connection::replay(stream, before, unsent).await;
        let mut connection = Box::new(opened.map_err(|_| lost(SendFailure::Unsent))?);
        let response = connection.send(&mut request.ok(), left).await.map_err(lost)?;
        lease.answered(response.status());
        lease.connection = Some(connection);
        let mut answered = Some((response, lease));
        let passed = poll_fn(|cx| match answered.take() {
            Some((response, lease)) => {
                Poll::Ready(self.pass(cx, response, lease, &RequestContext::default(), None))
            }
            None => Poll::Pending,
        });
        Ok(passed.await)
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

/// Reads the head of a response, and writes that for the client to `out`.
fn begin(
    connection: &mut RawConnection,
    (sent, additions, progress): Way<'_>,
    out: &mut Vec<u8>,
) -> Parsed<Begun> {
    let (mut room, mut lower) = (room(), WriteBuffer::default());
    let bytes = connection.read.bytes();
    let head = match response::parse(bytes, sent.is_head, &mut room, &mut lower.0) {
        Parsed::Regular(head) => head,
        Parsed::Partial => return Parsed::Partial,
        Parsed::Irregular => return Parsed::Irregular,
    };
    progress.says_close.set(progress.is_last.get());
    heads::response(&head, additions, progress.is_last.get(), out);
    let begun = Begun { status: head.status, length: head.length, stays: !head.closes };
    let len = head.len;
    connection.read.consume(len);
    Parsed::Regular(begun)
}

/// Reads more bytes of a body.
fn poll_more(connection: &mut RawConnection, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
    Poll::Ready(match ready!(connection.poll_read(cx)) {
        Ok(0) => Err(Lost::at_end()),
        outcome => outcome.map(drop).map_err(Lost::Server),
    })
}

/// Waits for more bytes of a body.
async fn more(
    connection: &mut RawConnection,
    client: &mut impl Client,
    (limit, timer): (Duration, &mut LimitTimer),
) -> Result<(), Lost> {
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

/// Answers with a file: the lines of its fields, and its bytes unless the request was HEAD.
pub async fn pass_file(
    (lines, bytes): (&[u8], Option<&Bytes>),
    additions: &Additions,
    progress: &Progress,
    client: &mut impl Client,
) -> Passed {
    let mut out = WriteBuffer::default();
    progress.says_close.set(progress.is_last.get());
    heads::file(lines, additions, progress.is_last.get(), &mut out.0);
    progress.status.set(200);
    let (head, bytes) = (&out.0, bytes.map_or(&[][..], |bytes| bytes));
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
