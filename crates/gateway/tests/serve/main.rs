//! The web server, from the outside, on each back-end: connections and their fates.

mod active_ratio;
mod admin;
mod certificates;
mod conversations;
mod dormant2;
mod dormant2_random;
mod early_data;
mod ending;
mod errors;
mod file_lane;
mod file_rules;
mod fixed_answers;
mod floods2;
mod frames2;
mod guarded;
mod host_rules;
mod http1;
mod http2;
mod https;
mod keeper;
mod limits;
mod parking;
mod prior_knowledge;
mod reload;
mod request_ids;
mod slow;
mod stage;
mod stalled;
mod streams2;
mod targets;
mod telemetry;
mod tls;
mod tls_garbage;
mod unix;
#[expect(dead_code, reason = "shared with the tests of channels")]
mod websocket2;
