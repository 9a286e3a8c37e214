//! The HTTP/1 codec of the Superpoll server: requests and responses, heads and bodies, read and
//! written (RFC 9112).
//!
//! The crate has no I/O and no tasks. A reader gets the bytes that have arrived and returns a
//! borrowed head, a piece of a body, the need for more, or the reason for a refusal. A writer
//! appends to a vector. Nothing is allocated but in vectors of the caller.
//!
//! ```text
//!   bytes -> request  -> RequestHead  \                  / Writer -> BodyWriter -> bytes
//!   bytes -> response -> Response      > the caller's   <
//!   bytes -> BodyReader -> Piece      /    policy        \ Refusal -> a status, and close
//! ```
//!
//! # The message is read once, and written again
//!
//! Request smuggling needs two servers that disagree about the end of a message, or about its
//! target. So no byte of a head is passed on unchecked. [httparse] splits a head into
//! tokens; this crate decides the framing, the host and the fate of the connection from them; and
//! [`Writer`] writes a head that has one framing, its own, with CR LF after each line. A bare line
//! feed, an extension of a chunk or an odd spelling of a length that was accepted does not reach
//! the next server. [`FieldName`] and [`FieldValue`] are checked when they are made, so a split
//! response is an error of the compiler.
//!
//! # Accepted and refused messages
//!
//! A message that all readers of HTTP understand alike is accepted, and so are old and sloppy forms
//! whose meaning is certain: HTTP/1.0, later minor versions, bare line feeds in heads, empty lines
//! before a request, equal lengths in several fields, extensions of chunks. All else is refused,
//! with the status and the name that [`Refusal`] has for it:
//!
//! | message | outcome |
//! |---|---|
//! | HTTP/1.2 to 1.9; another major version | read as 1.1; 505 |
//! | bare LF in a head; in the lines of chunks | accepted; refused |
//! | bare CR, NUL, control characters, folded lines | refused |
//! | blanks before a colon | refused in requests, removed in responses |
//! | `Host` missing in 1.1, several, or malformed | refused |
//! | target in absolute form | its host is the host |
//! | `#` in the target, a form that does not fit the method | refused |
//! | several equal `Content-Length`; a list; different ones | one; refused; refused |
//! | length with coding | refused in requests; responses are chunked, and the last ones |
//! | `Transfer-Encoding` in 1.0; last not `chunked`; others before it | refused; refused; 501 |
//! | chunk extensions | dropped, up to [`MOST_EXTRA`] |
//! | trailers | returned one by one, never merged |
//! | `Expect` other than `100-continue` | 417 |
//! | 1xx; unasked 101 | a kind of its own; refused |
//!
//! Policy is the caller's: paths with dots, names with underscores, the fields that a proxy adds
//! and removes, `CONNECT` and `TRACE`, and the size of bodies.
//!
//! | module | purpose |
//! |---|---|
//! | `request`, `response` | reading heads |
//! | `field`, `target`, `authority` | their parts, each with its check |
//! | `list` | fields that were not read as lines |
//! | `facts` | the fields that decide where a message ends |
//! | `body` | reading bodies |
//! | `writer`, `lines` | writing heads and bodies |
//! | `refusal` | the reasons, with their statuses and names |
//!
//! # Choices
//!
//! - Heads of requests and responses are two types, as the second has no target and its framing
//!   depends on the request ([`Asked`]). The kinds of responses are variants ([`Response`]), so an
//!   interim response cannot be mistaken for the final one.
//! - A [`Refusal`] is one enum without a status next to it: each reason has one status.
//! - [`Wants`] has a field for each wish, as a request may have several at once.
//! - [`Method`] is borrowed, because `http::Method` allocates for long names.
//! - A body's reader takes the lines of chunks byte by byte, so that no line has to fit into a
//!   buffer and no byte is read twice; only a trailer is returned whole.
//! - Outcomes do not depend on the pieces in which bytes arrive. Therefore no byte after a limit is
//!   looked at.
//!
//! A head costs one pass by httparse, one over blocks of 16 bytes for lower case, and one over the
//! fields.

#![forbid(unsafe_code)]

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod authority;
mod body;
mod facts;
mod field;
mod head;
mod lines;
mod list;
mod refusal;
mod request;
mod response;
mod target;
mod writer;

pub use authority::Authority;
pub use body::{BodyReader, LONGEST_TRAILER, MOST_EXTRA, Piece, Progress};
pub use field::{Field, FieldIter, FieldName, FieldValue, Fields};
pub use head::{After, Framing, Limits, MOST_FIELDS, Room, Version, has_end};
pub use lines::FieldLines;
pub use list::FieldList;
pub use refusal::Refusal;
pub use request::{Method, OtherMethod, RequestHead, Wants, request};
pub use response::{Asked, Response, ResponseHead, response};
pub use target::{Form, Target};
pub use writer::{BodyWriter, TooLong, Writer, chunk};
