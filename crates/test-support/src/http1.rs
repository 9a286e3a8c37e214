//! Messages of HTTP/1.1 as they come, without a library that could hide a mistake.

use std::io::{self, BufRead};

/// Returns the values of a field in a head, joined by `|`; `None` if there is none.
#[must_use]
pub fn field(head: &str, name: &str) -> Option<String> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let values: Vec<_> = fields
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect();
    (!values.is_empty()).then(|| values.join("|"))
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.read_until(b'\n', &mut bytes)?;
    if !bytes.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a head, and returns it without the empty line at its end.
///
/// # Errors
///
/// That of the reader; [`io::ErrorKind::UnexpectedEof`] if it ends before the head does.
///
/// # Panics
///
/// If a line does not end with `\r\n`.
pub fn read_head(reader: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    loop {
        let line = read_line(reader)?;
        if line == "\r\n" {
            return Ok(head);
        }
        assert!(line.ends_with("\r\n"), "a line without its end: {line:?}");
        head.push_str(&line);
    }
}

/// Reads a chunk (RFC 9112, section 7.1). Returns the trailers after the last one, which is empty.
///
/// # Errors
///
/// That of the reader; [`io::ErrorKind::UnexpectedEof`] if it ends before the chunk does.
///
/// # Panics
///
/// If this is no chunk.
pub fn read_chunk(reader: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<Option<String>> {
    let size = read_line(reader)?;
    let size = size.strip_suffix("\r\n").expect("a chunk's size without its end");
    assert!(size.bytes().all(|byte| byte.is_ascii_hexdigit()), "{size:?}");
    let size = usize::from_str_radix(size, 16).unwrap();
    if size == 0 {
        return read_head(reader).map(Some);
    }
    let before = to.len();
    to.resize(before + size, 0);
    reader.read_exact(&mut to[before..])?;
    assert_eq!(read_line(reader)?, "\r\n");
    Ok(None)
}

/// Reads the body and the trailers of a message with this head; `None` if the head does not say
/// where the body ends.
///
/// # Errors
///
/// That of the reader; [`io::ErrorKind::UnexpectedEof`] if it ends before the body does.
///
/// # Panics
///
/// If the head is not right, or this is no such body.
pub fn read_body(reader: &mut impl BufRead, head: &str) -> io::Result<Option<(Vec<u8>, String)>> {
    let mut body = Vec::new();
    if let Some(coding) = field(head, "transfer-encoding") {
        assert_eq!(coding, "chunked");
        assert_eq!(field(head, "content-length"), None);
        loop {
            if let Some(trailers) = read_chunk(reader, &mut body)? {
                return Ok(Some((body, trailers)));
            }
        }
    }
    let Some(length) = field(head, "content-length") else { return Ok(None) };
    body.resize(length.parse().expect("a length"), 0);
    reader.read_exact(&mut body)?;
    Ok(Some((body, String::new())))
}
