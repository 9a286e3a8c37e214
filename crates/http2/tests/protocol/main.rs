//! Tests of the server side.
//!
//! | module | purpose |
//! |---|---|
//! | `client` | frames, written byte by byte, and a connection whose events are kept |
//! | `codes` | each malformed frame and head, with its code, at each split of its bytes |
//! | `bounds` | the bounds of a connection, each at its edge |
//! | `writing` | responses, windows, turns, the end of a connection |
//! | `parking` | records: their size, connections that are not parked, malformed records |
//! | `model` | random frames against a simple model: windows, slots, pieces, parking |
//! | `oracle` | h2 as the client: random exchanges in both directions |
//! | `structure` | the files of the crate |

mod bounds;
mod client;
mod codes;
mod model;
mod oracle;
mod parking;
mod structure;
mod writing;
