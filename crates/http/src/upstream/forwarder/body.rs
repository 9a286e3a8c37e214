//! The body of a response on its way to a client that takes lines, behind its head.
//!
//! The rest of the request is sent meanwhile. What has arrived is not kept back for what has not;
//! but as long as the client has seen nothing of the response, it can be told what is wrong.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use superpoll_http1::{After, BodyWriter, FieldLines, Progress as BodyProgress};
use superpoll_rt::time;

use super::Forwarder;
use super::lost::{LimitTimer, Lost};
use super::splice;
use crate::progress::{Passed, Progress};
use crate::reply;
use crate::transport::poll_write_all;
use crate::upstream::client::LinesClient;
use crate::upstream::http1::Http1Connection;
use crate::upstream::pool::Lease;
use crate::upstream::request::ServerRequest;

/// The bytes of a response that are gathered before they are written.
const PIECE: usize = 16 << 10;

/// A response whose head is on its way to the client.
pub(in crate::upstream) struct Begun {
    pub(super) status: StatusCode,
    /// `None` once the end is written.
    pub(super) writer: Option<BodyWriter>,
    /// The body has as many bytes on both sides, and nothing between them.
    pub(super) is_plain: bool,
    /// The fields that follow the body, if the client reads them.
    pub(super) trailers: Option<FieldLines>,
    /// The fate of the client's connection, once the end is written.
    pub(super) after: After,
}

impl Begun {
    /// Takes what has come to be written to the client, up to some bytes, and counts its data.
    ///
    /// # Errors
    ///
    /// The body is malformed.
    fn take(
        &mut self,
        Http1Connection { read: from, reader, .. }: &mut Http1Connection,
        to: &mut Vec<u8>,
        count: &Cell<u64>,
    ) -> Result<BodyProgress, Lost> {
        let malformed = |what: String| Lost::Server(io::Error::other(what));
        let Begun { writer, trailers, after, .. } = self;
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
    fn skip(&mut self, connection: &mut Http1Connection, count: u64) {
        connection.reader.skip(count);
        if let Some(writer) = &mut self.writer {
            // It has the length of the reader, and writes nothing before data.
            let _ = writer.begin_piece(count, &mut Vec::new());
        }
    }
}

/// Ends the body with the server's side of the connection.
fn end(connection: &mut Http1Connection) -> Result<(), Lost> {
    connection.reader.end().map_err(|_| Lost::at_end())
}

impl Forwarder {
    /// Passes the body of a response on, after its head.
    pub(super) async fn pass_body(
        &self,
        (request, progress): (&ServerRequest, &Progress),
        mut lease: Lease,
        begun: &mut Begun,
        (out, timer): (&mut Vec<u8>, &mut LimitTimer),
        client: &mut impl LinesClient,
    ) -> Passed {
        let status = begun.status.as_u16();
        let mut may_splice = begun.is_plain;
        let has_begun = || progress.status.get() > 0;
        if request.stream.is_some() && poll_fn(|cx| client.poll_begun(cx)).await.is_err() {
            return Passed::Cut;
        }
        let lost = loop {
            let Some(connection) = &mut lease.connection else { break Lost::Client };
            let step = match begun.take(connection, out, &progress.body) {
                Ok(step) => step,
                Err(lost) => break lost,
            };
            if step != BodyProgress::Over {
                request.watch();
            }
            match step {
                BodyProgress::Over => {
                    progress.status.set(status);
                    if begun.after == After::Closes {
                        progress.says_close.set(true);
                    }
                    // Before the client has it, so that its next request finds the connection.
                    lease.end();
                    // A client that ends its side now has all that it asked for.
                    request.io_activity.ends_with_client.set(false);
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
                    let length = connection.reader.run();
                    let passed = if may_splice && splice::is_for(connection, client, length) {
                        let mut left = length;
                        let passed =
                            splice::pass(connection, client, &mut left, &progress.body, limit);
                        let passed = passed.await;
                        // Without a pipe it is copied.
                        may_splice = left < length;
                        begun.skip(connection, length - left);
                        passed
                    } else {
                        match more(connection, client, request, limit).await {
                            Ok(0) => end(connection),
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
                        Poll::Ready(Ok(0)) => match end(connection) {
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
            match request.refusal() {
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

/// Reads more bytes of a body, or its end.
fn poll_more(connection: &mut Http1Connection, cx: &mut Context<'_>) -> Poll<Result<usize, Lost>> {
    connection.expect_output();
    connection.poll_read(cx).map_err(Lost::Server)
}

/// Waits for more bytes of a body, or for its end. The rest of the request is sent meanwhile.
async fn more(
    connection: &mut Http1Connection,
    client: &mut impl LinesClient,
    request: &ServerRequest,
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
        if client.is_gone(cx) {
            return Poll::Ready(Err(Lost::Client));
        }
        // The server is not to blame as long as it gets more of the request.
        if request.stream.is_some() && has_moved(connection, &mut moved) {
            due = time::now() + limit;
        }
        timer.poll(cx, due).map(|()| Err(Lost::Server(io::ErrorKind::TimedOut.into())))
    })
    .await
}

/// Whether the server has got more of a request since `before`, or the client has to send more.
pub(super) fn has_moved(connection: &Http1Connection, before: &mut Option<u64>) -> bool {
    let sent = connection.sent_bytes();
    sent.is_none() || sent != std::mem::replace(before, sent)
}

/// Writes bytes to a client.
async fn write_all(client: &mut impl LinesClient, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    poll_fn(|cx| poll_write_all(client.stream(), cx, bytes, &mut at)).await
}
