//! A request's way to a server and back.
//!
//! The rules for servers, retries and limits are those of the way through hyper, see `forwarder`.
//! What cannot be passed on here is left to that: a request to which nothing was answered, with the
//! bytes that it came with, or the response of a server whose head is irregular.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, Response, StatusCode};
use hyper::rt::Write;
use superpoll_rt::time::{Sleep, sleep};

use super::chunks::{Chunks, Next};
use super::connection::RawConnection;
use super::heads;
use super::request::{Parsed, RequestHead, room};
use super::response::{self, Length};
use crate::body::Body;
use crate::reply;
use crate::upstream::dial::dial;
use crate::upstream::fault::Outcome;
use crate::upstream::forwarder::{FailedAttempt, Forwarder, RequestContext};
use crate::upstream::http1::{Http1Connection, SendFailure};
use crate::upstream::outgoing::Outgoing;
use crate::upstream::pool::Lease;

/// The bytes of a response that are gathered before they are written.
const PIECE: usize = 16 << 10;

/// What has become of a request.
pub(crate) enum Passed {
    /// Its response was passed on, to the end.
    Whole { status: u16, body: u64 },
    /// Its response has broken off, or its client is gone; 0 if there was no response yet.
    Cut { status: u16, body: u64 },
    /// Nothing was answered, and nothing was sent that may not be sent again: hyper answers it.
    Undone,
    /// hyper answers it with this.
    Answered(Response<Body>),
}

/// A request on its way.
pub(crate) struct Sent {
    /// The head for the server.
    bytes: Vec<u8>,
    is_head: bool,
    /// The client's connection ends with the response.
    pub(crate) is_last: Cell<bool>,
    /// The status of the response that is on its way to the client, or 0, and the bytes of its body.
    pub(crate) status: Cell<u16>,
    pub(crate) body: Cell<u64>,
}

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
    Failed(FailedAttempt),
    /// The head is irregular. The connection was idle before or not; so much time is left for it.
    Irregular(bool, Duration),
}

impl Missed {
    fn lost(lost: SendFailure, was_idle: bool, limit: Duration) -> Missed {
        Missed::Failed(FailedAttempt::lost(lost, was_idle, limit))
    }
}

/// A limit on the time that something may take.
struct Limit(Duration, Option<Sleep>);

impl Limit {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(self.1.get_or_insert_with(|| sleep(self.0))).poll(cx)
    }

    fn again(&mut self) {
        if let Some(timer) = &mut self.1 {
            timer.reset(Instant::now() + self.0);
        }
    }
}

impl Forwarder {
    /// Prepares a regular request.
    pub(crate) fn prepare(
        &self,
        head: &RequestHead<'_, '_>,
        forwarded: &[u8],
        is_last: bool,
    ) -> Sent {
        let mut bytes = Vec::with_capacity(head.len + forwarded.len() + 128);
        heads::request(head, forwarded, self.host.as_ref(), &mut bytes);
        let (status, body) = (Cell::new(0), Cell::new(0));
        Sent { bytes, is_head: head.is_head, is_last: Cell::new(is_last), status, body }
    }

    /// Forwards a request and passes the response on. Flushing the client's stream tells whether the
    /// client is gone.
    ///
    /// # Cancel safety
    ///
    /// A cancelled request ends the server's connection, and the client's has to end as well.
    pub(crate) async fn pass_on(
        &self,
        sent: &Sent,
        client: &mut (impl Write + Unpin),
        address: Option<IpAddr>,
    ) -> Passed {
        let group = &self.pool.group;
        let Some(mut index) = self.pool.choose(address, &[]) else { return Passed::Undone };
        let (mut tried, mut left, mut must_dial) = (Vec::new(), self.retries, false);
        loop {
            let mut lease = Lease::new(self.pool.clone(), index, None, self.route.clone());
            let mut out = Vec::with_capacity(1024);
            let failed = match self.attempt_raw(&mut lease, must_dial, sent, client, &mut out).await
            {
                Ok(begun) => {
                    group.worked(index);
                    return self.pass_body(sent, lease, begun, out, client).await;
                }
                Err(Missed::ClientGone) => return Passed::Cut { status: 0, body: 0 },
                Err(Missed::Failed(failed)) => failed,
                Err(Missed::Irregular(was_idle, left)) => {
                    let passed = self.pass_irregular(lease, sent.is_head, was_idle, left);
                    match unless_gone(client, passed).await {
                        Some(Ok(response)) => {
                            group.worked(index);
                            return Passed::Answered(response);
                        }
                        Some(Err(failed)) => failed,
                        None => return Passed::Cut { status: 0, body: 0 },
                    }
                }
            };
            let status = failed.status();
            let FailedAttempt { fault, was_idle, may_go_on } = failed;
            if was_idle && !must_dial {
                must_dial = true;
                continue;
            }
            group.failed(index);
            tried.push(index);
            let other = match may_go_on && left > 0 {
                true => self.pool.choose(address, &tried),
                false => None,
            };
            let Some(other) = other else {
                group.report_failure(index, &self.route, &fault, Outcome::Answered(status));
                return Passed::Answered(reply::status(status));
            };
            group.report_failure(index, &self.route, &fault, Outcome::Retried);
            (index, must_dial) = (other, false);
            left -= 1;
        }
    }

