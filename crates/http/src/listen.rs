//! Listening sockets: addresses that are bound once, and each engine's listener there.

use std::fs::Permissions;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use superpoll_config::Address;
use superpoll_rt::net::unix::UnixListener;
use superpoll_rt::net::{ListenOptions, TcpListener};

use crate::transport::Plain;

/// How long a listener that has ended is kept open; its engine's poller waits at least once in that
/// time.
pub const CLOSING: Duration = Duration::from_millis(1);

/// An address that is bound, for all engines.
#[derive(Debug)]
pub enum Bound {
    /// A socket of TCP.
    Tcp(std::net::TcpListener),
    /// With the file to remove in the end, unless another process made it.
    Unix(std::os::unix::net::UnixListener, Option<SocketFile>),
}

/// A socket's file, which is removed with the socket, unless another server continues with the
/// socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    is_ours: AtomicBool,
}

/// One engine's listener at an address.
pub enum Listener {
    /// A socket of TCP.
    Tcp(TcpListener),
    /// A socket of the Unix domain.
    Unix(UnixListener),
}

/// Returns the error of an address that cannot be listened on, with advice.
pub fn cannot_listen(address: &Address, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; choose another address, or end the program that listens there"
        }
        io::ErrorKind::PermissionDenied => "; choose another address, or get the permission",
        _ => "",
    };
    format!("listening on {address}: {error}{advice}")
}

/// Returns the addresses of a name; without a name, all addresses of this machine; of a Unix
/// socket, none.
pub fn look_up(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Unix(_) => Ok(Vec::new()),
        Address::Tcp { host: Some(host), port } => {
            Ok((&**host, *port).to_socket_addrs()?.collect())
        }
        // Both families, where IPv6 exists.
        Address::Tcp { host: None, port } => {
            Ok(vec![(Ipv6Addr::UNSPECIFIED, *port).into(), ([0, 0, 0, 0], *port).into()])
        }
    }
}

impl Bound {
    /// Listens on an address. A stale socket file, at which no process listens any more, is
    /// replaced. `mode` is the permissions of the socket; a client needs the permission to write to
    /// connect.
    pub fn new(address: &Address, mode: Option<u32>) -> io::Result<Bound> {
        match address {
            Address::Unix(path) => Bound::unix(path, mode),
            Address::Tcp { .. } => Bound::tcp(&look_up(address)?),
        }
    }

