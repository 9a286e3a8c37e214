//! The fields of one block, as they are decoded: collected, bounded and checked.

use std::ops::Range;

use superpoll_http1::{FieldList, FieldName, Fields};

use crate::error::{ConnectionError, StreamError};
use crate::hpack::{Name, PSEUDO};
use crate::limits::{FAR_TOO_LARGE, FIELD_OVERHEAD, Limits, MOST_FIELDS};

/// A name and a value: bytes, or a pair of a list that was checked when it was put there.
#[derive(Clone, Copy)]
pub(crate) enum Pair<'p> {
    Bytes(&'p [u8], &'p [u8]),
    Listed(&'p FieldList, usize),
}

impl<'p> Pair<'p> {
    #[inline]
    fn len(self) -> usize {
        match self {
            Pair::Bytes(name, value) => name.len() + value.len(),
            Pair::Listed(list, place) => list.byte_len(place..place + 1),
        }
    }

    fn parts(self) -> (&'p [u8], &'p [u8]) {
        match self {
            Pair::Bytes(name, value) => (name, value),
            Pair::Listed(list, place) => list.pair(place).unwrap_or_default(),
        }
    }
}

/// The value of a pseudo-header field: from the static table, or a range of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text {
    Static(&'static str),
    At(usize, usize),
}

/// A section of fields: a head, or trailers.
#[derive(Default, Debug)]
pub(crate) struct Section {
    list: FieldList,
    /// The values of pseudo-header fields.
    texts: Vec<u8>,
    /// The values of all `cookie` fields as one, if there are several.
    cookies: Vec<u8>,
    has_cookies: bool,
    has_pseudo: bool,
    size: usize,
    limits: Limits,
    /// The pseudo-header fields, by their names.
    pseudo: [Option<Text>; PSEUDO],
    /// The first reason for which the section is refused.
    error: Option<StreamError>,
    pub(crate) length: Option<u64>,
    /// The places of fields in the list; of several cookies, that of the first.
    cookie: Option<usize>,
    pub(crate) host: Option<usize>,
    pub(crate) priority: Option<usize>,
    pub(crate) continues: bool,
    pub(crate) takes_trailers: bool,
}

impl Section {
    /// Empties the section, and keeps its memory.
    pub(crate) fn clear(&mut self, limits: Limits) {
        self.list.clear();
        self.texts.clear();
        self.cookies.clear();
        *self = Section {
            list: std::mem::take(&mut self.list),
            texts: std::mem::take(&mut self.texts),
            cookies: std::mem::take(&mut self.cookies),
            limits: Limits { fields: limits.fields.min(MOST_FIELDS), ..limits },
            ..Section::default()
        };
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
        self.size += pair.len() + FIELD_OVERHEAD;
        if self.size > self.limits.head {
            return self.add_too_large();
        }
        self.add_any(kind, pair);
        Ok(())
    }

    /// Takes fields that follow each other in a list and decide nothing. Returns false, and takes
    /// none, if they are beyond a limit.
    #[inline]
    pub(crate) fn add_all(&mut self, list: &FieldList, places: Range<usize>) -> bool {
        let count = places.len();
        let size = self.size + list.byte_len(places.clone()) + count * FIELD_OVERHEAD;
        let start = self.list.len();
        if size > self.limits.head || start + count > self.limits.fields {
            return false;
        }
        self.size = size;
        if !self.list.push_from(list, places) {
            self.refuse_from(start);
        }
        true
    }

    #[cold]
    fn add_too_large(&mut self) -> Result<(), ConnectionError> {
        self.refuse(StreamError::HeadTooLarge);
        match self.size > self.limits.head.saturating_mul(FAR_TOO_LARGE) {
            true => Err(ConnectionError::FieldsFarTooLarge),
            false => Ok(()),
        }
    }

    fn add_any(&mut self, kind: Name, pair: Pair<'_>) {
        match kind {
            Name::Other => self.push(pair),
            Name::OtherPseudo => self.refuse(StreamError::Pseudo),
            kind if (kind as usize) < PSEUDO => {
                let (start, value) = (self.texts.len(), pair.parts().1);
                self.texts.extend_from_slice(value);
                self.add_pseudo(kind, Text::At(start, start + value.len()));
            }
            special => self.add_special(special, pair),
        }
    }

    /// Takes a field of the static table, with the length of its name.
    #[inline]
    pub(crate) fn add_static(
        &mut self,
        kind: Name,
        name: &'static str,
        value: &'static str,
    ) -> Result<(), ConnectionError> {
        if kind as usize >= PSEUDO {
            return self.add(kind, Pair::Bytes(name.as_bytes(), value.as_bytes()));
        }
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.size > self.limits.head {
            return self.add_too_large();
        }
        self.add_pseudo(kind, Text::Static(value));
        Ok(())
    }

