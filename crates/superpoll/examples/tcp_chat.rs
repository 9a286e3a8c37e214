//! A chat over TCP: each line that a client sends goes to all other clients.
//!
//! A client that reads slowly loses its connection when more than 64 KiB wait for it, so one slow
//! client costs the other clients nothing.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use superpoll::{Events, Interest, Key, KeyMap, Owned, Poller};

/// The most bytes that may wait for a client.
const MOST: usize = 64 << 10;

struct Client {
    stream: Owned<TcpStream>,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Bytes that wait to be written.
    pending: Vec<u8>,
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Client {
    /// Reads once and returns the lines that are complete; `None` at the end of the connection.
    fn read(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        match self.stream.get_mut().read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => self.line.extend_from_slice(&buffer[..count]),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return None,
        }
        let end = self.line.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let rest = self.line.split_off(end);
        let lines = std::mem::replace(&mut self.line, rest);
        (self.line.len() <= MOST).then_some(lines)
    }

    /// Writes as much as the socket takes. Returns whether the connection goes on.
    fn write(&mut self) -> bool {
        match self.stream.get_mut().write(&self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => return false,
        }
        self.pending.len() <= MOST
    }

    /// The interest to wait for.
    fn interest(&self) -> Interest {
        if self.pending.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        }
    }
}

/// Serves the clients of `listener` for as long as the poller works.
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
                    let client = Client { line: Vec::new(), pending: Vec::new(), stream };
                    clients.insert(client.stream.key(), client);
                }
                continue;
            }
            let Some(client) = clients.get_mut(event.key()) else { continue };
            match client.read() {
                Some(lines) => send_to_other_clients(&mut clients, event.key(), &lines),
                None => drop(clients.remove(event.key())),
            }
        }
        write_all(&mut poller, &mut clients)?;
    }
}

fn send_to_other_clients(clients: &mut KeyMap<Client>, from: Key, lines: &[u8]) {
    for (_, client) in clients.iter_mut().filter(|(key, _)| *key != from) {
        client.pending.extend_from_slice(lines);
    }
}

fn write_all(poller: &mut Poller, clients: &mut KeyMap<Client>) -> Result<(), superpoll::Error> {
    let mut over = Vec::new();
    for (key, client) in clients.iter_mut() {
        if client.pending.is_empty() || client.write() {
            // Interest that is the same as before costs no system call.
            poller.modify(key, client.interest())?;
        } else {
            over.push(key);
        }
    }
    over.into_iter().for_each(|key| drop(clients.remove(key)));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    serve(TcpListener::bind("127.0.0.1:7001")?)
}
