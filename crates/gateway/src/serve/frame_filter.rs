//! The frames of an HTTP/2 connection on their way to hyper and back, and a connection without
//! hyper.
//!
//! What hyper writes in a turn of the connection's task is joined, and goes to the transport at the
//! end of the turn: a record and a call for all of it.
//!
//! hyper and h2 keep 34 KiB for a connection, idle or not, and have no option to give them back. So
//! the server drops the state of an idle connection, which is then *dormant*, and makes it again
//! when the client sends a frame that needs it. The client notices two `SETTINGS`, and no more.
//!
//! ```text
//!              SETTINGS: no table               its ACK, still idle
//!   ACTIVE ---------------------> FALLING ASLEEP -----------------> DORMANT
//!     ^  ^                              |                             |
//!     |  |        a request             |                             |
//!     |  +------------------------------+                             |
//!     |                                  a frame that hyper must see  |
//!     +-------------- REPLAYING <-------------------------------------+
//!       SETTINGS: a table
//! ```
//!
//! Both sides of a connection share state, and each part of it is brought to where a new h2 begins:
//!
//! * **Compression of the client's fields** (RFC 7541): the server asks the client to use no
//!   dynamic table (`SETTINGS_HEADER_TABLE_SIZE` 0). When the client has agreed, a new decoder
//!   knows as much as the old one. The new h2 gives the client a table again, which the client
//!   fills again.
//! * **Compression of the server's fields**: indexes count from the newest entry. So the client
//!   understands a new encoder, which refers to its own entries only.
//! * **Windows of the connection**: the filter counts both. A `WINDOW_UPDATE` tells the new h2 how
//!   much the client allows. The client allows itself more than a new h2 does, so the first
//!   `WINDOW_UPDATE` of the new h2 is shortened by the difference.
//! * **Settings**: the filter keeps those of the client and tells them again. Those of the server
//!   do not change.
//! * **Streams**: all have ended. A new h2 has never seen them, so their late frames end here.
//!
//! [`Replay`] is the time in which the new h2 hears the client's part of this again. The filter
//! passes on no byte of the client before its end, since the new h2 would take such bytes for more
//! than it has allowed.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use superpoll_http::buffer::WriteBuffer;
use superpoll_http::io_activity::IoActivity;
use superpoll_http::plain_stream::limit_unsent;
use superpoll_http::sys;
use superpoll_http::transport::{Transport, poll_write_all};

use super::frames::{self, FrameCutter, FrameHead, LONGEST, PREFACE, kind};

/// The windows of a connection on which nothing has been said about them.
const WINDOW: i64 = 65_535;

/// The largest window.
const LARGEST: i64 = 0x7fff_ffff;

/// The setting for the size of the table of fields, and the size that a new decoder allows.
const TABLE: u16 = 1;
const TABLE_SIZE: u32 = 4096;

/// The longest settings of a client that can be told again.
const SETTINGS: usize = 384;

/// The most bytes that are joined for one write.
const MOST_JOINED: usize = 64 << 10;

/// The treatment of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Fate {
    #[default]
    Pass,
    /// The filter waits for all of the frame, and then reads it.
    Collect(FrameHead),
    Drop,
}

/// The beginning of a new h2.
#[derive(Debug)]
struct Replay {
    /// Its settings have arrived, which the client knows.
    has_settings: bool,
    /// It has accepted the settings of the client, who has long been told so.
    has_accepted: bool,
    /// By how much the client's view of the server's window is ahead of h2's.
    ahead: u32,
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    cutter: FrameCutter,
    fate: Fate,
    collected: Vec<u8>,
    /// Bytes that go before all other bytes, and the number of those that have gone.
    first: Vec<u8>,
    gone: usize,
}

impl Direction {
    /// Returns the bytes that are left to go before all other bytes.
    fn first(&self) -> &[u8] {
        &self.first[self.gone..]
    }

