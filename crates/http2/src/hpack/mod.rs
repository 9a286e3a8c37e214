//! Compression of fields (RFC 7541).
//!
//! The decoder is whole: dynamic table, changes of its size, Huffman codes. The encoder only refers
//! to the static table and writes all else as literals, so the client's table stays empty and a
//! parked connection has nothing of it to remember. A response has about 30 bytes more for that.
//!
//! # Why our own
//!
//! These crates were tried for the decoder, on the fields of a browser (17 fields; the first
//! request with Huffman codes, the second with the table):
//!
//! - `loona-hpack` 0.4 (`fluke-hpack` before; MIT) is a copy of `hpack` 0.3. It decodes Huffman
//!   codes bit by bit with a map, which it builds for each string, and allocates a name and a value
//!   for each field.
//! - `httlib-hpack` 0.1 with `httlib-huffman` 0.3 (MIT) decodes by tables of up to 5 bits, allocates
//!   two vectors for each field, moves the block's bytes out one by one, and has no way to refuse a
//!   size above the agreed one that differs from its current size.
//!
//! The instructions are those of `examples/decoders` in the history of this page: MEASURED.
//! None can tell that a value was checked before, so each request would check all bytes again.

mod decode;
mod encode;
mod fixed;
mod huffman;
mod table;

pub(crate) use decode::{Decoder, Texts};
pub(crate) use encode::{put_field, put_status, put_table_size_zero};
pub(crate) use fixed::Name;
pub(crate) use table::Table;

#[cfg(test)]
mod tests;
