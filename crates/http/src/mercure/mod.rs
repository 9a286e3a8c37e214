//! The parts of Mercure that belong to a connection's state: topic selectors, and what a subscriber
//! has asked for.

pub mod reader_record;
pub mod selector;
