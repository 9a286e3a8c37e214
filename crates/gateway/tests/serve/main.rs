//! The web server, from the outside, on each back-end: connections and their fates.

mod ending;
mod frames2;
mod guarded;
mod http1;
mod http2;
mod keeper;
mod limits;
mod parking;
mod slow;
mod stage;
mod stalled;
mod unix;
