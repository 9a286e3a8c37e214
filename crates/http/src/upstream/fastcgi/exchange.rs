//! One request after another on a connection: the records of each around its bytes.
//!
//! A connection of HTTP/1.1 reads and writes through this. It sees the lines of a head and a body
//! that the end of the stream ends, though the connection stays open.
//!
//! ```text
//!           output              empty line               END, or the end of the stream
//!   HEAD ----------> HEAD ------------------> BODY --------------------------------> OVER
//!    ^                                                                                |
//!    +------------------------------- next request -----------------------------------+
//! ```
//!
//! Of the output no more is held than a buffer, and 64 KiB of its head. Texts for the log are kept
//! up to 4 KiB for each request.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;
use tokio::io::AsyncWrite;

use super::output::{self, NoHead};
use super::records::{HEAD, LONGEST, Part, Reader, body_head, end_of_body};
use crate::buffer::{LARGEST, ReadBuffer};
use crate::transport::Upstream;

/// The bytes of a server are no response that can be passed on.
#[derive(thiserror::Error, Debug)]
#[error("{0}")]
struct Malformed(String);

fn malformed(what: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Malformed(what.to_string()))
}

/// The server has too much to do, and has not begun to work on the request.
#[derive(thiserror::Error, Debug)]
#[error("the server says that it is overloaded")]
struct Overloaded;

/// Returns what is wrong with a response, if that is the error of reading it.
pub(in crate::upstream) fn malformation(error: &io::Error) -> Option<String> {
    let malformed = error.get_ref()?.downcast_ref::<Malformed>()?;
    Some(malformed.to_string())
}

/// Whether the error of reading a response is that its server has too much to do.
pub(in crate::upstream) fn is_overloaded(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Overloaded>())
}

/// A request that begins.
pub(in crate::upstream) struct Begun<'a> {
    /// Its method is `HEAD`.
    pub is_head: bool,
    /// Its response may ask for a file.
    pub may_ask: bool,
    /// Its number.
    pub id: u16,
    /// The name of its script.
    pub script: &'a Rc<str>,
}

/// The least bytes of output that are read without the records around them.
const DIRECT: usize = 16 << 10;

/// The most bytes of texts for the log that are kept of a request.
const MOST_ERRORS: usize = 4 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    Head,
    Body,
    Over,
}

/// The body of a request on its way.
#[derive(Default)]
struct Sending {
    /// The number of the request.
    id: u16,
    /// The bytes before it, which are records already.
    before: usize,
    /// The bytes of it that follow.
    left: u64,
    /// Those of the record that has begun.
    record: usize,
    /// The head of a record, as far as it is not written.
    head: [u8; HEAD],
    unwritten: Range<usize>,
}

impl Sending {
    fn head(&mut self, head: [u8; HEAD]) {
        (self.head, self.unwritten) = (head, 0..HEAD);
    }
}

/// The state of the exchange on a connection.
pub(in crate::upstream) struct Exchange {
    reader: Reader,
    raw: ReadBuffer,
    phase: Phase,
    /// The head of the output as far as it is there; then its lines for HTTP/1.1, from `at` on.
    head: Vec<u8>,
    at: usize,
    /// The response has no body, whatever the output has.
    is_head: bool,
    is_bodiless: bool,
    /// It may ask for a file that is sent in its place.
    may_ask: bool,
    has_output_end: bool,
    /// The server has told the end, and that all is well.
    is_clean: bool,
    errors: Vec<u8>,
    /// The name of the script of the request.
    script: Option<Rc<str>>,
    /// What is wrong with the records after the output that was read last.
    fault: Option<io::Error>,
    sending: Sending,
}

impl Exchange {
    pub(in crate::upstream) fn new() -> Exchange {
        Exchange {
            reader: Reader::default(),
            raw: ReadBuffer::default(),
            phase: Phase::default(),
            head: Vec::new(),
            at: 0,
            is_head: false,
            may_ask: false,
            is_bodiless: false,
            has_output_end: false,
            is_clean: false,
            errors: Vec::new(),
            script: None,
            fault: None,
            sending: Sending::default(),
        }
    }

