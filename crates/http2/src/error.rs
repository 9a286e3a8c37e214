//! The reasons for which a connection or a stream ends early.

use std::error::Error;
use std::fmt;

use http::StatusCode;
use superpoll_http1::Refusal;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal;)+) => {
        /// A code of `RST_STREAM` and `GOAWAY` (RFC 9113, section 7). A peer may use unknown ones.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct ErrorCode(pub u32);

        impl ErrorCode {
            $($(#[doc = $doc])+ pub const $name: ErrorCode = ErrorCode($number);)+
        }

        impl fmt::Debug for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self.0 {
                    $($number => stringify!($name),)+
                    other => return write!(f, "{other:#x}"),
                })
            }
        }
    };
}

codes! {
    /// There is no error.
    NO_ERROR = 0x0;
    /// The peer broke the protocol.
    PROTOCOL_ERROR = 0x1;
    /// The sender has failed.
    INTERNAL_ERROR = 0x2;
    /// The peer broke flow control.
    FLOW_CONTROL_ERROR = 0x3;
    /// The peer has not acknowledged settings.
    SETTINGS_TIMEOUT = 0x4;
    /// A frame came for a stream that has ended.
    STREAM_CLOSED = 0x5;
    /// A frame has a wrong size.
    FRAME_SIZE_ERROR = 0x6;
    /// Nothing of the request was processed.
    REFUSED_STREAM = 0x7;
    /// The stream is not needed any more.
    CANCEL = 0x8;
    /// The state of header compression is lost.
    COMPRESSION_ERROR = 0x9;
    /// The connection of a `CONNECT` has failed.
    CONNECT_ERROR = 0xa;
    /// The peer sends too much.
    ENHANCE_YOUR_CALM = 0xb;
    /// The transport is not safe enough.
    INADEQUATE_SECURITY = 0xc;
    /// The request needs HTTP/1.1.
    HTTP_1_1_REQUIRED = 0xd;
}

