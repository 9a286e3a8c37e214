//! The lock-free parts of the crates, for loom to try every order of their steps. Each file has its
//! models at its end: `RUSTFLAGS="--cfg superpoll_loom" cargo test` in this folder.

#![allow(dead_code, reason = "the models need a part of each")]

#[path = "../../crates/rt/src/inbox.rs"]
mod inbox;
#[path = "../../crates/superpoll/src/sleep/state.rs"]
mod sleep_state;
