//! A link between a loop and its keeper.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{self, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    sockopt,
};

use crate::protocol::{FULL, PACKET};

/// A socket that preserves message boundaries and carries descriptors (`unix(7)`). It never blocks.
///
/// A message for which a link has no room cannot be sent, and a process that is killed sends
/// nothing more. So a link to another process has a second descriptor for the one message that must
/// arrive however full the link is: that everything left on it is void
/// ([`revoke`](KeeperLink::revoke)).
#[derive(Debug)]
pub struct KeeperLink {
    socket: OwnedFd,
    revocation: Option<OwnedFd>,
}

/// The result of receiving a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// The length of the packet. Zero: the other side has gone.
    pub length: usize,
    /// Whether descriptors were lost because this process has no room for them (`EMFILE`). The
    /// first one that is missing and all after it are lost.
    pub cut_off: bool,
}

/// The process at the other end, as the kernel knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The number of the process that connected.
    pub process: i32,
    /// Its user.
    pub user: u32,
}

fn new() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// Whether more descriptors of this user are under way than it may have open.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}

impl KeeperLink {
    /// Creates both ends of a link, for a keeper in the same process.
    ///
    /// # Errors
    ///
    /// The errors of `socketpair(2)`.
    pub fn pair() -> io::Result<(KeeperLink, KeeperLink)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((KeeperLink::from(one), KeeperLink::from(other)))
    }

    /// Connects to the keeper that listens at a path.
    ///
    /// # Errors
    ///
    /// The errors of `connect(2)`; `WouldBlock` if too many other processes are about to connect.
    pub fn connect(path: &Path) -> io::Result<KeeperLink> {
        let socket = new()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(KeeperLink::from(socket))
    }

    /// Adds a descriptor for the link's revocation. Returns the link and that descriptor for the
    /// other side, to be sent with the greeting ([`Request::Hello`](crate::Request::Hello)).
    ///
    /// # Errors
    ///
    /// The errors of `eventfd2(2)` and `fcntl(2)`.
    pub fn with_revocation(self) -> io::Result<(KeeperLink, OwnedFd)> {
        let own = event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = own.try_clone()?;
        Ok((KeeperLink { revocation: Some(own), ..self }, theirs))
    }

    /// Declares everything that was left on this link void: the other side forgets it when the link
    /// ends, and hands none of it to another server. This needs no room on the link, and outlives
    /// the process that calls it. Call it before the first change to anything that was left here
    /// and could not be taken back.
    pub fn revoke(&self) {
        if let Some(revocation) = &self.revocation {
            // The write can only fail when the counter is full, and then the link is revoked
            // already.
            let _ = rustix::io::write(revocation, &1u64.to_ne_bytes());
        }
    }

    /// Sends a packet, and descriptors with it.
    ///
    /// # Errors
    ///
    /// The errors of `sendmsg(2)`: `WouldBlock` if there is no room for the packet now,
    /// `BrokenPipe` or `ConnectionReset` if the other side has gone; `ETOOMANYREFS` if more
    /// descriptors of this user are under way than it may have open.
    pub fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FULL))];
        let mut ancillary = SendAncillaryBuffer::new(&mut room);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            let what = format!("{} descriptors are more than go into a packet", descriptors.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            let parts = [IoSlice::new(packet)];
            match rustix::net::sendmsg(&self.socket, &parts, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
    }

    /// Receives a packet, and the descriptors that come with it, which are closed on exec.
    ///
    /// # Errors
    ///
    /// The errors of `recvmsg(2)`: `WouldBlock` if there is none; `InvalidData` if a packet exceeds
    /// the limit.
    pub fn receive(
        &self,
        room: &mut Vec<u8>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> io::Result<Received> {
        room.resize(PACKET, 0);
        let received = self.receive_into(room, descriptors)?;
        room.truncate(received.length);
        Ok(received)
    }

    /// Receives a packet like [`receive`](KeeperLink::receive), into existing memory: [`PACKET`]
    /// bytes are enough for any packet.
    ///
    /// # Errors
    ///
    /// The errors of [`receive`](KeeperLink::receive).
    pub fn receive_into(
        &self,
        room: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> io::Result<Received> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FULL))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut is_reset = false;
        let said = loop {
            let mut parts = [IoSliceMut::new(room)];
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                // The other side has gone without reading everything. The kernel reports this once,
                // before the last packets of the other side.
                Err(Errno::CONNRESET) if !is_reset => is_reset = true,
                outcome => break outcome?,
            }
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if said.flags.contains(ReturnFlags::TRUNC) {
            let what = "a packet is larger than one may be";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Received { length: said.bytes, cut_off: said.flags.contains(ReturnFlags::CTRUNC) })
    }

    /// Waits until there is something to receive, or with `room` until something can be sent.
    /// Returns false if nothing happened before `until`.
    ///
    /// # Errors
    ///
    /// The errors of `poll(2)`.
    pub fn wait(&self, room: bool, until: Instant) -> io::Result<bool> {
        let wanted = if room { PollFlags::OUT } else { PollFlags::IN };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match rustix::event::poll(&mut [PollFd::new(&self.socket, wanted)], Some(&left)) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome? > 0),
            }
        }
    }

    /// Sends a packet, and waits for room if necessary, but not longer than `until`.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](KeeperLink::send); `TimedOut` if there was no room.
    pub fn send_until(
        &self,
        until: Instant,
        packet: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        loop {
            match self.send(packet, descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(true, until)? {
                        let what = "the keeper's link has been full for too long";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns the process at the other end (`SO_PEERCRED`).
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn peer(&self) -> io::Result<Peer> {
        let known = sockopt::socket_peercred(&self.socket)?;
        Ok(Peer { process: known.pid.as_raw_nonzero().get(), user: known.uid.as_raw() })
    }
}

impl AsFd for KeeperLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for KeeperLink {
    /// Takes a socket that was passed on. It is not made non-blocking: packets are sent and
    /// received without blocking in any case.
    fn from(socket: OwnedFd) -> KeeperLink {
        KeeperLink { socket, revocation: None }
    }
}

/// Whether a descriptor is readable. That of a [revocation](KeeperLink::revoke) is when the link is
/// revoked, that of a process when the process has ended.
pub(crate) fn is_readable(descriptor: &impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut one = [PollFd::new(descriptor, PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Accepts links. If the listener created its file, it removes that file on drop.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    file: Option<Made>,
}

/// A file that was created here, as opposed to one that has taken its place.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    name: (u64, u64),
}

impl Made {
    /// Whether its path still means this file.
    fn is_there(&self) -> bool {
        name_of(&self.path).is_ok_and(|found| found == self.name)
    }
}

/// The device and inode of a path.
fn name_of(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Makes other processes that want to listen in a folder wait while this one finds out whether a
/// keeper listens there: between `bind` and `listen` a socket looks like one that was left
/// behind. The kernel releases the lock when the file is closed. A process that holds the lock for
/// a second holds it for another reason, and is not waited for.
fn alone_in(folder: Option<&Path>) -> io::Result<File> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (folder, until) = (File::open(folder)?, Instant::now() + Duration::from_secs(1));
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::WOULDBLOCK) => return Ok(folder),
            outcome => return outcome.map(|()| folder).map_err(io::Error::from),
        }
    }
}

/// Whether a path is the file of a socket on which no process listens.
fn is_left(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && KeeperLink::connect(path).is_err_and(refused)
}

/// A socket that has its file, and does not listen yet.
struct Bound {
    socket: OwnedFd,
    file: Made,
}

impl Bound {
    fn to(path: &Path) -> io::Result<Bound> {
        let socket = new()?;
        let address = SocketAddrUnix::new(path)?;
        // The file gets the permissions of the socket, and so never has any but these (`unix_bind`
        // in the kernel).
        rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left(path) => {
                std::fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            outcome => outcome?,
        }
        let name = name_of(path)?;
        Ok(Bound { socket, file: Made { path: path.to_path_buf(), name } })
    }

    /// Listens, unless the file is another's by now: a process that has waited for the lock for
    /// long enough takes a socket that does not listen for one that was left behind.
    fn listen(self) -> io::Result<Listener> {
        rustix::net::listen(&self.socket, 64)?;
        if !self.file.is_there() {
            return Err(Errno::ADDRINUSE.into());
        }
        Ok(Listener { socket: self.socket, file: Some(self.file) })
    }
}

impl Listener {
    /// Listens at a path, to which only this user may connect. A file on which no process listens
    /// any more is replaced.
    ///
    /// # Errors
    ///
    /// The errors of `bind(2)` and `listen(2)`: `AddrInUse` if another process listens there.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let _alone = alone_in(path.parent())?;
        Bound::to(path)?.listen()
    }

    /// Takes the next link that has arrived in.
    ///
    /// # Errors
    ///
    /// The errors of `accept4(2)`: `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<KeeperLink> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(KeeperLink::from(rustix::net::accept_with(&self.socket, flags)?))
    }
}

