//! The pages of a server, and the client of its channels, in a real browser.
//!
//! Skipped, and says so, where Chromium is not installed.

mod browser;
mod client;
#[path = "../keep/crowd.rs"]
#[expect(dead_code, reason = "shared with the tests of the keeper")]
mod crowd;
mod encrypted;
mod live;
#[path = "../program/mod.rs"]
mod program;
mod proxy;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;
mod streams;
