//! Tests of the server side.
//!
//! | module | purpose |
//! |---|---|
//! | `bounds` | the bounds of a connection, each at its edge |
//! | `writing` | responses, windows, turns, the end of a connection |
//! | `codes` | each malformed frame and head, with its code, at each split of its bytes |

mod bounds;
mod client;
mod codes;
mod model;
mod oracle;
mod writing;
