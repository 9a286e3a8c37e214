//! The body of a request that asks for messages. It means nothing to a channel, but the end of a
//! connection is seen only after the body, so the body is read and dropped while the messages are
//! sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::Body as _;
use superpoll_http::upload::{Upload, UploadError};

/// The rest of a body.
#[derive(Default)]
pub(super) struct Unread(Option<Box<Upload>>);

impl Unread {
    pub(super) fn new(body: Upload) -> Unread {
        Unread((!body.is_end_stream()).then(|| Box::new(body)))
    }

    /// Whether all of it was read.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_none()
    }

    /// Reads the bytes that are available. Ready if the body has ended too early, which is the end
    /// of its client, or is too large.
    ///
    /// A body that does not come at all does no harm: its client may still read.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<UploadError> {
        while let Some(body) = &mut self.0 {
            match Pin::new(&mut **body).poll_frame(cx) {
                Poll::Pending | Poll::Ready(Some(Err(UploadError::TimedOut(_)))) => break,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(error),
                Poll::Ready(None) => self.0 = None,
            }
        }
        Poll::Pending
    }
}
