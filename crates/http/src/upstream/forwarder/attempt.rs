//! One attempt to get an answer of a server: from a connection to the head of the response.
//!
//! Interim responses are passed on as they come (RFC 9110, section 15.2), each once the client has
//! taken the one before, and not to clients of HTTP/1.0. `100 Continue` is not, since this server
//! sends its own when a body is waited for. There are at most a hundred of them, within the limit
//! of time of the response.
//!
//! ```text
//!                    head of a response ----> interim: passed on, and another one
//!                           |
//!              +------------+------------+
//!              v                         v
//!     PASSING: its lines are      GIVEN: a map of fields, and a
//!     written for the client      body that reads the connection
//! ```
//!
//! A response is given that changes on its way by more than fields: it is compressed, or an error
//! that gets a page, or another protocol follows. So are all responses to clients that do not take
//! lines, and those of servers of HTTP/2.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{HeaderValue, Response, StatusCode, Version};
use superpoll_http1::{
    After, FieldLines, Framing, Refusal, Response as ReadResponse, ResponseHead, Room,
    Version as Http1Version, response,
};
use superpoll_rt::time;

use super::Forwarder;
use super::body::{Begun, has_moved};
use super::lost::LimitTimer;
use crate::answers::Additions;
use crate::body::Body;
use crate::buffer::{LARGEST, WriteBuffer};
use crate::message::{ReasonPhrase, header_map};
use crate::progress::{Passed, Progress};
use crate::transport::poll_write_all;
use crate::upstream::client::{Client, unless_gone};
use crate::upstream::dial::{Dialled, dial};
use crate::upstream::fastcgi::{is_overloaded, malformation};
use crate::upstream::fault::FailedAttempt;
use crate::upstream::heads::{self, Shape};
use crate::upstream::http1::{Http1Connection, LIMITS, MOST_INTERIM, SendFailure};
use crate::upstream::http2::{Head as Http2Head, Http2Connection};
use crate::upstream::incoming::Incoming;
use crate::upstream::pool::Lease;
use crate::upstream::request::ServerRequest;
use crate::upstream::websocket;

/// How long the end of a client's side goes unseen where watching for it would register the
/// connection with the poller. Most responses come sooner, and many connections have one request.
const UNWATCHED: Duration = Duration::from_millis(10);

/// The most interim responses of HTTP/2 that wait for their client. Further ones are dropped, as
/// any may be (RFC 9110, section 15.2).
const MOST_WAITING: usize = 8;

/// A request, the fields that are added to its response, and the state of that.
pub(in crate::upstream) type Way<'a> = (&'a ServerRequest, &'a Additions, &'a Progress);

/// The answer of a server.
pub(in crate::upstream) enum Answer {
    /// The lines of its head are there for the client.
    Passing(Begun),
    Given(Response<Incoming>),
}

/// The heads for the client.
#[derive(Default)]
pub(in crate::upstream) struct Out {
    /// Interim responses, or the head of the final one.
    pub(super) bytes: WriteBuffer,
    /// So many bytes of the interim responses have gone to the client. Another attempt continues
    /// there, so that none is cut off.
    shown: usize,
    /// The cookie that the final response gives.
    pub(super) cookie: Option<HeaderValue>,
    /// The answer, once it is there. It is large, and never moved.
    pub(in crate::upstream) answer: Option<Answer>,
}