    fn has_gone(&mut self, count: usize) {
        self.gone += count;
        if self.gone == self.first.len() {
            self.gone = 0;
            self.first.clear();
            self.first.shrink_to(SETTINGS);
        }
    }

    /// Whether the last frame is over, and all of it has gone on.
    fn is_between(&self) -> bool {
        self.cutter.is_between() && self.first.is_empty()
    }

    /// Takes bytes of a payload that are not passed on as they come. Returns the frame that was
    /// waited for.
    fn take(&mut self, bytes: &[u8]) -> Option<(FrameHead, Vec<u8>)> {
        self.cutter.left -= bytes.len();
        let Fate::Collect(head) = self.fate else { return None };
        self.collected.extend_from_slice(bytes);
        (self.cutter.left == 0).then(|| (head, std::mem::take(&mut self.collected)))
    }
}

/// A transport below HTTP/2, and the state that both sides of the connection share.
pub(super) struct FrameFilter {
    io: RecordedIo,
    /// The bytes that have been written here in this turn and go to the transport at its end, from
    /// the position on: h2 flushes each frame, which would be a record and a call of its own.
    joined: Option<WriteBuffer>,
    at: usize,
    /// h2 waits for room.
    is_full: bool,
    input: Direction,
    output: Direction,
    /// The last value of each setting of the client.
    settings: Vec<(u16, u32)>,
    /// How many bytes of bodies the server may send, and the client.
    send_window: i64,
    receive_window: i64,
    /// The bytes that the client gets back for frames of bodies that were dropped here.
    credit: u32,
    /// The last stream that has begun, and the last one that h2 does not know any more.
    last_stream: u32,
    forgotten: u32,
    /// The client has accepted the settings that h2 has begun with.
    is_accepted: bool,
    /// The client has not accepted the settings yet that were sent here.
    is_asked: bool,
    /// The client was told to use no table.
    has_no_table: bool,
    /// It becomes dormant as soon as the client has agreed and unless it sends a request before.
    is_tired: bool,
    is_dormant: bool,
    /// Its state cannot be told again.
    is_awkward: bool,
    replay: Option<Replay>,
    failed: Option<io::ErrorKind>,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl FrameFilter {
    pub(super) fn new(io: RecordedIo) -> FrameFilter {
        let mut input = Direction::default();
        // It is no frame, and hyper checks it.
        input.cutter.left = PREFACE.len();
        FrameFilter {
            io,
            joined: None,
            at: 0,
            is_full: false,
            input,
            output: Direction::default(),
            settings: Vec::new(),
            send_window: WINDOW,
            receive_window: WINDOW,
            credit: 0,
            last_stream: 0,
            forgotten: 0,
            is_accepted: false,
            is_asked: false,
            has_no_table: false,
            is_tired: false,
            is_dormant: false,
            is_awkward: false,
            replay: None,
            failed: None,
        }
    }

    /// Whether no byte is under way in either direction, and a new h2 could be told everything.
    fn is_quiet(&self) -> bool {
        let is_between =
            self.input.is_between() && self.output.is_between() && self.joined.is_none();
        let has_windows = self.send_window >= WINDOW && self.receive_window >= WINDOW;
        is_between
            && has_windows
            && self.is_accepted
            && !self.is_asked
            && !self.is_awkward
            && self.credit == 0
            && self.replay.is_none()
            && self.failed.is_none()
    }

    /// Whether the transport has nothing to read, and all that was written has gone.
    pub(super) fn is_at_rest(&self) -> bool {
        self.io.waits && !self.io.io_activity.stuck.get() && self.io.transport.is_quiet()
    }

    /// Begins to fall asleep, if that is possible. There may be something to be flushed then.
    pub(super) fn become_tired(&mut self) {
        if self.is_tired || !self.is_quiet() {
            return;
        }
        self.is_tired = true;
        // The agreement about the rest is not activity.
        self.io.io_activity.is_resting.set(true);
        if !self.has_no_table {
            self.has_no_table = true;
            self.ask(0);
        }
    }

    /// Whether hyper's state may be dropped, if hyper holds no byte either.
    pub(super) fn can_sleep(&self) -> bool {
        self.is_tired && self.has_no_table && self.is_quiet()
    }

    /// Notes that hyper's state was dropped.
    pub(super) fn sleep(&mut self) {
        (self.is_tired, self.is_dormant) = (false, true);
        self.forgotten = self.last_stream;
        for direction in [&mut self.input, &mut self.output] {
            (direction.first, direction.collected) = (Vec::new(), Vec::new());
        }
        self.io.io_activity.is_resting.set(false);
    }

    /// Prepares for a new h2.
    pub(super) fn wake(&mut self) {
        self.is_dormant = false;
        let mut first = PREFACE.to_vec();
        let settings: Vec<u8> = self
            .settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        frames::put(kind::SETTINGS, 0, &settings, &mut first);
        frames::put(kind::SETTINGS, frames::ACK, &[], &mut first);
        let more = u32::try_from(self.send_window - WINDOW).unwrap_or(0);
        if more > 0 {
            frames::put(kind::WINDOW_UPDATE, 0, &more.to_be_bytes(), &mut first);
        }
        first.extend_from_slice(self.input.first());
        (self.input.first, self.input.gone) = (first, 0);
        let ahead = u32::try_from(self.receive_window - WINDOW).unwrap_or(0);
        // The first `WINDOW_UPDATE` counts from here.
        self.credit = u32::try_from(WINDOW - self.receive_window).unwrap_or(0);
        self.replay = Some(Replay { has_settings: false, has_accepted: false, ahead });
    }

    /// Ready when the connection has to be woken: the client has sent a frame that hyper must see,
    /// or has ended the connection.
    pub(super) fn poll_dormant(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = self.poll_flush(cx)?;
        let outcome = self.poll_frame(cx);
        // It may have been answered.
        let _ = self.poll_flush(cx)?;
        outcome.map_ok(|_| ())
    }

    /// Tells the client how large a table it may use.
    fn ask(&mut self, size: u32) {
        let payload = [&TABLE.to_be_bytes()[..], &size.to_be_bytes()].concat();
        frames::put(kind::SETTINGS, 0, &payload, &mut self.output.first);
        self.is_asked = true;
    }

    /// Decides about a frame of the client.
    fn arrived(&mut self, head: FrameHead) -> io::Result<Fate> {
        let FrameHead { length, kind, stream, .. } = head;
        match kind {
            kind::SETTINGS if head.is_ack() && stream == 0 && length == 0 => {
                if self.is_accepted && self.is_asked {
                    self.is_asked = false;
                    return Ok(Fate::Drop);
                }
                self.is_accepted = true;
            }
            kind::SETTINGS if stream == 0 && length > 0 => {
                if length <= SETTINGS {
                    return Ok(Fate::Collect(head));
                }
                self.is_awkward = true;
            }
            kind::WINDOW_UPDATE if stream == 0 && length == 4 => return Ok(Fate::Collect(head)),
            kind::PING if stream == 0 && length == 8 && self.is_dormant && !head.is_ack() => {
                return Ok(Fate::Collect(head));
            }
            kind::DATA => {
                self.receive_window -= i64::try_from(length).unwrap_or(i64::MAX);
            }
            kind::HEADERS => {
                self.last_stream = self.last_stream.max(stream);
                self.is_tired = false;
                self.io.io_activity.is_resting.set(false);
            }
            _ => {}
        }
        if stream == 0 || stream > self.forgotten {
            return Ok(Fate::Pass);
        }
        match kind {
            kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION => {
                Err(invalid("fields on a stream that has ended"))
            }
            _ if length > LONGEST || self.receive_window < 0 => Err(invalid("too long a frame")),
            kind::DATA => {
                self.credit += u32::try_from(length).unwrap_or(0);
                Ok(Fate::Drop)
            }
            _ => Ok(Fate::Drop),
        }
    }

    /// Reads a frame of the client that was collected, and passes it on unless hyper must not see
    /// it.
    fn collected(&mut self, head: FrameHead, payload: &[u8]) -> io::Result<()> {
        match head.kind {
            kind::PING if self.is_dormant => {
                frames::put(kind::PING, frames::ACK, payload, &mut self.output.first);
                return Ok(());
            }
            kind::WINDOW_UPDATE => {
                let increment = frames::increment(payload);
                self.send_window += i64::from(increment);
                // A new h2 is told the sum.
                if self.is_dormant {
                    return match increment > 0 && self.send_window <= LARGEST {
                        true => Ok(()),
                        false => Err(invalid("an increment of a window that is not valid")),
                    };
                }
            }
            kind::SETTINGS => {
                for (name, value) in payload.chunks_exact(6).filter_map(|setting| {
                    let (name, value) = setting.split_first_chunk()?;
                    Some((u16::from_be_bytes(*name), u32::from_be_bytes(*value.first_chunk()?)))
                }) {
                    self.settings.retain(|(other, _)| *other != name);
                    self.settings.push((name, value));
                }
                self.is_awkward |= self.settings.len() > SETTINGS / 6;
            }
            _ => {}
        }
        head.put(payload, &mut self.input.first);
        Ok(())
    }

    /// Ready with true when there are bytes for hyper, and with false at the end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        let outcome = self.poll_frame_once(cx);
        if let Poll::Ready(Err(error)) = &outcome {
            self.failed = Some(error.kind());
        }
        outcome
    }

