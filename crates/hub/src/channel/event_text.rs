//! The text of server-sent events, as the HTML standard specifies it (section 9.2), and the chunks
//! of HTTP/1.1 in which it is sent (RFC 9112, section 7.1).
//!
//! No block is without data, since some libraries deliver an empty line after anything else as an
//! empty message: the beginning belongs to the block of the first message, and comments are lines
//! alone.
//!
//! A chunk has one message, and depends on nothing but the message and the channel's epoch: a
//! successor makes the chunks again to find out which part of them was written.

use std::fmt::Display;
use std::io::Write;

use data_encoding::BASE64;

use super::cursor::Cursor;
use super::message::Message;

/// The milliseconds after which clients come back.
const RETRY: u32 = 2000;

/// The most bytes of an event of one line, and of its chunk, in addition to its message.
const AROUND: usize = 120;

/// The name of the field with the type of an event.
const EVENT: &str = "event: ";

/// A comment, which shows that the connection lives.
pub(super) const COMMENT: &[u8] = b":\n";

/// The same, as a chunk.
pub(super) const COMMENT_CHUNK: &[u8] = b"2\r\n:\n\r\n";

/// The end of a body in chunks.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Writes the position at which a stream begins, as lines of the block of its first message. A
/// client that keeps each id as it reads its line resumes from there if it gets no message.
pub(super) fn begin(to: &mut Vec<u8>, place: impl Display) {
    // Writing to memory cannot fail, here and below.
    let _ = write!(to, "retry: {RETRY}\nid: {place}\n");
}

/// Writes an event with a line of JSON.
pub(super) fn json(to: &mut Vec<u8>, json: &[u8], place: impl Display) {
    let _ = write!(to, "id: {place}\ndata: ");
    to.extend_from_slice(json);
    to.extend_from_slice(b"\n\n");
}

/// Writes that messages up to a position were left out.
pub(super) fn missed(to: &mut Vec<u8>, cursor: Cursor) {
    let _ = write!(to, "event: missed\nid: {cursor}\ndata: true\n\n");
}

/// Returns the bytes that a message usually needs, with its chunk. A text of several lines needs
/// six more for each line.
pub(super) fn room(message: &Message) -> usize {
    let length = message.data.len();
    let event = message.event().map_or(0, |event| EVENT.len() + event.len() + 1);
    let id = message.update().and_then(|update| update.id.as_ref()).map_or(0, String::len);
    AROUND + event + id + if message.is_text { length } else { BASE64.encode_len(length) }
}

/// Writes a message with its id.
pub(super) fn message(to: &mut Vec<u8>, message: &Message, id: impl Display) {
    to.reserve(room(message));
    let _ = writeln!(to, "id: {id}");
    if let Some(retry) = message.update().and_then(|update| update.retry) {
        let _ = writeln!(to, "retry: {retry}");
    }
    if message.is_text {
        if let Some(event) = message.event() {
            let _ = writeln!(to, "{EVENT}{event}");
        }
        for line in lines(&message.data) {
            to.extend_from_slice(b"data: ");
            to.extend_from_slice(line);
            to.push(b'\n');
        }
    } else {
        to.extend_from_slice(b"event: base64\ndata: ");
        let at = to.len();
        to.resize(at + BASE64.encode_len(message.data.len()), 0);
        BASE64.encode_mut(&message.data, &mut to[at..]);
        to.push(b'\n');
    }
    to.push(b'\n');
}

/// Returns the lines of a text. Each of `\n`, `\r` and `\r\n` ends a line in an event stream, and
/// reads as `\n`.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            return Some(text);
        };
        let behind = if text[end..].starts_with(b"\r\n") { end + 2 } else { end + 1 };
        rest = Some(&text[behind..]);
        Some(&text[..end])
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use superpoll_http1::chunk;

    use super::*;

    fn text(data: impl Into<Bytes>, is_text: bool) -> String {
        let mut text = Vec::new();
        let cursor = Cursor { id: 3, epoch: Some(10) };
        message(&mut text, &Message::new(3, data, is_text), cursor);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn all_line_endings_are_recognised() {
        let event = text("a\r\nb\rc\n\n d", true);
        assert_eq!(event, "id: 3-a\ndata: a\ndata: b\ndata: c\ndata: \ndata:  d\n\n");
        assert_eq!(text("", true), "id: 3-a\ndata: \n\n");
        assert_eq!(text("x\r\n\r", true), "id: 3-a\ndata: x\ndata: \ndata: \n\n");
        assert_eq!(text("\u{1}", false), "id: 3-a\nevent: base64\ndata: AQ==\n\n");
    }

    /// The parsers of some libraries deliver an event at each empty line, with data or without.
    #[test]
    fn each_block_of_a_stream_has_data() {
        let cursor = Cursor { id: 3, epoch: Some(10) };
        let firsts: [fn(&mut Vec<u8>, Cursor); 3] = [
            |to, _| message(to, &Message::new(4, "", true), "4-a"),
            |to, cursor| json(to, b"{}", cursor),
            missed,
        ];
        for first in firsts {
            for comments in 0..3 {
                let mut text = Vec::new();
                begin(&mut text, cursor);
                text.extend(COMMENT.repeat(comments));
                first(&mut text, cursor);
                text.extend(COMMENT.repeat(comments));
                message(&mut text, &Message::new(5, "b", true), "5-a");
                let text = String::from_utf8(text).unwrap();
                assert!(text.starts_with("retry: 2000\nid: 3-a\n"), "{text}");
                let blocks: Vec<&str> = text.split_terminator("\n\n").collect();
                let has_data = |block: &&str| block.lines().any(|line| line.starts_with("data: "));
                assert!(blocks.len() == 2 && blocks.iter().all(has_data), "{text}");
            }
        }
    }

    #[test]
    fn the_chunks_that_are_made_before_are_right() {
        let mut comment = Vec::new();
        chunk(&mut comment, |to| to.extend_from_slice(COMMENT));
        assert_eq!(comment, COMMENT_CHUNK);
        let mut last = Vec::new();
        chunk(&mut last, |_| ());
        assert_eq!(last, LAST_CHUNK);
    }

    #[test]
    fn a_message_of_one_line_fits_the_room_that_is_made_for_it() {
        for (length, is_text) in [(0, true), (0, false), (65_536, true), (65_536, false)] {
            let message = Message::new(u64::MAX, vec![b'x'; length], is_text);
            let cursor = Cursor { id: u64::MAX, epoch: Some(u64::MAX) };
            let mut bytes = Vec::new();
            chunk(&mut bytes, |to| super::message(to, &message, cursor));
            assert!(bytes.len() <= room(&message), "{} {}", bytes.len(), room(&message));
        }
    }

    proptest! {
        /// Read as the standard requires.
        #[test]
        fn a_reader_gets_the_lines_of_a_text(data in "[a\r\n: ]{0,12}") {
            let event = text(data.clone(), true);
            let read: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            let expected = data.replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(read.join("\n"), expected);
        }
    }
}
