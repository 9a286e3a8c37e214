//! The lane: proxied requests that are plainly regular, past hyper.
//!
//! hyper reads a request into a map of fields, and writes another one from such a map; so does its
//! client with the response. For a small request that is two thirds of the proxy's work. The lane
//! reads a head where it lies in the buffer, and writes the head that is passed on from it.
//!
//! It is an accept list. The lane takes a request or a response only if every reader of HTTP reads
//! it in the same way; everything else goes to hyper, byte for byte as it came. So nothing irregular
//! is ever read by the lane's code, and hyper is its specification: tests compare the two for
//! arbitrary bytes (`oracle`).
//!
//! ```text
//!                      irregular, or no route of the lane
//!   head of a request ------------------------------------> hyper reads the request
//!        |                                                         ^
//!        | sent to a server              nothing was answered      |
//!        +--------------------------------------------------------+
//!        |                       irregular
//!   head of a response -----------------------> hyper reads the response, and hyper answers
//!        |
//!        v
//!   passed on, and the next head of a request
//! ```
//!
//! The bytes of a request stay in the buffer until its response begins, so hyper can still have
//! them: the lane takes requests without a body only, GET and HEAD, which may be sent again. A route
//! has to ask for it (`lane = true`).
//!
//! | module | purpose |
//! |---|---|
//! | `request`, `response`, `chunks` | reading, by the accept list |
//! | `heads` | the heads that are passed on |
//! | `exchange` | a request's way to a server and back |
//! | `connection` | a connection to a server without hyper |
//! | `buffer` | buffers that connections have only as long as they need them |

mod buffer;
mod chunks;
mod connection;
mod exchange;
mod heads;
#[cfg(test)]
mod oracle;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub(crate) use buffer::ReadBuffer;
pub(super) use connection::RawConnection;
pub(crate) use exchange::{Passed, Sent};
pub(crate) use heads::forwarded;
pub(crate) use request::{Parsed, RequestHead, parse, room};

/// The most fields of a head.
const MOST_FIELDS: usize = 64;
