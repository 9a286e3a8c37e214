//! The lane: proxied requests that are plainly regular, past hyper.
//!
//! hyper reads a request into a map of fields, and writes another one from such a map; so does its
//! client with the response. For a small request that is two thirds of the proxy's work. The lane
//! reads a head where it lies in the buffer, and writes the head that is passed on from it.
//!
//! It is an accept list. The lane takes a request or a response only if every reader of HTTP reads
//! it in the same way; everything else goes to hyper, byte for byte as it came. So nothing
//! irregular is ever read by the lane's code, and hyper is its specification: tests compare the two
//! for arbitrary bytes (`oracle`).
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
//! them. Therefore a body has to come whole, within the buffer; hyper reads longer ones. A body of
//! another method than POST, PUT or PATCH is irregular.
//!
//! | module | purpose |
//! |---|---|
//! | `request`, `response`, `field` | reading heads, by the accept list |
//! | `body`, `chunks` | reading bodies |
//! | `heads` | the heads that are passed on |
//! | `exchange` | a request's way to a server and back |
//! | `connection` | a connection to a server without hyper |
//! | `buffer` | buffers that connections have only as long as they need them |
//! | `splice` | long bodies of responses, without a copy |

mod body;
mod buffer;
mod chunks;
mod connection;
mod exchange;
mod field;
mod heads;
#[cfg(any(test, fuzzing))]
mod oracle;
mod request;
mod response;
mod splice;
#[cfg(test)]
mod tests;

pub use buffer::{ReadBuffer, WriteBuffer};
pub use connection::LimitTimer;
pub(super) use connection::RawConnection;
pub use exchange::{Passed, Progress, Sent, pass_file};
pub(super) use heads::Changes;
pub use heads::ClientFacts;
#[cfg(fuzzing)]
pub(crate) use oracle::{compare_request, compare_response};
pub use request::{Parsed, RequestHead, is_unencoded, parse, room};
pub use splice::Client;

/// The most fields of a head.
const MOST_FIELDS: usize = 64;
