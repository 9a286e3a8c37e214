//! The fields that decide where a message ends and whether its connection stays.

use crate::field::{Field, FieldValue};
use crate::head::{After, Version};
use crate::refusal::Refusal;

/// The facts in a head's fields that decide about the message and its connection.
#[derive(Default)]
pub(crate) struct Facts<'b> {
    pub(crate) host: Option<FieldValue<'b>>,
    pub(crate) has_more_hosts: bool,
    pub(crate) length: Option<u64>,
    codings: usize,
    ends_with_chunked: bool,
    closes: bool,
    keeps_alive: bool,
    names_upgrade: bool,
    /// `Connection` has another option than `close` and `keep-alive`.
    pub(crate) names_fields: bool,
    upgrade: Option<FieldValue<'b>>,
    has_more_upgrades: bool,
    pub(crate) continues: bool,
    pub(crate) has_other_expectation: bool,
    pub(crate) takes_trailers: bool,
}

impl<'b> Facts<'b> {
    /// Takes the next field of a head.
    #[inline]
    pub(crate) fn add(&mut self, field: Field<'b>) -> Result<(), Refusal> {
        let name = field.name.as_bytes();
        // Most names have another beginning and length, and need no comparison.
        let decides = matches!(
            (name, name.len()),
            ([b'c', ..], 10 | 14)
                | ([b'h', ..], 4)
                | ([b't', ..], 2 | 17)
                | ([b'u', ..], 7)
                | ([b'e', ..], 6)
        );
        if decides { self.decide(field) } else { Ok(()) }
    }

    fn decide(&mut self, Field { name, value }: Field<'b>) -> Result<(), Refusal> {
        let text = value.as_bytes();
        match name.as_bytes() {
            b"host" => match self.host {
                None => self.host = Some(value),
                Some(_) => self.has_more_hosts = true,
            },
            b"content-length" => {
                let length = length(text).ok_or(Refusal::LengthInvalid)?;
                if self.length.is_some_and(|before| before != length) {
                    return Err(Refusal::LengthsDiffer);
                }
                self.length = Some(length);
            }
            b"transfer-encoding" => {
                for coding in value.elements() {
                    self.codings = self.codings.saturating_add(1);
                    self.ends_with_chunked = coding.eq_ignore_ascii_case(b"chunked");
                }
            }
            b"connection" => value.elements().for_each(|option| self.add_option(option)),
            b"upgrade" => match self.upgrade {
                None => self.upgrade = Some(value),
                Some(_) => self.has_more_upgrades = true,
            },
            b"expect" => match text.eq_ignore_ascii_case(b"100-continue") {
                true => self.continues = true,
                false => self.has_other_expectation = true,
            },
            b"te" => {
                let mut elements = value.elements();
                self.takes_trailers |=
                    elements.any(|element| element.eq_ignore_ascii_case(b"trailers"));
            }
            _ => {}
        }
        Ok(())
    }

    fn add_option(&mut self, option: &[u8]) {
        match option.len() {
            5 if option.eq_ignore_ascii_case(b"close") => self.closes = true,
            10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keeps_alive = true,
            _ => {
                self.names_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
                self.names_fields = true;
            }
        }
    }

    /// Whether the message has a transfer coding; `chunked` is the only one that is supported.
    ///
    /// # Errors
    ///
    /// If there are others, or in HTTP/1.0 (RFC 9112, section 6.1).
    pub(crate) fn is_chunked(&self, version: Version) -> Result<bool, Refusal> {
        match (self.codings, self.ends_with_chunked) {
            (0, _) => Ok(false),
            _ if version == Version::Http10 => Err(Refusal::CodingInOldVersion),
            (_, false) => Err(Refusal::CodingNotChunked),
            (1, true) => Ok(true),
            (_, true) => Err(Refusal::CodingUnsupported),
        }
    }

    /// Returns the connection's fate, as far as `Connection` decides; any `close` wins.
    pub(crate) fn after(&self, version: Version) -> After {
        match (self.closes, version, self.keeps_alive) {
            (true, ..) | (false, Version::Http10, false) => After::Closes,
            (false, Version::Http11, _) | (false, Version::Http10, true) => After::Stays,
        }
    }

    /// Returns the one `Upgrade` field, if `Connection` names it (RFC 9110, section 7.8).
    pub(crate) fn upgrade(&self) -> Option<FieldValue<'b>> {
        let is_one = self.names_upgrade && !self.has_more_upgrades;
        self.upgrade.filter(|value| is_one && !value.as_bytes().is_empty())
    }
}

/// Reads a length: digits alone, below 2^63.
fn length(value: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        sum.checked_mul(10)?.checked_add(digit).filter(|sum| *sum <= i64::MAX as u64)
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, add) }
}
