//! Conditional requests (RFC 9110, section 13): whether a request is carried out, given the version
//! that the client already has.

use std::time::SystemTime;

use headers::{
    ETag, HeaderMapExt, IfMatch, IfModifiedSince, IfNoneMatch, IfRange, IfUnmodifiedSince,
    LastModified,
};
use http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, StatusCode};

/// Whether the answer to a request may be other than the whole file, by one look at the request's
/// fields.
pub(super) fn has_conditions(headers: &HeaderMap) -> bool {
    let names =
        [&RANGE, &IF_MATCH, &IF_MODIFIED_SINCE, &IF_NONE_MATCH, &IF_RANGE, &IF_UNMODIFIED_SINCE];
    headers.keys().any(|name| names.contains(&name))
}

/// The validators that conditions are compared with.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    pub(super) etag: ETag,
    /// `None` before 1970, for which HTTP has no date.
    pub(super) modified: Option<SystemTime>,
}

impl Validators {
    /// Returns the status that the conditions of a request lead to, in the order of RFC 9110,
    /// section 13.2.2; `None`: the request is carried out.
    pub(super) fn condition(&self, headers: &HeaderMap) -> Option<StatusCode> {
        let failed = if headers.contains_key(IF_MATCH) {
            let tags = headers.typed_get::<IfMatch>();
            !tags.is_some_and(|tags| tags.precondition_passes(&self.etag))
        } else if headers.contains_key(IF_UNMODIFIED_SINCE) {
            let since = headers.typed_get::<IfUnmodifiedSince>();
            let both = since.zip(self.modified);
            both.is_some_and(|(since, modified)| !since.precondition_passes(modified))
        } else {
            false
        };
        if failed {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let is_known = if headers.contains_key(IF_NONE_MATCH) {
            let tags = headers.typed_get::<IfNoneMatch>();
            tags.is_some_and(|tags| !tags.precondition_passes(&self.etag))
        } else if headers.contains_key(IF_MODIFIED_SINCE) {
            let since = headers.typed_get::<IfModifiedSince>();
            let both = since.zip(self.modified);
            both.is_some_and(|(since, modified)| !since.is_modified(modified))
        } else {
            false
        };
        is_known.then_some(StatusCode::NOT_MODIFIED)
    }

    /// Whether If-Range allows a range to be sent; true without that field.
    pub(super) fn range_is_of_this(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(IF_RANGE) {
            return true;
        }
        let last = self.modified.map(LastModified::from);
        let condition = headers.typed_get::<IfRange>();
        condition.is_some_and(|condition| !condition.is_modified(Some(&self.etag), last.as_ref()))
    }
}
