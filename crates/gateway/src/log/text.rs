//! Text from clients in a line: without secrets, without bytes that end a field or a line, and
//! bounded.

use std::borrow::Cow;
use std::io::Write;

use super::secrets;

/// The most bytes of a text from a client that a line has, before they are escaped.
pub(super) const LONGEST: usize = 4096;

/// Stands for the rest of a text.
const REST: &[u8] = b"...";

/// Returns text from a client without the secrets of URLs in it, and not too long.
fn bounded(bytes: &[u8], most: usize) -> Cow<'_, [u8]> {
    // First, since they are not part of the text that is measured.
    let text = secrets::leave_out(bytes);
    match text.len() > most {
        false => text,
        true => Cow::Owned([&text[..most], REST].concat()),
    }
}

/// Appends text from a client without any byte that ends a field or a line, or that a terminal
/// obeys.
pub(super) fn quote(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b"");
}

/// Appends a word from a client: as [`quote`], and a blank ends no field either.
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b" ");
}

/// Appends a field from a client without quotes around it: as [`word`], and no bracket begins the
/// date.
pub(super) fn field(out: &mut Vec<u8>, bytes: &[u8]) {
    escape(out, bytes, b" []");
}

fn escape(out: &mut Vec<u8>, bytes: &[u8], others: &[u8]) {
    for &byte in bounded(bytes, LONGEST).iter() {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f..) || others.contains(&byte) {
            // Writing to a vector cannot fail.
            let _ = write!(out, "\\x{byte:02X}");
        } else {
            out.push(byte);
        }
    }
}

/// Appends text from a client as a string of JSON. Bytes that are no UTF-8 become U+FFFD, and so do
/// the characters that a terminal obeys, beyond those that JSON escapes.
pub(super) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = bounded(bytes, LONGEST);
    let text = String::from_utf8_lossy(&text);
    let is_hidden = |character: char| matches!(character, '\u{7f}'..='\u{9f}');
    // Neither a vector nor a string refuses.
    let _ = match text.contains(is_hidden) {
        false => serde_json::to_writer(&mut *out, &*text),
        true => serde_json::to_writer(&mut *out, &text.replace(is_hidden, "\u{fffd}")),
    };
}
