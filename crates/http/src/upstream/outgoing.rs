//! The body of a forwarded request.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::fields;
use crate::upload::{Upload, UploadError};

/// The progress of an upload while hyper sends it.
#[derive(Default)]
pub(super) struct UploadProgress {
    /// The reason for which the upload has ended too early.
    pub fault: Cell<Option<UploadError>>,
    /// The task that waits for more of it; `None` if hyper's own task does.
    pub waker: RefCell<Option<Waker>>,
    /// Frames that were sent.
    pub frames: Cell<u64>,
    pub is_over: Cell<bool>,
}

impl UploadProgress {
    /// Remembers a task, to be woken when there is more.
    pub(super) fn remember(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }
}

/// The body of a forwarded request.
pub(super) enum Outgoing {
    /// Sent as often as necessary.
    Memory { bytes: Bytes, trailers: Option<Box<HeaderMap>> },
    /// Sent as it comes.
    Upload { upload: Box<Upload>, report: Rc<UploadProgress> },
}

impl Outgoing {
    pub(super) fn empty() -> Outgoing {
        Outgoing::Memory { bytes: Bytes::new(), trailers: None }
    }

    /// Sent as it comes.
    pub(super) fn upload(upload: Upload) -> Outgoing {
        Outgoing::Upload { upload: Box::new(upload), report: Rc::new(UploadProgress::default()) }
    }

    /// Returns the same body once more, if possible.
    pub(super) fn again(&self) -> Option<Outgoing> {
        match self {
            Outgoing::Memory { bytes, trailers } => {
                Some(Outgoing::Memory { bytes: bytes.clone(), trailers: trailers.clone() })
            }
            Outgoing::Upload { .. } => None,
        }
    }

    pub(super) fn report(&self) -> Option<Rc<UploadProgress>> {
        match self {
            Outgoing::Memory { .. } => None,
            Outgoing::Upload { report, .. } => Some(report.clone()),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        let (upload, report) = match self.get_mut() {
            Outgoing::Memory { bytes, trailers } => {
                if !bytes.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
                }
                return Poll::Ready(trailers.take().map(|mut trailers| {
                    fields::trailers(&mut trailers);
                    Ok(Frame::trailers(*trailers))
                }));
            }
            Outgoing::Upload { upload, report } => (upload, report),
        };
        let waker = report.waker.borrow();
        let polled = match &*waker {
            Some(waker) => Pin::new(&mut **upload).poll_frame(&mut Context::from_waker(waker)),
            None => Pin::new(&mut **upload).poll_frame(cx),
        };
        match polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                report.is_over.set(true);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    fields::trailers(trailers);
                }
                report.frames.set(report.frames.get() + 1);
                // hyper does not ask again once it knows that a body is over.
                report.is_over.set(upload.is_end_stream());
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                report.fault.set(Some(error));
                Poll::Ready(Some(Err(Interrupted)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Memory { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            Outgoing::Upload { upload, .. } => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Memory { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Outgoing::Upload { upload, .. } => upload.size_hint(),
        }
    }
}

/// Tells hyper that a body ends here; the reason is in its report.
#[derive(Debug)]
pub(super) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client's upload has ended before its end")
    }
}

impl std::error::Error for Interrupted {}
