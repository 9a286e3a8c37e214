//! The streams that are read, and all operations that can take bytes from them.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncReadExt};
use superpoll_rt::net::TcpStream;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::pipe::{self, PipeReader};
use superpoll_rt::transfer::splice;
use superpoll_rt::{Direction, time};

use super::{Patience, Random};

/// An operation that takes bytes from a stream, or peeks at them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// A read as a future.
    Read,
    /// A read that is polled once, by hand.
    Poll,
    Parts,
    Try,
    Ready,
    Peek,
    Splice,
    Half,
    OwnHalf,
    /// The socket is taken out and put in again.
    Anew,
    Hyper,
    Tokio,
}

impl Op {
    pub(crate) const ALL: [Op; 13] = [
        Op::Read,
        Op::Read,
        Op::Poll,
        Op::Parts,
        Op::Try,
        Op::Ready,
        Op::Peek,
        Op::Splice,
        Op::Half,
        Op::OwnHalf,
        Op::Anew,
        Op::Hyper,
        Op::Tokio,
    ];
}

/// An operation, and how it is made.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) op: Op,
    pub(crate) length: usize,
    pub(crate) patience: Patience,
    pub(crate) limit: Duration,
}

impl Order {
    /// Returns the outcome of a read.
    async fn read(self, mut reader: impl AsyncRead + Unpin, taken: &mut Vec<u8>) -> io::Result<()> {
        let mut room = vec![0; self.length];
        let count = self.patience.of(self.limit, reader.read(&mut room)).await;
        taken.extend_from_slice(&room[..some(count)?]);
        Ok(())
    }

    /// Returns the outcome of a read with several buffers, the first of them empty now and then.
    async fn read_parts(
        self,
        mut reader: impl AsyncRead + Unpin,
        random: &mut Random,
        taken: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (mut one, mut two) =
            (vec![0; random.below(self.length as u64) as usize], vec![0; self.length]);
        let mut parts = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let count = self.patience.of(self.limit, reader.read_vectored(&mut parts)).await;
        let count = some(count)?;
        one.extend_from_slice(&two);
        taken.extend_from_slice(&one[..count]);
        Ok(())
    }

    /// Returns the outcome of a read that is polled by hand, once.
    async fn poll(self, mut reader: impl AsyncRead + Unpin, taken: &mut Vec<u8>) -> io::Result<()> {
        let mut room = vec![0; self.length];
        let polled =
            poll_fn(|cx| Poll::Ready(Pin::new(&mut reader).poll_read(cx, &mut room))).await;
        if let Poll::Ready(count) = polled {
            taken.extend_from_slice(&room[..some(Some(count))?]);
        }
        Ok(())
    }
}

