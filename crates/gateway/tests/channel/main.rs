//! Channels, from the outside: what is published is told to all, in order, once, by each of the ways to subscribe.

mod clients;

mod poll;
mod publish;

#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;