impl Out {
    /// Writes the interim responses to the client.
    #[inline]
    pub(super) fn poll_show(
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
    pub(super) async fn answer(
        &mut self,
        client: &mut impl Client,
        response: Response<Body>,
    ) -> Passed {
        match poll_fn(|cx| self.poll_show(client, cx)).await {
            Ok(()) => Passed::Answered(response),
            Err(_) => Passed::Cut,
        }
    }
}

/// The reason for which no response is passed on.
pub(in crate::upstream) enum Missed {
    /// The client is gone.
    ClientGone,
    /// The request cannot be written for the server, which is not to blame.
    Unfit,
    /// The request asks for a WebSocket, which the server does not allow by HTTP/2.
    NoWebSockets,
    /// The request may have been sent, or not.
    Failed(FailedAttempt, IsSent),
}

/// Whether a server may have something of a request.
pub(in crate::upstream) type IsSent = bool;

impl Missed {
    fn lost(lost: SendFailure, was_idle: bool, limit: Duration, is_sent: IsSent) -> Missed {
        Missed::Failed(FailedAttempt::lost(lost, was_idle, limit), is_sent)
    }
}

impl Forwarder {
    /// Sends a request to a server, on an idle connection or on another one, and reads the head of
    /// its response.
    pub(super) async fn attempt(
        &self,
        lease: &mut Lease,
        must_dial: bool,
        way: Way<'_>,
        client: &mut impl Client,
        (out, timer): (&mut Out, &mut LimitTimer),
    ) -> Result<StatusCode, Missed> {
        let sticky = lease.pool.group.rules.sticky.as_ref().zip(way.0.sticky.as_ref());
        out.cookie = sticky.and_then(|(sticky, client)| sticky.given(&lease.server, client));
        let lifetime = lease.pool.group.config().lifetime;
        if !must_dial
            && let Some(connection) = lease.server.take_usable(lease.addresses, lifetime).await
        {
            let connection = (&mut **lease.connection.insert(connection), true);
            return ask(connection, way, client, (out, timer), self.response).await;
        }
        way.0.watch();
        let (server, addresses) = (lease.server.clone(), lease.addresses);
        if !must_dial && let Some(shared) = server.shared(addresses, lifetime) {
            let sent = send_shared((shared, true), way, client, (out, self.response));
            return Box::pin(sent).await;
        }
        // Rare cases are kept out of the future that each request has.
        let dialled = Box::pin(dial(&self.pool.group, &server, addresses, self.connect));
        let dialled = unless_gone(client, dialled).await.ok_or(Missed::ClientGone)?;
        let unsent = |error| Missed::Failed(FailedAttempt::unsent(error), false);
        let Dialled { stream, is_h2 } = dialled.map_err(unsent)?;
        lease.dialled();
        if !is_h2 {
            let connection = match way.0.records {
                None => Http1Connection::new(stream),
                Some(_) => Http1Connection::fastcgi(stream),
            };
            let connection = lease.connection.insert(Box::new(connection));
            return ask((connection, false), way, client, (out, timer), self.response).await;
        }
        let opened = Box::pin(Http2Connection::open(stream)).await;
        let opened =
            opened.map_err(|_| Missed::lost(SendFailure::Unsent, false, self.response, false))?;
        self.pool.share(&server, addresses, &opened);
        Box::pin(send_shared((opened, false), way, client, (out, self.response))).await
    }
}

/// Sends a request on a connection of HTTP/2, which was there before or not, and waits for the head
/// of the response.
async fn send_shared(
    (connection, was_idle): (Http2Connection, bool),
    way: Way<'_>,
    client: &mut impl Client,
    (out, limit): (&mut Out, Duration),
) -> Result<StatusCode, Missed> {
    let lost = |lost: SendFailure| {
        let is_sent = !matches!(lost, SendFailure::Unsent | SendFailure::Refused(_));
        Missed::lost(lost, was_idle, limit, is_sent)
    };
    let mut is_first = true;
    loop {
        match send_to(&connection, way, client, (out, limit), lost).await? {
            Ok(status) => return Ok(status),
            // The server may have told only then how many streams it allows.
            Err(SendFailure::Refused(_)) if std::mem::take(&mut is_first) => {}
            Err(why) => return Err(lost(why)),
        }
    }
}

/// Sends a request once.
async fn send_to(
    connection: &Http2Connection,
    (request, additions, _): Way<'_>,
    client: &mut impl Client,
    (out, limit): (&mut Out, Duration),
    lost: impl Fn(SendFailure) -> Missed,
) -> Result<Result<StatusCode, SendFailure>, Missed> {
    let mut made = request.to_h2(connection.is_encrypted()).ok_or(Missed::Unfit)?;
    let mut proof = None;
    if request.upgrade.as_deref().is_some_and(websocket::is_asked_for) {
        let allows = unless_gone(client, connection.allows_websockets()).await;
        if !allows.ok_or(Missed::ClientGone)? {
            return Err(match connection.is_usable() {
                true => Missed::NoWebSockets,
                false => lost(SendFailure::Unsent),
            });
        }
        proof = Some(websocket::ask(&mut made).ok_or(Missed::Unfit)?);
    }
    let begun = unless_gone(client, connection.begin(made, limit)).await;
    let mut reply = match begun.ok_or(Missed::ClientGone)? {
        Ok(reply) => reply,
        Err((why, body)) => {
            request.put_back(body);
            return Ok(Err(why));
        }
    };
    let (mut interim, mut waiting, mut last) = (0, VecDeque::new(), None);
    let answered = poll_fn(|cx| {
        loop {
            let shown = out.poll_show(client, cx);
            if matches!(shown, Poll::Ready(Err(_))) {
                return Poll::Ready(Err(None));
            }
            if shown.is_ready() {
                if let Some(head) = waiting.pop_front() {
                    show(&head, (request, additions), &mut out.bytes.0);
                    continue;
                }
                if let Some(last) = last.take() {
                    return Poll::Ready(Ok(last));
                }
            }
            if last.is_none()
                && let Poll::Ready(head) = reply.poll(cx)
            {
                match head.map_err(Some)? {
                    Http2Head::Final(response) => last = Some(response),
                    Http2Head::Interim(head) => {
                        interim += 1;
                        if interim > MOST_INTERIM {
                            let what = "too many interim responses".to_owned();
                            return Poll::Ready(Err(Some(SendFailure::Malformed(what))));
                        }
                        // The server's frames are read whether the client takes these or not.
                        if waiting.len() < MOST_WAITING {
                            waiting.push_back(head);
                        }
                    }
                }
                continue;
            }
            match client.poll_feed(cx, !out.bytes.0.is_empty()) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(None)),
                Poll::Pending => break,
            }
        }
        if client.is_gone(cx) { Poll::Ready(Err(None)) } else { Poll::Pending }
    })
    .await;
    let mut response = match answered {
        Ok(response) => response,
        Err(None) => return Err(Missed::ClientGone),
        Err(Some(why)) => return Ok(Err(why)),
    };
    proof.into_iter().for_each(|proof| websocket::consent(&mut response, proof));
    let status = response.status();
    out.answer = Some(Answer::Given(response.map(Incoming::Http2)));
    Ok(Ok(status))
}

