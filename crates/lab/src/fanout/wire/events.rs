//! A stream of server-sent events.

use super::Hear;
use super::head::{self, Head};

/// The events of an answer, in chunks or up to the end of the connection.
#[derive(Debug)]
pub(super) struct Events {
    is_chunked: bool,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The data of the event that has begun; `None` without a line of data.
    data: Option<Vec<u8>>,
    /// Whether the event that has begun is of a kind that a page does not take for a message.
    is_other: bool,
}

impl Events {
    /// Creates the stream of an answer with this head.
    pub(super) fn new(head: &Head<'_>) -> Result<Events, String> {
        match (head.code, head.length) {
            (200, None) => Ok(Events {
                is_chunked: head.is_chunked,
                line: Vec::new(),
                data: None,
                is_other: false,
            }),
            (code, length) => {
                Err(format!("a stream of events was answered {code} with the length {length:?}"))
            }
        }
    }

    /// Takes the chunk or the bytes at the beginning of some bytes and returns their length; zero
    /// if the chunk is not complete.
    pub(super) fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<usize, String> {
        if !self.is_chunked {
            self.lines(bytes, hear)?;
            return Ok(bytes.len());
        }
        match head::chunk(bytes)? {
            None => Ok(0),
            Some((&[], _)) => Err("it ended a stream of events".to_owned()),
            Some((data, length)) => {
                self.lines(data, hear)?;
                Ok(length)
            }
        }
    }

    fn lines(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<(), String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(end) = part.strip_suffix(b"\n") else {
                self.line.extend_from_slice(part);
                continue;
            };
            if self.line.is_empty() {
                self.line(end, hear)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(end);
                self.line(&line, hear)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], hear: &mut Hear<'_>) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let is_other = std::mem::take(&mut self.is_other);
            return match self.data.take() {
                Some(_) if is_other => Err("an event is not of the kind message".to_owned()),
                Some(data) => hear(&data),
                None => Ok(()),
            };
        }
        if let Some(data) = value(line, b"data:") {
            match &mut self.data {
                None => self.data = Some(data.to_vec()),
                Some(all) => {
                    all.push(b'\n');
                    all.extend_from_slice(data);
                }
            }
        } else if let Some(kind) = value(line, b"event:") {
            self.is_other = kind != b"message";
        }
        // Ids, comments and unknown fields are no part of a message.
        Ok(())
    }
}

/// Returns the value of a line with this field.
fn value<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use crate::fanout::Transport;
    use crate::fanout::wire::Form;
    use crate::fanout::wire::tests::{heard, subscription};

    fn of(text: &str) -> Result<Vec<String>, String> {
        let subscription = subscription(Transport::Events, Form::Plain);
        heard(&subscription, text.as_bytes()).map(|(texts, _)| texts)
    }

    #[test]
    fn events_are_taken_from_chunks_and_from_plain_streams() {
        let plain =
            "HTTP/1.1 200 OK\r\n\r\n: hi\n\nid: 1\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\n";
        assert_eq!(of(plain).unwrap(), ["one", "two\nlines"]);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                       10\r\n[opened]\ndata: o\r\n7\r\nne\n\ndat\r\n8\r\na: two\n\n\r\n";
        // The first chunk has 16 bytes, and an event ends in the second.
        assert_eq!(of(chunked).unwrap(), ["one", "two"]);
        let named = "HTTP/1.1 200 OK\r\n\r\nevent: message\ndata: one\n\n";
        assert_eq!(of(named).unwrap(), ["one"]);
    }

    #[test]
    fn an_end_and_other_events_are_refused() {
        for (text, part) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "length"),
            ("HTTP/1.1 503 No\r\n\r\n", "503"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "ended"),
            ("HTTP/1.1 200 OK\r\n\r\nevent: missed\ndata: x\n\n", "kind message"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
