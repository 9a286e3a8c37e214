//! The descriptors an experiment works on: pairs of a reader that is watched and a writer.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::error::{Doing, Error, Result};
use crate::sys::{descriptor, process};

crate::by_name::named! {
    /// Kinds of descriptors.
    pub(crate) enum Kind {
        /// Pipes.
        Pipe = "pipe",
        /// Connected Unix-domain stream sockets.
        Unix = "unix",
        /// TCP connections over the loopback interface, without Nagle's delay.
        Tcp = "tcp",
    }
}

/// Descriptors that an experiment needs in addition to its pairs: standard streams, epoll sets,
/// files.
const RESERVE: usize = 64;

/// The congestion controls to try; the first that the kernel has is used. Every run uses the same
/// congestion control, whatever the system's default (some keep timers per segment, which would be
/// measured as well).
const CONGESTION: [&str; 2] = ["reno", "cubic"];

/// Where a system keeps the congestion control of new TCP sockets, each network its own.
const DEFAULT_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Makes the servers that this thread starts from now on use a plain congestion control, even those
/// whose sockets cannot be configured: they get a network of their own with it. Returns a note with
/// the reason where that is not permitted; all servers then use the system's default alike.
pub(crate) fn plain_network() -> Option<String> {
    let made = process::enter_new().and_then(|()| {
        let set = |name: &&&str| std::fs::write(DEFAULT_CONGESTION, name).is_ok();
        CONGESTION.iter().find(set).map(drop).ok_or_else(|| io::ErrorKind::Unsupported.into())
    });
    made.err().map(|error| {
        format!(
            "a network of its own with a plain congestion control: {error}; all use the system's, {}",
            default_congestion()
        )
    })
}

/// Returns the congestion control of new sockets.
pub(crate) fn default_congestion() -> String {
    std::fs::read_to_string(DEFAULT_CONGESTION).unwrap_or_default().trim().to_owned()
}

/// Chooses a plain congestion control. A kernel with none of them uses its default for all alike.
pub(crate) fn plain_congestion(socket: &OwnedFd) {
    let _ = CONGESTION.iter().any(|name| descriptor::set_congestion(socket, name).is_ok());
}

/// Returns how many pairs fit under the limit of this process, after raising its soft limit to the
/// hard one.
pub(crate) fn most_pairs() -> usize {
    let limit =
        superpoll::limits::raise_descriptors().unwrap_or_else(|_| superpoll::limits::nofile().0);
    (usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(RESERVE)) / 2
}

/// Refuses a number of pairs that does not fit under the limit of this process, and none at all.
pub(crate) fn check_total(total: usize) -> Result<()> {
    fits("--total", total, 1..=most_pairs())
}

/// Refuses a value of an option outside of this range, whose end is what the limit of descriptors
/// leaves.
pub(crate) fn fits(option: &str, value: usize, range: RangeInclusive<usize>) -> Result<()> {
    let (least, most, limit) = (range.start(), range.end(), superpoll::limits::nofile().1);
    let text = || {
        format!(
            "{option} {value} is not possible: give {least} to {most}, as the limit of {limit} \
             descriptors leaves"
        )
    };
    range.contains(&value).then_some(()).ok_or_else(|| Error::usage(text()))
}

/// The pairs.
#[derive(Debug)]
pub(crate) struct Pairs {
    readers: Vec<OwnedFd>,
    #[allow(dead_code, reason = "they are open as long as the pairs are")]
    writers: Vec<OwnedFd>,
    reader_numbers: Vec<RawFd>,
    writer_numbers: Vec<RawFd>,
    answers: bool,
}

impl Pairs {
    /// Opens `total` pairs of a kind.
    ///
    /// The writers of a small set are moved out of the first 1024 numbers, so that `select` can
    /// watch the readers.
    pub(crate) fn open(kind: Kind, total: usize) -> Result<Pairs> {
        let (soft, _) = superpoll::limits::nofile();
        let room_above = usize::try_from(soft).unwrap_or(usize::MAX) > 1024 + total;
        let floor = (total + RESERVE / 4 <= 1024 && room_above).then_some(1024);
        let open = opener(kind).doing("listening on the loopback interface")?;
        let open_one = |place: usize| {
            let moved = open().and_then(|(reader, writer)| match floor {
                Some(floor) => Ok((reader, descriptor::move_to(writer, floor)?)),
                None => Ok((reader, writer)),
            });
            moved.doing(format_args!("opening pair {} of {total} ({kind})", place + 1))
        };
        let pairs = (0..total).map(open_one).collect::<Result<Vec<_>>>()?;
        let (readers, writers): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
        let numbers = |ends: &[OwnedFd]| ends.iter().map(AsRawFd::as_raw_fd).collect();
        let (reader_numbers, writer_numbers) = (numbers(&readers), numbers(&writers));
        let answers = kind == Kind::Tcp;
        Ok(Pairs { readers, writers, reader_numbers, writer_numbers, answers })
    }

