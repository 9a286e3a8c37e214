//! The head of an answer.

/// The most fields of a head.
const MOST_FIELDS: usize = 32;

/// The fields of an answer's head that matter to a subscriber or a publisher.
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
}
