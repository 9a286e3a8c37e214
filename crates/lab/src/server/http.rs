//! HTTP/1 as clients see it: heads and bodies of answers, and requests one after another.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The most fields of a head.
const MOST_FIELDS: usize = 32;

/// The fields of an answer's head that matter to a client.
#[derive(Debug, Default)]
pub(crate) struct Head<'a> {
    /// The length of the head.
    pub end: usize,
    /// The status.
    pub code: u16,
    /// The length of the body, if the head has it.
    pub length: Option<usize>,
    /// Whether the body comes in chunks.
    pub is_chunked: bool,
    /// Whether the server closes the connection after this answer.
    pub closes: bool,
    /// `Sec-WebSocket-Accept`.
    pub accept: &'a str,
    /// `Etag`.
    pub etag: &'a str,
    /// `Last-Modified`.
    pub last_modified: &'a str,
    /// `Next`, of the laboratory's own servers.
    pub next: &'a str,
}

impl<'a> Head<'a> {
    /// Parses a head; `None` if it is not complete.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Option<Head<'a>>, String> {
        let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        let end = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("the head of an answer is none: {error}")),
        };
        let mut head = Head { end, code: answer.code.unwrap_or(0), ..Head::default() };
        for field in &*answer.headers {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
            if is("content-length") {
                let length = value.parse().map_err(|_| format!("an answer's length is {value:?}"));
                head.length = Some(length?);
            } else if is("transfer-encoding") {
                head.is_chunked = value.eq_ignore_ascii_case("chunked");
            } else if is("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            } else if is("sec-websocket-accept") {
                head.accept = value;
            } else if is("etag") {
                head.etag = value;
            } else if is("last-modified") {
                head.last_modified = value;
            } else if is("next") {
                head.next = value;
            }
        }
        Ok(Some(head))
    }
}

/// Returns the data of the chunk at the beginning of some bytes, and the length of the chunk;
/// `None` if it is not complete.
pub(crate) fn chunk(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let (begin, size) = match httparse::parse_chunk_size(bytes) {
        Ok(httparse::Status::Complete(found)) => found,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("a chunk has no size".to_owned()),
    };
    let end = usize::try_from(size).ok().and_then(|size| begin.checked_add(size));
    let end = end.ok_or("a chunk is too large")?;
    match bytes.get(end..end.saturating_add(2)) {
        Some(b"\r\n") => Ok(Some((&bytes[begin..end], end + 2))),
        Some(_) => Err("a chunk is longer than its size".to_owned()),
        None => Ok(None),
    }
}

/// Returns a body that comes in chunks, and the length of all chunks; `None` if it is not complete.
fn dechunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut used) = (Vec::new(), 0);
    while let Some((data, length)) = chunk(&bytes[used..])? {
        used += length;
        if data.is_empty() {
            return Ok(Some((body, used)));
        }
        body.extend_from_slice(data);
    }
    Ok(None)
}

/// The head and the body of an answer, and the length of both.
pub(crate) type Answer<'a> = (Head<'a>, Cow<'a, [u8]>, usize);

/// Returns the answer at the beginning of some bytes; `None` if it is not complete. An answer
/// without a length has no body.
pub(crate) fn answer(bytes: &[u8]) -> Result<Option<Answer<'_>>, String> {
    let Some(head) = Head::parse(bytes)? else { return Ok(None) };
    let rest = &bytes[head.end..];
    let body = match head.length {
        None if head.is_chunked => dechunked(rest)?.map(|(body, used)| (Cow::Owned(body), used)),
        length => {
            let length = length.unwrap_or(0);
            rest.get(..length).map(|body| (Cow::Borrowed(body), length))
        }
    };
    Ok(body.map(|(body, length)| {
        let used = head.end + length;
        (head, body, used)
    }))
}

/// Returns the text of a request with these further fields, each with the end of its line.
pub(crate) fn request(method: &str, target: &str, fields: &str, body: Option<&str>) -> String {
    let length = body.map(|body| format!("content-length: {}\r\n", body.len()));
    let (length, body) = (length.unwrap_or_default(), body.unwrap_or_default());
    format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n{fields}{length}\r\n{body}")
}

/// A client that blocks. Its connection is opened when it is needed, and stays open if the server
/// lets it.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    /// How long a connection, and an answer, may take.
    patience: Duration,
    stream: Option<TcpStream>,
}

impl Client {
    /// Creates a client of the server at an address.
    pub(crate) fn new(address: SocketAddr, patience: Duration) -> Client {
        Client { address, patience, stream: None }
    }

    /// Asks for a target, and returns the status and the body of the answer.
    pub(crate) fn get(&mut self, target: &str) -> io::Result<(u16, String)> {
        self.send(&request("GET", target, "", None))?;
        self.answer()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &str) -> io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.patience))?;
                none.insert(stream)
            }
        };
        stream.write_all(request.as_bytes())
    }

    /// Returns the status and the body of the answer to the last request.
    pub(crate) fn answer(&mut self) -> io::Result<(u16, String)> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        let (code, body, closes) = read_answer(&mut stream)?;
        self.stream = (!closes).then_some(stream);
        Ok((code, body))
    }
}

/// Reads an answer to its end; returns its status, its body, and whether the connection ends.
fn read_answer(stream: &mut impl Read) -> io::Result<(u16, String, bool)> {
    let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
    loop {
        if let Some((head, body, _)) = answer(&bytes).map_err(io::Error::other)? {
            return Ok((head.code, String::from_utf8_lossy(&body).into_owned(), head.closes));
        }
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&room[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_chunks_are_read_to_their_end() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\nconnection: close\r\n\r\nhello";
        let head = Head::parse(bytes).unwrap().unwrap();
        assert_eq!((head.code, head.length, head.etag), (200, Some(5), "\"a\""));
        assert!(head.closes && &bytes[head.end..] == b"hello");
        assert!(Head::parse(&bytes[..20]).unwrap().is_none());
        for bad in [&b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"[..], b"SMTP"] {
            assert!(Head::parse(bad).is_err());
        }
        assert_eq!(chunk(b"3\r\nabc\r\nrest").unwrap(), Some((&b"abc"[..], 8)));
        assert_eq!(chunk(b"0\r\n\r\n").unwrap(), Some((&b""[..], 5)));
        assert_eq!(chunk(b"3\r\nabc\r").unwrap(), None);
        for bad in [&b"x\r\n"[..], b"3\r\nabcd\r\n", b"ffffffffffffffff\r\nx"] {
            assert!(chunk(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_answer_is_taken_when_it_is_complete_and_says_whether_its_connection_ends() {
        let mut good = &b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nokHTTP"[..];
        assert_eq!(read_answer(&mut good).unwrap(), (201, "ok".to_owned(), false));
        let mut last = &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"[..];
        assert_eq!(read_answer(&mut last).unwrap(), (200, String::new(), true));
        let mut parts =
            &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"[..];
        assert_eq!(read_answer(&mut parts).unwrap().1, "a");
        let mut cut = &b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\no"[..];
        assert_eq!(read_answer(&mut cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read_answer(&mut io::repeat(b'x')).is_err());
    }

    #[test]
    fn a_request_with_a_body_says_how_long_it_is() {
        let text = request("POST", "/c", "x: y\r\n", Some("hello"));
        let expected =
            "POST /c HTTP/1.1\r\nhost: localhost\r\nx: y\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(text, expected);
        assert!(!request("GET", "/", "", None).contains("content-length"));
    }
}
