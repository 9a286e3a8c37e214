//! The body of a request, within limits of size and time.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use superpoll_rt::time::{self, Sleep, sleep};

use crate::io_activity::IoActivity;
use crate::log::Entry;

/// The reason for which a request's body did not arrive in full.
#[derive(Debug)]
pub enum UploadError {
    /// It is larger than it may be.
    TooLarge {
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// No more of it arrived for this long.
    TimedOut(Duration),
    /// The connection ended, or the bytes on it are not HTTP.
    Broken(hyper::Error),
    /// It ended before the length that was announced.
    Short,
}

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UploadError::TooLarge { limit } => {
                write!(f, "the body of the request has more than {limit} bytes")
            }
            UploadError::TimedOut(limit) => {
                write!(f, "no more of the request's body came for {limit:?}")
            }
            UploadError::Broken(error) => write!(f, "reading the request's body: {error}"),
            UploadError::Short => f.write_str("the request's body is shorter than its length"),
        }
    }
}

impl std::error::Error for UploadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UploadError::Broken(error) => Some(error),
            _ => None,
        }
    }
}

impl From<UploadError> for io::Error {
    fn from(error: UploadError) -> io::Error {
        let kind = match error {
            UploadError::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            UploadError::TimedOut(_) => io::ErrorKind::TimedOut,
            UploadError::Broken(_) | UploadError::Short => io::ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

/// The body of a request.
///
/// It ends with an error if it is larger than the limit, or if it makes no progress for too long
/// while the service waits for it.
#[derive(Debug)]
pub struct Upload {
    incoming: Incoming,
    limit: u64,
    left: u64,
    patience: Duration,
    /// None until the first wait for the body.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the service waits for the body now: the time in which it asks for no more does not
    /// count against the client.
    is_waited_for: bool,
    /// Notified when all of the body was read, if activity is recorded.
    io_activity: Option<Rc<IoActivity>>,
    /// Notes the bytes, if there is an access log. A body may outlive its request.
    entry: Option<Weak<Entry>>,
}

impl Upload {
    /// Returns the body of a request with its limits.
    pub fn new(
        incoming: Incoming,
        limit: u64,
        patience: Duration,
        io_activity: Option<Rc<IoActivity>>,
    ) -> Upload {
        let mut upload = Upload {
            incoming,
            limit,
            left: limit,
            patience,
            timer: None,
            is_waited_for: false,
            io_activity,
            entry: None,
        };
        if let Some(io_activity) = &upload.io_activity {
            io_activity.uploads.set(io_activity.uploads.get() + 1);
        }
        if upload.incoming.is_end_stream() {
            upload.ended();
        }
        upload
    }

    /// Makes its bytes be noted in a line of the access log, if there is one.
    #[inline]
    pub fn noted_in(mut self, entry: Option<&Rc<Entry>>) -> Upload {
        self.entry = entry.map(Rc::downgrade);
        self
    }

    /// Sets another limit, before anything is read.
    #[inline]
    pub fn limit(&mut self, limit: u64) {
        (self.limit, self.left) = (limit, limit);
    }

    /// Notes that the bytes read so far were used.
    fn ended(&mut self) {
        if let Some(io_activity) = self.io_activity.take() {
            io_activity.uploads.set(io_activity.uploads.get() - 1);
            io_activity.unused.set(false);
            io_activity.has_upload.set(false);
            io_activity.arrived.set(0);
        }
    }

    /// No more of it is read.
    fn give_up(&self, error: UploadError) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(io_activity) = &self.io_activity {
            io_activity.given_up.set(true);
        }
        Poll::Ready(Some(Err(error)))
    }

    /// Whether it is known beforehand to be larger than it may be.
    #[must_use]
    pub(crate) fn is_too_large(&self) -> bool {
        self.incoming.size_hint().lower() > self.left
    }

    fn waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        if !std::mem::replace(&mut self.is_waited_for, true) {
            timer.reset(time::now() + self.patience);
        }
        timer.as_mut().poll(cx)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(io_activity) = &self.io_activity {
            io_activity.uploads.set(io_activity.uploads.get() - 1);
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) else {
            ready!(this.waits(cx));
            return this.give_up(UploadError::TimedOut(this.patience));
        };
        this.is_waited_for = false;
        let frame = match frame {
            // A client of HTTP/2 may reset its stream without an error.
            None if this.incoming.size_hint().exact().is_some_and(|left| left > 0) => {
                return this.give_up(UploadError::Short);
            }
            None => {
                this.ended();
                return Poll::Ready(None);
            }
            Some(Err(error)) => return this.give_up(UploadError::Broken(error)),
            Some(Ok(frame)) => frame,
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        if let Some(entry) = this.entry.as_ref().and_then(Weak::upgrade) {
            entry.received(length);
        }
        match this.left.checked_sub(length) {
            None => this.give_up(UploadError::TooLarge { limit: this.limit }),
            Some(left) => {
                this.left = left;
                // Nothing follows trailers, and not every reader asks for more.
                if frame.is_trailers() || this.incoming.is_end_stream() {
                    this.ended();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
