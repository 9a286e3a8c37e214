//! Compression of fields (RFC 7541).
//!
//! The decoder is whole: dynamic table, changes of its size, Huffman codes. The encoder only refers
//! to the static table and writes all else as literals, so the client's table stays empty and a
//! parked connection has nothing of it to remember. A response has about 30 bytes more for that.

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