    fn poll_frame_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut room = [0; SETTINGS];
        loop {
            let left = self.input.cutter.left;
            if !self.input.first.is_empty() || (left > 0 && self.input.fate == Fate::Pass) {
                return Poll::Ready(Ok(true));
            }
            // Answers must not pile up.
            if self.is_dormant {
                ready!(self.poll_flush(cx))?;
            }
            let most = if left > 0 { left.min(SETTINGS) } else { self.input.cutter.missing() };
            let mut read = ReadBuf::new(&mut room[..most]);
            ready!(Pin::new(&mut self.io).poll_read(cx, read.unfilled()))?;
            let bytes = read.filled();
            if bytes.is_empty() {
                // hyper reports the missing bytes.
                self.input.first = self.input.cutter.take_part();
                return Poll::Ready(Ok(!self.input.first.is_empty()));
            }
            if left > 0 {
                if let Some((head, payload)) = self.input.take(bytes) {
                    self.collected(head, &payload)?;
                }
            } else if let (_, Some(head)) = self.input.cutter.push(bytes) {
                self.input.fate = self.arrived(head)?;
                if self.input.fate == Fate::Pass {
                    head.put(&[], &mut self.input.first);
                }
            }
        }
    }

    /// Joins the bytes that go before hyper's with the others.
    fn put_first(&mut self) {
        if self.credit > 0 && self.output.cutter.is_between() && self.replay.is_none() {
            let credit = std::mem::take(&mut self.credit);
            self.receive_window += i64::from(credit);
            let payload = credit.to_be_bytes();
            frames::put(kind::WINDOW_UPDATE, 0, &payload, &mut self.output.first);
        }
        let count = self.output.first().len();
        if count > 0 {
            let joined = self.joined.get_or_insert_default();
            joined.0.extend_from_slice(self.output.first());
            self.output.has_gone(count);
        }
    }

    /// Writes the joined bytes to the transport, and flushes it.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.put_first();
        if let Some(joined) = &self.joined {
            let written = poll_write_all(&mut self.io, cx, &joined.0, &mut self.at);
            if self.at == joined.0.len() {
                // What is encrypted and not sent is kept by the transport.
                (self.joined, self.at) = (None, 0);
            }
            return written;
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Whether h2 has waited for room since this was asked last.
    pub(super) fn was_full(&mut self) -> bool {
        std::mem::take(&mut self.is_full)
    }

    /// Decides about a frame of h2.
    fn leaves(&mut self, head: FrameHead) -> Fate {
        if head.kind == kind::DATA {
            self.send_window -= i64::try_from(head.length).unwrap_or(i64::MAX);
        }
        if head.is_for_all(kind::WINDOW_UPDATE) {
            return Fate::Collect(head);
        }
        let Some(replay) = &mut self.replay else { return Fate::Pass };
        if head.is_for_all(kind::SETTINGS) {
            if head.is_ack() && !replay.has_accepted {
                replay.has_accepted = true;
                return Fate::Drop;
            }
            if !head.is_ack() && !replay.has_settings {
                replay.has_settings = true;
                self.has_no_table = false;
                self.ask(TABLE_SIZE);
                return Fate::Drop;
            }
        }
        Fate::Pass
    }

    /// Reads bytes of h2. During a replay, those that the client has to get are queued.
    fn sent(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let is_replay = self.replay.is_some();
            let left = self.output.cutter.left;
            if left == 0 {
                let (count, head) = self.output.cutter.push(bytes);
                bytes = &bytes[count..];
                if let Some(head) = head {
                    self.output.fate = self.leaves(head);
                    if is_replay && self.output.fate == Fate::Pass {
                        head.put(&[], &mut self.output.first);
                    }
                }
                continue;
            }
            let (some, rest) = bytes.split_at(left.min(bytes.len()));
            bytes = rest;
            if is_replay && self.output.fate == Fate::Pass {
                self.output.first.extend_from_slice(some);
            }
            if let Some((head, payload)) = self.output.take(some) {
                let mut more = frames::increment(&payload);
                if let Some(replay) = &mut self.replay {
                    let known = more.min(replay.ahead);
                    replay.ahead -= known;
                    more -= known;
                    if more > 0 {
                        head.put(&more.to_be_bytes(), &mut self.output.first);
                    }
                }
                self.receive_window += i64::from(more);
            }
        }
    }

    /// Whether a replay is over with these bytes.
    fn ends_replay(&mut self) -> bool {
        let is_over = self.output.cutter.is_between()
            && self.replay.as_ref().is_some_and(|replay| {
                replay.has_settings && replay.has_accepted && replay.ahead == 0
            });
        if is_over {
            self.replay = None;
        }
        is_over
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut is_some = false;
        loop {
            let first = self.input.first();
            let count = first.len().min(room.remaining());
            if count > 0 {
                room.put_slice(&first[..count]);
                self.input.has_gone(count);
                is_some = true;
            }
            if room.remaining() == 0 || (is_some && self.replay.is_some()) {
                return Poll::Ready(Ok(()));
            }
            if self.replay.is_some() {
                // The end of the replay wakes the task.
                return Poll::Pending;
            }
            let outcome = match self.poll_frame(cx) {
                Poll::Ready(Ok(true)) if !self.input.first.is_empty() => continue,
                Poll::Ready(Ok(true)) => {
                    let most = self.input.cutter.left;
                    sys::read_at_most(&mut room, most, |room| {
                        Pin::new(&mut self.io).poll_read(cx, room)
                    })
                }
                Poll::Ready(Ok(false)) => Poll::Ready(Ok(0)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            match outcome {
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.input.cutter.left -= count;
                    is_some = true;
                }
                // It is found again by the next read.
                _ if is_some => return Poll::Ready(Ok(())),
                other => return other.map_ok(|_| ()),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.put_first();
        if self.replay.is_none() {
            if self.joined.as_ref().is_some_and(|joined| joined.0.len() >= MOST_JOINED) {
                let flushed = self.poll_flush(cx);
                self.is_full = flushed.is_pending();
                ready!(flushed)?;
            }
            let joined = self.joined.get_or_insert_default();
            let count = bytes.len().min(MOST_JOINED.saturating_sub(joined.0.len()).max(1));
            if joined.0.capacity() < joined.0.len() + count {
                // So much that its memory is kept for others.
                joined.0.reserve_exact(MOST_JOINED - joined.0.len());
            }
            joined.0.extend_from_slice(&bytes[..count]);
            self.sent(&bytes[..count]);
            return Poll::Ready(Ok(count));
        }
        self.sent(bytes);
        if self.ends_replay() {
            // The client's bytes may be read now.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

/// A transport for hyper, which outlives it.
#[derive(Clone)]
pub(super) struct FilteredIo(pub Rc<RefCell<FrameFilter>>);

impl Read for FilteredIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_read(cx, room)
    }
}

impl Write for FilteredIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, bytes)
    }

    /// What was written goes to the transport at the end of the task's turn.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().put_first();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut filter = self.0.borrow_mut();
        ready!(filter.poll_flush(cx))?;
        Pin::new(&mut filter.io).poll_shutdown(cx)
    }
}

