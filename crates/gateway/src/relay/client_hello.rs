//! The server name in a client's first bytes, which are passed on unchanged.
//!
//! A client of TLS begins with a message, the ClientHello, that is not encrypted and has the name
//! of the server that it wants (SNI, RFC 6066). The message may be split over records in any way,
//! and the records over segments. Everything else counts as a client without a name: other
//! protocols, messages that break the rules, and messages without the extension. Whether to serve
//! such a client is for the other end to decide, not for a reader that only wants the name.
//!
//! Encrypted ClientHello hides the name of the inner message. The relay sees the outer one, which
//! is the name of the provider that can decrypt it.

use std::io;

use bytes::Bytes;
use futures_lite::AsyncReadExt;
use superpoll_http::transport::Plain;

/// The most bytes that are read before the name is known. Messages with post-quantum keys and
/// tickets have 2 to 4 KiB.
pub(super) const MOST: usize = 16 * 1024;

/// The bytes that are read at once.
const ROOM: usize = 2048;

/// The longest fragment of a record that is not encrypted (RFC 8446, section 5.1).
const LONGEST_FRAGMENT: usize = 1 << 14;

/// The head of a record: its type, a version, and the length of its fragment.
const RECORD_HEAD: usize = 5;

/// The type of a record of the handshake.
const HANDSHAKE: u8 = 22;

/// The type of the message.
const CLIENT_HELLO: u8 = 1;

/// The number of the extension.
const SERVER_NAME: u16 = 0;

/// The first bytes of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Greeting {
    /// More bytes are needed.
    Incomplete,
    /// A ClientHello, with the name in lower case if it has one.
    Hello(Option<String>),
    /// Something else.
    Other,
}

/// The rest of a message, of which parts are taken from the front. A part that is not there is
/// `None`.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a number of this many bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        let taken = self.take(bytes)?;
        Some(taken.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Takes a vector whose length is written in this many bytes.
    fn vector(&mut self, bytes: usize) -> Option<Reader<'a>> {
        let length = self.number(bytes)?;
        self.take(length).map(Reader)
    }
}

/// Reads the greeting from the first bytes of a client.
pub(super) fn parse(bytes: &[u8]) -> Greeting {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let (kind, major) = (rest.first(), rest.get(1));
        if kind.is_some_and(|kind| *kind != HANDSHAKE) || major.is_some_and(|major| *major != 3) {
            return Greeting::Other;
        }
        let Some((head, after)) = rest.split_at_checked(RECORD_HEAD) else {
            return Greeting::Incomplete;
        };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length == 0 || length > LONGEST_FRAGMENT {
            return Greeting::Other;
        }
        // The message may end in a record whose end has not arrived.
        message.extend_from_slice(&after[..length.min(after.len())]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Greeting::Other;
        }
        if let [_, high, middle, low, body @ ..] = &message[..] {
            let of = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if let Some(body) = body.get(..of) {
                return server_name(body).map_or(Greeting::Other, Greeting::Hello);
            }
        }
        if after.len() < length {
            return Greeting::Incomplete;
        }
        rest = &after[length..];
    }
}

/// Returns the name in the body of a ClientHello (RFC 8446, section 4.1.2). `None` if the body
/// breaks the rules.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    let mut body = Reader(body);
    let (_version, _random) = (body.take(2)?, body.take(32)?);
    let (_session, _suites, _compression) = (body.vector(1)?, body.vector(2)?, body.vector(1)?);
    if body.0.is_empty() {
        return Some(None);
    }
    let mut extensions = body.vector(2)?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let number = extensions.number(2)?;
        let mut content = extensions.vector(2)?;
        if number != usize::from(SERVER_NAME) {
            continue;
        }
        let mut names = content.vector(2)?;
        if found.is_some() || names.0.is_empty() || !content.0.is_empty() {
            return None;
        }
        // A list of names of different kinds, of which only that of a host exists.
        let (kind, name) = (names.number(1)?, names.vector(2)?);
        found = Some(match kind {
            0 => normal(name.0),
            _ => None,
        });
    }
    body.0.is_empty().then(|| found.flatten())
}

/// Returns a name in lower case and without the dot of the root.
fn normal(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok().filter(|name| name.is_ascii())?;
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// Reads until the name is known, of a client of which some bytes were read already. Returns all
/// bytes that were read.
///
/// # Errors
///
/// The socket's error; `UnexpectedEof` if the client ends before; `InvalidData` if its message is
/// longer than [`MOST`].
///
/// # Cancel safety
///
/// A cancelled call loses bytes.
pub(super) async fn read(
    client: &mut Plain,
    before: Bytes,
) -> io::Result<(Vec<u8>, Option<String>)> {
    let mut bytes = Vec::from(before);
    loop {
        match parse(&bytes) {
            Greeting::Hello(name) => return Ok((bytes, name)),
            Greeting::Other => return Ok((bytes, None)),
            Greeting::Incomplete if bytes.len() >= MOST => {
                let what = "the first message of the client is too long";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Greeting::Incomplete => {}
        }
        let length = bytes.len();
        bytes.resize((length + ROOM).min(MOST), 0);
        let read = client.read(&mut bytes[length..]).await?;
        bytes.truncate(length + read);
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests;
