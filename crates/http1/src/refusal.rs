//! The reasons for which a message is refused.

use std::error::Error;
use std::fmt;

use http::StatusCode;

macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $variant:ident = $status:ident, $name:literal, $text:literal;)+) => {
        /// A reason for which a message is refused.
        ///
        /// Each reason has one status, so a refusal needs no second field. After a refusal it is
        /// unknown where the next message begins, so the caller closes the connection.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Refusal {
            /// All reasons, in the order of their declaration.
            pub const ALL: &[Refusal] = &[$(Refusal::$variant),+];

            /// Returns the status that a client is told about its refused request. A refused
            /// response is a 502 for the client instead, whatever the reason.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self {
                    $(Refusal::$variant => StatusCode::$status,)+
                }
            }

            /// Returns the name of the reason, for counters and logs: lower case, with hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Refusal::$variant => $name,)+
                }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Refusal::$variant => $text,)+
                })
            }
        }
    };
}

refusals! {
    /// The method is not a token (RFC 9110, section 9.1).
    Method = BAD_REQUEST, "method", "the method is not a token";
    /// The target has a byte that no target may have, or is not UTF-8.
    Target = BAD_REQUEST, "target", "the target has a forbidden byte";
    /// The target has a fragment (RFC 9112, section 3.2).
    Fragment = BAD_REQUEST, "fragment", "the target has a fragment";
    /// The form of the target does not fit the method, or its scheme or authority is malformed
    /// (RFC 9112, section 3.2).
    TargetForm = BAD_REQUEST, "target-form", "the form of the target does not fit the method";
    /// The target is longer than the limit.
    TargetTooLong = URI_TOO_LONG, "target-too-long", "the target is too long";
    /// The version is malformed (RFC 9112, section 2.3).
    Version = BAD_REQUEST, "version", "the version is malformed";
    /// The major version is not 1 (RFC 9110, section 15.6.6).
    VersionUnsupported = HTTP_VERSION_NOT_SUPPORTED, "version-unsupported",
        "the major version is not 1";
    /// The status line is malformed (RFC 9112, section 4).
    StatusLine = BAD_GATEWAY, "status-line", "the status line is malformed";
    /// A carriage return without a line feed (RFC 9112, section 2.2).
    LineEnd = BAD_REQUEST, "line-end", "a line ends with a carriage return alone";
    /// The name of a field is not a token, a blank follows it in a request, or a line is folded
    /// (RFC 9112, sections 5.1 and 5.2).
    FieldName = BAD_REQUEST, "field-name", "the name of a field is malformed";
    /// The value of a field has a control character (RFC 9110, section 5.5).
    FieldValue = BAD_REQUEST, "field-value", "the value of a field has a control character";
    /// The head is longer than the limit.
    HeadTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", "the head is too large";
    /// The head has more fields than the limit.
    TooManyFields = REQUEST_HEADER_FIELDS_TOO_LARGE, "too-many-fields",
        "the head has too many fields";
    /// A request of HTTP/1.1 has no `Host` (RFC 9112, section 3.2).
    HostMissing = BAD_REQUEST, "host-missing", "the request names no host";
    /// A request has several `Host` fields (RFC 9112, section 3.2).
    HostRepeated = BAD_REQUEST, "host-repeated", "the request has several Host fields";
    /// `Host` is not the name of a host with an optional port (RFC 9112, section 3.2).
    HostInvalid = BAD_REQUEST, "host-invalid", "the host is malformed";
    /// `Content-Length` is not one number below 2^63 (RFC 9110, section 8.6).
    LengthInvalid = BAD_REQUEST, "length-invalid", "the length is not a number";
    /// Several `Content-Length` fields differ (RFC 9112, section 6.3).
    LengthsDiffer = BAD_REQUEST, "lengths-differ", "the message has different lengths";
    /// A request has both `Content-Length` and `Transfer-Encoding` (RFC 9112, section 6.1).
    LengthAndCoding = BAD_REQUEST, "length-and-coding", "the request has a length and a coding";
    /// A message of HTTP/1.0 has `Transfer-Encoding` (RFC 9112, section 6.1).
    CodingInOldVersion = BAD_REQUEST, "coding-in-old-version",
        "a message of HTTP/1.0 has a transfer coding";
    /// The last transfer coding is not `chunked`, so the end of the body is unknown (RFC 9112,
    /// section 6.3).
    CodingNotChunked = BAD_REQUEST, "coding-not-chunked", "the last coding is not chunked";
    /// There are transfer codings before `chunked` (RFC 9112, section 6.1).
    CodingUnsupported = NOT_IMPLEMENTED, "coding-unsupported",
        "a transfer coding is not supported";
    /// An expectation other than `100-continue` (RFC 9110, section 10.1.1).
    Expectation = EXPECTATION_FAILED, "expectation", "the expectation cannot be met";
    /// A server changed protocols although the request did not ask for it (RFC 9110, section 7.8).
    UpgradeUnasked = BAD_GATEWAY, "upgrade-unasked", "the server changed protocols unasked";
    /// An interim response announces a body (RFC 9110, section 15.2).
    InterimBody = BAD_GATEWAY, "interim-body", "an interim response announces a body";
    /// The size of a chunk is not hexadecimal digits alone (RFC 9112, section 7.1).
    ChunkSize = BAD_REQUEST, "chunk-size", "the size of a chunk is malformed";
    /// The size of a chunk is 2^60 bytes or more.
    ChunkTooLarge = BAD_REQUEST, "chunk-too-large", "the size of a chunk is too large";
    /// The line with a chunk's size does not end with CR LF (RFC 9112, section 7.1).
    ChunkLine = BAD_REQUEST, "chunk-line", "the line before a chunk does not end with CR LF";
    /// A chunk's extension has a control character (RFC 9112, section 7.1.1).
    ChunkExtension = BAD_REQUEST, "chunk-extension", "a chunk's extension is malformed";
    /// No CR LF follows a chunk's data (RFC 9112, section 7.1).
    ChunkEnd = BAD_REQUEST, "chunk-end", "no CR LF follows a chunk";
    /// The extensions and trailers of a body exceed [`MOST_EXTRA`](crate::MOST_EXTRA).
    ExtraTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "extra-too-large",
        "the extensions and trailers are too long";
    /// A trailer is not a field (RFC 9112, section 7.1.2).
    Trailer = BAD_REQUEST, "trailer", "a trailer is malformed";
    /// The connection ended within a message (RFC 9112, section 8).
    Incomplete = BAD_REQUEST, "incomplete", "the message is incomplete";
}

impl Error for Refusal {}
