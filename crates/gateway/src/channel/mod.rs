//! Channels: what one client publishes, all others are told.
//!
//! A [`Hub`] is the channel itself. All engines share it: it numbers the messages from 1 and keeps the last of them
//! for those who come back. Each engine has a [`Desk`] at the hub, where its own clients publish and subscribe. A
//! message is put before each desk that has subscribers, and its task is woken, which is one message between threads
//! however many are published meanwhile; it then serves its subscribers, some at a time.
//!
//! There are three ways to subscribe. Who asks by **long-poll** gets what is there, or else what comes next, as JSON. A
//! **WebSocket** gets each message as a frame, and publishes what it sends. **Server-sent events** come as they are
//! specified, with ids.
//!
//! An idle long-poll or WebSocket is parked, see `park.rs`: of the subscriber remains a place in the desk's table,
//! which says up to which message it was served. A message for a parked WebSocket is written to its socket as one frame
//! that is made once for all. A protocol object is made when the client has something to say, and a task where it does
//! not fit into one turn, or where the socket has no room: from then on messages wait for it, up to the channel's
//! limit. What cannot be parked (encrypted connections, HTTP/2, server-sent events) has a task all along.
//!
//! Nothing is lost or doubled between replay and live messages: a subscriber is entered into the table under the same
//! lock under which it is told what it has missed, and each one passes over what it has had.
//!
//! A place in a channel is told as an id and the hub's *epoch*, which differs after a restart of the server. Who comes
//! with another epoch, or with an id that is no longer kept, is told that it has missed something.

mod cursor;
mod desk;
mod events;
mod frames;
mod history;
mod hub;
mod mailbox;
mod poll;
mod publish;
mod registry;
mod replay;
mod room;
mod send_queue;
mod session;
mod socket;
mod unread;

pub use cursor::Cursor;
pub use desk::Desk;
pub use history::{Message, Since};
pub use hub::Hub;
pub(crate) use registry::Registry;
