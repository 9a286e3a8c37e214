//! The encoder of fields: references to the static table, and literals that no table keeps.

use super::fixed;

/// Appends a number (RFC 7541, section 5.1).
#[inline]
fn put_integer(pattern: u8, prefix: u32, value: usize, to: &mut Vec<u8>) {
    let most = (1 << prefix) - 1;
    if value < most {
        return to.push(pattern | value as u8);
    }
    to.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        to.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    to.push(rest as u8);
}

#[inline]
fn put_text(text: &[u8], to: &mut Vec<u8>) {
    put_integer(0, 7, text.len(), to);
    to.extend_from_slice(text);
}

/// Appends the change of the table's size to nothing (RFC 7541, section 6.3).
pub(crate) fn put_table_size_zero(to: &mut Vec<u8>) {
    to.push(0x20);
}

/// Appends `:status`.
pub(crate) fn put_status(status: http::StatusCode, to: &mut Vec<u8>) {
    let index = match status.as_u16() {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            // A literal with the name of index 8.
            to.push(0x08);
            return put_text(status.as_str().as_bytes(), to);
        }
    };
    to.push(0x80 | index);
}

/// Appends a field. Fields about the connection are left out (RFC 9113, section 8.2.2). Secrets are
/// marked, so that no proxy puts them into a table (RFC 7541, section 7.1.3).
#[inline]
pub(crate) fn put_field(name: &[u8], value: &[u8], to: &mut Vec<u8>) {
    match fixed::index_of(name) {
        0 => put_named(name, value, to),
        index => {
            let pattern = if index == fixed::SET_COOKIE { NEVER_INDEXED } else { 0 };
            put_integer(pattern, 4, usize::from(index), to);
            put_text(value, to);
        }
    }
}

/// Appends a field whose name is not in the static table, or not in lower case.
fn put_named(name: &[u8], value: &[u8], to: &mut Vec<u8>) {
    let start = to.len();
    to.push(0);
    put_integer(0, 7, name.len(), to);
    let at = to.len();
    to.extend_from_slice(name);
    to[at..].make_ascii_lowercase();
    if fixed::is_of_connection(&to[at..]) {
        return to.truncate(start);
    }
    if is_secret(&to[at..]) {
        to[start] = NEVER_INDEXED;
    }
    put_text(value, to);
}

/// The pattern of a literal that no table may keep.
const NEVER_INDEXED: u8 = 0x10;

/// Whether the value of a field may be a secret, by its name in lower case.
fn is_secret(name: &[u8]) -> bool {
    matches!(
        name,
        b"set-cookie"
            | b"cookie"
            | b"authorization"
            | b"proxy-authorization"
            | b"authentication-info"
    )
}
