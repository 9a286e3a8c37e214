//! A connection that has left HTTP, for example for WebSocket: it passes bytes both ways unchanged.
//!
//! All tunnels of an engine read into one buffer, and the bytes that the other side does not take
//! at once are kept. So an idle tunnel has no buffer. The end of one direction is passed on and
//! leaves the other direction open.
//!
//! A tunnel on which no byte moves in either direction is closed in the end: the client or the
//! server may have gone without a word. Its timer checks four times within that limit whether bytes
//! have moved, so a byte costs no timer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use superpoll_rt::time::{self, Sleep, sleep};

use super::http1::Http1Connection;
use super::http2::Tunnel;
use super::pool::Lease;
use crate::io_activity::IoActivity;
use crate::log::BrokenBy;
use crate::transport::{Transport, Upstream};

/// How often within its limit a tunnel is checked.
const LOOKS: u32 = 4;

/// The most bytes that are read at a time.
const ROOM: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One direction.
struct Half {
    /// Bytes that were read and not written.
    held: Bytes,
    is_at_end: bool,
    is_over: bool,
    /// Reads and writes that moved bytes.
    moved: u64,
    /// Bytes that were written.
    written: u64,
}

/// The end that an error belongs to.
enum Failed {
    Source,
    Target,
}

impl Half {
    fn new(held: Bytes) -> Half {
        Half { held, is_at_end: false, is_over: false, moved: 0, written: 0 }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), Failed>> {
        let failed = |_: io::Error| Failed::Target;
        if self.is_over {
            return Poll::Ready(Ok(()));
        }
        loop {
            while !self.held.is_empty() {
                match ready!(Pin::new(&mut *to).poll_write(cx, &self.held)).map_err(failed)? {
                    0 => return Poll::Ready(Err(Failed::Target)),
                    count => {
                        self.held.advance(count);
                        self.moved += 1;
                        self.written += count as u64;
                    }
                }
            }
            if self.is_at_end {
                ready!(Pin::new(&mut *to).poll_close(cx)).map_err(failed)?;
                self.is_over = true;
                return Poll::Ready(Ok(()));
            }
            let read: Poll<Result<usize, Failed>> = BUFFER.with_borrow_mut(|buffer| {
                buffer.resize(ROOM, 0);
                let read = Pin::new(&mut *from).poll_read(cx, buffer);
                let Poll::Ready(count) = read.map_err(|_| Failed::Source)? else {
                    return Poll::Pending;
                };
                let mut rest = &buffer[..count];
                while !rest.is_empty() {
                    match Pin::new(&mut *to).poll_write(cx, rest).map_err(failed)? {
                        Poll::Ready(0) => return Poll::Ready(Err(Failed::Target)),
                        Poll::Ready(count) => {
                            rest = &rest[count..];
                            self.written += count as u64;
                        }
                        Poll::Pending => {
                            self.held = Bytes::copy_from_slice(rest);
                            break;
                        }
                    }
                }
                Poll::Ready(Ok(count))
            });
            match read {
                Poll::Ready(outcome) => {
                    self.is_at_end = outcome? == 0;
                    self.moved += 1;
                }
                Poll::Pending => {
                    // Encryption keeps a record back until it is told to send it.
                    ready!(Pin::new(&mut *to).poll_flush(cx)).map_err(failed)?;
                    return Poll::Pending;
                }
            }
        }
    }
}

/// The time for which no byte has moved.
struct Idleness {
    /// A quarter of the limit.
    period: Duration,
    timer: Sleep,
    moved: u64,
    /// Checks in a row that have seen no byte.
    quiet: u32,
}

impl Idleness {
    fn new(limit: Duration) -> Idleness {
        let period = limit / LOOKS;
        Idleness { period, timer: sleep(period), moved: 0, quiet: 0 }
    }

