//! An encrypted stream over a socket of the engine.
//!
//! Bytes of the socket are read into a buffer and opened there. The buffer belongs to the thread,
//! and a stream has it only as long as there is something in it; the beginning of a record that
//! waits for its rest is moved to a buffer of its own size. So a connection that waits has no
//! buffer at all.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use super::parked::ParkedKeys;
use super::pool::PooledKeys;
use super::records::{self, Alert, LONGEST, Record, Records, Violation};
use crate::plain_stream::{Plain, Socket};

/// The bytes that are read at once: two records, so that a transfer needs a call for two.
const BUFFER: usize = 2 * LONGEST;

/// The most bytes of text that are sealed at once.
const PIECE: usize = 64 << 10;

thread_local! {
    /// The buffers of this thread that no stream has.
    static READING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static WRITING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were read.
#[derive(Default)]
struct Incoming {
    /// All of it is initialised.
    buffer: Vec<u8>,
    /// The text of a record that was opened.
    text: Range<usize>,
    /// The records that were not.
    sealed: Range<usize>,
}

impl Incoming {
    fn new(bytes: Vec<u8>) -> Incoming {
        Incoming { text: 0..0, sealed: 0..bytes.len(), buffer: bytes }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.sealed.is_empty()
    }

    /// Makes room for at least the rest of a record.
    fn make_room(&mut self) {
        if self.buffer.len() < BUFFER {
            let mut buffer = READING.take();
            buffer.resize(BUFFER, 0);
            let length = self.sealed.len();
            buffer[..length].copy_from_slice(&self.buffer[self.sealed.clone()]);
            (self.buffer, self.sealed) = (buffer, 0..length);
        } else if self.sealed.start > 0 {
            self.buffer.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..self.sealed.len();
        }
    }

    /// Gives the buffer back to the thread. No text is in it.
    fn give_back(&mut self) {
        if self.buffer.len() == BUFFER {
            let rest = self.buffer[self.sealed.clone()].to_vec();
            READING.set(std::mem::take(&mut self.buffer));
            *self = Incoming::new(rest);
        }
    }
}

/// Whether bytes still come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Open,
    /// The peer has said that it sends no more.
    Closed,
    /// The connection has failed, and no byte is accepted or sent any more but those that wait.
    Failed(Violation),
}

/// An encrypted stream with a client, after the handshake.
pub struct TlsStream {
    plain: Plain,
    records: Box<Records>,
    incoming: Incoming,
    /// Records, and how much of them was written.
    outgoing: Vec<u8>,
    written: usize,
    reading: Reading,
    /// The peer was told that no more bytes follow.
    has_closed: bool,
}

