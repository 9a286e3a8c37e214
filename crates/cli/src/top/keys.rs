//! Keys, as a terminal in raw mode sends them.
//!
//! A key is a byte or more. Escape alone is also the beginning of other keys' sequences (`ESC [ A`
//! is the arrow up). The bytes of a sequence come at once, so an escape with nothing after it is
//! the key of that name.

/// A command of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Quit,
    Pause,
    Longer,
    Shorter,
    Next,
    Before,
    Sort,
}

const ESCAPE: u8 = 0x1b;

/// Returns the keys in the bytes of one read of the terminal. Bytes without a meaning are left out.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            // Ctrl-C is a byte like any other in raw mode.
            b'q' | b'Q' | 0x03 => keys.push(Key::Quit),
            b'p' | b'P' | b' ' => keys.push(Key::Pause),
            b'+' | b'=' => keys.push(Key::Longer),
            b'-' | b'_' => keys.push(Key::Shorter),
            b'\t' => keys.push(Key::Next),
            b's' | b'S' => keys.push(Key::Sort),
            &ESCAPE => match after {
                [] => keys.push(Key::Quit),
                [b'[', sequence @ ..] => {
                    let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                    let end = end.map_or(sequence.len(), |end| end + 1);
                    if sequence[..end] == *b"Z" {
                        keys.push(Key::Before);
                    }
                    rest = &sequence[end..];
                }
                // A function key, or one with Alt.
                [b'O', _, others @ ..] | [_, others @ ..] => rest = others,
            },
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_meaning_and_sequences_of_other_keys_have_none() {
        assert_eq!(keys(b"q"), [Key::Quit]);
        assert_eq!(keys(b"\x03"), [Key::Quit]);
        assert_eq!(keys(b"\x1b"), [Key::Quit]);
        assert_eq!(keys(b"p+-\ts"), [Key::Pause, Key::Longer, Key::Shorter, Key::Next, Key::Sort]);
        assert_eq!(keys(b"\x1b[Z"), [Key::Before]);
        // Arrows, F1, F5, Alt-q, the report of a mouse, something cut off.
        for other in [&b"\x1b[A"[..], b"\x1bOP", b"\x1b[15~", b"\x1bq", b"\x1b[<0;3;4M", b"\x1b["] {
            assert_eq!(keys(other), [], "{other:?}");
        }
        assert_eq!(keys(b"\x1b[Aq"), [Key::Quit]);
        assert_eq!(keys(b"xyz\xff\0"), []);
    }
}
