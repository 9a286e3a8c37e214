//! Channels: every subscriber gets the messages that any client publishes.
//!
//! A [`Hub`] is the channel itself. All engines share it: it numbers the messages from 1 and keeps
//! the last of them for subscribers that come back. A route has one channel, or one for each name
//! that fits its path (`route`). Each engine has its own `LocalSubscribers` of each channel, as
//! long as there are any. A message is appended to the queue of each engine that has subscribers,
//! and the engine's delivery task is woken (`engine`): one message between threads, however many
//! are published meanwhile. The task then serves the subscribers, some at a time.
//!
//! There are three ways to subscribe. A **long-poll** gets the messages that are there, or else the
//! next one, as JSON. A **WebSocket** gets each message as a frame, and publishes the messages that
//! it sends. **Server-sent events** come as their specification says, with ids.
//!
//! An idle subscriber is parked, see `parking_lot.rs`: all that remains of it is an entry in the
//! table of `LocalSubscribers`, with the last message that it was sent. A message for a parked
//! WebSocket, or a parked stream of events, is written to its socket in a form (`form.rs`) that is
//! made once for all: a frame, or a chunk of HTTP/1.1. A WebSocket's protocol object is made when
//! the client sends something. A task is made when the work does not fit into one turn, or when the
//! socket has no room: from then on messages wait for the subscriber, up to the channel's limit.
//! Subscribers on streams of HTTP/2 are parked with their connection (`carrier`). Those that
//! cannot be parked (WebSockets over HTTP/2, events over HTTP/1.0) have a task all along.
//!
//! A parked subscriber also continues with another server. That server knows how many bytes were
//! written to it since it was parked, and which messages there were. So the bytes of a message must
//! follow from the message alone, and all other bytes (the head of a response, pings and comments,
//! the event `missed`) are written only by whoever has taken the subscriber out of the parking lot,
//! and parks it again after them (`parked.rs`).
//!
//! No message is lost or doubled between replay and live messages: a subscriber is entered into the
//! table under the same lock under which it gets the messages that it has missed, and each
//! subscriber passes over messages that it has had.
//!
//! A place in a channel is an id and the hub's *epoch*, which differs after a restart of the
//! server. A client that comes with another epoch, or with an id that is no longer kept, is told
//! that it has missed messages.

mod budget;
mod by_channel;
mod callbacks;
pub mod carrier;
mod counters;
mod cursor;
mod delivery;
mod engine;
mod event_text;
mod events;
mod events_session;
mod foreign_page;
mod form;
mod frames;
pub mod grip;
mod history;
mod hub;
mod inbox;
mod joined;
mod json_frame;
mod listing;
mod local_route;
mod local_subscribers;
mod mailbox;
pub mod mercure;
pub(crate) mod message;
mod moment;
mod moved;
mod parked;
pub(crate) mod pattern;
mod poll;
mod presence;
mod publication;
mod publish;
mod publish_limits;
mod publish_target;
mod publisher;
mod publisher_queue;
pub(crate) mod reader;
mod registry;
mod replay;
mod request;
mod response;
mod resting;
mod rights;
mod route;
mod route_parts;
mod send_queue;
mod session;
mod several;
mod shared;
mod shared_parts;
mod socket;
mod unread;

pub use counters::Figures;
pub use cursor::Cursor;
pub use engine::ChannelEngine;
pub use form::{Form, Offsets};
pub use grip::{Ask, GripKey, GripKeyError, HeldRoute, Way, publish_items};
pub use history::Since;
pub use hub::Hub;
pub use local_route::LocalRoute;
pub use local_subscribers::LocalSubscribers;
pub use message::Message;
pub use parked::LeftSubscriber;
pub use registry::{LocatedChannel, Registry, RouteState};
pub use rights::{ChannelKeyError, Rights, SharedRights};
pub use route::{ChannelState, Channels, ListPlace, VISITED};
pub use several::Also;
