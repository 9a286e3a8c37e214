//! Sending to many sockets with one system call (`io_uring(7)`, Linux 6.1 for all flags).
//!
//! A message to thousands of parked subscribers is a `send` for each of them, and entering the
//! kernel is a good part of each. A ring takes all of them along at once. The kernel carries out a
//! send with `MSG_DONTWAIT` while it is handed in, or answers that there is no room, so every
//! completion is there when the call returns and nothing stays under way: the buffers are free
//! again, and no send can be carried out later on whatever file has a socket's number by then.
//!
//! A call that fails may have handed in some of the entries (`EAGAIN`, `ENOMEM`). Those are known
//! by their order. The others were not sent, and the ring is of no more use: it would carry them
//! out with the next call. Its owner drops it, and writes without one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

/// The most sends of a call.
pub const MOST: usize = 256;

/// A ring that sends. It belongs to the thread that has made it.
pub struct SendRing {
    ring: IoUring,
}

/// A socket, and the bytes to be sent to it.
pub(crate) type Outgoing<'a> = (BorrowedFd<'a>, &'a [u8]);

/// The outcomes of a batch.
pub struct Sent {
    /// The number of bytes that each socket has taken, or its error; `None` if nothing was tried.
    pub outcomes: Vec<Option<io::Result<usize>>>,
    /// The ring has failed, and must be dropped.
    pub is_broken: bool,
}

impl SendRing {
    /// Creates a ring.
    ///
    /// # Errors
    ///
    /// The kernel's; `EPERM` where io_uring is switched off (`kernel.io_uring_disabled`).
    pub fn new() -> io::Result<SendRing> {
        let entries = u32::try_from(MOST).unwrap_or(u32::MAX);
        let fast = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        fast.or_else(|_| IoUring::new(entries)).map(|ring| SendRing { ring })
    }

    /// Sends to at most [`MOST`] sockets as much as each has room for now; a socket without room
    /// takes zero bytes.
    pub(crate) fn send(&mut self, batch: &[Outgoing<'_>]) -> Sent {
        let batch = &batch[..batch.len().min(MOST)];
        let mut outcomes: Vec<_> = batch.iter().map(|_| None).collect();
        let mut queue = self.ring.submission();
        for (index, (socket, bytes)) in (0_u64..).zip(batch) {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(types::Fd(socket.as_raw_fd()), bytes.as_ptr(), length)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build()
                .user_data(index);
            // SAFETY: the socket and the bytes live until the end of this function, and every send
            // that is handed in is over by then; a ring that has others is not used again.
            let pushed = unsafe { queue.push(&send) };
            debug_assert!(pushed.is_ok(), "the queue was empty and has room for all");
        }
        drop(queue);
        let (mut missing, mut is_broken) = (batch.len(), false);
        while missing > 0 && !is_broken {
            match self.ring.submit_and_wait(missing) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => is_broken = true,
            }
            for completion in self.ring.completion() {
                let index = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
                if let Some(outcome) = outcomes.get_mut(index).filter(|outcome| outcome.is_none()) {
                    *outcome = Some(taken(completion.result()));
                    missing -= 1;
                }
            }
        }
        if is_broken {
            let left = self.ring.submission().len();
            for outcome in &mut outcomes[..batch.len() - left.min(batch.len())] {
                // It was handed in, and whether it was sent is not known.
                outcome.get_or_insert_with(|| Err(io::ErrorKind::Other.into()));
            }
        }
        Sent { outcomes, is_broken }
    }
}

fn taken(result: i32) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(count) => Ok(count),
        Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR) => Ok(0),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        (one, other)
    }

    /// Where the kernel refuses rings, there is nothing to test.
    fn ring() -> Option<SendRing> {
        SendRing::new().inspect_err(|error| println!("skipped: no io_uring: {error}")).ok()
    }

    #[test]
    fn each_socket_takes_what_it_has_room_for() {
        let Some(mut ring) = ring() else { return };
        let large = vec![b'x'; 16 << 20];
        let (empty, mut reader) = pair();
        let (full, mut full_reader) = pair();
        let filled = (&full).write(&large).unwrap();
        let (narrow, mut narrow_reader) = pair();
        let (gone, peer) = pair();
        drop(peer);
        let (shut, _peer) = pair();
        shut.shutdown(Shutdown::Write).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = listener.accept().unwrap().0;
        for round in 0..3 {
            let batch = [
                (empty.as_fd(), &b"first"[..]),
                (full.as_fd(), b"no room"),
                (narrow.as_fd(), &large),
                (gone.as_fd(), b"gone"),
                (shut.as_fd(), b"shut"),
                (tcp.as_fd(), b"tcp"),
            ];
            let Sent { outcomes, is_broken } = ring.send(&batch);
            assert!(!is_broken);
            let count = |index: usize| outcomes[index].as_ref().unwrap().as_ref().ok().copied();
            assert_eq!((count(0), count(1), count(5)), (Some(5), Some(0), Some(3)));
            let written = count(2).unwrap();
            assert!(if round == 0 { (1..large.len()).contains(&written) } else { written == 0 });
            for index in [3, 4] {
                let error = outcomes[index].as_ref().unwrap().as_ref().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            }
            if round == 0 {
                let mut read = vec![0; written];
                narrow_reader.read_exact(&mut read).unwrap();
                assert!(read.iter().all(|&byte| byte == b'x'));
                narrow_reader.set_nonblocking(true).unwrap();
                // It is filled again, so that the next rounds find no room.
                while (&narrow).write(&large).is_ok() {}
            }
        }
        let mut read = [0; 15];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"firstfirstfirst");
        let mut read = [0; 9];
        client.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"tcptcptcp");
        let mut read = vec![0; filled];
        full_reader.read_exact(&mut read).unwrap();
    }

    /// Against plain writes: the same bytes in the same order, however many sockets there are.
    #[test]
    fn a_batch_of_any_size_is_what_single_writes_are() {
        let Some(mut ring) = ring() else { return };
        for count in [0, 1, 2, 7, MOST - 1, MOST, MOST + 9] {
            let mut pairs: Vec<_> = (0..count).map(|_| pair()).collect();
            let texts: Vec<String> = (0..count).map(|index| format!("text {index}")).collect();
            let batch: Vec<Outgoing<'_>> = pairs
                .iter()
                .zip(&texts)
                .map(|((socket, _), text)| (socket.as_fd(), text.as_bytes()))
                .collect();
            let sent = ring.send(&batch);
            assert_eq!((sent.outcomes.len(), sent.is_broken), (count.min(MOST), false));
            for (index, outcome) in sent.outcomes.into_iter().enumerate() {
                assert_eq!(outcome.unwrap().unwrap(), texts[index].len());
                let mut read = vec![0; texts[index].len()];
                pairs[index].1.read_exact(&mut read).unwrap();
                assert_eq!(read, texts[index].as_bytes());
            }
        }
    }
}
