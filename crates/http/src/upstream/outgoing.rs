//! The body of a forwarded request.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::fields;
use super::spool::SpoolFile;
use crate::files::pieces::Pieces;
use crate::upload::{Upload, UploadError};

/// The progress of an upload while it is sent.
#[derive(Default)]
pub(super) struct UploadProgress {
    /// The reason for which the upload has ended too early.
    pub fault: Cell<Option<UploadError>>,
    /// Frames that were sent.
    pub frames: Cell<u64>,
    pub is_over: Cell<bool>,
}

impl UploadProgress {
    /// Whether the upload has ended too early.
    pub(super) fn is_interrupted(&self) -> bool {
        let fault = self.fault.take();
        let is_interrupted = fault.is_some();
        self.fault.set(fault);
        is_interrupted
    }
}

/// The body of a forwarded request.
pub(super) enum Outgoing {
    /// In memory.
    Memory(Bytes),
    /// Sent as it comes. `ahead` was taken before, and not sent.
    Upload { upload: Box<Upload>, ahead: Bytes, report: Rc<UploadProgress> },
    /// In a file.
    File { pieces: Box<Pieces>, ahead: Bytes, report: Rc<UploadProgress>, _file: SpoolFile },
}

impl Outgoing {
    /// Sent as it comes.
    pub(super) fn upload(upload: Upload) -> Outgoing {
        let report = Rc::new(UploadProgress::default());
        Outgoing::Upload { upload: Box::new(upload), ahead: Bytes::new(), report }
    }

    /// In a file, with so many bytes.
    pub(super) fn file(file: SpoolFile, length: u64) -> Outgoing {
        let pieces = Box::new(Pieces::of_file(file.file.clone(), length));
        let report = Rc::new(UploadProgress::default());
        Outgoing::File { pieces, ahead: Bytes::new(), report, _file: file }
    }

    /// Puts data back that was taken last.
    pub(super) fn put_back(&mut self, data: Bytes) {
        match self {
            _ if data.is_empty() => {}
            Outgoing::Memory(bytes) => *bytes = data,
            Outgoing::Upload { ahead, .. } | Outgoing::File { ahead, .. } => *ahead = data,
        }
    }

    pub(super) fn report(&self) -> Option<Rc<UploadProgress>> {
        match self {
            Outgoing::Memory(_) => None,
            Outgoing::Upload { report, .. } | Outgoing::File { report, .. } => Some(report.clone()),
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
        let (upload, ahead, report) = match self.get_mut() {
            Outgoing::Memory(bytes) if bytes.is_empty() => return Poll::Ready(None),
            Outgoing::Memory(bytes) => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
            }
            Outgoing::File { ahead, .. } if !ahead.is_empty() => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(ahead)))));
            }
            Outgoing::File { pieces, report, .. } => {
                let frame = ready!(Pin::new(&mut **pieces).poll_frame(cx));
                report.frames.set(report.frames.get() + 1);
                report.is_over.set(pieces.is_end_stream());
                return Poll::Ready(frame.map(|frame| {
                    frame.map_err(|error| {
                        report.fault.set(Some(UploadError::Broken(error.into())));
                        Interrupted
                    })
                }));
            }
            Outgoing::Upload { upload, ahead, report } => (upload, ahead, report),
        };
        if !ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(ahead)))));
        }
        match Pin::new(&mut **upload).poll_frame(cx) {
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
                // Nobody need ask again once it is known that a body is over.
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
            Outgoing::Memory(bytes) => bytes.is_empty(),
            Outgoing::Upload { upload, ahead, .. } => ahead.is_empty() && upload.is_end_stream(),
            Outgoing::File { pieces, ahead, .. } => ahead.is_empty() && pieces.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Memory(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Outgoing::File { pieces, ahead, .. } => {
                let rest = pieces.size_hint().exact().unwrap_or(0);
                SizeHint::with_exact(rest + ahead.len() as u64)
            }
            Outgoing::Upload { upload, ahead, .. } => match upload.size_hint().exact() {
                Some(rest) => SizeHint::with_exact(rest + ahead.len() as u64),
                None => SizeHint::default(),
            },
        }
    }
}

/// Says that a body ends here; the reason is in its report. A server of HTTP/2 is told that the
/// request is cancelled.
#[derive(thiserror::Error, Debug)]
#[error("the client's upload has ended before its end")]
pub(super) struct Interrupted;