    /// Writes this byte to each of these pairs.
    #[inline(always)]
    pub(crate) fn write(&self, active: &[u32], byte: u8) -> Result<()> {
        let mut written = 0;
        for &pair in active {
            let writer = self.writer_numbers[pair as usize];
            written += usize::from(descriptor::write_byte(writer, byte));
        }
        if written != active.len() {
            return Err(Error::last(format!("writing to {} of {}", written + 1, active.len())));
        }
        Ok(())
    }

    /// Sends a byte back from each of these readers, where the kind needs it; not to be timed.
    ///
    /// A TCP receiver that never answers acknowledges each segment by a packet of its own, out of
    /// the read: two to three microseconds of network stack that no server with requests and
    /// responses sees. An answer carries the acknowledgement and keeps the connection in the
    /// kernel's interactive mode.
    pub(crate) fn answer(&self, active: &[u32]) -> Result<()> {
        if !self.answers {
            return Ok(());
        }
        for &pair in active {
            if !descriptor::write_byte(self.reader_numbers[pair as usize], 0) {
                return Err(Error::last(format!("answering on pair {pair}")));
            }
        }
        for &pair in active {
            // The network may be late.
            while descriptor::read_byte(self.writer_numbers[pair as usize]).is_none() {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Takes the writers out, so that they can be closed while the readers are in use: these see
    /// the end then.
    #[cfg(test)]
    pub(crate) fn take_writers(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.writers)
    }

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.readers.len()
    }

    /// Returns the numbers of the readers, by pair.
    pub(crate) fn readers(&self) -> &[RawFd] {
        &self.reader_numbers
    }

    /// Returns the readers, for callers that take more than a number.
    pub(crate) fn reader_handles(&self) -> &[OwnedFd] {
        &self.readers
    }

    /// Returns the numbers of the writers, by pair.
    pub(crate) fn writers(&self) -> &[RawFd] {
        &self.writer_numbers
    }
}

/// Returns pairs of connected sockets that do not block; both ends are read and written. TCP
/// sockets are without Nagle's delay and with a plain congestion control.
pub(crate) fn socket_pairs(kind: Kind, total: usize) -> Result<Vec<(OwnedFd, OwnedFd)>> {
    if kind == Kind::Pipe {
        return Err(Error::usage("a pipe has one direction: choose tcp or unix"));
    }
    let pairs = opener(kind).and_then(|open| (0..total).map(|_| open()).collect());
    pairs.doing(format_args!("connecting {total} pairs ({kind})"))
}

/// Returns a function that opens a pair of this kind, each time another one.
fn opener(kind: Kind) -> io::Result<impl Fn() -> io::Result<(OwnedFd, OwnedFd)>> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = (kind == Kind::Tcp).then(listen).transpose()?;
    Ok(move || match (&listener, kind) {
        (Some(listener), _) => tcp_pair(listener),
        (None, Kind::Unix) => descriptor::unix_pair(),
        (None, _) => descriptor::pipe(),
    })
}

fn tcp_pair(listener: &TcpListener) -> io::Result<(OwnedFd, OwnedFd)> {
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    for stream in [&reader, &writer] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    for fd in [&reader, &writer] {
        descriptor::reset_on_close(fd)?;
        plain_congestion(fd);
    }
    Ok((reader, writer))
}

#[cfg(test)]
mod tests {
    use superpoll_test_support::alone;

    use super::*;

    /// In a process of its own: other tests open thousands of descriptors for a moment.
    #[test]
    fn every_kind_carries_a_byte_and_select_can_watch_small_sets() {
        alone(|| {
            most_pairs();
            for kind in Kind::ALL {
                let pairs = Pairs::open(kind, 3).unwrap();
                assert_eq!(pairs.len(), 3);
                for (&reader, &writer) in pairs.readers().iter().zip(pairs.writers()) {
                    assert!(reader < 1024);
                    assert!(descriptor::read_byte(reader).is_none());
                    assert!(descriptor::write_byte(writer, 7));
                    let byte = loop {
                        if let Some(byte) = descriptor::read_byte(reader) {
                            break byte;
                        }
                    };
                    assert_eq!(byte, 7);
                }
            }
        });
    }
}
