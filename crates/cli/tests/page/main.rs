//! The pages of a server, in a real browser.
//!
//! Skipped, and says so, where Chromium is not installed.

mod browser;
mod live;
#[path = "../program/mod.rs"]
mod program;