/// A client's transport that notes the bytes that move, whether a write found no room, and whether
/// a read found nothing. It limits the bytes of each run of a task.
pub(super) struct RecordedIo {
    transport: Transport,
    io_activity: Rc<IoActivity>,
    /// The last read found nothing.
    waits: bool,
}

impl RecordedIo {
    pub(super) fn new(transport: Transport, io_activity: Rc<IoActivity>) -> RecordedIo {
        RecordedIo { transport, io_activity, waits: false }
    }
}

impl Read for RecordedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.waits = false;
        if this.io_activity.has_read_enough(cx) {
            return Poll::Pending;
        }
        let transport = Pin::new(&mut this.transport);
        let outcome = sys::read_counted(room, |room| Read::poll_read(transport, cx, room));
        this.waits = outcome.is_pending();
        if let Poll::Ready(Ok(count)) = outcome {
            this.io_activity.read(count);
        }
        outcome.map_ok(|_| ())
    }
}

impl Write for RecordedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.io_activity.has_written_enough(cx) {
            return Poll::Pending;
        }
        let outcome = Pin::new(&mut this.transport).poll_write(cx, bytes);
        this.io_activity.wrote(&outcome, || this.transport.unsent());
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.io_activity.doubted.take() && this.transport.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if let Some(bytes) = this.io_activity.unsent_limit.take()
            && let Some(plain) = this.transport.plain()
        {
            limit_unsent(plain, bytes);
        }
        let outcome = Pin::new(&mut this.transport).poll_flush(cx);
        this.io_activity.note_room(outcome.is_ready(), || this.transport.unsent());
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;
    use superpoll_http::transport::{Plain, Socket};
    use superpoll_rt::Runtime;

    use super::*;

    fn filter() -> (Rc<RefCell<FrameFilter>>, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        for socket in [&one, &other] {
            socket.set_nonblocking(true).unwrap();
        }
        let transport = Transport::Plain(Plain::new(Socket::Unix(one)).unwrap());
        let io = RecordedIo::new(transport, Rc::default());
        (Rc::new(RefCell::new(FrameFilter::new(io))), other)
    }

    /// Returns a frame of a body.
    fn data(length: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        frames::put(kind::DATA, 0, &vec![b'x'; length], &mut frame);
        frame
    }

    fn read(from: &mut UnixStream, to: &mut Vec<u8>) -> io::Result<usize> {
        let mut room = [0; 100_000];
        let count = from.read(&mut room)?;
        to.extend_from_slice(&room[..count]);
        Ok(count)
    }

    #[test]
    fn frames_of_a_turn_leave_together() {
        Runtime::new().unwrap().block_on(async {
            let (filter, mut client) = filter();
            let mut io = FilteredIo(filter.clone());
            let (mut written, mut seen) = (Vec::new(), Vec::new());
            std::future::poll_fn(|cx| {
                filter.borrow().io.io_activity.begin_turn();
                for frame in (1..=10).map(|number| data(number * 100)) {
                    let count = Pin::new(&mut io).poll_write(cx, &frame);
                    assert!(matches!(count, Poll::Ready(Ok(count)) if count == frame.len()));
                    assert!(Pin::new(&mut io).poll_flush(cx).is_ready());
                    written.extend_from_slice(&frame);
                }
                assert!(read(&mut client, &mut seen).is_err());
                assert!(filter.borrow_mut().poll_flush(cx).is_ready());
                Poll::Ready(())
            })
            .await;
            assert_eq!(read(&mut client, &mut seen).unwrap(), written.len());
            assert!(seen == written && filter.borrow().joined.is_none());
        });
    }

    #[test]
    fn joined_bytes_have_a_bound_and_leave_before_the_end() {
        Runtime::new().unwrap().block_on(async {
            let (filter, mut client) = filter();
            let mut io = FilteredIo(filter.clone());
            let (frame, mut written, mut seen) = (data(16_000), Vec::new(), Vec::new());
            let mut at = 0;
            std::future::poll_fn(|cx| {
                filter.borrow().io.io_activity.begin_turn();
                while let Poll::Ready(count) = Pin::new(&mut io).poll_write(cx, &frame[at..]) {
                    let count = count.unwrap();
                    written.extend_from_slice(&frame[at..at + count]);
                    at = (at + count) % frame.len();
                    // A socket holds less.
                    assert!(written.len() < 4_000_000);
                }
                let joined = filter.borrow().joined.as_ref().map_or(0, |joined| joined.0.len());
                assert_eq!(joined, MOST_JOINED);
                assert!(filter.borrow_mut().was_full() && !filter.borrow_mut().was_full());
                Poll::Ready(())
            })
            .await;
            std::future::poll_fn(|cx| {
                filter.borrow().io.io_activity.begin_turn();
                while read(&mut client, &mut seen).is_ok() {}
                cx.waker().wake_by_ref();
                Pin::new(&mut io).poll_shutdown(cx)
            })
            .await
            .unwrap();
            while !matches!(read(&mut client, &mut seen), Ok(0)) {}
            assert!(seen == written, "{} of {} bytes", seen.len(), written.len());
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is written, flushed and read, and when: the client gets it whole.
        #[test]
        fn bytes_leave_whole_and_in_their_order(
            steps in prop::collection::vec((0..20_000_usize, any::<bool>(), any::<bool>()), 1..60),
        ) {
            Runtime::new().unwrap().block_on(async {
                let (filter, mut client) = filter();
                let mut io = FilteredIo(filter.clone());
                let (mut written, mut seen) = (Vec::new(), Vec::new());
                for (length, flushes, reads) in steps {
                    let (frame, mut at) = (data(length), 0);
                    std::future::poll_fn(|cx| {
                filter.borrow().io.io_activity.begin_turn();
                        while at < frame.len() {
                            match Pin::new(&mut io).poll_write(cx, &frame[at..]) {
                                Poll::Ready(count) => at += count.unwrap(),
                                Poll::Pending => {
                                    let _ = read(&mut client, &mut seen);
                                    cx.waker().wake_by_ref();
                                    return Poll::Pending;
                                }
                            }
                        }
                        if flushes {
                            let _ = filter.borrow_mut().poll_flush(cx);
                        }
                        Poll::Ready(())
                    })
                    .await;
                    written.extend_from_slice(&frame);
                    if reads {
                        let _ = read(&mut client, &mut seen);
                    }
                }
                std::future::poll_fn(|cx| {
                filter.borrow().io.io_activity.begin_turn();
                    while read(&mut client, &mut seen).is_ok() {}
                    cx.waker().wake_by_ref();
                    filter.borrow_mut().poll_flush(cx)
                })
                .await
                .unwrap();
                while read(&mut client, &mut seen).is_ok() {}
                assert!(seen == written, "{} of {} bytes", seen.len(), written.len());
            });
        }
    }
}
