//! The first server of the guide, as the guide shows it: an echo server with one poller.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use superpoll::{Events, Interest, KeyMap, Owned, Poller};

/// A client, and the bytes that were read from it and not written back yet.
struct Client {
    stream: Owned<TcpStream>,
    pending: Vec<u8>,
}

impl Client {
    /// Reads once or writes once. Returns the interest to wait for, or `None` if the connection is
    /// over.
    fn serve(&mut self) -> Option<Interest> {
        if self.pending.is_empty() {
            let mut buffer = [0; 4096];
            match self.stream.get_mut().read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if is_temporary(&error) => return Some(Interest::READABLE),
                Err(_) => return None,
            }
        }
        match self.stream.get_mut().write(&self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return None,
        }
        // The rest is written when there is room for it again.
        Some(if self.pending.is_empty() { Interest::READABLE } else { Interest::WRITABLE })
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Echoes the bytes that clients of `listener` send, for as long as the poller works.
pub fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let mut poller = Poller::new()?;
    listener.set_nonblocking(true)?;
    let listener = poller.own(listener, Interest::READABLE)?;
    let mut clients = KeyMap::new();
    let mut events = Events::with_limit(1024);
    loop {
        poller.wait(&mut events, None)?;
        for (key, refusal) in events.refusals() {
            eprintln!("{key:?}: {refusal}");
            clients.remove(*key);
        }
        for event in &events {
            if event.key() == listener.key() {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    let stream = poller.own(stream, Interest::READABLE)?;
                    clients.insert(stream.key(), Client { stream, pending: Vec::new() });
                }
                continue;
            }
            let Some(client) = clients.get_mut(event.key()) else { continue };
            match client.serve() {
                // Interest that is the same as before costs no system call.
                Some(interest) => poller.modify(event.key(), interest)?,
                None => drop(clients.remove(event.key())), // detached, then closed
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    serve(TcpListener::bind("127.0.0.1:7000")?)
}
