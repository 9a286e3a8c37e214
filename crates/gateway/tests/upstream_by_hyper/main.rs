//! The tests of the reverse proxy with `lane = false`: everything goes through hyper.

#[path = "../upstream/access_log.rs"]
mod access_log;
#[path = "../upstream/balance.rs"]
mod balance;
#[path = "../upstream/bodies.rs"]
mod bodies;
#[path = "../upstream/failures.rs"]
mod failures;
#[path = "../serve/gaps.rs"]
mod gaps;
#[path = "../upstream/gateway.rs"]
mod gateway;
#[path = "../upstream/heads.rs"]
mod heads;
#[path = "../upstream/origin.rs"]
mod origin;
#[path = "../upstream/streams.rs"]
mod streams;
