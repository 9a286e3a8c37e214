//! Tests of the codec.
//!
//! | module | purpose |
//! |---|---|
//! | `cases` | odd messages, with the outcome of each |
//! | `bodies`, `writing` | the readers and writers of bodies, and the writers of heads |
//! | `list` | fields that were not read as lines |
//! | `oracle` | hyper and httparse as specifications, for arbitrary bytes |
//! | `simple` | a reader of chunks that is as simple as the standard |
//! | `conversation` | both sides of a connection, as a model with two states |
//! | `again` | messages that are written again |
//! | `property` | arbitrary messages: pieces, round trips, chunks by a simple reader, the oracle |

mod again;
mod bodies;
mod cases;
mod conversation;
mod list;
mod message;
mod oracle;
mod property;
mod simple;
mod writing;
