//! The pages of a server, and the client of its channels, in a real browser.
//!
//! Skipped, and says so, where Chromium is not installed.

mod client;
mod encrypted;
mod live;
mod proxy;
mod streams;