    /// Ready when no byte has moved for too long.
    fn poll(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<()> {
        while Pin::new(&mut self.timer).poll(cx).is_ready() {
            self.quiet = if moved == self.moved { self.quiet + 1 } else { 0 };
            self.moved = moved;
            if self.quiet == LOOKS {
                return Poll::Ready(());
            }
            self.timer.reset(time::now() + self.period);
        }
        Poll::Pending
    }
}

/// Both directions of a tunnel, which are noted in the access log however the tunnel ends.
struct Directions {
    up: Half,
    down: Half,
    lease: Lease,
    /// `None` after an end in order.
    broken_by: Option<BrokenBy>,
}

impl Drop for Directions {
    fn drop(&mut self) {
        if let Some(entry) = &self.lease.entry {
            entry.sent(self.down.written);
            entry.received(self.up.written);
            if let Some(who) = self.broken_by {
                entry.note(|record| record.broken_by(who));
            }
        }
    }
}

/// The stream of a server that has left HTTP.
pub(super) enum ServerStream {
    /// A connection, and the bytes of it that were read.
    Http1(Upstream, Bytes),
    /// A stream of HTTP/2.
    Http2(Box<Tunnel>),
}

impl From<Http1Connection> for ServerStream {
    fn from(connection: Http1Connection) -> ServerStream {
        let (stream, read) = connection.into_stream();
        ServerStream::Http1(stream, read)
    }
}

impl From<Tunnel> for ServerStream {
    fn from(stream: Tunnel) -> ServerStream {
        ServerStream::Http2(Box::new(stream))
    }
}

/// Passes bytes on between a client and a server, see [`pass`].
pub(super) async fn run(
    client: Transport,
    from_client: Bytes,
    server: ServerStream,
    lease: Lease,
    limit: Duration,
    io_activity: Rc<IoActivity>,
) {
    match server {
        ServerStream::Http1(stream, read) => {
            pass(client, from_client, (stream, read), lease, limit, io_activity).await;
        }
        // It is rarer, and not larger than a box for all others.
        ServerStream::Http2(stream) => {
            let server = (stream, Bytes::new());
            Box::pin(pass(client, from_client, server, lease, limit, io_activity)).await;
        }
    }
}

/// Passes bytes on between a client and a server until both have ended, one has failed, or no byte
/// has moved for as long as `limit`.
async fn pass(
    mut client: Transport,
    from_client: Bytes,
    (mut server, from_server): (impl AsyncRead + AsyncWrite + Unpin, Bytes),
    lease: Lease,
    limit: Duration,
    io_activity: Rc<IoActivity>,
) {
    let mut idleness = Idleness::new(limit);
    let (up, down) = (Half::new(from_client), Half::new(from_server));
    // A tunnel that is given up was ended by this server.
    let mut directions = Directions { up, down, lease, broken_by: Some(BrokenBy::Server) };
    directions.broken_by = poll_fn(|cx| {
        let Directions { up, down, .. } = &mut directions;
        let before = (up.moved, up.written, down.moved, down.written);
        let one = match up.poll(cx, &mut client, &mut server) {
            Poll::Ready(Err(Failed::Source)) => return Poll::Ready(Some(BrokenBy::Client)),
            Poll::Ready(Err(Failed::Target)) => return Poll::Ready(Some(BrokenBy::Upstream)),
            one => one.is_ready(),
        };
        let other = match down.poll(cx, &mut server, &mut client) {
            Poll::Ready(Err(Failed::Source)) => return Poll::Ready(Some(BrokenBy::Upstream)),
            Poll::Ready(Err(Failed::Target)) => return Poll::Ready(Some(BrokenBy::Client)),
            other => other.is_ready(),
        };
        if before != (up.moved, up.written, down.moved, down.written) {
            io_activity.note_active();
        }
        if one && other {
            return Poll::Ready(None);
        }
        idleness.poll(cx, up.moved + down.moved).map(|()| Some(BrokenBy::Timeout))
    })
    .await;
    // Whichever end has failed, both are closed, which tells them.
    drop(directions);
}
