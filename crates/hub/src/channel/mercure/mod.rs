//! Mercure (draft-dunglas-mercure-07): one log of updates. Each subscriber gets the updates
//! whose topics it has asked for.
//!
//! A hub of Mercure is a channel with another outside. An update is a message whose publisher has
//! said its topics (`update`); it is numbered, kept, recorded for a successor and limited as any
//! other message is. A subscriber is a stream of server-sent events that is given some of the
//! messages (`reader`), parked while nothing happens, and continues with another server.
//!
//! | part | file |
//! |---|---|
//! | topic selectors | [`superpoll_http::mercure::selector`] |
//! | the form of a publication, and ids | `update` |
//! | who gets which update | `reader` |
//! | what a token allows | `claims` |
//! | requests | [`answer`] |
//! | active subscriptions: updates and web API | `subscriptions` |
//!
//! The id of an update is its publisher's, or else its place in the log, `#ID-EPOCH`. All places
//! are valid as a `Last-Event-ID`, so a stream begins with its own: a client that loses the
//! connection before its first update misses none.
//!
//! What differs from subscriber to subscriber is only which messages they get. A message has the
//! same bytes for all, so it is made once, and a successor can tell by the number of bytes and the
//! subscriber's reader which ones were sent (`parked.rs`).

pub mod answer;
mod claims;
mod form;
pub(super) mod subscriptions;
pub(super) mod update;

pub use superpoll_config::MERCURE_PATH as PATH;

/// The id that stands for all updates that are kept.
pub(super) const EARLIEST: &str = "earliest";
