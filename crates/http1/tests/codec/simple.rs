//! A reader of chunks that is as simple as the standard.

use superpoll_http1::{FieldName, FieldValue};

use crate::message::Body;

/// Reads chunks in the simplest way: the whole body at once, after the rules of RFC 9112, section
/// 7.1. Returns its data, its trailers and its end; `None` if it is malformed or partial.
pub(crate) fn simple_chunks(bytes: &[u8]) -> Option<Body> {
    let (mut body, mut at) = (Body::default(), 0);
    loop {
        let line = line_of(&bytes[at..])?;
        at += line.len() + 2;
        let text: String = line.iter().map(|byte| *byte as char).collect();
        let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
        let after = text[digits.len()..].trim_matches([' ', '\t']);
        let size = usize::from_str_radix(&digits, 16).ok()?;
        if (!after.is_empty() && !after.starts_with(';')) || size >= 1 << 60 {
            return None;
        }
        if size == 0 {
            break;
        }
        body.data.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    loop {
        let text = line_of(&bytes[at..])?;
        at += text.len() + 2;
        if text.is_empty() {
            body.end = Some(at);
            return Some(body);
        }
        let colon = text.iter().position(|byte| *byte == b':')?;
        let name = FieldName::new(&text[..colon])?.as_bytes().to_ascii_lowercase();
        let value = text[colon + 1..].iter().map(|byte| *byte as char).collect::<String>();
        let value = value.trim_matches([' ', '\t']).chars().map(|one| one as u8).collect();
        body.trailers.push((name, value));
    }
}

/// Returns the first line, which ends with CR LF and has no control character but tabs.
fn line_of(bytes: &[u8]) -> Option<&[u8]> {
    let line = &bytes[..bytes.windows(2).position(|two| two == b"\r\n")?];
    FieldValue::new(line).map(FieldValue::as_bytes)
}