fn failed(violation: Violation) -> io::Error {
    let what = match violation {
        Violation::Broken(_, what) => what.to_owned(),
        Violation::Told(alert) => format!("the alert {alert}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, format!("the client sent {what}"))
}

impl TlsStream {
    /// Continues with a connection after some bytes were read, and before some bytes were written.
    pub(super) fn new(
        plain: Plain,
        records: Records,
        read: Vec<u8>,
        outgoing: Vec<u8>,
    ) -> TlsStream {
        TlsStream {
            plain,
            records: Box::new(records),
            incoming: Incoming::new(read),
            outgoing,
            written: 0,
            reading: Reading::Open,
            has_closed: false,
        }
    }

    /// Returns the socket below.
    pub fn plain(&self) -> &Plain {
        &self.plain
    }

    /// Whether nothing is under way: no byte is read and not used, sealed and not written, and no
    /// record has come in part.
    pub(crate) fn is_quiet(&self) -> bool {
        self.incoming.is_empty()
            && self.outgoing.is_empty()
            && self.reading == Reading::Open
            && !self.has_closed
            && self.records.is_quiet()
    }

    /// Whether some of a record or of a message has arrived, and not the rest.
    pub(crate) fn has_part(&self) -> bool {
        !self.incoming.sealed.is_empty() || self.records.has_part()
    }

    /// Takes a quiet stream apart.
    ///
    /// # Errors
    ///
    /// The stream, if it is not quiet after all.
    pub(crate) fn park(self) -> Result<(Socket, PooledKeys), Box<TlsStream>> {
        if !self.is_quiet() {
            return Err(Box::new(self));
        }
        Ok((self.plain.into_socket(), PooledKeys::new(ParkedKeys::from_records(&self.records))))
    }

    /// Writes the bytes that wait, as far as there is room. Ready when none are left.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.outgoing.len() {
            let rest = &self.outgoing[self.written..];
            match ready!(Pin::new(&mut self.plain).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        (self.outgoing, self.written) = (Vec::new(), 0);
        self.records.flushed();
        Poll::Ready(Ok(()))
    }

    /// Ends the connection, and tells the peer why.
    fn fail(&mut self, cx: &mut Context<'_>, violation: Violation) -> io::Error {
        self.reading = Reading::Failed(violation);
        if let Violation::Broken(alert, _) = violation
            && !self.has_closed
        {
            self.has_closed = true;
            // Without it the peer sees an end that nobody has announced.
            let _ = self.records.sealer().alert(alert, &mut self.outgoing);
            self.records.close();
        }
        let _ = self.poll_drain(cx);
        self.incoming = Incoming::default();
        failed(violation)
    }

    /// Opens records until there is text or the end. Returns whether there is either.
    fn open_some(&mut self) -> Result<bool, Violation> {
        loop {
            if !self.incoming.text.is_empty() || self.reading == Reading::Closed {
                return Ok(true);
            }
            let Incoming { buffer, sealed, text } = &mut self.incoming;
            let Some(length) = records::length(&buffer[sealed.clone()])? else { return Ok(false) };
            if length > sealed.len() {
                return Ok(false);
            }
            let record = sealed.start..sealed.start + length;
            sealed.start = record.end;
            match self.records.open(&mut buffer[record.clone()], &mut self.outgoing)? {
                Record::Control => {}
                Record::Closed => self.reading = Reading::Closed,
                Record::Data(place) => {
                    *text = record.start + place.start..record.start + place.end;
                }
            }
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Reading::Failed(violation) = this.reading {
            return Poll::Ready(Err(failed(violation)));
        }
        loop {
            match this.open_some() {
                Err(violation) => return Poll::Ready(Err(this.fail(cx, violation))),
                Ok(true) => break,
                Ok(false) => {}
            }
            this.incoming.make_room();
            let Incoming { buffer, sealed, .. } = &mut this.incoming;
            match Pin::new(&mut this.plain).poll_read(cx, &mut buffer[sealed.end..]) {
                Poll::Ready(Ok(0)) => {
                    this.incoming.give_back();
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Poll::Ready(Ok(count)) => sealed.end += count,
                Poll::Ready(Err(error)) => {
                    this.incoming.give_back();
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    this.incoming.give_back();
                    // What was answered to the peer does not wait for the next write.
                    if let Poll::Ready(Err(error)) = this.poll_drain(cx) {
                        return Poll::Ready(Err(error));
                    }
                    return Poll::Pending;
                }
            }
        }
        let text = &mut this.incoming.text;
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&this.incoming.buffer[text.start..text.start + count]);
        text.start += count;
        if this.incoming.is_empty() {
            this.incoming.give_back();
        }
        Poll::Ready(Ok(count))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.has_closed || matches!(this.reading, Reading::Failed(_)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(this.poll_drain(cx))?;
        let some = &bytes[..bytes.len().min(PIECE)];
        WRITING.with_borrow_mut(|sealed| {
            sealed.clear();
            if let Err(violation) = this.records.sealer().seal_with_new_keys(some, sealed) {
                // Some numbers may be spent, so nothing can follow.
                this.reading = Reading::Failed(violation);
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let mut written = 0;
            while written < sealed.len() {
                match Pin::new(&mut this.plain).poll_write(cx, &sealed[written..]) {
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    Poll::Ready(Ok(count)) => written += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        this.outgoing.extend_from_slice(&sealed[written..]);
                        break;
                    }
                }
            }
            Poll::Ready(Ok(some.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.plain).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.has_closed && !matches!(this.reading, Reading::Failed(_)) {
            this.has_closed = true;
            // A key that can seal no more ends the connection without it.
            let _ = this.records.sealer().alert(Alert::CloseNotify, &mut this.outgoing);
            this.records.close();
        }
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.plain).poll_close(cx)
    }
}

// Shows no text.
superpoll::debug_fields!(TlsStream, it =>
    plain: it.plain, records: it.records, reading: it.reading);
