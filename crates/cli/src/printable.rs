//! Text of another process, in a form that a terminal may show.

use serde_json::Value;

/// Whether a terminal obeys a character rather than showing it, or reorders the text around it:
/// controls (C0, delete and C1), line and paragraph separators, and the marks, embeddings,
/// overrides and isolates of the bidirectional algorithm.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2066}'..='\u{2069}')
}

/// Returns the text with an escape in place of each character that a terminal obeys.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns the same of a text that may have several lines, which stay lines.
pub(crate) fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n")
}

/// Applies [`printable`] to all texts of a value, names of fields included.
pub(crate) fn printable_value(value: Value) -> Value {
    map_texts(value, printable)
}

/// Applies a function to all texts of a value, names of fields included.
pub(crate) fn map_texts(value: Value, map: fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(map(&text)),
        Value::Array(all) => {
            Value::Array(all.into_iter().map(|value| map_texts(value, map)).collect())
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| (map(&name), map_texts(value, map)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// Returns a line of JSON with the same meaning, without any character that a terminal obeys.
pub(crate) fn printable_json(line: &[u8]) -> Vec<u8> {
    let mut shown = String::with_capacity(line.len());
    for character in String::from_utf8_lossy(line).chars() {
        match character {
            // Between values, where they mean the same as a blank.
            '\t' | '\r' => shown.push(' '),
            _ if is_obeyed(character) => {
                shown.push_str(&format!("\\u{:04x}", u32::from(character)))
            }
            _ => shown.push(character),
        }
    }
    shown.into_bytes()
}

/// Returns a value as a line of JSON with the same meaning, without any character that a terminal
/// obeys.
pub(crate) fn printable_line(value: &Value) -> serde_json::Result<String> {
    Ok(String::from_utf8_lossy(&printable_json(&serde_json::to_vec(value)?)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str =
        "a\u{1b}]0;x\u{7}\u{1b}[2J\r\n\u{9b}5m\u{7f}\u{202e}\u{2066}\u{2028}\u{200f}b";

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(printable("back-end \u{e9} \u{4e2d}"), "back-end \u{e9} \u{4e2d}");
        let shown = printable(EVIL);
        assert!(shown.starts_with("a\\u{1b}]0;x\\u{7}\\u{1b}[2J\\u{d}\\u{a}\\u{9b}5m"), "{shown}");
        assert!(!shown.contains(is_obeyed), "{shown:?}");
        let lines = printable_lines("a\u{1b}[2J\nb\r\nc\rd\n");
        assert_eq!(lines, "a\\u{1b}[2J\nb\nc\\u{d}d");
    }

    #[test]
    fn values_and_lines_keep_their_meaning() {
        let value = serde_json::json!({ EVIL: [EVIL, 1.5, null, u64::MAX] });
        let shown = printable_value(value.clone());
        assert_eq!(
            shown,
            serde_json::json!({ printable(EVIL): [printable(EVIL), 1.5, null, u64::MAX] })
        );
        let line = printable_json(value.to_string().as_bytes());
        let text = std::str::from_utf8(&line).unwrap();
        assert!(!text.contains(is_obeyed), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), value);
    }
}
