//! The lane: plain proxied requests, without a map of fields.
//!
//! A handler gets a request as a map of fields, and gives a response as another one. For a small
//! request that is half of the proxy's work. The lane reads a head where it lies in the buffer, and
//! writes the head that is passed on from it, by the codec `superpoll_http1`. It leaves requests to
//! handlers that it cannot answer to the end. Responses of servers it reads and refuses by itself.
//!
//! ```text
//!                       not plain
//!   head of a request -----------> a handler answers the request
//!        |
//!        v
//!   small body: read ----> SENT, and any other body as it comes <---+
//!                           |                                       | failed: another server
//!                           +---------------------------------------+
//!                           |
//!                    head of a response ----> interim: passed on, and another one
//!                           |
//!                           v
//!                    passed on, while the rest of the request is sent
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | `request` | the requests that the lane takes |
//! //! | `exchange` | a request's way to a server and back |
//! | `lost` | ends of a response before its last byte |
//! | `splice` | long bodies of responses, without a copy |

mod exchange;
mod lost;
mod request;
mod splice;

pub use exchange::Sent;
pub use lost::LimitTimer;
pub use request::is_plain;
pub use splice::Client;

pub use super::heads::ClientFacts;
pub(crate) use super::heads::interim as write_interim;
