//! Compression of fields (RFC 7541).
//!
//! The decoder is whole: dynamic table, changes of its size, Huffman codes. The encoder only refers
//! to the static table and writes all else as literals, so the client's table stays empty and a
//! parked connection has nothing of it to remember. A response has about 30 bytes more for that.
//!
//! # Why our own
//!
//! These crates were tried for the decoder, with the 17 fields of a browser. The figures are
//! instructions for a request that the table has, and for one with Huffman codes for all (callgrind,
//! optimized as a whole):
//!
//! | crate | again | first | |
//! |---|---|---|---|
//! | `loona-hpack` 0.4.3, before `fluke-hpack` (MIT) | 243,710 | 4,739,217 | bit by bit, with a map that is made for each text; a copy of `hpack` 0.3 |
//! | `httlib-hpack` 0.1.3 with `httlib-huffman` 0.3.4 (MIT) | 18,793 | 104,689 | two vectors for each field; moves the block's bytes out one by one |
//! | this decoder | 2,112 | 22,444 | allocates nothing; the checks of names and values included |
//!
//! Neither can tell a caller that a value is one of the table that was checked before. The decoder
//! is 400 lines, the examples of RFC 7541 are its tests, and h2's encoder is its oracle.

mod decode;
mod encode;
mod fixed;
mod huffman;
mod table;

pub(crate) use decode::{Decoder, Texts};
pub(crate) use encode::{put_field, put_status, put_table_size_zero};
pub(crate) use fixed::{Name, PSEUDO};
pub(crate) use table::Table;

#[cfg(test)]
mod tests;
