//! Limits, descriptors, memory and counters of the process of a server: each of these tests runs
//! alone in a process of its own.

mod connections;
mod files;
mod many;
mod memory;
mod relay_calls;
mod sys;
mod upstream;

#[path = "../channel/clients.rs"]
#[expect(dead_code, reason = "shared with the other tests of channels")]
mod clients;
#[path = "../serve/frames2.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod frames2;
#[path = "../upstream/gateway.rs"]
#[expect(dead_code, reason = "shared with the tests of the reverse proxy")]
mod gateway;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;
