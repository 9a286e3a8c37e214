//! The channels of the Superpoll server: WebSocket, server-sent events, long-poll and Mercure, the
//! log that several servers share, and the state that a server leaves to the next one.
//!
//! A part of `superpoll-gateway` and of the command, without an interface of its own that would
//! stay the same. Programs use `superpoll-gateway`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod broker;
pub mod channel;
pub mod succession;
