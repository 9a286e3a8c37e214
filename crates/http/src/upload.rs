//! The body of a request, within limits of size and time.
//!
//! The task of the connection reads the body, and leaves one frame when the service asks for one:
//! a slow service holds a slow client back.
//!
//! ```text
//!   service: Upload --asks--> UploadSlot <--fills-- the connection's task
//! ```

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use superpoll_rt::time::{self, Sleep, sleep};

use crate::log::Entry;

/// The reason for which a request's body did not arrive in full.
#[derive(thiserror::Error, Debug)]
pub enum UploadError {
    /// It is larger than it may be.
    #[error("the body of the request has more than {limit} bytes")]
    TooLarge {
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// No more of it arrived for this long.
    #[error("no more of the request's body came for {0:?}")]
    TimedOut(Duration),
    /// The connection ended, or the bytes on it are not HTTP.
    #[error("reading the request's body: {0}")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// It ended before the length that was announced.
    #[error("the request's body is shorter than its length")]
    Short,
}

impl UploadError {
    /// Returns the status of the response to such a request.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            UploadError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            UploadError::TimedOut(_) => StatusCode::REQUEST_TIMEOUT,
            UploadError::Broken(_) | UploadError::Short => StatusCode::BAD_REQUEST,
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

/// The place in which a connection's task leaves the next frame of a body for the service.
///
/// The service may be polled by the connection's task or by another one; each wakes the other.
#[derive(Default)]
pub struct UploadSlot {
    frame: RefCell<Option<Result<Frame<Bytes>, UploadError>>>,
    /// The data that follows the frame, if that is known.
    left: Cell<Option<u64>>,
    /// No frame follows.
    is_over: Cell<bool>,
    /// The service has asked for a frame.
    is_wanted: Cell<bool>,
    /// The service reads no further.
    is_given_up: Cell<bool>,
    service: RefCell<Option<Waker>>,
    connection: RefCell<Option<Waker>>,
}

impl UploadSlot {
    /// Returns the slot of a body with so much data, if that is known.
    #[must_use]
    pub fn new(left: Option<u64>) -> Rc<UploadSlot> {
        Rc::new(UploadSlot { left: Cell::new(left), ..UploadSlot::default() })
    }

    /// Whether the service waits for a frame. If it does not, the task is woken when it does.
    pub fn is_wanted(&self, cx: &Context<'_>) -> bool {
        remember(&self.connection, cx);
        self.is_wanted.get() && !self.is_given_up.get()
    }

    /// Whether the service reads no further: it has dropped the body, or met a limit.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }

    fn give_up(&self) {
        if !self.is_given_up.replace(true)
            && !self.is_end()
            && let Some(connection) = &*self.connection.borrow()
        {
            connection.wake_by_ref();
        }
    }

    /// Leaves a frame, after which so much data follows.
    pub fn fill(&self, frame: Frame<Bytes>, left: Option<u64>, is_last: bool) {
        self.left.set(left);
        self.is_over.set(is_last);
        *self.frame.borrow_mut() = Some(Ok(frame));
    }

    /// Ends the body, with the reason if that is too early.
    pub fn end(&self, why: Option<Box<dyn Error + Send + Sync>>) {
        self.is_over.set(true);
        *self.frame.borrow_mut() = why.map(|why| Err(UploadError::Broken(why)));
    }

    /// Wakes the service, if it waits for what was left. The connection's own task polls it after
    /// this.
    pub fn wake(&self, cx: &Context<'_>) {
        self.is_wanted.set(false);
        let service = self.service.take().filter(|service| !service.will_wake(cx.waker()));
        service.into_iter().for_each(Waker::wake);
    }

    fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self.frame.take() {
            None if !self.is_over.get() => {}
            frame => return Poll::Ready(frame),
        }
        remember(&self.service, cx);
        if !self.is_wanted.replace(true) {
            let connection = self.connection.borrow();
            let other = connection.as_ref().filter(|waker| !waker.will_wake(cx.waker()));
            other.into_iter().for_each(Waker::wake_by_ref);
        }
        Poll::Pending
    }

    fn is_end(&self) -> bool {
        self.is_over.get() && self.frame.borrow().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(left) = self.left.get() else { return SizeHint::default() };
        let frame = self.frame.borrow();
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        SizeHint::with_exact(left + data.map_or(0, |data| data.len() as u64))
    }
}

superpoll::debug_fields!(UploadSlot, it => left: it.left.get(), is_over: it.is_over.get());

fn remember(waker: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    let mut waker = waker.borrow_mut();
    if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
        *waker = Some(cx.waker().clone());
    }
}

/// The body of a request as it arrives.
#[derive(Debug)]
pub enum RequestBody {
    /// There is none.
    Empty,
    /// One that the connection's task reads.
    Arriving(Rc<UploadSlot>),
}

impl RequestBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match self {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Arriving(slot) => slot.poll_take(cx),
        }
    }

    /// Whether nothing follows.
    #[must_use]
    pub fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Arriving(slot) => slot.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Arriving(slot) => slot.size_hint(),
        }
    }

    /// No more of it is read.
    fn give_up(&self) {
        if let RequestBody::Arriving(slot) = self {
            slot.give_up();
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The body of a request.
///
/// It ends with an error if it is larger than the limit, or if it makes no progress for too long
/// while the service waits for it.
#[derive(Debug)]
pub struct Upload {
    body: RequestBody,
    limit: u64,
    left: u64,
    patience: Duration,
    /// None until the first wait for the body.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the service waits for the body now: the time in which it asks for no more does not
    /// count against the client.
    is_waited_for: bool,
    /// Notes the bytes, if there is an access log. A body may outlive its request.
    entry: Option<Weak<Entry>>,
}

impl Upload {
    /// Returns the body of a request with its limits.
    #[must_use]
    pub fn new(body: RequestBody, limit: u64, patience: Duration) -> Upload {
        let (left, timer, is_waited_for, entry) = (limit, None, false, None);
        Upload { body, limit, left, patience, timer, is_waited_for, entry }
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

    /// No more of it is read.
    fn give_up(&self, error: UploadError) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        self.body.give_up();
        Poll::Ready(Some(Err(error)))
    }

    /// Whether it is known beforehand to be larger than it may be.
    #[must_use]
    pub(crate) fn is_too_large(&self) -> bool {
        self.body.size_hint().lower() > self.left
    }

    fn waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        if !std::mem::replace(&mut self.is_waited_for, true) {
            timer.reset(time::now() + self.patience);
        }
        timer.as_mut().poll(cx)
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
        let Poll::Ready(frame) = this.body.poll_frame(cx) else {
            ready!(this.waits(cx));
            return this.give_up(UploadError::TimedOut(this.patience));
        };
        this.is_waited_for = false;
        let frame = match frame {
            // A client of HTTP/2 may reset its stream without an error.
            None if this.body.size_hint().exact().is_some_and(|left| left > 0) => {
                return this.give_up(UploadError::Short);
            }
            None => return Poll::Ready(None),
            Some(Err(error)) => return this.give_up(error),
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
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
