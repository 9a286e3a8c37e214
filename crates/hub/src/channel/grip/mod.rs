//! Connections that an application holds, by GRIP (the Generic Realtime Intermediary Protocol, as
//! Pushpin and Fastly Fanout have it).
//!
//! A request is forwarded, and the application says in its response what becomes of the connection
//! (`instruct`). A held connection is a subscriber of the log of items of the application's key, as
//! those of channels are of theirs: parked, it is a descriptor and a record of what it gets
//! (`HeldRecord`), and it continues with a successor. It needs the application again only for the
//! messages of a WebSocket, for the next part of a stream, and where an item says so.
//!
//! ```text
//!              hold: stream                  an item that is bytes: written where it is
//!   RESPONSE -----------------> PARKED --+----------------------------------------------+
//!     ^  |     hold: response     ^  |                                                    |
//!     |  +------------------------+  | an item that ends it or asks, silence, a missing   |
//!     |                              v item, no room                                      |
//!     +--- asked again ---------- IN A TASK <---------------------------------------------+
//! ```
//!
//! All channels of a key have one log, in the order in which items came. So a connection with
//! several channels has one position, and a successor can tell by the number of bytes which items
//! were written (`parked.rs`). An item costs nothing for connections that do not have its channel
//! (`reader`). As the log has the items of all channels, the state of a connection grows old by the
//! items of others: one that was written to is left again before the log forgets what it got
//! (`leaving`).
//!
//! | module | purpose |
//! |---|---|
//! | `key` | signatures of the gateway and of publishers |
//! | `item`, `sequence`, `publish` | what is published, its order, and the control endpoint |
//! | `instruct` | what an application says in a response |
//! | `route` | asking the application |
//! | `hold` | from a response to a held connection |
//! | `filters`, `content` | which items a connection gets, and their bytes |
//! | `begin` | the beginning of held connections |
//! | `stream`, `poll`, `app_socket` | the three kinds of connections, in a task |
//! | `socket` | the handshake of a WebSocket |
//! | `events`, `control` | what an application hears of a WebSocket, and says of it |
//! | `leaving` | parked connections: when they are due, and their state for a successor |

pub(super) mod app_socket;
mod begin;
pub(super) mod content;
mod control;
mod events;
pub(super) mod filters;
mod hold;
mod instruct;
pub(super) mod item;
mod key;
mod leaving;
mod poll;
mod publish;
mod route;
mod sequence;
mod socket;
pub(super) mod stream;

pub(super) use instruct::LONGEST_WAIT;
pub(super) use item::Item;
pub(super) use key::HOST;
pub use key::{GripKey, GripKeyError};
pub use publish::publish_items;
pub use route::{Ask, HeldRoute, Way};
pub(super) use sequence::Sequences;
