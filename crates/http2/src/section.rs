//! The fields of one block, as they are decoded: collected, bounded and checked.

use superpoll_http1::{FieldList, Fields};

use crate::error::{ConnectionError, StreamError};
use crate::hpack::Name;
use crate::limits::{FAR_TOO_LARGE, FIELD_OVERHEAD, Limits, MOST_FIELDS};

/// A name and a value: bytes, or a pair of a list that was checked when it was put there.
#[derive(Clone, Copy)]
pub(crate) enum Pair<'p> {
    Bytes(&'p [u8], &'p [u8]),
    Listed(&'p FieldList, usize),
}

/// The places of pseudo-header fields in a list.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pseudo {
    pub(crate) method: Option<usize>,
    pub(crate) scheme: Option<usize>,
    pub(crate) authority: Option<usize>,
    pub(crate) path: Option<usize>,
    pub(crate) protocol: Option<usize>,
}

/// A section of fields: a head, or trailers. The pseudo-header fields are the first pairs of the
/// list.
#[derive(Default, Debug)]
pub(crate) struct Section {
    list: FieldList,
    /// The values of all `cookie` fields, as one.
    cookies: Vec<u8>,
    has_cookie: bool,
    size: usize,
    limits: Limits,
    pub(crate) pseudo: Pseudo,
    /// The number of pseudo-header fields in the list.
    first: usize,
    /// The first reason for which the section is refused.
    error: Option<StreamError>,
    pub(crate) length: Option<u64>,
    pub(crate) host: Option<usize>,
    pub(crate) priority: Option<usize>,
    pub(crate) continues: bool,
    pub(crate) takes_trailers: bool,
}

impl Section {
    /// Empties the section, and keeps its memory.
    pub(crate) fn clear(&mut self, limits: Limits) {
        let (mut list, mut cookies) =
            (std::mem::take(&mut self.list), std::mem::take(&mut self.cookies));
        list.clear();
        cookies.clear();
        *self = Section { list, cookies, limits, ..Section::default() };
    }

    /// Notes a reason to refuse the section, if there is none yet.
    fn refuse(&mut self, error: StreamError) {
        self.error.get_or_insert(error);
    }

    /// Takes the next field.
    ///
    /// # Errors
    ///
    /// If the fields are far larger than the limit. Other errors end the stream alone.
    #[inline]
    pub(crate) fn add(&mut self, kind: Name, pair: Pair<'_>) -> Result<(), ConnectionError> {
        let (name, value) = match pair {
            Pair::Bytes(name, value) => (name, value),
            Pair::Listed(list, place) => list.pair(place).unwrap_or_default(),
        };
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.size > self.limits.head {
            self.refuse(StreamError::HeadTooLarge);
            return match self.size > self.limits.head.saturating_mul(FAR_TOO_LARGE) {
                true => Err(ConnectionError::FieldsFarTooLarge),
                false => Ok(()),
            };
        }
        if self.list.len() - self.first >= self.limits.fields.min(MOST_FIELDS)
            && !matches!(kind, Name::Method | Name::Scheme | Name::Authority | Name::Path)
        {
            self.refuse(StreamError::TooManyFields);
            return Ok(());
        }
        if matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
            self.refuse(StreamError::FieldValue);
        }
        let place = self.list.len();
        match kind {
            Name::Method => return self.add_pseudo(pair, |pseudo| &mut pseudo.method),
            Name::Scheme => return self.add_pseudo(pair, |pseudo| &mut pseudo.scheme),
            Name::Authority => return self.add_pseudo(pair, |pseudo| &mut pseudo.authority),
            Name::Path => return self.add_pseudo(pair, |pseudo| &mut pseudo.path),
            Name::Protocol => return self.add_pseudo(pair, |pseudo| &mut pseudo.protocol),
            Name::OtherPseudo => {
                self.refuse(StreamError::Pseudo);
                return Ok(());
            }
            Name::Cookie => {
                if std::mem::replace(&mut self.has_cookie, true) {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
                return Ok(());
            }
            Name::Other => {}
            Name::Connection => self.refuse(StreamError::ConnectionField),
            Name::Te => match value.eq_ignore_ascii_case(b"trailers") {
                true => self.takes_trailers = true,
                false => self.refuse(StreamError::ConnectionField),
            },
            Name::ContentLength => {
                let length = length(value);
                if length.is_none() || self.length.is_some_and(|before| Some(before) != length) {
                    self.refuse(StreamError::BodyLength);
                }
                self.length = length;
            }
            Name::Expect => match value.eq_ignore_ascii_case(b"100-continue") {
                true => self.continues = true,
                false => self.refuse(StreamError::Expectation),
            },
            Name::Host => {
                if self.host.replace(place).is_some() {
                    self.refuse(StreamError::HostsDiffer);
                }
            }
            Name::Priority => self.priority = Some(place),
        }
        self.push(pair);
        Ok(())
    }

    #[inline]
    fn add_pseudo(
        &mut self,
        pair: Pair<'_>,
        which: impl FnOnce(&mut Pseudo) -> &mut Option<usize>,
    ) -> Result<(), ConnectionError> {
        let place = self.list.len();
        let is_late = place > self.first || self.has_cookie;
        if which(&mut self.pseudo).replace(place).is_some() || is_late {
            self.refuse(StreamError::Pseudo);
            return Ok(());
        }
        self.first += 1;
        match pair {
            // Its value is checked by the type that it becomes.
            Pair::Bytes(name, value) => _ = self.list.push(name, value),
            Pair::Listed(list, place) => _ = self.list.push_from(list, place),
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, pair: Pair<'_>) {
        let is_field = match pair {
            Pair::Bytes(name, value) => self.list.push(name, value),
            Pair::Listed(list, place) => self.list.push_from(list, place),
        };
        if !is_field {
            let place = self.list.len() - 1;
            let (name, _) = self.list.pair(place).unwrap_or_default();
            // A good name has the blame on the value.
            let is_name = superpoll_http1::FieldName::new(name).is_some()
                && !name.iter().any(u8::is_ascii_uppercase);
            self.refuse(if is_name { StreamError::FieldValue } else { StreamError::FieldName });
        }
    }

    /// Ends the section: cookies become one field (RFC 9113, section 8.2.3).
    ///
    /// # Errors
    ///
    /// The first reason for which the section is refused.
    pub(crate) fn finish(&mut self) -> Result<(), StreamError> {
        if self.has_cookie {
            let cookies = std::mem::take(&mut self.cookies);
            self.push(Pair::Bytes(b"cookie", &cookies));
            self.cookies = cookies;
        }
        self.error.map_or(Ok(()), Err)
    }

    /// Whether there is a pseudo-header field.
    pub(crate) const fn has_pseudo(&self) -> bool {
        self.first > 0
    }

    /// Returns the limits of the section.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns a value at a place.
    #[inline]
    pub(crate) fn value(&self, place: usize) -> &[u8] {
        self.list.pair(place).map_or(b"", |(_, value)| value)
    }

    /// Returns the number of pairs.
    #[cfg(test)]
    pub(crate) fn pairs(&self) -> usize {
        self.list.len()
    }

    /// Returns the fields after the pseudo-header fields, if the section was not refused.
    #[inline]
    pub(crate) fn fields(&self) -> Option<Fields<'_>> {
        self.list.fields(self.first)
    }
}

/// Reads a length: digits alone, below 2^63 (RFC 9110, section 8.6).
fn length(value: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        sum.checked_mul(10)?.checked_add(digit).filter(|sum| *sum <= i64::MAX as u64)
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, add) }
}
