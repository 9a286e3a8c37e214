//! Where clients come in.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::task::{Context, Poll};

use socket2::SockRef;
use superpoll_rt::net::unix::UnixListener;
use superpoll_rt::net::{ListenOptions, TcpListener};

use super::calls::{Call, count};
use super::stream::Stream;

/// An address that is bound, for all engines.
pub(super) enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// One engine's part of it.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Bound {
    /// Binds to the first address that can be had.
    pub fn tcp(addresses: &[SocketAddr]) -> io::Result<Bound> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for &address in addresses {
            match ListenOptions::new().bind_addr(address) {
                Ok(listener) => {
                    // Connections inherit it, which costs nothing for each.
                    SockRef::from(&listener).set_tcp_nodelay(true)?;
                    return Ok(Bound::Tcp(listener.into_std()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes a socket file, in the place of one that nobody listens on any more.
    pub fn unix(path: &Path) -> io::Result<Bound> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            outcome => outcome,
        };
        Ok(Bound::Unix(listener?.into_std()))
    }

    /// The same for another engine; if that is `exclusive`, a connection wakes one of them.
    pub fn listener(&self, exclusive: bool) -> io::Result<Listener> {
        match self {
            Bound::Tcp(listener) => {
                let options = ListenOptions::new().exclusive(exclusive);
                Ok(Listener::Tcp(options.adopt(listener.try_clone()?)?))
            }
            Bound::Unix(listener) => {
                Ok(Listener::Unix(UnixListener::from_std(listener.try_clone()?)?))
            }
        }
    }
}

/// Whether it is a socket file that nobody listens on.
fn is_left(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused)
}

impl Listener {
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        count(Call::Accept);
        match self {
            Listener::Tcp(listener) => {
                listener.poll_accept(cx).map_ok(|(stream, _)| stream.into_std().into())
            }
            Listener::Unix(listener) => {
                listener.poll_accept(cx).map_ok(|(stream, _)| stream.into_std().into())
            }
        }
    }

    pub fn shed(&self) -> u64 {
        match self {
            Listener::Tcp(listener) => listener.shed(),
            Listener::Unix(listener) => listener.shed(),
        }
    }
}
