//! Messages between the processes of a server, over Unix-domain streams.
//!
//! The processes are one program, so the form is the one that serde gives to the types (postcard):
//! four bytes with the length, then the message. The first message of a connection is a greeting
//! with the number of the protocol, and the first answer says whether it is the same: the types of
//! another one differ. Messages come from processes of the same user only ([`is_own`]); a length
//! above
//! `LARGEST` ends the connection.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use superpoll_rt::net::unix::UnixStream;

/// The most bytes of a message.
const LARGEST: usize = 256 << 20;

/// The number of the protocol, and of the form in which a supervisor leaves its state. It grows
/// with each change of a type that is sent between processes, or left for the next program.
pub const PROTOCOL: u32 = 9;

/// The first message of a connection to the supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Greeting {
    protocol: u32,
    purpose: Purpose,
}

/// The answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Welcome {
    is_same: bool,
}

/// The use of a connection to the supervisor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// A worker process introduces itself, and stays connected as long as it lives.
    Worker {
        /// Its place among the workers.
        slot: u32,
        /// The number of the process.
        process: u32,
    },
    /// A worker process cannot serve, and ends.
    Failed {
        /// The number of the process.
        process: u32,
        /// The text of the error that the sender reports.
        error: String,
    },
    /// It asks for the configuration that is in use: its number, and its text.
    Configuration,
    /// It asks for the listeners.
    Listeners,
    /// It uses the log of the channels.
    Log,
}

/// Returns the address of a name in the abstract namespace (`unix(7)`).
pub fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Whether the process at the other end is this user's, or root's.
pub fn is_own(stream: &UnixStream) -> bool {
    let user = geteuid().as_raw();
    stream.peer_credentials().is_ok_and(|peer| peer.uid == user || peer.uid == 0)
}

/// Connects to the supervisor of a name for a purpose.
///
/// # Errors
///
/// The errors of `connect(2)`; `PermissionDenied` if another user listens there.
pub async fn connect(name: &str, purpose: Purpose) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(name)?).await?;
    if !is_own(&stream) {
        let what = "the supervisor is another user's process";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    send(&stream, &Greeting { protocol: PROTOCOL, purpose }).await?;
    match receive(&stream).await? {
        Some(Welcome { is_same: true }) => Ok(stream),
        Some(Welcome { is_same: false }) => {
            Err(invalid("the supervisor has another protocol: it is of another version"))
        }
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Receives a greeting, and answers it. `None`: it is of another version, or the other side has
/// gone.
///
/// # Errors
///
/// As [`receive`].
pub async fn welcome(stream: &UnixStream) -> io::Result<Option<Purpose>> {
    let Some(greeting) = receive::<Greeting>(stream).await? else { return Ok(None) };
    let is_same = greeting.protocol == PROTOCOL;
    send(stream, &Welcome { is_same }).await?;
    Ok(is_same.then_some(greeting.purpose))
}

/// Sends a message.
///
/// # Errors
///
/// The errors of `write(2)`; `InvalidData` for a message that is too large.
pub async fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(message, bytes).map_err(invalid)?;
    let length = bytes.len() - 4;
    if length > LARGEST {
        return Err(invalid(format!("a message of {length} bytes")));
    }
    // It fits: it was compared with the largest.
    bytes[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    stream.write_all(&bytes).await
}

/// Receives a message; `None` if the other side has ended between two messages. If the future is
/// dropped, the connection must not be used any more.
///
/// # Errors
///
/// The errors of `read(2)`; `InvalidData` if it is no message; `UnexpectedEof` within a message.
pub async fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    let first = stream.read(&mut length).await?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[first..]).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST {
        return Err(invalid(format!("a message of {length} bytes")));
    }
    let mut bytes = Vec::new();
    // Memory is taken for bytes that are there, not for a length that says so.
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map(Some).map_err(invalid)
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use superpoll_rt::Runtime;

    use super::*;

    #[test]
    fn another_version_is_told_that_it_is_one() {
        Runtime::new().unwrap().block_on(async {
            for (protocol, expected) in [(PROTOCOL, Some(Purpose::Log)), (PROTOCOL + 1, None)] {
                let (one, other) = UnixStream::pair().unwrap();
                let greeting = Greeting { protocol, purpose: Purpose::Log };
                send(&one, &greeting).await.unwrap();
                assert_eq!(welcome(&other).await.unwrap(), expected);
                let is_same = expected.is_some();
                assert_eq!(receive(&one).await.unwrap(), Some(Welcome { is_same }));
            }
        });
    }

    #[test]
    fn messages_come_as_they_were_sent_and_nothing_else_is_taken() {
        Runtime::new().unwrap().block_on(async {
            let (one, other) = UnixStream::pair().unwrap();
            let greeting = |slot| Greeting {
                protocol: PROTOCOL,
                purpose: Purpose::Worker { slot, process: 7 },
            };
            for slot in 0..3 {
                send(&one, &greeting(slot)).await.unwrap();
            }
            for slot in 0..3 {
                assert_eq!(receive(&other).await.unwrap(), Some(greeting(slot)));
            }
            drop(one);
            assert_eq!(receive::<Greeting>(&other).await.unwrap(), None);
            for (wrong, kind) in [
                (&[255, 255, 255, 255][..], io::ErrorKind::InvalidData),
                (&[2, 0, 0, 0, 9, 9], io::ErrorKind::InvalidData),
                (&[9, 0, 0, 0, 1], io::ErrorKind::UnexpectedEof),
                (&[9, 0], io::ErrorKind::UnexpectedEof),
            ] {
                let (one, other) = UnixStream::pair().unwrap();
                (&one).write_all(wrong).await.unwrap();
                drop(one);
                let error = receive::<Greeting>(&other).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{wrong:?}");
            }
        });
    }
}
