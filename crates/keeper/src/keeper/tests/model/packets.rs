//! The links of the model's servers, and the packets on them.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

use crate::keeper::{ClientKind, Keeper};
use crate::link::{KeeperLink, Peer};
use crate::protocol::{Request, Role, encode, encode_first};

pub(super) fn link(keeper: &mut Keeper, process: i32, role: Role) -> KeeperLink {
    let (link, theirs) = KeeperLink::pair().unwrap();
    let peer = Peer { process, user: 0 };
    keeper.add_client(theirs, ClientKind::Unknown, Some(peer)).unwrap();
    // Room for a few packets.
    sockopt::set_socket_send_buffer_size(&link, 4608).unwrap();
    let (link, revocation) = link.with_revocation().unwrap();
    let session = u64::from(process.unsigned_abs());
    let hello = encode_first(&Request::Hello { role, session });
    link.send(&hello, &[revocation.as_fd()]).unwrap();
    link
}

/// Sends a request. Returns false if there is no room, or the other side has gone.
pub(super) fn send(
    link: Option<&KeeperLink>,
    request: &Request<'_>,
    descriptors: &[BorrowedFd<'_>],
) -> bool {
    link.is_some_and(|link| link.send(&encode(request), descriptors).is_ok())
}

/// Returns a packet, an empty one at the end of the link, or `None` if nothing has arrived.
pub(super) fn receive(link: Option<&KeeperLink>) -> Option<Vec<u8>> {
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    match link?.receive(&mut packet, &mut descriptors) {
        Ok(_) => Some(packet),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        Err(_) => Some(Vec::new()),
    }
}
