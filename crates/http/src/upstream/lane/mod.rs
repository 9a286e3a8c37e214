//! The lane: plain proxied requests, and files in memory, without a map of fields.
//!
//! A handler gets a request as a map of fields, and gives a response as another one; so does the
//! client of servers. For a small request that is half of the proxy's work. The lane reads a head
//! where it lies in the buffer, and writes the head that is passed on from it, by the codec
//! `superpoll_http1`.
//!
//! The lane leaves requests to handlers that it cannot answer to the end. Responses of servers it
//! reads and refuses by itself.
//!
//! ```text
//!                       not plain, or no route of the lane
//!   head of a request ------------------------------------> a handler answers the request
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
//! The bytes of a request stay in the buffer until its response begins, so a handler can still have
//! them. Therefore a body has to come whole, within the buffer.
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

pub use exchange::{Passed, Progress, Sent, pass_ready};
pub(super) use heads::Changes;
pub use heads::ClientFacts;
pub(crate) use heads::interim as write_interim;
pub use lost::LimitTimer;
pub use request::is_plain;
pub use splice::Client;
