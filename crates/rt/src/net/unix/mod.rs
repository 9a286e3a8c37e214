//! Sockets of the Unix domain (`unix(7)`): streams, datagrams, and sequenced packets, which keep
//! the boundaries of messages on a connection.
//!
//! An address is a path, whose file is made by binding and stays after closing, or a name in the
//! abstract namespace of Linux ([`std::os::linux::net::SocketAddrExt`]), which vanishes with its
//! socket.
//!
//! # Passing descriptors
//!
//! Every type sends and receives descriptors along with bytes (`SCM_RIGHTS`). The receiver owns
//! duplicates, which are closed on exec. At most 253 travel with one message. On a stream they
//! travel with the first byte of the bytes sent. A read ends after the bytes that they came with,
//! so that they are never taken for the descriptors of a later message.
//!
//! A receiver states how many descriptors it expects. More than that is an error, and so is a
//! process that has no room for them: the descriptors that did arrive are closed, and the bytes of
//! the message are lost. An operation that expects none discards them silently.

mod address;
mod datagram;
mod listener;
mod passing;
mod seqpacket;
mod stream;

pub use datagram::UnixDatagram;
pub use listener::{UnixListener, UnixSeqpacketListener};
pub use passing::{PeerCredentials, Received};
pub use seqpacket::UnixSeqpacket;
pub use stream::UnixStream;
