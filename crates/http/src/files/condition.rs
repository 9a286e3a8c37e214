//! Conditional requests (RFC 9110, section 13): whether a request is carried out, given the version
//! that the client already has.

use std::time::SystemTime;

use headers::{
    ETag, IfMatch, IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince, LastModified,
};
use http::StatusCode;

use crate::head::Fields;

/// Whether the answer to a request may be other than the whole file, by one look at the request's
/// fields.
pub(super) fn has_conditions(fields: Fields<'_>) -> bool {
    fields.has_name(|name| name.starts_with(b"if-") || name == b"range")
}

/// The validators that conditions are compared with.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    pub(super) etag: ETag,
    /// The same as a field has it.
    pub(super) text: String,
    /// `None` before 1970, for which HTTP has no date.
    pub(super) modified: Option<SystemTime>,
}

impl Validators {
    /// Returns the status that the conditions of a request lead to, in the order of RFC 9110,
    /// section 13.2.2; `None`: the request is carried out.
    pub(super) fn condition(&self, fields: Fields<'_>) -> Option<StatusCode> {
        let failed = if fields.has("if-match") {
            let tags = fields.typed::<IfMatch>();
            !tags.is_some_and(|tags| tags.precondition_passes(&self.etag))
        } else if fields.has("if-unmodified-since") {
            let since = fields.typed::<IfUnmodifiedSince>();
            let both = since.zip(self.modified);
            both.is_some_and(|(since, modified)| !since.precondition_passes(modified))
        } else {
            false
        };
        if failed {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let mut none_match = fields.values("if-none-match");
        let is_known = if let Some(first) = none_match.next() {
            // Most clients send back what they have got.
            if first == self.text.as_bytes() && none_match.next().is_none() {
                return Some(StatusCode::NOT_MODIFIED);
            }
            let tags = fields.typed::<IfNoneMatch>();
            tags.is_some_and(|tags| !tags.precondition_passes(&self.etag))
        } else if fields.has("if-modified-since") {
            let since = fields.typed::<IfModifiedSince>();
            let both = since.zip(self.modified);
            both.is_some_and(|(since, modified)| !since.is_modified(modified))
        } else {
            false
        };
        is_known.then_some(StatusCode::NOT_MODIFIED)
    }

    /// Whether If-Range allows a range to be sent; true without that field.
    pub(super) fn range_is_of_this(&self, fields: Fields<'_>) -> bool {
        if !fields.has("if-range") {
            return true;
        }
        let last = self.modified.map(LastModified::from);
        let condition = fields.typed::<IfRange>();
        condition.is_some_and(|condition| !condition.is_modified(Some(&self.etag), last.as_ref()))
    }
}
