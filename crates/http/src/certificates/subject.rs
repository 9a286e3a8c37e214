//! The subject of a certificate as a text (RFC 4514).
//!
//! A subject is a list of sets of attributes, each a type and a value. The text begins with the
//! last set, joins the sets with commas and the attributes of a set with plus signs. Characters
//! that have a meaning in such a text are escaped, and so is every byte that a field of HTTP cannot
//! carry: a name in a certificate can neither end the field nor look like another attribute. A
//! value that is no text is written as `#` and its bytes in hexadecimal.

use std::fmt::Write;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;

/// The types that have names: those of RFC 4514, and two more that OpenSSL and nginx write so. The
/// number is that of DER.
const NAMES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// Takes the next element of DER off: its tag, its content, and the whole of it.
fn element<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let all = *bytes;
    let (&tag, rest) = all.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)), rest)
        }
        // A longer name has no place in a certificate, and a length that is not stated no place
        // in DER.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((tag, content, &all[..all.len() - rest.len()]))
}

/// As [`element`], for an element of one kind.
fn of_kind<'a>(bytes: &mut &'a [u8], kind: u8) -> Option<&'a [u8]> {
    element(bytes).filter(|(tag, ..)| *tag == kind).map(|(_, content, _)| content)
}

/// Returns the text of a subject, which is given as the content of its sequence; `None` if it is no
/// subject.
pub(super) fn text(mut name: &[u8]) -> Option<String> {
    let mut sets = Vec::new();
    while !name.is_empty() {
        let mut set = of_kind(&mut name, SET)?;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            attributes.push(attribute(of_kind(&mut set, SEQUENCE)?)?);
        }
        sets.push(attributes.join("+"));
    }
    sets.reverse();
    Some(sets.join(","))
}

fn attribute(mut pair: &[u8]) -> Option<String> {
    let kind = of_kind(&mut pair, OBJECT_IDENTIFIER)?;
    let (tag, content, whole) = element(&mut pair)?;
    let name = NAMES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
    let value = match tag {
        _ if name.is_none() => None,
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => {
            std::str::from_utf8(content).ok().map(str::to_owned)
        }
        BMP_STRING => {
            let units =
                content.chunks(2).map(|two| two.iter().fold(0, |sum, &b| sum << 8 | u16::from(b)));
            String::from_utf16(&units.collect::<Vec<u16>>()).ok()
        }
        _ => None,
    };
    let name = name.map_or_else(|| dotted(kind), str::to_owned);
    Some(match value {
        Some(value) => format!("{name}={}", escaped(&value)),
        None => format!("{name}=#{}", data_encoding::HEXLOWER.encode(whole)),
    })
}

/// Writes a value with escapes (RFC 4514, section 2.4).
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.len().wrapping_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_special = b"\"+,;<>\\=".contains(&byte)
            || (at == 0 && matches!(byte, b' ' | b'#'))
            || (at == last && byte == b' ');
        // Writing to a string cannot fail.
        let _ = match byte {
            _ if is_special => write!(text, "\\{}", char::from(byte)),
            b' '..=b'~' => write!(text, "{}", char::from(byte)),
            _ => write!(text, "\\{byte:02X}"),
        };
    }
    text
}

/// Writes a number of DER with dots (X.690, section 8.19).
fn dotted(kind: &[u8]) -> String {
    let mut text = String::new();
    let mut number: u64 = 0;
    for &byte in kind {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = match text.is_empty() {
            true => {
                let first = (number / 40).min(2);
                write!(text, "{first}.{}", number - first * 40)
            }
            false => write!(text, ".{number}"),
        };
        number = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of DER.
    fn of(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let length = if length < 0x80 { vec![length] } else { vec![0x81, length] };
        [&[tag][..], &length, content].concat()
    }

    fn attribute(kind: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        of(SEQUENCE, &[of(OBJECT_IDENTIFIER, kind), of(tag, value)].concat())
    }

    const CN: &[u8] = &[0x55, 4, 3];

    #[test]
    fn subjects_are_written_as_openssl_writes_them() {
        let long = "x".repeat(200);
        for (kind, tag, value, expected) in [
            (CN, UTF8_STRING, &b"ada"[..], "CN=ada"),
            (CN, PRINTABLE_STRING, b"Ada Lovelace", "CN=Ada Lovelace"),
            (CN, IA5_STRING, b"", "CN="),
            (CN, UTF8_STRING, long.as_bytes(), &format!("CN={long}")),
            (CN, BMP_STRING, &[0, b'a', 0, 0xe9], "CN=a\\C3\\A9"),
            (CN, UTF8_STRING, "é".as_bytes(), "CN=\\C3\\A9"),
            (CN, UTF8_STRING, b"a,O=b+c\\", "CN=a\\,O\\=b\\+c\\\\"),
            (CN, UTF8_STRING, b" #a# ", "CN=\\ #a#\\ "),
            (CN, UTF8_STRING, b"#", "CN=\\#"),
            (CN, UTF8_STRING, b"a\r\nx-client-subject: b\0", "CN=a\\0D\\0Ax-client-subject: b\\00"),
            (CN, UTF8_STRING, b"\xff", "CN=#0c01ff"),
            (CN, 0x14, b"a", "CN=#140161"),
            (&[0x55, 4, 12], UTF8_STRING, b"a", "2.5.4.12=#0c0161"),
            (
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
                IA5_STRING,
                b"a@b",
                "emailAddress=a@b",
            ),
            (
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2],
                IA5_STRING,
                b"",
                "1.2.840.113549.1.9.2=#1600",
            ),
        ] {
            let name = of(SET, &attribute(kind, tag, value));
            assert_eq!(text(&name).as_deref(), Some(expected));
        }
        let two = [attribute(CN, UTF8_STRING, b"a"), attribute(&[0x55, 4, 11], UTF8_STRING, b"b")];
        let name =
            [of(SET, &attribute(&[0x55, 4, 6], PRINTABLE_STRING, b"SE")), of(SET, &two.concat())];
        assert_eq!(text(&name.concat()).as_deref(), Some("CN=a+OU=b,C=SE"));
        assert_eq!(text(b"").as_deref(), Some(""));
    }

    #[test]
    fn anything_but_a_subject_has_no_text() {
        let whole = of(SET, &attribute(CN, UTF8_STRING, b"ada"));
        for end in 1..whole.len() {
            assert_eq!(text(&whole[..end]), None, "{end}");
        }
        for wrong in [
            &[SET, 0x80][..],
            &[SET, 0x84, 0, 0, 0, 0],
            &[SET, 0x83, 0xff, 0xff, 0xff],
            &[SET, 1, 0],
        ] {
            assert_eq!(text(wrong), None, "{wrong:?}");
        }
    }
}