    /// Begins a request. If its body is sent as it comes, it has so many bytes before it, and of
    /// it.
    pub(in crate::upstream) fn begin(&mut self, request: Begun<'_>, body: Option<(usize, u64)>) {
        let Begun { is_head, may_ask, id, script } = request;
        let (before, left) = body.unwrap_or((usize::MAX, 0));
        let mut sending = Sending { id, before, left, ..Sending::default() };
        if body.is_some() && left == 0 {
            sending.head(end_of_body(id));
        }
        let (reader, script) = (Reader::new(id), Some(script.clone()));
        *self = Exchange { reader, is_head, may_ask, sending, script, ..Exchange::new() };
    }

    /// Whether the last request is over, and nothing of it left.
    pub(in crate::upstream) fn is_at_rest(&self) -> bool {
        let Sending { left, record, unwritten, .. } = &self.sending;
        let is_sent = *left == 0 && *record == 0 && unwritten.is_empty();
        self.phase == Phase::Over
            && self.is_clean
            && is_sent
            && self.raw.is_empty()
            && self.head.is_empty()
    }

    /// Takes the name of the script, and the text that it has written for the log.
    pub(in crate::upstream) fn take_errors(&mut self) -> Option<(Rc<str>, String)> {
        let errors = std::mem::take(&mut self.errors);
        let text = String::from_utf8_lossy(&errors);
        let text = text.trim();
        let script = self.script.clone()?;
        (!text.is_empty()).then(|| (script, text.to_owned()))
    }

    /// Takes output that belongs to the head. Returns how many bytes of it follow the head.
    fn take_head(&mut self, output: &[u8]) -> Result<usize, NoHead> {
        let seen = self.head.len();
        self.head.extend_from_slice(output);
        let Some(end) = output::end_of_head(&self.head, seen) else {
            return match self.head.len() > output::LONGEST {
                true => Err(NoHead::TooLong),
                false => Ok(0),
            };
        };
        if end > output::LONGEST {
            return Err(NoHead::TooLong);
        }
        let rest = self.head.len() - end;
        let mut lines = Vec::with_capacity(end + 32);
        let status = output::to_http(&self.head[..end], self.may_ask, &mut lines)?;
        self.is_bodiless = self.is_head || matches!(status, 204 | 205 | 304);
        (self.head, self.at, self.phase) = (lines, 0, Phase::Body);
        Ok(rest)
    }

    /// Takes lines of the head. Returns how many bytes of them are in the room.
    fn take_lines(&mut self, room: &mut [u8]) -> usize {
        let rest = &self.head[self.at..];
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        if self.at == self.head.len() {
            (self.head, self.at) = (Vec::new(), 0);
        }
        count
    }

    fn end(&mut self, status: u8) -> io::Result<()> {
        Err(match (status, self.phase) {
            (0, Phase::Body) => {
                (self.phase, self.is_clean) = (Phase::Over, true);
                return Ok(());
            }
            (0, _) => malformed("the script has ended before the head of its output was whole"),
            (_, Phase::Body) => io::ErrorKind::UnexpectedEof.into(),
            // Another server may have time.
            (2, _) => io::Error::other(Overloaded),
            (1, _) => malformed("the server says that it cannot have this request on a connection"),
            (_, _) => malformed("the server says that it does not answer requests of this role"),
        })
    }

    /// Reads what has come. Returns how many bytes of output are in the room.
    fn read_records(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let mut filled = 0;
        while !self.raw.is_empty() && self.phase != Phase::Over {
            let most = match self.phase {
                Phase::Body if self.is_bodiless => usize::MAX,
                // Records without output are read even if there is no room for more of it, so that
                // a response whose last byte is known has its end.
                Phase::Body if !self.head.is_empty() => 0,
                Phase::Body => room.len() - filled,
                Phase::Head | Phase::Over => usize::MAX,
            };
            let raw = std::mem::take(&mut self.raw);
            let step = self.reader.step(raw.bytes(), most).map_err(malformed);
            let (mut used, part) = match step {
                Err(fault) if filled > 0 => {
                    self.fault = Some(fault);
                    break;
                }
                step => step?,
            };
            let is_stuck = used == 0 && part.is_none();
            let taken = match part {
                Some(Part::Output(data)) if self.phase == Phase::Head => {
                    // The body that has come with the head is read again.
                    self.take_head(data).map_err(malformed).map(|rest| {
                        self.reader.put_back(rest);
                        used -= rest;
                    })
                }
                Some(Part::Output(data)) => {
                    if !self.is_bodiless {
                        room[filled..][..data.len()].copy_from_slice(data);
                        filled += data.len();
                    }
                    Ok(())
                }
                Some(Part::OutputEnd) => {
                    self.has_output_end = true;
                    Ok(())
                }
                Some(Part::Errors(text)) => {
                    let room = MOST_ERRORS - self.errors.len();
                    self.errors.extend_from_slice(&text[..text.len().min(room)]);
                    Ok(())
                }
                Some(Part::End(status)) => self.end(status),
                None => Ok(()),
            };
            self.raw = raw;
            self.raw.consume(used);
            match taken {
                // The output before it comes first.
                Err(fault) if filled > 0 => {
                    self.fault = Some(fault);
                    break;
                }
                taken => taken?,
            }
            if is_stuck {
                break;
            }
        }
        Ok(filled)
    }
}

