//! The keeper's protocol, its notices, and servers that lose it.

mod lost_links;
mod notices;
mod protocol;
