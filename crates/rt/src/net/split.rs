//! The two directions of a stream, used separately.
//!
//! `split` borrows: both halves live within the task that has the stream. `into_split` shares the
//! stream by reference counting, without a lock, so that two tasks can have a half each. Both tasks
//! belong to the same engine, which the compiler enforces (the halves are not `Send`): a stream is
//! watched by the engine of one thread, and halves on two engines would take turns in moving it. To
//! move such a stream, [`reunite`](OwnedReadHalf::reunite) the halves first. For a half on each of
//! two engines, duplicate the descriptor; the page for those who come from tokio shows how.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use super::stream::{StreamSocket, close_writing, futures_io};

/// The reading half of a borrowed stream.
#[derive(Debug)]
pub struct ReadHalf<'a, S: StreamSocket>(&'a S);

/// The writing half of a borrowed stream. Closing it ends the writing direction; dropping it does
/// not.
#[derive(Debug)]
pub struct WriteHalf<'a, S: StreamSocket>(&'a S);

pub(crate) fn borrowed<S: StreamSocket>(stream: &mut S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

/// The reading half of a shared stream. Dropping it leaves the reading direction open: the kernel
/// keeps the bytes that the peer sends until its buffer is full, and the peer is not told.
#[derive(Debug)]
pub struct OwnedReadHalf<S: StreamSocket>(Rc<S>);

/// The writing half of a shared stream. Dropping it ends the writing direction (`shutdown(2)`), so
/// that the peer sees the end of the stream; [`forget`](OwnedWriteHalf::forget) leaves it open.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: StreamSocket> {
    stream: Rc<S>,
    ends: bool,
}

pub(crate) fn owned<S: StreamSocket>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Rc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, ends: true })
}

impl<S: StreamSocket> OwnedReadHalf<S> {
    /// Makes the two halves the stream again.
    ///
    /// # Errors
    ///
    /// Gives both halves back if they are not of the same stream.
    pub fn reunite(self, mut other: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        if !Rc::ptr_eq(&self.0, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.ends = false;
        drop(other);
        match Rc::try_unwrap(self.0) {
            Ok(stream) => Ok(stream),
            Err(_) => unreachable!("a stream has one reading and one writing half"),
        }
    }
}

impl<S: StreamSocket> OwnedWriteHalf<S> {
    /// Drops the half and leaves the writing direction open, until the reading half is dropped too.
    pub fn forget(mut self) {
        self.ends = false;
    }
}

impl<S: StreamSocket> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // The peer learns of any other error when the socket is closed.
            let _ = close_writing(&*self.stream);
        }
    }
}

/// Two halves that are not of the same stream.
pub struct ReuniteError<S: StreamSocket>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: StreamSocket> fmt::Debug for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReuniteError").finish_non_exhaustive()
    }
}

impl<S: StreamSocket> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are not of the same stream; reunite those of one `into_split`")
    }
}

impl<S: StreamSocket> std::error::Error for ReuniteError<S> {}

macro_rules! half {
    ([$($generics:tt)*] $type:ty, $direction:ident |$half:ident| $stream:expr) => {
        futures_io!([$($generics)*] $type, $direction |$half| $stream);

        impl<$($generics)*> Deref for $type {
            type Target = S;
            fn deref(&self) -> &S {
                let $half = self;
                $stream
            }
        }
    };
}

half!(['a, S: StreamSocket] ReadHalf<'a, S>, read |half| half.0);
half!(['a, S: StreamSocket] WriteHalf<'a, S>, write |half| half.0);
half!([S: StreamSocket] OwnedReadHalf<S>, read |half| &*half.0);
half!([S: StreamSocket] OwnedWriteHalf<S>, write |half| &*half.stream);
