//! The server side of HTTP/2 of the Superpoll server: frames, header compression, streams, windows
//! and priorities (RFC 9113, 7541, 8441, 9218).
//!
//! A [`Connection`] is a value without I/O. It is fed with the bytes of the client, returns one
//! [`Event`] at a time, and appends bytes for the client to a vector of the caller.
//!
//! ```text
//!   bytes -> receive -> Request, Data, Trailers, Reset, ...   \
//!               |                                              > the caller's handlers
//!               +--> answers of the protocol -> out <-- respond, data, trailers, reset
//! ```
//!
//! # One form of a head
//!
//! A request is decoded into a [`FieldList`](superpoll_http1::FieldList), and its head is borrowed
//! from there: [`RequestHead`] has the method, target, host and fields of `superpoll-http1`, with
//! the same checks. No map is built. A [`Scratch`] has the memory, and one serves all connections
//! of a thread. The fields in the client's table were checked when they were inserted, so a
//! repeated request costs a copy of each.
//!
//! # Parking
//!
//! The encoder inserts nothing into the client's table, and a connection keeps no buffer between
//! frames. So the state between requests is a few numbers, and the table of the client if it uses
//! one: [`to_record`](Connection::to_record). Frames that arrive for a parked connection are
//! handled by making it of its record, feeding it, and recording it again. Streams that wait for
//! messages may be part of the record ([`set_held`](Connection::set_held)).
//!
//! # Accepted and refused
//!
//! A connection ends with a [`ConnectionError`], and a stream alone with a [`StreamError`]; each
//! has its code of RFC 9113. Frames for streams that were reset here are
//! expected for a while, as the client may have sent them before it knew.
//!
//! | message | outcome |
//! |---|---|
//! | HTTP/1 with `Upgrade: h2c`; another preface | not supported; refused |
//! | head or target beyond the limit, `Expect` | 431, 414, 417; the table stays in step |
//! | malformed `:authority` or `Host`, or both and they differ | 400 |
//! | names with capitals, values with blanks at their ends | refused |
//! | fields about the connection, `TE` other than `trailers` | refused |
//! | `:authority` and `Host` | accepted if they are equal |
//! | several `cookie` fields | one, at the end |
//! | `Content-Length` against the data, also without data | refused, before the data is passed on |
//! | `PRIORITY`; `PRIORITY_UPDATE` and the field | ignored; followed |
//! | unknown frames and settings; padding | ignored; counted in windows |
//! | `CONNECT`, with and without `:protocol` | a head; policy is the caller's |
//!
//! # Bounds
//!
//! [`limits`] has them all. Floods of frames that do nothing, of resets, of errors, of small frames
//! and of continuations end the connection with `ENHANCE_YOUR_CALM`. Answers that the client does
//! not read stop the reading ([`Event::Full`]). Clients that do nothing at all are for the caller's
//! timeouts.
//!
//! | module | purpose |
//! |---|---|
//! | `connection`, `incoming`, `data` | bytes to frames; each frame by its type; bodies |
//! | `shutdown` | the end of a connection |
//! | `outgoing` | responses, and windows as the caller sees them |
//! | `hpack` | compression: Huffman codes, tables, decoder, encoder |
//! | `section`, `head` | the fields of a block; the head of a request |
//! | `streams`, `window`, `priority` | slots and states; flow control; turns |
//! | `settings`, `limits` | the choices of both sides; bounds |
//! | `record`, `carried` | parked connections; data of their streams |
//! | `frame`, `event`, `error` | what is on the wire; events; reasons |
//!
//! # Compression of our own
//!
//! Other crates were tried for the decoder, with the 17 fields of a browser. The figures are
//! instructions for a request whose fields are in the table, and for one with Huffman codes for
//! all of them (callgrind, optimized as a whole):
//!
//! | crate | again | first | |
//! |---|---|---|---|
//! | `loona-hpack` 0.4.3, before `fluke-hpack` (MIT) | 243,710 | 4,739,217 | decodes bit by bit, with a map that each text builds again |
//! | `httlib-hpack` 0.1.3 with `httlib-huffman` 0.3.4 (MIT) | 18,793 | 104,689 | allocates two vectors for each field |
//! | this crate | 2,093 | 22,485 | allocates nothing; the checks of names and values are included |
//!
//! Neither can tell its caller that a value was checked before. Ours has 400 lines, the examples of
//! RFC 7541 as tests, and h2's encoder as its oracle.
//!
//! # Choices
//!
//! - Data is passed on where it lies ([`Event::Data`] has a range), and counts against the windows
//!   until it is [released](Connection::release). All other frames are judged when they are whole.
//!   A caller may use any buffer, of any size.
//! - The caller asks for the [capacity](Connection::capacity) and writes so much. Nothing is queued
//!   here, so a reset takes nothing back.
//! - A [`StreamKey`] has a slot besides the number, so that a caller's state is an array.
//! - The order in which streams write is [`next_writable`](Connection::next_writable): by urgency,
//!   and round-robin where the client allows that or says nothing.
//! - The caller checks the `content-length` of its responses.

#![forbid(unsafe_code)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod carried;
mod connection;
mod data;
mod error;
mod event;
mod frame;
mod head;
mod hpack;
mod incoming;
pub mod limits;
mod outgoing;
mod priority;
mod record;
mod section;
mod settings;
mod shutdown;
mod streams;
mod window;

pub use carried::Record;
pub use connection::Connection;
pub use error::{ConnectionError, ErrorCode, NotWritten, StreamError};
pub use event::{Event, Scratch, Step};
pub use frame::{HEAD as FRAME_HEAD, PREFACE};
pub use head::{RequestHead, Wants};
pub use limits::Limits;
pub use outgoing::{HeadWriter, PreparedFields};
pub use priority::Priority;
pub use record::InvalidRecord;
pub use settings::Config;
pub use streams::StreamKey;
