//! Listening sockets on their way from the supervisor to a worker, with their addresses in the
//! configuration.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use superpoll_http::ipc::{self, Purpose};
use superpoll_rt::net::unix::UnixStream;

use super::link::WorkerPlace;
use crate::config::Address;

/// The most bytes of the head of a listener.
const HEAD: usize = 4096;

/// The head of the message with which a listener comes.
#[derive(Debug, Serialize, Deserialize)]
struct ListenerHead {
    /// The address as the configuration has it; `None`: there are no more.
    address: Option<String>,
}

/// Passes the listeners of a supervisor on to a worker that has connected for them
/// ([`Purpose::Listeners`]). If the future is dropped, the worker gets no listeners.
///
/// # Errors
///
/// If the worker goes.
pub async fn pass_listeners(
    stream: &UnixStream,
    listeners: Vec<(Address, OwnedFd)>,
) -> io::Result<()> {
    let encode = |head: &ListenerHead| postcard::to_allocvec(head).map_err(io::Error::other);
    for (address, socket) in listeners {
        let _: Option<()> = ipc::receive(stream).await?;
        let head = encode(&ListenerHead { address: Some(address.to_string()) })?;
        stream.send_with_fds(&head, &[socket.as_fd()]).await?;
    }
    let _: Option<()> = ipc::receive(stream).await?;
    stream.send_with_fds(&encode(&ListenerHead { address: None })?, &[]).await?;
    Ok(())
}

/// Takes the listeners of the supervisor, with their addresses in the configuration.
pub(super) async fn take_listeners(place: &WorkerPlace) -> io::Result<Vec<(Address, OwnedFd)>> {
    let stream = ipc::connect(&place.name, Purpose::Listeners).await?;
    let mut listeners = Vec::new();
    let mut room = vec![0; HEAD];
    loop {
        // Each comes when the one before was taken.
        ipc::send(&stream, &()).await?;
        let received = stream.recv_with_fds(&mut room, 1).await?;
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let head: ListenerHead = postcard::from_bytes(&room[..received.length])
            .map_err(|_| wrong("the supervisor has sent no listener"))?;
        let Some(address) = head.address else { return Ok(listeners) };
        let address = address.parse().map_err(|_| wrong("the address of a listener is none"))?;
        let socket = received.fds.into_iter().next();
        listeners.push((address, socket.ok_or_else(|| wrong("a listener without a socket"))?));
    }
}
