//! A stream that belongs to no engine: a socket, and the keys of the connection if it is encrypted.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::tls::{KeysRecord, PooledKeys};
use crate::transport::{Layered, Plain, Socket, Transport};

/// A stream between two records, or two bytes if it is not encrypted.
#[derive(Debug)]
pub struct ParkedStream {
    socket: Socket,
    keys: Option<PooledKeys>,
}

/// A message as it is written to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// This many bytes, and not the rest.
    Some(usize),
    /// The stream holds the rest of it, and writes that first when it continues with an engine.
    Held,
}

impl From<Socket> for ParkedStream {
    fn from(socket: Socket) -> ParkedStream {
        ParkedStream { socket, keys: None }
    }
}

impl ParkedStream {
    pub(crate) fn new(socket: Socket, keys: Option<PooledKeys>) -> ParkedStream {
        ParkedStream { socket, keys }
    }

    /// Returns the socket below.
    #[inline]
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the socket of a stream that has no keys.
    #[inline]
    pub fn into_socket(self) -> Socket {
        self.socket
    }

    /// Whether it is encrypted.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.keys.is_some()
    }

    /// Seals messages, each in a record of its own. They must be written in this order and before
    /// anything else: by [`write_raw`](ParkedStream::write_raw), and the bytes that it leaves by
    /// [`owes`](ParkedStream::owes). `None` if the stream must continue with an engine first: the
    /// key must be changed, or a message is longer than a record.
    #[inline]
    pub fn seal(&mut self, messages: &[&[u8]]) -> Option<Vec<u8>> {
        self.keys.as_mut()?.with(|keys| keys.seal(messages))?
    }

    /// Returns the keys for a successor; `None` if it is not encrypted, or not between two records.
    pub(crate) fn keys_record(&mut self) -> Option<KeysRecord> {
        self.keys.as_mut()?.with(|keys| keys.record())?
    }

    /// Changes the key of writing, if that has to come before anything else.
    ///
    /// # Errors
    ///
    /// Those of `write(2)`.
    pub fn change_key(&mut self) -> io::Result<()> {
        let change = |keys: &mut PooledKeys| keys.with(|keys| keys.change_key());
        if let Some(Some(Some(bytes))) = self.keys.as_mut().map(change) {
            let count = self.write_raw(&bytes)?;
            self.owes(&bytes[count..]);
        }
        Ok(())
    }

    /// Whether some of a record was sealed and not written.
    #[inline]
    pub fn has_unsent(&mut self) -> bool {
        let keys = self.keys.as_mut();
        keys.and_then(|keys| keys.with(|keys| keys.has_unsent())).unwrap_or(false)
    }

    /// Holds sealed bytes that were not written.
    pub fn owes(&mut self, rest: &[u8]) {
        if let Some(keys) = &mut self.keys
            && !rest.is_empty()
        {
            keys.with(|keys| keys.owes(rest));
        }
    }

    /// Writes as many bytes as there is room for now, as they are.
    pub fn write_raw(&self, bytes: &[u8]) -> io::Result<usize> {
        // std makes the kernel return an error, and not a signal, if the other end is closed.
        let outcome = match &self.socket {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        };
        match outcome {
            Err(error) if is_later(&error) => Ok(0),
            outcome => outcome,
        }
    }

    /// Writes one message, sealed if the stream is encrypted.
    pub fn write(&mut self, message: &[u8]) -> io::Result<Written> {
        if self.keys.is_none() {
            return self.write_raw(message).map(Written::Some);
        }
        let Some(sealed) = self.seal(&[message]) else { return Ok(Written::Some(0)) };
        let count = self.write_raw(&sealed)?;
        if count == sealed.len() {
            return Ok(Written::Some(message.len()));
        }
        self.owes(&sealed[count..]);
        Ok(Written::Held)
    }

    /// Reads the bytes that are available now, of a stream that is not encrypted.
    pub fn read_raw(&self, room: &mut [u8]) -> io::Result<usize> {
        match &self.socket {
            Socket::Tcp(stream) => (&*stream).read(room),
            Socket::Unix(stream) => (&*stream).read(room),
        }
    }

    /// Closes a stream on which nothing is under way, and says so to a client whose connection is
    /// encrypted.
    pub fn close(mut self) {
        if let Some(keys) = self.keys.take().and_then(PooledKeys::take) {
            // The client may have gone, or may read nothing.
            let _ = self.write_raw(&keys.close());
        }
    }

    /// Gives the stream to the engine of this thread.
    ///
    /// # Errors
    ///
    /// The runtime's error.
    pub fn resume(self) -> io::Result<Transport> {
        let plain = Plain::new(self.socket)?;
        Ok(match self.keys {
            None => Layered::Plain(plain),
            Some(keys) => {
                let keys = keys.take().ok_or(io::ErrorKind::NotFound)?;
                keys.resume(plain).into()
            }
        })
    }
}

impl AsFd for ParkedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether an operation may succeed later.
#[inline]
pub fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
