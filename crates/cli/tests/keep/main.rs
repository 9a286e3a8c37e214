//! The built commands `superpoll keep` and `superpoll serve`: connections that outlive an upgrade
//! or a crash of a server.

mod broker;
mod crowd;
mod encrypted;
mod mercure;
mod mishaps;
mod names;
mod presence;
mod processes;
#[path = "../program/mod.rs"]
mod program;
mod publication;
mod refusals;
mod rights;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;
mod succession;
#[path = "../../../gateway/tests/channel/tokens.rs"]
mod tokens;