/// Returns a count, which is not that of the end; none if the operation was given up.
fn some(count: Option<io::Result<usize>>) -> io::Result<usize> {
    match count {
        Some(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(outcome) => outcome,
        None => Ok(0),
    }
}

/// The same for an operation that may return `WouldBlock`.
fn now(count: io::Result<usize>) -> io::Result<usize> {
    match count {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        count => some(Some(count)),
    }
}

/// Moves bytes into a pipe and reads them there.
macro_rules! spliced {
    ($order:ident, $from:expr, $taken:ident) => {{
        let (mut reader, writer) = pipe::pipe()?;
        let moving = splice($from, &writer, $order.length);
        let moved = some($order.patience.of($order.limit, moving).await)?;
        let start = $taken.len();
        $taken.resize(start + moved, 0);
        reader.read_exact(&mut $taken[start..]).await?;
    }};
}

/// A stream that is read.
pub(crate) trait Subject {
    /// Carries an operation out, and puts the bytes that it has taken into `taken`. Returns the
    /// bytes that it has seen and left.
    async fn act(
        &mut self,
        order: Order,
        random: &mut Random,
        taken: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>>;

    /// Reads behind the last byte.
    async fn ends(&mut self, limit: Duration) -> io::Result<usize>;
}

/// A stream socket.
pub(crate) struct Of<S>(pub(crate) Option<S>);

macro_rules! subject {
    ($type:ident, |$stream:ident, $room:ident| $peek:expr) => {
        impl Subject for Of<$type> {
            async fn act(
                &mut self,
                order: Order,
                random: &mut Random,
                taken: &mut Vec<u8>,
            ) -> io::Result<Vec<u8>> {
                let Order { length, patience, limit, .. } = order;
                let $stream = self.0.as_mut().unwrap();
                let mut room = vec![0; length];
                match order.op {
                    Op::Read => order.read($stream, taken).await?,
                    Op::Poll => order.poll($stream, taken).await?,
                    Op::Parts => order.read_parts($stream, random, taken).await?,
                    Op::Try => {
                        let count = now($stream.try_read(&mut room))?;
                        taken.extend_from_slice(&room[..count]);
                    }
                    Op::Ready => {
                        if let Some(ready) = patience.of(limit, $stream.readable()).await {
                            ready?;
                            let count = now($stream.try_read(&mut room))?;
                            taken.extend_from_slice(&room[..count]);
                        }
                    }
                    Op::Peek => {
                        let $room = &mut room[..];
                        let count = patience.of(limit, $peek).await;
                        let count = count.map_or(Ok(0), now)?;
                        room.truncate(count);
                        return Ok(room);
                    }
                    Op::Splice => spliced!(order, &*$stream, taken),
                    Op::Half => order.read($stream.split().0, taken).await?,
                    Op::OwnHalf => {
                        let (mut half, other) = self.0.take().unwrap().into_split();
                        let outcome = order.read(&mut half, taken).await;
                        self.0 = half.reunite(other).ok();
                        outcome?;
                    }
                    Op::Anew => {
                        let socket = self.0.take().unwrap().into_std();
                        self.0 = Some($type::from_std(socket)?);
                    }
                    Op::Hyper => {
                        let mut memory = hyper::rt::ReadBuf::new(&mut room);
                        let read = poll_fn(|cx| {
                            let stream = Pin::new(&mut *$stream);
                            hyper::rt::Read::poll_read(stream, cx, memory.unfilled())
                        });
                        if let Some(outcome) = patience.of(limit, read).await {
                            outcome?;
                            taken.extend_from_slice(memory.filled());
                        }
                    }
                    Op::Tokio => {
                        let mut memory = tokio::io::ReadBuf::new(&mut room);
                        let read = |cx: &mut Context<'_>| {
                            let stream = Pin::new(&mut *$stream);
                            tokio::io::AsyncRead::poll_read(stream, cx, &mut memory)
                        };
                        if let Some(outcome) = patience.of(limit, poll_fn(read)).await {
                            outcome?;
                            taken.extend_from_slice(memory.filled());
                        }
                    }
                }
                Ok(Vec::new())
            }

            async fn ends(&mut self, limit: Duration) -> io::Result<usize> {
                let stream = self.0.as_mut().unwrap();
                let end = time::timeout(limit, stream.read(&mut [0; 10])).await;
                end.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    };
}

subject!(TcpStream, |stream, room| stream.peek(room));
// It has no such operation.
subject!(UnixStream, |stream, _room| async {
    stream.readable().await?;
    Err(io::ErrorKind::WouldBlock.into())
});

/// The reading end of a pipe.
pub(crate) struct Piped {
    pub(crate) reader: PipeReader,
    /// Whether it is read in packets. Bytes that do not fit are lost, so a read has room for all.
    pub(crate) in_packets: bool,
}

impl Subject for Piped {
    async fn act(
        &mut self,
        mut order: Order,
        random: &mut Random,
        taken: &mut Vec<u8>,
    ) -> io::Result<Vec<u8>> {
        if self.in_packets {
            order.length = order.length.max(super::writers::PACKET);
        }
        let Order { patience, limit, .. } = order;
        let reader = &mut self.reader;
        match order.op {
            Op::Poll | Op::Hyper | Op::Tokio => order.poll(reader, taken).await?,
            Op::Parts if !self.in_packets => order.read_parts(reader, random, taken).await?,
            Op::Splice => spliced!(order, &*reader, taken),
            Op::Ready => {
                if let Some(ready) = patience.of(limit, reader.ready(Direction::Read)).await {
                    let _ = ready?;
                    order.poll(reader, taken).await?;
                }
            }
            _ => order.read(reader, taken).await?,
        }
        Ok(Vec::new())
    }

    async fn ends(&mut self, limit: Duration) -> io::Result<usize> {
        let end = time::timeout(limit, self.reader.read(&mut [0; 200])).await;
        end.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
