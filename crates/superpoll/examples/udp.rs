//! An echo server for datagrams.
//!
//! A datagram for which the socket has no room now is dropped, as the network may do as well.

use std::error::Error;
use std::io::ErrorKind;
use std::net::UdpSocket;

use superpoll::{Events, Interest, Poller};

/// The longest datagram.
const LONGEST: usize = 65_535;

/// Echoes the datagrams that `socket` receives, for as long as the poller works.
pub fn serve(socket: UdpSocket) -> Result<(), Box<dyn Error>> {
    socket.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    let socket = poller.own(socket, Interest::READABLE)?;
    let mut events = Events::with_limit(1);
    let mut buffer = vec![0; LONGEST];
    loop {
        poller.wait(&mut events, None)?;
        if let Some((_, refusal)) = events.refusals().first() {
            return Err(refusal.to_string().into());
        }
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => drop(socket.send_to(&buffer[..length], from)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The answer to an earlier datagram was refused by its receiver.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    serve(UdpSocket::bind("127.0.0.1:7002")?)
}
