//! The body of a response.

use std::any::Any;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::files::pieces::Pieces;

/// The body of a response: in memory, or made while it is sent.
pub struct Body(Inner);

type Stream = Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error>>>;

/// A body that waits for the next thing to say, and needs no task for that.
pub trait RestingBody: http_body::Body<Data = Bytes, Error = io::Error> + Unpin + Any {
    /// Whether there is nothing to say, now and until it is told something.
    fn can_rest(&self) -> bool;
}

enum Inner {
    /// Empty once it was taken.
    Memory(Bytes),
    Stream(Stream),
    Resting(Box<dyn RestingBody>),
    File(Box<Pieces>),
}

impl Body {
    /// Returns a body without bytes.
    #[must_use]
    #[inline]
    pub const fn empty() -> Body {
        Body(Inner::Memory(Bytes::new()))
    }

    /// Returns a body that is made while it is sent. It lives on the engine that sends it.
    #[inline]
    pub fn stream(stream: impl http_body::Body<Data = Bytes, Error = io::Error> + 'static) -> Body {
        Body(Inner::Stream(Box::pin(stream)))
    }

    /// Returns a body that is made while it is sent, and may be parked meanwhile.
    pub fn resting(body: impl RestingBody) -> Body {
        Body(Inner::Resting(Box::new(body)))
    }

    /// Whether it waits for the next thing to say, and can be parked.
    #[must_use]
    pub fn can_rest(&self) -> bool {
        matches!(&self.0, Inner::Resting(body) if body.can_rest())
    }

    /// Returns a [resting](Body::resting) body of this type.
    ///
    /// # Errors
    ///
    /// The body, if it is another one.
    pub fn into_resting<T: RestingBody>(self) -> Result<Box<T>, Body> {
        match self.0 {
            Inner::Resting(body) if (&*body as &dyn Any).is::<T>() => {
                (body as Box<dyn Any>).downcast().map_err(|_| Body::empty())
            }
            other => Err(Body(other)),
        }
    }

    /// Returns a body that is read from files.
    pub(crate) fn file(pieces: Pieces) -> Body {
        Body(Inner::File(Box::new(pieces)))
    }

    /// Returns all bytes, if they are in memory.
    pub(crate) fn in_memory(&self) -> Option<&Bytes> {
        match &self.0 {
            Inner::Memory(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Limits each read of a file to this many bytes.
    pub fn limit_reads(&mut self, most: usize) {
        if let Inner::File(pieces) = &mut self.0 {
            pieces.limit_reads(most);
        }
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::empty()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body(Inner::Memory(bytes.into()))
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Memory(bytes) => f.debug_tuple("Memory").field(&bytes.len()).finish(),
            Inner::Resting(_) => f.debug_tuple("Resting").finish(),
            Inner::Stream(stream) => f.debug_tuple("Stream").field(&stream.size_hint()).finish(),
            Inner::File(pieces) => f.debug_tuple("File").field(&pieces.size_hint()).finish(),
        }
    }
}

/// The outcome of asking a body of this server for its next frame.
pub type PollFrame = Poll<Option<io::Result<Frame<Bytes>>>>;

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        match &mut self.get_mut().0 {
            Inner::Memory(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Memory(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Stream(stream) => stream.as_mut().poll_frame(cx),
            Inner::Resting(body) => Pin::new(&mut **body).poll_frame(cx),
            Inner::File(pieces) => Pin::new(&mut **pieces).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Memory(bytes) => bytes.is_empty(),
            Inner::Stream(stream) => stream.is_end_stream(),
            Inner::Resting(body) => body.is_end_stream(),
            Inner::File(pieces) => pieces.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Memory(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(stream) => stream.size_hint(),
            Inner::Resting(body) => body.size_hint(),
            Inner::File(pieces) => pieces.size_hint(),
        }
    }
}
