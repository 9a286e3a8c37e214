//! Keys, as a terminal in raw mode sends them.
//!
//! A key is a byte or more. Escape alone is also the beginning of other keys' sequences (`ESC [ A`
//! is the arrow up). The bytes of a sequence come at once, so an escape with nothing after it is
//! the key of that name. Letters have a meaning on the screen, or are text where text is typed, so
//! that their meaning is not decided here.

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// A character that is neither a control character nor part of a sequence.
    Character(char),
    /// Ctrl-C.
    Interrupt,
    Escape,
    Enter,
    Backspace,
    Tab,
    BackTab,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

const ESCAPE: u8 = 0x1b;

/// Returns the key of a control sequence after `ESC [`, or of one after `ESC O`.
fn of_sequence(sequence: &[u8]) -> Option<Key> {
    Some(match sequence {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"C" => Key::Right,
        b"D" => Key::Left,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        b"Z" => Key::BackTab,
        _ => return None,
    })
}

/// Returns the keys in the bytes of one read of the terminal. Bytes without a meaning are left out.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            // Ctrl-C is a byte like any other in raw mode.
            0x03 => keys.push(Key::Interrupt),
            b'\t' => keys.push(Key::Tab),
            b'\r' | b'\n' => keys.push(Key::Enter),
            0x08 | 0x7f => keys.push(Key::Backspace),
            &ESCAPE => match after {
                [] => keys.push(Key::Escape),
                [b'[', sequence @ ..] => {
                    let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                    let end = end.map_or(sequence.len(), |end| end + 1);
                    keys.extend(of_sequence(&sequence[..end]));
                    rest = &sequence[end..];
                }
                [b'O', key, others @ ..] => {
                    keys.extend(of_sequence(&[*key]));
                    rest = others;
                }
                // One with Alt.
                [_, others @ ..] => rest = others,
            },
            0x00..=0x1f => {}
            _ => {
                // The bytes up to the next control character.
                let end = rest.iter().position(|byte| *byte < 0x20 || *byte == 0x7f);
                let (text, others) =
                    bytes[bytes.len() - rest.len() - 1..].split_at(1 + end.unwrap_or(rest.len()));
                rest = others;
                for part in text.utf8_chunks() {
                    let shown = part.valid().chars().filter(|one| !one.is_control());
                    keys.extend(shown.map(Key::Character));
                }
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_meaning_and_sequences_of_other_keys_have_none() {
        let text = |text: &str| text.chars().map(Key::Character).collect::<Vec<_>>();
        assert_eq!(keys(b"q"), text("q"));
        assert_eq!(keys(b"\x03"), [Key::Interrupt]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys("xé+".as_bytes()), text("xé+"));
        assert_eq!(
            keys(b"a\tb\r\x7f"),
            [Key::Character('a'), Key::Tab, Key::Character('b'), Key::Enter, Key::Backspace,]
        );
        for (bytes, key) in [
            (&b"\x1b[Z"[..], Key::BackTab),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[C", Key::Right),
            (b"\x1b[D", Key::Left),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[H", Key::Home),
            (b"\x1b[4~", Key::End),
        ] {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
        // F1, F5, Alt-q, the report of a mouse, something cut off, controls of C1.
        for other in
            [&b"\x1bOP"[..], b"\x1b[15~", b"\x1bq", b"\x1b[<0;3;4M", b"\x1b[", "\u{9b}".as_bytes()]
        {
            assert_eq!(keys(other), [], "{other:?}");
        }
        assert_eq!(keys(b"\x1b[Aq"), [Key::Up, Key::Character('q')]);
        assert_eq!(keys(b"xy\xff\0z"), text("xyz"));
    }
}