    /// Binds to the first address that is available.
    fn tcp(addresses: &[SocketAddr]) -> io::Result<Bound> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for &address in addresses {
            match ListenOptions::new().bind_addr(address) {
                Ok(listener) => return Bound::of_tcp(listener.into_std()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes a listener of TCP.
    pub fn of_tcp(listener: std::net::TcpListener) -> io::Result<Bound> {
        // Connections inherit the option, which costs nothing for each.
        SockRef::from(&listener).set_tcp_nodelay(true)?;
        Ok(Bound::Tcp(listener))
    }

    fn unix(path: &Path, mode: Option<u32>) -> io::Result<Bound> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            outcome => outcome,
        }?;
        if let Some(mode) = mode {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(Bound::Unix(listener.into_std(), Some(SocketFile::new(path.to_path_buf(), true))))
    }

    /// Returns the address, with the port that the kernel has chosen.
    pub fn address(&self, asked: &Address) -> io::Result<Address> {
        match (self, asked) {
            (Bound::Tcp(listener), Address::Tcp { host, .. }) => {
                let local = listener.local_addr()?;
                let host = host.as_ref().map(|_| local.ip().to_string());
                Ok(Address::Tcp { host, port: local.port() })
            }
            _ => Ok(asked.clone()),
        }
    }

    /// Whether it listens on that address.
    pub fn is(&self, address: &Address) -> bool {
        match (self, address) {
            (Bound::Tcp(listener), Address::Tcp { .. }) => {
                let found = look_up(address).unwrap_or_default();
                listener.local_addr().is_ok_and(|local| found.contains(&local))
            }
            (Bound::Unix(listener, _), Address::Unix(path)) => {
                listener.local_addr().is_ok_and(|local| local.as_pathname() == Some(path))
            }
            _ => false,
        }
    }

    /// Whether the socket has a file that is removed in the end.
    pub fn has_file(&self) -> bool {
        matches!(self, Bound::Unix(_, Some(_)))
    }

    /// Sets whether this server removes the file, rather than another server that has the socket as
    /// well.
    pub fn own(&self, is_ours: bool) {
        if let Bound::Unix(_, Some(file)) = self {
            file.is_ours.store(is_ours, Ordering::Relaxed);
        }
    }

    /// Takes a listener that another server has as well; `has_file` says whether that server has
    /// made the socket's file.
    pub fn left(listener: OwnedFd, has_file: bool) -> io::Result<Bound> {
        if !SockRef::from(&listener).local_addr()?.is_unix() {
            return Bound::of_tcp(listener.into());
        }
        let listener = std::os::unix::net::UnixListener::from(listener);
        let path = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
        Ok(Bound::Unix(
            listener,
            path.filter(|_| has_file).map(|path| SocketFile::new(path, false)),
        ))
    }

    /// Returns a listener for one of the engines; if `exclusive`, a connection wakes only one
    /// engine.
    pub fn listener(&self, exclusive: bool) -> io::Result<Listener> {
        match self {
            Bound::Tcp(listener) => {
                let options = ListenOptions::new().exclusive(exclusive);
                Ok(Listener::Tcp(options.adopt(listener.try_clone()?)?))
            }
            Bound::Unix(listener, _) => {
                Ok(Listener::Unix(UnixListener::from_std(listener.try_clone()?)?))
            }
        }
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Bound::Tcp(listener) => listener.as_fd(),
            Bound::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl SocketFile {
    fn new(path: PathBuf, is_ours: bool) -> SocketFile {
        SocketFile { path, is_ours: AtomicBool::new(is_ours) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours.load(Ordering::Relaxed) {
            // A file that is left behind does no harm: the next server that listens there replaces
            // it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A listener that another server has as well.
pub struct LeftListener {
    /// The socket.
    pub socket: OwnedFd,
    /// Whether that server has made the socket's file.
    pub has_file: bool,
    /// The name by which its configuration asks for it, if the kernel has chosen the port.
    pub chosen: Option<String>,
}

/// Returns the name of a listener whose port the kernel chooses; no number says which one it is.
pub fn name_of_chosen(address: &Address, is_admin: bool) -> Option<String> {
    let Address::Tcp { port: 0, .. } = address else { return None };
    let of = if is_admin { " of operators" } else { "" };
    Some(format!("{address}{of}"))
}

/// Whether the path is a stale socket file: no process listens at it.
pub fn is_left(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused)
}

impl Listener {
    /// Accepts a connection, and returns the client's address if it has one.
    pub fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(Plain, Option<SocketAddr>)>> {
        match self {
            Listener::Tcp(listener) => listener
                .poll_accept(cx)
                .map_ok(|(stream, address)| (Plain::Tcp(stream), Some(address))),
            Listener::Unix(listener) => {
                listener.poll_accept(cx).map_ok(|(stream, _)| (Plain::Unix(stream), None))
            }
        }
    }

    /// Returns how many connections were closed at once for a shortage of descriptors.
    pub fn shed(&self) -> u64 {
        match self {
            Listener::Tcp(listener) => listener.shed(),
            Listener::Unix(listener) => listener.shed(),
        }
    }

    /// Ends the listener, and returns its socket, which must be closed only after the poller has
    /// waited once more. If other processes have the socket as well, closing it does not end the
    /// kernel's registration, which would continue to wake this engine in the place of another.
    pub fn into_socket(self) -> OwnedFd {
        match self {
            Listener::Tcp(listener) => listener.into_std().into(),
            Listener::Unix(listener) => listener.into_std().into(),
        }
    }
}