/// A stream with the records of an exchange around its bytes.
pub(in crate::upstream) struct Framed<'a> {
    pub stream: &'a mut Upstream,
    pub exchange: &'a mut Exchange,
}

impl AsyncRead for Framed<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Framed { stream, exchange } = self.get_mut();
        loop {
            let mut filled = exchange.read_records(room)?;
            if exchange.phase != Phase::Head && !exchange.head.is_empty() {
                filled = exchange.take_lines(room);
                filled += exchange.read_records(&mut room[filled..])?;
            }
            if filled > 0 {
                return Poll::Ready(Ok(filled));
            }
            if exchange.phase == Phase::Over {
                return Poll::Ready(Ok(0));
            }
            // Long output goes where it is wanted. The rest of a record comes with what follows it.
            let run = exchange.reader.output_run().min(room.len());
            if run >= DIRECT && exchange.phase == Phase::Body && !exchange.is_bodiless {
                let count = ready!(AsyncRead::poll_read(Pin::new(*stream), cx, &mut room[..run]))?;
                exchange.reader.skip_output(count);
                return Poll::Ready(match count {
                    0 => Err(io::ErrorKind::UnexpectedEof.into()),
                    count => Ok(count),
                });
            }
            exchange.raw.expect(LARGEST as u64);
            if ready!(exchange.raw.poll_read(cx, *stream))? == 0 {
                return Poll::Ready(match exchange.phase {
                    // The output is whole, although its server does not say so.
                    Phase::Body if exchange.has_output_end => {
                        exchange.phase = Phase::Over;
                        Ok(0)
                    }
                    Phase::Body => Err(io::ErrorKind::UnexpectedEof.into()),
                    Phase::Head | Phase::Over => Ok(0),
                });
            }
        }
    }
}

impl AsyncWrite for Framed<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Framed { stream, exchange } = self.get_mut();
        let sending = &mut exchange.sending;
        if sending.before > 0 {
            let most = bytes.len().min(sending.before);
            let count = ready!(AsyncWrite::poll_write(Pin::new(*stream), cx, &bytes[..most]))?;
            sending.before -= count;
            return Poll::Ready(Ok(count));
        }
        loop {
            if sending.record == 0 && sending.unwritten.is_empty() {
                let left = usize::try_from(sending.left).unwrap_or(usize::MAX);
                sending.record = bytes.len().min(LONGEST).min(left);
                if sending.record == 0 {
                    return Poll::Ready(Ok(0));
                }
                sending.head(body_head(sending.id, sending.record));
            }
            let head = &sending.head[sending.unwritten.clone()];
            let data = &bytes[..sending.record.min(bytes.len())];
            let parts = [head, data].map(IoSlice::new);
            let stream = Pin::new(&mut **stream);
            let count = ready!(AsyncWrite::poll_write_vectored(stream, cx, &parts))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            let of_head = count.min(sending.unwritten.len());
            sending.unwritten.start += of_head;
            let of_data = count - of_head;
            if of_data > 0 {
                sending.record -= of_data;
                sending.left -= of_data as u64;
                if sending.left == 0 {
                    sending.head(end_of_body(sending.id));
                }
                return Poll::Ready(Ok(of_data));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Framed { stream, exchange } = self.get_mut();
        let sending = &mut exchange.sending;
        // The end of the body has no data after its head.
        while sending.before == 0 && sending.left == 0 && !sending.unwritten.is_empty() {
            let head = &sending.head[sending.unwritten.clone()];
            let count = ready!(AsyncWrite::poll_write(Pin::new(&mut **stream), cx, head))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            sending.unwritten.start += count;
        }
        AsyncWrite::poll_flush(Pin::new(*stream), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut *self.get_mut().stream), cx)
    }
}
