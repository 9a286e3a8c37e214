//! The bounds of a connection. Each holds whatever the client does.

pub use superpoll_http1::MOST_FIELDS;

/// The bytes that count for each field in addition to its name and value (RFC 9113, section 6.5.2).
pub(crate) const FIELD_OVERHEAD: usize = 32;

/// A head that is larger than the limit by this factor ends the connection; a smaller one ends its
/// stream.
pub const FAR_TOO_LARGE: usize = 4;

/// The fewest frames that a block of fields may have after its first. There may be a quarter more
/// than the limit of the head needs.
pub const FEW_CONTINUATIONS: usize = 5;

/// The most streams that the server may have to reset or to refuse, for as long as the connection
/// lasts.
pub const MOST_ERRORS: u16 = 1024;

/// The most streams beyond those that may be open at a time that the client may reset before they
/// have a response. A response that was written to its end takes one back.
pub const MOST_EARLY_RESETS: u16 = 20;

/// The most points for frames that do nothing: see [`EMPTY_DATA`]. A request takes [`USEFUL`] of
/// them back, and so does each `DATA` frame of either side that has data.
pub const MOST_USELESS: u16 = 1000;

/// The points of an empty `DATA` frame that does not end its stream. Each of these counts as one
/// point: `PRIORITY`, `PRIORITY_UPDATE`, `WINDOW_UPDATE`, unknown frames, and frames of streams
/// that have ended, but for the data of an upload that was reset here.
pub const EMPTY_DATA: u16 = 10;

/// The points that a request, or a frame of data, takes back.
pub const USEFUL: u16 = 4;

/// A `DATA` frame with fewer bytes is a small one.
pub const SMALL_DATA: usize = 256;

/// The bytes of the connection's window for each small `DATA` frame that may wait for the caller to
/// release its data.
pub const WINDOW_OF_SMALL_DATA: u32 = 512;

/// The most bytes of answers (`PING`, `SETTINGS`, `RST_STREAM`, `WINDOW_UPDATE`) that may wait to
/// be sent. Beyond them no further frame is read.
pub const MOST_UNSENT: usize = 4 << 10;

/// The most streams that were reset here and whose late frames are expected.
pub const MOST_REMEMBERED: usize = 32;

/// The largest table for header compression, which is also the one that clients may use at first.
pub const LARGEST_TABLE: usize = 4096;

/// The window that each side has at first (RFC 9113, section 6.9.2).
pub const FIRST_WINDOW: u32 = 65_535;

/// The largest window (RFC 9113, section 6.9.1).
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// The largest piece of data in a frame. Each client accepts it, and another stream may follow.
pub const LARGEST_PIECE: usize = crate::frame::LONGEST_FRAME;

/// Each of so many pieces is one of the stream that has waited longest, whatever its priority.
pub const FAIR_TURN: u32 = 8;

/// The limits of a head. Those of HTTP/1 with the same meaning have the same names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of a head: names, values, and 32 for each field, as in
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub head: usize,
    /// The most bytes of a target.
    pub target: usize,
    /// The most fields of a head, up to [`MOST_FIELDS`].
    pub fields: usize,
}

impl Limits {
    /// 16 KiB for a head, 8 KiB for a target, and 100 fields.
    pub const DEFAULT: Limits = Limits { head: 16 << 10, target: 8 << 10, fields: MOST_FIELDS };

    /// Returns the most bytes of a block before it is decoded. No head within the limit has more: a
    /// Huffman code is less than four times as long as its text.
    pub(crate) const fn block(&self) -> usize {
        self.head.saturating_mul(FAR_TOO_LARGE)
    }

    /// Returns the most frames of a block after its first.
    pub(crate) const fn continuations(&self) -> usize {
        let needed = self.head / crate::frame::LONGEST_FRAME;
        let needed = needed + needed / 4;
        if needed < FEW_CONTINUATIONS { FEW_CONTINUATIONS } else { needed }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

/// Counts that a client must not drive too far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) errors: u16,
    pub(crate) early_resets: u16,
    pub(crate) useless: u16,
}

impl Counts {
    /// Counts a stream that had to be reset or refused; false if there are too many.
    pub(crate) fn add_error(&mut self) -> bool {
        self.errors = self.errors.saturating_add(1);
        self.errors <= MOST_ERRORS
    }

    /// Counts a stream that the client has reset before it had a response; false if there are too
    /// many.
    pub(crate) fn add_early_reset(&mut self, streams: u16) -> bool {
        self.early_resets = self.early_resets.saturating_add(1);
        self.early_resets <= streams.saturating_add(MOST_EARLY_RESETS)
    }

    /// Takes back a reset.
    pub(crate) fn has_responded(&mut self) {
        self.early_resets = self.early_resets.saturating_sub(1);
    }

    /// Counts a frame that does nothing; false if there are too many.
    pub(crate) fn add_useless(&mut self, points: u16) -> bool {
        self.useless = self.useless.saturating_add(points);
        self.useless <= MOST_USELESS
    }

    /// Takes back points.
    #[inline]
    pub(crate) fn was_useful(&mut self) {
        self.useless = self.useless.saturating_sub(USEFUL);
    }
}
