//! Passing descriptors, and the credentials of the peer.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Context;

use crate::async_fd::AsyncFd;
use crate::short_reads::IoState;
use crate::sources::Direction;
use crate::sys::message;

/// The outcome of one receive.
#[derive(Debug)]
#[non_exhaustive]
pub struct Received {
    /// How many bytes are in the buffer. Zero is the end of a stream, or an empty message.
    pub length: usize,
    /// Whether the message was longer than the buffer; the rest is lost. Never so on a stream.
    pub truncated: bool,
    /// The descriptors that came along, in the order in which they were sent.
    pub fds: Vec<OwnedFd>,
}

/// The process that was at the other end when the connection, or the pair, was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct PeerCredentials {
    /// The process; 0 if it is in a namespace that cannot be seen from here.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

pub(super) fn credentials(socket: &impl AsFd) -> io::Result<PeerCredentials> {
    let peer = message::peer(socket.as_fd())?;
    Ok(PeerCredentials { pid: peer.pid, uid: peer.uid, gid: peer.gid })
}

fn check(fds: usize) -> io::Result<()> {
    if fds <= message::MOST {
        return Ok(());
    }
    let text = format!(
        "passing {fds} descriptors: one message carries {} at most; send several messages",
        message::MOST
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Sends bytes with descriptors.
pub(super) async fn send<T: AsFd>(
    socket: &AsyncFd<T>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    check(fds.len())?;
    socket
        .perform(Direction::Write, |socket| {
            message::send(socket.as_fd(), &[IoSlice::new(bytes)], fds)
        })
        .await
}

/// Receives bytes and at most `limit` descriptors. `drains` says that the socket is a stream: there
/// a short count means that the stream is drained, unless descriptors came along.
pub(super) async fn receive<T: AsFd>(
    socket: &AsyncFd<T>,
    buffer: &mut [u8],
    limit: usize,
    drains: bool,
) -> io::Result<Received> {
    check(limit)?;
    let poll = |cx: &mut Context<'_>| {
        socket.poll_with(cx, Direction::Read, |socket| {
            let requested = buffer.len();
            let received = message::receive(socket.as_fd(), &mut [IoSliceMut::new(buffer)], limit)?;
            let ended_early = received.has_control || received.control_truncated;
            let after = if drains && !ended_early {
                IoState::after(received.length, requested)
            } else {
                IoState::Ready
            };
            Ok((received, after))
        })
    };
    let received = socket.wait(Direction::Read, poll).await?;
    if received.control_truncated {
        let text = format!(
            "receiving descriptors: more came than the {limit} expected, or the process has no room for them; \
             all are closed"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Received { length: received.length, truncated: received.truncated, fds: received.fds })
}

/// The methods that all types have.
macro_rules! passing {
    (drains: $drains:literal, $unit:literal) => {
        #[doc = concat!("Sends ", $unit, " together with descriptors, which stay open here.")]
        ///
        /// Cancel safe: while it is pending, nothing was sent.
        ///
        /// # Errors
        ///
        /// `InvalidInput` for more than 253 descriptors, `ETOOMANYREFS` when more of them are under
        /// way than the limit of open files, or any error of `sendmsg(2)`.
        pub async fn send_with_fds(
            &self,
            bytes: &[u8],
            fds: &[std::os::fd::BorrowedFd<'_>],
        ) -> std::io::Result<usize> {
            if $drains && bytes.is_empty() && !fds.is_empty() {
                return Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    "passing descriptors on a stream: they travel with a byte; send at least one",
                ));
            }
            $crate::net::unix::passing::send(&self.fd, bytes, fds).await
        }

        #[doc = concat!("Receives ", $unit, " and the descriptors that come with it, at most `limit`.")]
        /// An empty buffer takes the descriptors alone, and so waits for them.
        ///
        /// Cancel safe: while it is pending, nothing was taken.
        ///
        /// # Errors
        ///
        /// `InvalidInput` for a limit of more than 253. `InvalidData` if more came, or the process
        /// has no room for them: all are closed then, and the bytes are lost. Otherwise any error
        /// of `recvmsg(2)`.
        pub async fn recv_with_fds(
            &self,
            buffer: &mut [u8],
            limit: usize,
        ) -> std::io::Result<$crate::net::unix::Received> {
            $crate::net::unix::passing::receive(&self.fd, buffer, limit, $drains).await
        }

        /// Returns the process that was at the other end when the connection or the pair was made
        /// (`SO_PEERCRED`). Other datagram sockets know no such process.
        ///
        /// # Errors
        ///
        /// Any error of `getsockopt(2)`.
        pub fn peer_credentials(&self) -> std::io::Result<$crate::net::unix::PeerCredentials> {
            $crate::net::unix::passing::credentials(&self.fd)
        }

        /// Ends one direction or both (`shutdown(2)`).
        ///
        /// # Errors
        ///
        /// Any error of `shutdown(2)`.
        pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
            self.fd.get_ref().shutdown(how)
        }
    };
}

pub(super) use passing;
