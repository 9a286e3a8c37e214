//! The fields of our own in the head of a response, written as lines.

use http::HeaderValue;
use http::header::STRICT_TRANSPORT_SECURITY;
use superpoll_http1::{Field, FieldLines, FieldName, FieldValue, Writer};
use superpoll_http2::HeadWriter;

use super::Additions;
use crate::message::with_date;

const LINK: FieldName<'_> = FieldName::from_static("link");

/// A writer of the fields of a head, for either version of HTTP.
pub(crate) trait FieldWriter {
    /// Writes a field.
    fn field(&mut self, name: FieldName<'_>, value: FieldValue<'_>);

    /// Writes fields that were formatted as lines before.
    fn lines(&mut self, lines: &FieldLines);
}

impl FieldWriter for Writer<'_> {
    #[inline]
    fn field(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        Writer::field(self, name, value);
    }

    #[inline]
    fn lines(&mut self, lines: &FieldLines) {
        Writer::lines(self, lines);
    }
}

impl FieldWriter for HeadWriter<'_> {
    #[inline]
    fn field(&mut self, name: FieldName<'_>, value: FieldValue<'_>) {
        HeadWriter::field(self, name, value);
    }

    fn lines(&mut self, lines: &FieldLines) {
        lines.iter().for_each(|Field { name, value }| self.field(name, value));
    }
}

/// Writes the fields of some lines that stay, by their names.
#[inline]
pub(crate) fn kept(
    lines: &FieldLines,
    keeps_all: bool,
    keeps: impl Fn(&[u8]) -> bool,
    writer: &mut impl FieldWriter,
) {
    if keeps_all {
        return writer.lines(lines);
    }
    for Field { name, value } in lines.iter().filter(|field| keeps(field.name.as_bytes())) {
        writer.field(name, value);
    }
}

/// Writes the fields of a response that are ours.
pub(crate) fn add(
    additions: &Additions,
    hsts: Option<&HeaderValue>,
    has_date: bool,
    to: &mut impl FieldWriter,
) {
    if let Some(link) = additions.link.as_ref().filter(|_| additions.keeps(b"link")) {
        to.field(LINK, link.into());
    }
    if let Some(hsts) = hsts.filter(|_| additions.keeps(b"strict-transport-security")) {
        to.field((&STRICT_TRANSPORT_SECURITY).into(), hsts.into());
    }
    if let Some(lines) = additions.lines() {
        let replaces = |name: &[u8]| additions.trace.as_ref().is_some_and(|it| it.replaces(name));
        kept(lines, additions.trace.is_none(), |name| !replaces(name), to);
        for (name, value) in additions.filled() {
            if !replaces(name.as_str().as_bytes()) {
                to.field(name.into(), value.into());
            }
        }
    }
    if let Some(trace) = &additions.trace {
        trace.mark_of_response(|name, value| to.field(name.into(), value.into()));
    }
    if !has_date {
        with_date(|line| to.lines(line));
    }
}
