//! The bytes that are written, and the events between them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::AsyncWriteExt;
use socket2::SockRef;
use superpoll_conformance::sys;
use superpoll_rt::net::TcpStream;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::pipe::{self, PipeReader, PipeWriter};
use superpoll_rt::{time, yield_now};

use super::{AHEAD, Random, Shared, bytes};

/// The interval of the writers that write together.
const BEAT: Duration = Duration::from_micros(300);

/// The most bytes of a packet.
pub(crate) const PACKET: usize = 128;

/// A pipe whose reads end where its writes did (`O_DIRECT`).
pub(crate) fn packets() -> (PipeReader, PipeWriter) {
    let (reader, writer) = sys::packet_pipe().unwrap();
    (pipe::reader_from(reader).unwrap(), pipe::writer_from(writer).unwrap())
}

/// A stream that is written to.
pub(crate) trait Target {
    /// The most bytes of a piece.
    const MOST: u64;

    async fn write(&mut self, piece: &[u8], random: &mut Random) -> io::Result<()>;

    /// Sends a byte that does not belong to the stream, where that exists.
    fn mark(&self) -> bool {
        false
    }
}

impl Target for TcpStream {
    const MOST: u64 = 400;

    async fn write(&mut self, piece: &[u8], _: &mut Random) -> io::Result<()> {
        self.write_all(piece).await
    }

    fn mark(&self) -> bool {
        SockRef::from(self).send_out_of_band(b"!").is_ok()
    }
}

impl Target for UnixStream {
    const MOST: u64 = 400;

    async fn write(&mut self, piece: &[u8], random: &mut Random) -> io::Result<()> {
        if random.below(4) > 0 {
            return self.write_all(piece).await;
        }
        let file = File::open("/dev/null")?;
        let count = self.send_with_fds(piece, &[file.as_fd()]).await?;
        self.write_all(&piece[count..]).await
    }

    fn mark(&self) -> bool {
        SockRef::from(self).send_out_of_band(b"!").is_ok()
    }
}

impl Target for PipeWriter {
    const MOST: u64 = PACKET as u64;

    async fn write(&mut self, piece: &[u8], _: &mut Random) -> io::Result<()> {
        self.write_all(piece).await
    }
}

/// Writes all, and ends the stream by dropping it.
pub(crate) async fn write(
    mut target: impl Target,
    shared: Rc<Shared>,
    began: Instant,
    total: u64,
    mut random: Random,
) {
    let (mut at, mut mark) = (0, None);
    let marks = random.below(2) == 0;
    while at < total {
        // One urgent byte at a time: the byte of a mark that is not passed becomes part of the
        // stream when another comes.
        if marks && at > 0 && mark.is_none_or(|mark| shared.read.get() > mark) {
            mark = target.mark().then_some(at);
        }
        if at - shared.read.get() < AHEAD {
            let count = (1 + random.below(target_most(&target))).min(total - at);
            // The reader reports the failure.
            if target.write(&bytes(at, count), &mut random).await.is_err() {
                return;
            }
            at += count;
        }
        match random.below(24) {
            // The engine is late: bytes have come and patience is over at the same time.
            23 => thread::sleep(Duration::from_micros(random.below(500))),
            0..4 => time::sleep(Duration::from_micros(random.below(150))).await,
            4..8 => {}
            // Together with other writers, so that an engine finds many streams readable at once.
            8..16 => time::sleep_until(beat(began)).await,
            _ => yield_now().await,
        }
    }
    while shared.read.get() < total && Rc::strong_count(&shared) > 1 {
        time::sleep(Duration::from_micros(50)).await;
    }
}

/// Returns the next moment of a beat that all streams of a stage count.
fn beat(began: Instant) -> Instant {
    let beats = began.elapsed().as_nanos() / BEAT.as_nanos() + 1;
    began + BEAT * beats as u32
}

fn target_most<T: Target>(_: &T) -> u64 {
    T::MOST
}
