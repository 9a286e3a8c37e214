//! The fields of our own in the head of a response, written as lines.

use http::HeaderValue;
use http::header::STRICT_TRANSPORT_SECURITY;
use superpoll_http1::{Field, FieldLines, FieldName, Writer};

use super::Additions;
use crate::message::write_date;

const LINK: FieldName<'_> = FieldName::from_static("link");

/// Writes the fields of some lines that stay, by their names.
#[inline]
pub(crate) fn kept(
    lines: &FieldLines,
    keeps_all: bool,
    keeps: impl Fn(&[u8]) -> bool,
    writer: &mut Writer<'_>,
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
    to: &mut Writer<'_>,
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
    }
    if let Some(trace) = &additions.trace {
        trace.mark_of_response(|name, value| to.field(name.into(), value.into()));
    }
    if !has_date {
        write_date(to);
    }
}