/// Appends an interim response of HTTP/2.
fn show(
    head: &Response<()>,
    (request, additions): (&ServerRequest, &Additions),
    out: &mut Vec<u8>,
) {
    let is_for_client =
        head.status() != StatusCode::CONTINUE && request.version != Http1Version::Http10;
    if !is_for_client {
        return;
    }
    // Its lines are read again, so that there is one way to the client.
    let mut lines = format!("HTTP/1.1 {}\r\n", head.status()).into_bytes();
    for (name, value) in head.headers() {
        lines.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    lines.extend(b"\r\n");
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    // What is no head of HTTP/1.1 is left out, as any of them may be.
    if let Ok(Some(ReadResponse::Interim(head))) =
        response(&lines, request.asked, &LIMITS, &mut room)
    {
        heads::interim(&head, additions, out);
    }
}

/// Sends a request on a connection of HTTP/1, which was idle before or not, and reads the head of
/// the response.
pub(in crate::upstream) async fn ask<C: Client>(
    (connection, was_idle): (&mut Http1Connection, bool),
    (request, additions, progress): Way<'_>,
    client: &mut C,
    (out, timer): (&mut Out, &mut LimitTimer),
    limit: Duration,
) -> Result<StatusCode, Missed> {
    let begun = time::now();
    let (mut due, mut at, mut interim) = (begun + limit, 0, 0);
    let mut moved = None;
    request.give_to(connection);
    let answered = poll_fn(|cx| {
        let lost = |lost| Poll::Ready(Err(Some(lost)));
        let gone = Poll::Ready(Err(None));
        loop {
            // A server may answer before it has read all of the request, and read no more.
            let written = match request.stream {
                None => connection.poll_send(cx, &request.bytes, &mut at),
                Some(_) => connection.poll_unsent(cx),
            };
            loop {
                match out.poll_show(client, cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return gone,
                    Poll::Pending => break,
                }
                let way = (request, additions, progress);
                match begin::<C>(connection, way, out) {
                    Ok(Some(Head::Final(status))) => {
                        if written.is_pending() && request.stream.is_none() {
                            connection.send_along(&request.bytes[at..]);
                        }
                        return Poll::Ready(Ok(status));
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
                    Poll::Ready(Err(error)) => {
                        return lost(send_failure(error));
                    }
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(Err(error)) = written {
                return lost(SendFailure::Broken(error.into()));
            }
            if request.stream.is_none() {
                break;
            }
            match client.poll_feed(cx, !out.bytes.0.is_empty()) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return gone,
                Poll::Pending => break,
            }
        }
        if request.is_unwatched.get() {
            ready!(timer.poll(cx, due.min(begun + UNWATCHED)));
            request.watch();
        }
        if client.is_gone(cx) {
            return gone;
        }
        if !C::TAKES_LINES && !out.bytes.0.is_empty() {
            // The connection has a limit for a client that takes its time.
            due = time::now() + limit;
            return Poll::Pending;
        }
        // The time runs from the last byte of the request; for these its client has a limit.
        if request.stream.is_some() && has_moved(connection, &mut moved) {
            due = time::now() + limit;
        }
        timer.poll(cx, due).map(|()| {
            // It has not even taken the interim responses.
            match out.bytes.0.is_empty() {
                true => Err(Some(SendFailure::TimedOut)),
                false => Err(None),
            }
        })
    })
    .await;
    answered.map_err(|missed| match missed {
        None => Missed::ClientGone,
        Some(SendFailure::TimedOut) => Missed::lost(SendFailure::TimedOut, false, limit, true),
        Some(lost) => {
            let is_sent = match request.stream {
                None => at > 0 && !matches!(lost, SendFailure::Overloaded),
                Some(_) => !request.take_back(connection),
            };
            Missed::lost(lost, was_idle, limit, is_sent)
        }
    })
}

/// Returns the reason for which there is no response, by the error of reading it.
fn send_failure(error: io::Error) -> SendFailure {
    match malformation(&error) {
        Some(what) => SendFailure::Malformed(what),
        None if is_overloaded(&error) => SendFailure::Overloaded,
        None => SendFailure::Broken(error.into()),
    }
}

/// The head of a response.
enum Head {
    /// Another one follows.
    Interim,
    Final(StatusCode),
}

/// Reads the head of a response, and writes that for the client to `out`; `None` if more bytes are
/// needed.
fn begin<C: Client>(
    connection: &mut Http1Connection,
    (request, additions, progress): Way<'_>,
    Out { bytes: out, cookie, answer, .. }: &mut Out,
) -> Result<Option<Head>, Refusal> {
    let out = &mut out.0;
    let bytes = connection.read.bytes();
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut names = WriteBuffer::default();
    let mut room = Room::new(&mut names.0);
    let head = match response(bytes, request.asked, &LIMITS, &mut room)? {
        None => {
            connection.read.make_room(LARGEST);
            return Ok(None);
        }
        Some(ReadResponse::Final(head) | ReadResponse::Switches(head)) => head,
        Some(ReadResponse::Interim(head)) => {
            // The client was told by this server to continue.
            if head.status != StatusCode::CONTINUE && request.version != Http1Version::Http10 {
                heads::interim(&head, additions, out);
            }
            let len = head.len;
            connection.read.consume(len);
            return Ok(Some(Head::Interim));
        }
    };
    let (status, len, framing, after) = (head.status, head.len, head.framing, head.after);
    *answer = Some(if !C::TAKES_LINES || request.changes(&head) {
        let reads_trailers = request.reads_trailers();
        Answer::Given(to_response(&head, bytes, reads_trailers).map(|()| Incoming::Http1))
    } else {
        let length = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        // The rest of the request goes nowhere once the response is over.
        let is_over = length.is_some_and(|length| length <= (bytes.len() - len) as u64);
        let is_cut =
            is_over && request.stream.as_ref().is_some_and(|it| !it.progress.is_over.get());
        let is_last = progress.is_last.get() || is_cut;
        progress.says_close.set(is_last);
        let shape = Shape {
            version: request.version,
            asked: request.asked,
            takes_trailers: request.takes_trailers,
            is_last,
            cookie: cookie.as_ref(),
        };
        let writer = heads::response(&head, additions, shape, out);
        Answer::Passing(Begun {
            status,
            is_plain: matches!(framing, Framing::Length(_)) && !writer.drops_data(),
            writer: Some(writer),
            trailers: request.takes_trailers.then(FieldLines::new),
            after: After::Stays,
        })
    });
    connection.read.consume(len);
    connection.begin_body(framing, after);
    Ok(Some(Head::Final(status)))
}

/// Returns the head of a response as its client gets it, which was read at the beginning of some
/// bytes. With a change of protocols its `Upgrade` stays.
fn to_response(head: &ResponseHead<'_>, bytes: &[u8], reads_trailers: bool) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.version_mut() = match head.version {
        Http1Version::Http10 => Version::HTTP_10,
        Http1Version::Http11 => Version::HTTP_11,
    };
    let passed = heads::passed_back(head, reads_trailers);
    *response.headers_mut() = header_map(passed, &bytes[..head.len]);
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        for value in head.fields.values("upgrade") {
            let value = HeaderValue::from_bytes(value.as_bytes());
            value.into_iter().for_each(|value| _ = response.headers_mut().append(UPGRADE, value));
        }
    }
    let reason = head.reason.as_bytes();
    let usual = head.status.canonical_reason().unwrap_or_default();
    if !reason.is_empty() && reason != usual.as_bytes() {
        response.extensions_mut().insert(ReasonPhrase(Bytes::copy_from_slice(reason)));
    }
    response
}

#[cfg(test)]
mod tests;
