//! Pollers and their process: its limits, its environment, its children, and the example programs.

mod batch_reader;
mod environment;
mod examples;
mod guide;
mod lowered_limit;
mod shrink;
// `keeper` uses the rest of it.
#[allow(dead_code)]
#[path = "../sys/mod.rs"]
mod sys;