    /// Sends a request to a server, on an idle connection or on a new one, and writes the head of
    /// its response to `out`.
    async fn attempt_raw(
        &self,
        lease: &mut Lease,
        must_dial: bool,
        sent: &Sent,
        client: &mut (impl Write + Unpin),
        out: &mut Vec<u8>,
    ) -> Result<Begun, Missed> {
        if !must_dial {
            let taken = poll_fn(|cx| Poll::Ready(lease.pool.take_raw(lease.index, cx))).await;
            if let Some(connection) = taken {
                return self.ask_raw(lease.raw.insert(connection), true, sent, client, out).await;
            }
        }
        // Rare cases are kept out of the future that each request has.
        let dialled = Box::pin(dial(&lease.pool.group, lease.index, None, self.connect));
        let dialled = unless_gone(client, dialled).await.ok_or(Missed::ClientGone)?;
        let stream = dialled.map_err(|error| Missed::Failed(FailedAttempt::unsent(error)))?.stream;
        let connection = lease.raw.insert(Box::new(RawConnection::new(stream)));
        self.ask_raw(connection, false, sent, client, out).await
    }

    async fn ask_raw(
        &self,
        connection: &mut RawConnection,
        was_idle: bool,
        sent: &Sent,
        client: &mut (impl Write + Unpin),
        out: &mut Vec<u8>,
    ) -> Result<Begun, Missed> {
        let limit = self.response;
        let broken =
            |error: io::Error| Missed::lost(SendFailure::Broken(error.into()), was_idle, limit);
        connection.write_all(&sent.bytes).await.map_err(broken)?;
        let mut timer = Limit(limit, None);
        let begun = Instant::now();
        let irregular =
            || Poll::Ready(Err(Missed::Irregular(was_idle, limit.saturating_sub(begun.elapsed()))));
        poll_fn(|cx| {
            loop {
                if !connection.read.is_empty() {
                    match begin(connection, sent, out) {
                        Parsed::Regular(begun) => return Poll::Ready(Ok(begun)),
                        Parsed::Irregular => return irregular(),
                        Parsed::Partial if connection.read.is_full() => return irregular(),
                        Parsed::Partial => {}
                    }
                }
                match connection.poll_read(cx) {
                    Poll::Ready(Ok(0)) => {
                        let what = "connection closed before message completed";
                        let error = io::Error::new(io::ErrorKind::UnexpectedEof, what);
                        return Poll::Ready(Err(broken(error)));
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(error))),
                    Poll::Pending => break,
                }
            }
            if let Poll::Ready(Err(_)) = Pin::new(&mut *client).poll_flush(cx) {
                return Poll::Ready(Err(Missed::ClientGone));
            }
            timer.poll(cx).map(|()| Err(Missed::lost(SendFailure::TimedOut, false, limit)))
        })
        .await
    }

    /// Passes the body of a response on, behind its head.
    async fn pass_body(
        &self,
        sent: &Sent,
        mut lease: Lease,
        begun: Begun,
        mut out: Vec<u8>,
        client: &mut (impl Write + Unpin),
    ) -> Passed {
        let status = begun.status.as_u16();
        sent.status.set(status);
        let (mut body, mut rest) = (0, Rest::of(begun.length));
        let mut limit = Limit(self.body, None);
        let mut has_begun = false;
        let lost = loop {
            let Some(connection) = &mut lease.raw else { break Lost::Client };
            let step = rest.take(connection, &mut out, &mut body);
            sent.body.set(body);
            match step {
                Step::Over => {
                    // hyper does not use a connection again behind trailers either.
                    if !begun.stays || rest.has_trailers() || !connection.read.is_empty() {
                        lease.raw = None;
                    }
                    // Before the client has it, so that its next request finds the connection.
                    lease.end();
                    return match write_all(client, &out).await {
                        Ok(()) => Passed::Whole { status, body },
                        Err(_) => Passed::Cut { status, body },
                    };
                }
                Step::Irregular => break Lost::Server(io::Error::other("a chunk is malformed")),
                Step::Again => {}
                Step::More if has_begun && !out.is_empty() => {}
                Step::More if has_begun => {
                    if let Err(lost) = more(connection, client, &mut limit).await {
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
                // What has come is not kept back for what has not.
                if write_all(client, &out).await.is_err() {
                    break Lost::Client;
                }
                out.clear();
                has_begun = true;
            }
        };
        if let Lost::Server(error) = lost {
            lease.cut_off(error);
            if !has_begun {
                return Passed::Answered(reply::status(StatusCode::BAD_GATEWAY));
            }
        }
        Passed::Cut { status, body }
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
        let (stream, read) = raw.into_parts();
        let before = Bytes::copy_from_slice(read.bytes());
        let opened = Http1Connection::replay(stream, before).await;
        let mut connection = Box::new(opened.map_err(|_| lost(SendFailure::Unsent))?);
        let response = connection.send(&mut request.ok(), left).await.map_err(lost)?;
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
async fn unless_gone<T>(
    client: &mut (impl Write + Unpin),
    future: impl Future<Output = T>,
) -> Option<T> {
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
fn begin(connection: &mut RawConnection, sent: &Sent, out: &mut Vec<u8>) -> Parsed<Begun> {
    let mut room = room();
    let head = match response::parse(connection.read.bytes(), sent.is_head, &mut room) {
        Parsed::Regular(head) => head,
        Parsed::Partial => return Parsed::Partial,
        Parsed::Irregular => return Parsed::Irregular,
    };
    heads::response(&head, sent.is_last.get(), out);
    let begun = Begun { status: head.status, length: head.length, stays: !head.closes };
    let len = head.len;
    connection.read.consume(len);
    Parsed::Regular(begun)
}

/// The part of a body that has not come.
pub(super) enum Rest {
    Known(u64),
    Chunked(Chunks),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The body has ended.
    Over,
    /// There may be more in the same bytes.
    Again,
    /// More bytes of the server are needed.
    More,
    Irregular,
}

impl Rest {
    pub(super) fn of(length: Length) -> Rest {
        match length {
            Length::None => Rest::Known(0),
            Length::Known(length) => Rest::Known(length),
            Length::Chunked => Rest::Chunked(Chunks::new()),
        }
    }

    /// Takes the next data of some bytes, if there are any. Returns how many bytes are used up.
    pub(super) fn step(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> (usize, Step) {
        match self {
            Rest::Known(left) => {
                let length =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                if length > 0 {
                    data(&bytes[..length]);
                }
                *left -= length as u64;
                (length, if *left == 0 { Step::Over } else { Step::More })
            }
            Rest::Chunked(chunks) => match chunks.next(bytes) {
                Next::Data(place) => {
                    data(&bytes[place.clone()]);
                    (place.end, Step::Again)
                }
                Next::More(used) => (used, Step::More),
                Next::Over(used) => (used, Step::Over),
                Next::Irregular => (0, Step::Irregular),
            },
        }
    }

    /// Whether fields have followed the body.
    fn has_trailers(&self) -> bool {
        matches!(self, Rest::Chunked(chunks) if chunks.has_trailers())
    }

    /// Takes what has come to be written to the client, and counts its data.
    fn take(&mut self, from: &mut RawConnection, to: &mut Vec<u8>, count: &mut u64) -> Step {
        let is_chunked = matches!(self, Rest::Chunked(_));
        loop {
            let (used, step) = self.step(from.read.bytes(), |data| {
                if is_chunked {
                    // Writing to memory does not fail.
                    let _ = write!(to, "{:x}\r\n", data.len());
                }
                to.extend_from_slice(data);
                if is_chunked {
                    to.extend_from_slice(b"\r\n");
                }
                *count += data.len() as u64;
            });
            from.read.consume(used);
            match step {
                Step::Again if to.len() < PIECE => {}
                Step::Over if is_chunked => {
                    to.extend_from_slice(b"0\r\n\r\n");
                    return step;
                }
                _ => return step,
            }
        }
    }
}

/// The end of an exchange before its time.
enum Lost {
    Client,
    Server(io::Error),
}

/// Reads more bytes of a body.
fn poll_more(connection: &mut RawConnection, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
    let outcome = match ready!(connection.poll_read(cx)) {
        Ok(0) => {
            let what = "end of file before message length reached";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
        }
        outcome => outcome.map(drop),
    };
    Poll::Ready(outcome.map_err(Lost::Server))
}

/// Waits for more bytes of a body.
async fn more(
    connection: &mut RawConnection,
    client: &mut (impl Write + Unpin),
    limit: &mut Limit,
) -> Result<(), Lost> {
    limit.again();
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = poll_more(connection, cx) {
            return Poll::Ready(outcome);
        }
        if let Poll::Ready(Err(_)) = Pin::new(&mut *client).poll_flush(cx) {
            return Poll::Ready(Err(Lost::Client));
        }
        limit.poll(cx).map(|()| Err(Lost::Server(io::ErrorKind::TimedOut.into())))
    })
    .await
}

/// Writes bytes to a client.
async fn write_all(client: &mut (impl Write + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    poll_fn(|cx| {
        while !bytes.is_empty() {
            match ready!(Pin::new(&mut *client).poll_write(cx, bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => bytes = &bytes[count..],
            }
        }
        Pin::new(&mut *client).poll_flush(cx)
    })
    .await
}
