//! The body of a response by HTTP/2, and the reason for which it ends too early.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

use super::tunnel::Tunnel;
use super::{Awaited, SendFailure};
use crate::upstream::outgoing::{Interrupted, UploadProgress};

/// Returns the length of a body, if it is announced.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body of a response. A request whose body of the response is dropped before its end is
/// cancelled.
pub(in crate::upstream) struct Http2Body {
    received: RecvStream,
    /// The rest of a known length.
    left: Option<u64>,
    has_all_data: bool,
    /// The stream to the server, if the request has asked for a tunnel.
    tunnel: Option<SendStream<Bytes>>,
    /// Cancels the request when it is dropped.
    cancels: Option<oneshot::Sender<()>>,
    /// The body of the request, if it is sent as it comes.
    upload: Option<Rc<UploadProgress>>,
    awaited: Awaited,
}

impl Http2Body {
    pub(super) fn new(
        received: RecvStream,
        left: Option<u64>,
        (tunnel, cancels): (Option<SendStream<Bytes>>, Option<oneshot::Sender<()>>),
        upload: Option<Rc<UploadProgress>>,
        awaited: Awaited,
    ) -> Http2Body {
        let mut body =
            Http2Body { received, left, has_all_data: false, tunnel, cancels, upload, awaited };
        if body.is_end_stream() {
            body.end();
        }
        body
    }

    pub(in crate::upstream) fn is_end_stream(&self) -> bool {
        self.received.is_end_stream()
    }

    pub(in crate::upstream) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Returns the frames of the request that were sent as they came.
    pub(in crate::upstream) fn sent_frames(&self) -> u64 {
        self.upload.as_ref().map_or(0, |upload| upload.frames.get())
    }

    /// Returns the stream of a response that agrees to a tunnel.
    pub(in crate::upstream) fn into_tunnel(self) -> Option<Tunnel> {
        Some(Tunnel::new(self.tunnel?, self.received, self.awaited))
    }

    /// Lets the rest of the request go on.
    fn end(&mut self) {
        self.cancels.take().map(|cancels| cancels.send(()));
    }

    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        while !self.has_all_data {
            match ready!(self.received.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.awaited.has_heard();
                    // The piece is passed on before the next one is asked for.
                    let _ = self.received.flow_control().release_capacity(data.len());
                    if data.is_empty() && !self.is_end_stream() {
                        continue;
                    }
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    if self.is_end_stream() {
                        self.end();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return self.broken(error),
                None => self.has_all_data = true,
            }
        }
        match ready!(self.received.poll_trailers(cx)) {
            Ok(trailers) => {
                self.awaited.has_heard();
                self.end();
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) => self.broken(error),
        }
    }

    /// Ends the body: no more of it arrives.
    fn broken(&mut self, error: h2::Error) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.upload.as_ref().is_some_and(|upload| upload.is_interrupted()) {
            // The stream was reset by this side then.
            return Poll::Ready(Some(Err(io::Error::other(Interrupted))));
        }
        // All of it is there, and the server wants no more of the request, for instance.
        if self.left == Some(0) {
            self.end();
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err(match StreamReset::of(&error) {
            Some(reset) => io::Error::other(reset),
            None => io::Error::other(error),
        })))
    }
}

/// A server has reset a stream, with this code (RFC 9113, section 7).
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("the server has reset the stream with code {0}")]
pub struct StreamReset(pub u32);

impl StreamReset {
    /// The server has not begun to work on the request.
    pub(super) const REFUSED: StreamReset = StreamReset(7);

    fn of(error: &h2::Error) -> Option<StreamReset> {
        let is_reset = error.is_reset() && error.is_remote();
        Some(StreamReset(error.reason().filter(|_| is_reset)?.into()))
    }

    /// Returns the reason for which there is no response.
    pub(super) fn failure(error: h2::Error) -> SendFailure {
        SendFailure::Broken(match StreamReset::of(&error) {
            Some(reset) => reset.into(),
            None => error.into(),
        })
    }

    /// Whether the server has given the request up, as at the end of its deadline.
    pub(in crate::upstream) fn is_cancel(self) -> bool {
        self.0 == u32::from(Reason::CANCEL)
    }
}