    #[inline]
    fn add_pseudo(&mut self, kind: Name, text: Text) {
        self.has_pseudo = true;
        // It is before all fields.
        let before = self.pseudo[kind as usize].replace(text);
        if before.is_some() || !self.list.is_empty() {
            self.refuse(StreamError::Pseudo);
        }
    }

    /// Takes a field that decides something.
    fn add_special(&mut self, kind: Name, pair: Pair<'_>) {
        let (_, value) = pair.parts();
        match kind {
            Name::Cookie => match self.cookie {
                None => self.cookie = Some(self.list.len()),
                Some(first) => return self.add_cookie(first, value),
            },
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
                if self.host.replace(self.list.len()).is_some() {
                    self.refuse(StreamError::HostsDiffer);
                }
            }
            Name::Priority => self.priority = Some(self.list.len()),
            _ => self.refuse(StreamError::ConnectionField),
        }
        self.push(pair);
    }

    fn push(&mut self, pair: Pair<'_>) {
        if self.list.len() >= self.limits.fields {
            return self.refuse(StreamError::TooManyFields);
        }
        let is_field = match pair {
            Pair::Listed(list, place) => self.list.push_from(list, place..place + 1),
            pair => {
                let (name, value) = pair.parts();
                self.list.push(name, value)
            }
        };
        if !is_field {
            self.refuse_from(self.list.len().saturating_sub(1));
        }
    }

    /// Refuses the first pair that is not a field, from a place on.
    #[cold]
    fn refuse_from(&mut self, start: usize) {
        let bad = (start..self.list.len()).find(|at| self.list.fields(*at..at + 1).is_none());
        let (name, _) = bad.and_then(|at| self.list.pair(at)).unwrap_or_default();
        let is_name = FieldName::new(name).is_some() && !name.iter().any(u8::is_ascii_uppercase);
        self.refuse(if is_name { StreamError::FieldValue } else { StreamError::FieldName });
    }

    /// Takes a further cookie: all become one field (RFC 9113, section 8.2.3).
    #[cold]
    fn add_cookie(&mut self, first: usize, value: &[u8]) {
        if !std::mem::replace(&mut self.has_cookies, true) {
            let (_, value) = self.list.pair(first).unwrap_or_default();
            self.cookies.extend_from_slice(value);
        }
        if matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']) {
            self.refuse(StreamError::FieldValue);
        }
        if !self.cookies.is_empty() && !value.is_empty() {
            self.cookies.extend_from_slice(b"; ");
        }
        self.cookies.extend_from_slice(value);
    }

    /// Ends the section.
    ///
    /// # Errors
    ///
    /// The first reason for which the section is refused.
    pub(crate) fn finish(&mut self) -> Result<(), StreamError> {
        if let (true, Some(first), None) = (self.has_cookies, self.cookie, self.error) {
            self.list.remove(first..first + 1);
            for place in [&mut self.host, &mut self.priority] {
                *place = place.map(|place| place - usize::from(place > first));
            }
            let cookies = std::mem::take(&mut self.cookies);
            self.push(Pair::Bytes(b"cookie", &cookies));
            self.cookies = cookies;
        }
        self.error.map_or(Ok(()), Err)
    }

    /// Whether there is a pseudo-header field.
    pub(crate) const fn has_pseudo(&self) -> bool {
        self.has_pseudo
    }

    /// Returns the limits of the section.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the value of a field at a place.
    pub(crate) fn value(&self, place: usize) -> &[u8] {
        self.list.pair(place).map_or(b"", |(_, value)| value)
    }

    /// Returns a pseudo-header field.
    #[inline]
    pub(crate) const fn pseudo(&self, name: Name) -> Option<Text> {
        self.pseudo[name as usize]
    }

    /// Returns the value of a pseudo-header field; `None` if it is not UTF-8.
    #[inline]
    pub(crate) fn text(&self, text: Text) -> Option<&str> {
        match text {
            Text::Static(text) => Some(text),
            text => str::from_utf8(self.bytes(text)).ok(),
        }
    }

    /// Returns the value of a pseudo-header field as bytes.
    #[inline]
    pub(crate) fn bytes(&self, text: Text) -> &[u8] {
        match text {
            Text::Static(text) => text.as_bytes(),
            Text::At(start, end) => self.texts.get(start..end).unwrap_or_default(),
        }
    }

    /// Returns the fields other than pseudo-header fields, if the section was not refused.
    #[inline]
    pub(crate) fn fields(&self) -> Option<Fields<'_>> {
        self.list.fields(0..self.list.len())
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
