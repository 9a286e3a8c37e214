//! The built commands `superpoll keep` and `superpoll serve`: connections that outlive an upgrade
//! or a crash of a server.

mod broker;
mod callbacks;
pub(crate) mod crowd;
mod encrypted;
mod held;
mod http2;
mod mercure;
mod mishaps;
mod names;
mod presence;
mod processes;
mod publication;
mod refusals;
mod rights;
mod succession;
