//! Servers that speak FastCGI instead of HTTP, as php-fpm does.
//!
//! A request of FastCGI is a stream of records: its parameters, then its body. It is made of the
//! same lines as one for a server of HTTP/1.1, so all that is decided about fields holds for both.
//! The response is the output of a script, whose head becomes lines of HTTP/1.1 again before
//! anything reads it. So the choice of servers, retries, limits of time, logs and the way to the
//! client are those of HTTP.
//!
//! ```text
//!   head of HTTP/1.1 --params--> BEGIN PARAMS.. STDIN..  --->  server
//!   the parser of HTTP/1.1 <--head, body-- STDOUT.. STDERR.. END <--
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `records` | the records, written and read |
//! | `params` | from the lines of a head to parameters (RFC 3875) |
//! | `output` | from the head of a script's output to lines of HTTP/1.1 |
//! | `exchange` | one request after another on a connection |
//!
//! A connection has one request at a time: php-fpm allows no more, and closes a connection on which
//! a second one begins.

mod exchange;
mod output;
mod params;
mod records;

pub(super) use self::exchange::{Begun, Exchange, Framed, is_overloaded, malformation};
pub use self::params::Script;
pub(super) use self::params::{RequestFacts, end_with_length, head};
pub(super) use self::records::{next_id, write_body};

use std::rc::Rc;

/// How a request of FastCGI gets its body.
#[derive(Debug)]
pub(super) struct Records {
    /// A long body is read to its end first.
    pub spools: bool,
    /// The number of the request, which its response has as well.
    pub id: u16,
    /// The name of the script.
    pub script: Rc<str>,
}