impl From<OwnedFd> for Listener {
    /// Takes a socket that listens already, as a service manager passes it on. Its owner takes care
    /// of the file.
    fn from(socket: OwnedFd) -> Listener {
        Listener { socket, file: None }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(made) = &self.file else { return };
        let _alone = alone_in(made.path.parent());
        if made.is_there() {
            // A file that stays behind does no harm: the next process that listens there replaces
            // it.
            let _ = std::fs::remove_file(&made.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn descriptors_travel_with_their_packet() {
        let (one, other) = KeeperLink::pair().unwrap();
        let (mut room, mut descriptors) = (Vec::new(), Vec::new());
        let none = other.receive(&mut room, &mut descriptors).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let (reader, mut writer) = io::pipe().unwrap();
        let all = [reader.as_fd(); FULL];
        one.send(b"all", &all).unwrap();
        one.send(b"none", &[]).unwrap();
        assert!(other.wait(false, soon()).unwrap());
        let received = other.receive(&mut room, &mut descriptors).unwrap();
        assert_eq!((received, &room[..]), (Received { length: 3, cut_off: false }, &b"all"[..]));
        assert_eq!(descriptors.len(), FULL);
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        std::fs::File::from(descriptors.pop().unwrap()).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let before = descriptors.len();
        other.receive(&mut room, &mut descriptors).unwrap();
        assert_eq!((&room[..], descriptors.len()), (&b"none"[..], before));
        let error = one.send(b"too many", &[reader.as_fd(); FULL + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        drop(one);
        assert_eq!(other.receive(&mut room, &mut descriptors).unwrap().length, 0);
        assert!(other.send(b"x", &[]).is_err());
    }

    #[test]
    fn the_last_packet_of_a_peer_that_left_packets_unread_is_received() {
        let (one, other) = KeeperLink::pair().unwrap();
        other.send(b"unheard", &[]).unwrap();
        one.send(b"last", &[]).unwrap();
        drop(one);
        let (mut room, mut descriptors) = (Vec::new(), Vec::new());
        assert_eq!(other.receive(&mut room, &mut descriptors).unwrap().length, 4);
        assert_eq!(other.receive(&mut room, &mut descriptors).unwrap().length, 0);
    }

    #[test]
    fn a_link_is_full_one_day() {
        let (one, other) = KeeperLink::pair().unwrap();
        let mut sent = 0;
        let error = loop {
            match one.send(b"packet", &[]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 100_000);
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let error = one.send_until(Instant::now(), b"packet", &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let reading = std::thread::spawn(move || {
            let (mut room, mut descriptors, mut received) = (Vec::new(), Vec::new(), 0);
            while received < sent + 1 {
                assert!(other.wait(false, soon()).unwrap());
                received += usize::from(other.receive(&mut room, &mut descriptors).is_ok());
            }
        });
        one.send_until(soon(), b"packet", &[]).unwrap();
        reading.join().unwrap();
    }

    #[test]
    fn a_listener_is_private_and_takes_the_place_of_one_that_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keeper");
        let listener = Listener::bind(&path).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(listener.accept().map(drop).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Listener::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let link = KeeperLink::connect(&path).unwrap();
        // The other `bind` has connected to find out whether a process listens there.
        drop(listener.accept().unwrap());
        let peer = listener.accept().unwrap().peer().unwrap();
        assert_eq!(peer.process, std::process::id().cast_signed());
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        drop((listener, link));
        assert!(!path.exists());
        std::os::unix::net::UnixListener::bind(&path).map(drop).unwrap();
        assert!(path.exists());
        drop(Listener::bind(&path).unwrap());
    }

    #[test]
    fn one_of_several_concurrent_listeners_gets_the_path() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let path = folder.path().join(format!("keeper{round}"));
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let start = std::sync::Barrier::new(4);
            let all: Vec<io::Result<Listener>> = std::thread::scope(|scope| {
                let bind = || {
                    start.wait();
                    Listener::bind(&path)
                };
                let all: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let listening: Vec<&Listener> =
                all.iter().filter_map(|one| one.as_ref().ok()).collect();
            assert_eq!(listening.len(), 1, "{all:?}");
            let link = KeeperLink::connect(&path).unwrap();
            let found = std::iter::repeat_with(|| listening[0].accept()).take(9);
            let found = found.filter_map(Result::ok).count();
            assert!(found > 0, "another listener has the path: {link:?}");
        }
    }

    #[test]
    fn a_listener_whose_file_was_replaced_before_it_listened_gives_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keeper");
        let slow = Bound::to(&path).unwrap();
        // As a process does that has waited for the lock in vain.
        let other = Bound::to(&path).unwrap().listen().unwrap();
        assert_eq!(slow.listen().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let _link = KeeperLink::connect(&path).unwrap();
        assert!(other.accept().is_ok());
    }

    #[test]
    fn a_listener_takes_its_own_file_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keeper");
        let first = Listener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);
        assert!(KeeperLink::connect(&path).is_ok());
        drop(second);
        assert!(!path.exists());
    }
}
