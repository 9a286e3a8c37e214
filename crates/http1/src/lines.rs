//! Fields that are written to many heads, and formatted once.

use std::fmt;

use crate::field::{Field, FieldName, FieldValue};

/// Fields as lines of a head, made of checked names and values.
///
/// The fields that a [`Writer`](crate::Writer) writes by itself are left out: `Host`,
/// `Content-Length` and `Transfer-Encoding`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FieldLines(Vec<u8>);

impl FieldLines {
    /// Returns no lines.
    #[must_use]
    pub const fn new() -> FieldLines {
        FieldLines(Vec::new())
    }

    /// Appends a line.
    pub fn push(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        if !is_writers(name.as_bytes()) {
            line(name, value, &mut self.0);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields in their order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            // The name of a field has no colon.
            let colon = memchr::memchr(b':', line)?;
            let value = line.get(colon + 2..)?;
            Some(Field {
                name: FieldName::from_checked(&line[..colon]),
                value: FieldValue::from_checked(value),
            })
        })
    }

    /// Returns the bytes of all lines.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> FromIterator<(&'a http::HeaderName, &'a http::HeaderValue)> for FieldLines {
    fn from_iter<I>(fields: I) -> FieldLines
    where
        I: IntoIterator<Item = (&'a http::HeaderName, &'a http::HeaderValue)>,
    {
        let mut lines = FieldLines::new();
        fields.into_iter().for_each(|(name, value)| lines.push(name.into(), value.into()));
        lines
    }
}

impl fmt::Debug for FieldLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Whether a field is the writer's own, whatever the message.
fn is_writers(name: &[u8]) -> bool {
    // Few names have one of these lengths.
    match name.len() {
        4 => name.eq_ignore_ascii_case(b"host"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}

/// Appends the line of a field.
#[inline]
pub(crate) fn line(name: FieldName<'_>, value: FieldValue<'_>, to: &mut Vec<u8>) {
    to.extend_from_slice(name.as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value.as_bytes());
    to.extend_from_slice(b"\r\n");
}
