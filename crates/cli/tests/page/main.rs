//! Pages in a real browser: those of a server, and the report of the laboratory.
//!
//! Skipped, and says so, where Chromium is not installed.

mod browser;
mod live;
#[path = "../program/mod.rs"]
mod program;
mod report;