macro_rules! reasons {
    (
        $(#[doc = $type_doc:literal])+ $type:ident, $($more:ident $(($of:ty))?)?;
        $($(#[doc = $doc:literal])+ $variant:ident = $code:ident, $name:literal, $text:literal;)+
    ) => {
        $(#[doc = $type_doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $type {
            $($(#[doc = $doc])+ $variant,)+
            $(
                /// The head of a request is one that HTTP/1 refuses as well.
                $more $(($of))?,
            )?
        }

        impl $type {
            /// All reasons of this crate, in the order of their declaration.
            pub const ALL: &[$type] = &[$($type::$variant),+];

            /// Returns the code that the client is told.
            #[must_use]
            pub const fn code(self) -> ErrorCode {
                match self {
                    $($type::$variant => ErrorCode::$code,)+
                    $($type::$more(_) => ErrorCode::PROTOCOL_ERROR,)?
                }
            }

            /// Returns the name of the reason, for counters and logs: lower case, with hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                    $($type::$more(refusal) => refusal.name(),)?
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($type::$variant => $text,)+
                    $($type::$more(refusal) => return refusal.fmt(f),)?
                })
            }
        }

        impl Error for $type {}
    };
}

reasons! {
    /// A reason for which a connection ends. Each has one code, which `GOAWAY` tells the client.
    ConnectionError,;
    /// The client's first bytes are not the preface (RFC 9113, section 3.4).
    Preface = PROTOCOL_ERROR, "preface", "the client does not begin with the preface";
    /// The first frame is not `SETTINGS` (RFC 9113, section 3.4).
    SettingsMissing = PROTOCOL_ERROR, "settings-missing", "the first frame is not SETTINGS";
    /// A frame is longer than 16 KiB (RFC 9113, section 4.2).
    FrameTooLong = FRAME_SIZE_ERROR, "frame-too-long", "a frame is too long";
    /// A frame is too short or too long for its type.
    FrameSize = FRAME_SIZE_ERROR, "frame-size", "a frame has a wrong length for its type";
    /// A frame is about a stream that its type is not for, or is a stream that only a server may
    /// begin (RFC 9113, section 5.1.1).
    StreamId = PROTOCOL_ERROR, "stream-id", "a frame has a stream that its type cannot have";
    /// A frame is about a stream that has not begun (RFC 9113, section 5.1).
    StreamIdle = PROTOCOL_ERROR, "stream-idle", "a frame is about a stream that has not begun";
    /// A request has a lower number than one before, and was not sent then (RFC 9113, section
    /// 5.1.1).
    StreamIdDecreases = PROTOCOL_ERROR, "stream-id-decreases", "the number of a stream is too low";
    /// A request has the number of a stream that has ended (RFC 9113, section 5.1).
    StreamReused = STREAM_CLOSED, "stream-reused", "fields on a stream that has ended";
    /// A client may not push (RFC 9113, section 8.4).
    Push = PROTOCOL_ERROR, "push", "a client has sent PUSH_PROMISE";
    /// A stream that has not begun, or has ended, depends on itself (RFC 7540, section 5.3.1).
    OwnParent = PROTOCOL_ERROR, "own-parent", "a stream depends on itself";
    /// Padding is as long as its frame (RFC 9113, section 6.1).
    Padding = PROTOCOL_ERROR, "padding", "padding is longer than its frame";
    /// `CONTINUATION` without a block of fields, or another frame within one (RFC 9113, section
    /// 6.10).
    BlockInterrupted = PROTOCOL_ERROR, "block-interrupted", "a block of fields is interrupted";
    /// A block of fields cannot be decoded (RFC 7541, section 2).
    Compression = COMPRESSION_ERROR, "compression", "a block of fields cannot be decoded";
    /// A table is larger than the server allows (RFC 7541, section 4.2).
    TableSize = COMPRESSION_ERROR, "table-size", "the client does not shrink its table of fields";
    /// A setting has a value that it cannot have (RFC 9113, section 6.5.2).
    SettingValue = PROTOCOL_ERROR, "setting-value", "a setting has an invalid value";
    /// The initial window of the client's settings is 2^31 or more, or makes a stream's so (RFC
    /// 9113, section 6.9.2).
    InitialWindow = FLOW_CONTROL_ERROR, "initial-window", "the initial window is too large";
    /// Settings are acknowledged that were not sent.
    Acknowledgement = PROTOCOL_ERROR, "acknowledgement", "settings are acknowledged unsent";
    /// The client sends more than the window of the connection (RFC 9113, section 6.9.1).
    WindowExceeded = FLOW_CONTROL_ERROR, "window-exceeded", "the client exceeds its window";
    /// A window is opened by 0 (RFC 9113, section 6.9).
    WindowIncrement = PROTOCOL_ERROR, "window-increment", "a window is opened by nothing";
    /// A window becomes 2^31 or more (RFC 9113, section 6.9.1).
    WindowOverflow = FLOW_CONTROL_ERROR, "window-overflow", "a window overflows";
    /// A block of fields has more frames or bytes than any acceptable head needs.
    BlockTooLong = ENHANCE_YOUR_CALM, "block-too-long", "a block of fields is too long";
    /// Fields become far larger than the limit when they are decoded.
    FieldsFarTooLarge = ENHANCE_YOUR_CALM, "fields-far-too-large", "fields are far too large";
    /// The server has reset or refused too many streams.
    TooManyErrors = ENHANCE_YOUR_CALM, "too-many-errors", "too many streams had errors";
    /// The client has reset too many streams before they had a response.
    TooManyResets = ENHANCE_YOUR_CALM, "too-many-resets", "the client resets too many streams";
    /// The client has sent too many frames that do nothing.
    TooManyUselessFrames = ENHANCE_YOUR_CALM, "too-many-useless-frames",
        "too many frames do nothing";
    /// Bodies come in too many small frames.
    TooManySmallFrames = ENHANCE_YOUR_CALM, "too-many-small-frames",
        "bodies come in too many small frames";
}

reasons! {
    /// A reason for which a stream ends, and the connection does not.
    ///
    /// Some are answered with a status. All others have a code, which `RST_STREAM` tells.
    StreamError, Head(Refusal);
    /// The client has as many streams as it may have (RFC 9113, section 5.1.2).
    TooManyStreams = REFUSED_STREAM, "too-many-streams", "the client has too many streams";
    /// The fields of the head are larger than the limit.
    HeadTooLarge = NO_ERROR, "head-too-large", "the head is too large";
    /// The head has more fields than the limit.
    TooManyFields = NO_ERROR, "too-many-fields", "the head has too many fields";
    /// The target is longer than the limit.
    TargetTooLong = NO_ERROR, "target-too-long", "the target is too long";
    /// An expectation other than `100-continue` (RFC 9110, section 10.1.1).
    Expectation = NO_ERROR, "expectation", "the expectation cannot be met";
    /// A pseudo-header field is unknown, is one of responses, comes twice, or follows a field (RFC
    /// 9113, section 8.3).
    Pseudo = PROTOCOL_ERROR, "pseudo", "a pseudo-header field is malformed";
    /// A pseudo-header field is missing, or the method cannot have it (RFC 9113, section 8.3.1).
    PseudoMissing = PROTOCOL_ERROR, "pseudo-missing", "a pseudo-header field is missing or extra";
    /// `:scheme` or `:protocol` is malformed.
    Scheme = PROTOCOL_ERROR, "scheme", "the scheme or protocol is malformed";
    /// The name of a field is malformed, or not in lower case (RFC 9113, section 8.2.1).
    FieldName = PROTOCOL_ERROR, "field-name", "the name of a field is malformed";
    /// The value of a field has a control character, or begins or ends with a blank (RFC 9113,
    /// section 8.2.1).
    FieldValue = PROTOCOL_ERROR, "field-value", "the value of a field is malformed";
    /// A field is about the connection (RFC 9113, section 8.2.2).
    ConnectionField = PROTOCOL_ERROR, "connection-field", "a field is about the connection";
    /// `Host` is not the host of `:authority` (RFC 9113, section 8.3.1).
    HostsDiffer = PROTOCOL_ERROR, "hosts-differ", "the request has two hosts";
    /// The body is shorter or longer than its length (RFC 9113, section 8.1.1).
    BodyLength = PROTOCOL_ERROR, "body-length", "the body does not have its length";
    /// Trailers do not end the stream, or have pseudo-header fields (RFC 9113, section 8.1).
    Trailers = PROTOCOL_ERROR, "trailers", "the trailers are malformed";
    /// A frame came after the end of the request (RFC 9113, section 5.1).
    Ended = STREAM_CLOSED, "ended", "a frame came after the end of the request";
    /// The client sends more than the window of the stream (RFC 9113, section 6.9.1).
    StreamWindowExceeded = FLOW_CONTROL_ERROR, "stream-window-exceeded",
        "the client exceeds the window of a stream";
    /// The window of the stream is opened by 0 (RFC 9113, section 6.9).
    StreamWindowIncrement = PROTOCOL_ERROR, "stream-window-increment",
        "the window of a stream is opened by nothing";
    /// The window of the stream becomes 2^31 or more (RFC 9113, section 6.9.1).
    StreamWindowOverflow = FLOW_CONTROL_ERROR, "stream-window-overflow",
        "the window of a stream overflows";
    /// A stream depends on itself (RFC 7540, section 5.3.1).
    OwnParent = PROTOCOL_ERROR, "own-parent", "a stream depends on itself";
    /// `PRIORITY` has a wrong length (RFC 9113, section 6.3).
    PrioritySize = FRAME_SIZE_ERROR, "priority-size", "a PRIORITY frame has a wrong length";
}

impl StreamError {
    /// Returns the status of the response that the connection has written; `None` if it has reset
    /// the stream.
    #[must_use]
    pub const fn status(self) -> Option<StatusCode> {
        match self {
            StreamError::HeadTooLarge | StreamError::TooManyFields => {
                Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
            }
            StreamError::TargetTooLong => Some(StatusCode::URI_TOO_LONG),
            StreamError::Expectation => Some(StatusCode::EXPECTATION_FAILED),
            // The status that HTTP/1 has for them says more than a code.
            StreamError::HostsDiffer | StreamError::Head(Refusal::HostInvalid) => {
                Some(StatusCode::BAD_REQUEST)
            }
            _ => None,
        }
    }
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotWritten {
    /// The stream has ended, by either side.
    Gone,
    /// The order is wrong: a second head, or data before a head.
    Order,
    /// The windows have no room for all of the data.
    Window,
}

impl fmt::Display for NotWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotWritten::Gone => "the stream has ended",
            NotWritten::Order => "the parts of a response are in a wrong order",
            NotWritten::Window => "the data is larger than the window",
        })
    }
}

impl Error for NotWritten {}
