//! The lane: plain proxied requests, and files in memory, past hyper.
//!
//! hyper reads a request into a map of fields, and writes another one from such a map; so does its
//! client with the response. For a small request that is two thirds of the proxy's work. The lane
//! reads a head where it lies in the buffer, and writes the head that is passed on from it, by the
//! codec `superpoll_http1`.
//!
//! The lane leaves requests to hyper that it cannot answer to the end: byte for byte as they came.
//! Responses of servers it reads and refuses by itself.
//!
//! ```text
//!                      irregular, or no route of the lane
//!   head of a request ------------------------------------> hyper reads the request
//!        |                                                         ^
//!        | sent to a server              nothing was answered      |
//!        +--------------------------------------------------------+
//!        |
//!   head of a response ----> interim: passed on, and another one
//!        |
//!        v
//!   passed on, and the next head of a request
//! ```
//!
//! The bytes of a request stay in the buffer until its response begins, so hyper can still have
//! them. Therefore a body has to come whole, within the buffer; hyper reads longer ones.
//!
//! | module | purpose |
//! |---|---|
//! | `request` | the requests that the lane takes |
//! | `heads` | the heads that are passed on |
//! | `exchange` | a request's way to a server and back |
//! | `lost` | ends of a response before its last byte |
//! | `splice` | long bodies of responses, without a copy |

mod exchange;
mod heads;
mod lost;
mod request;
mod splice;

pub use exchange::{Passed, Progress, Sent, pass_file};
pub(super) use heads::Changes;
pub use heads::ClientFacts;
pub use lost::LimitTimer;
pub use request::{Parsed, is_unconditional, parse};
pub use splice::Client;
