//! The contract of [`superpoll`] as an executable suite.
//!
//! The suite judges an event poller in two ways. [`checks`] are named: one for each clause of the
//! contract and each trap that other pollers have fallen into.

pub mod bench;
pub mod chaos;
pub mod checks;
pub mod rig;
pub mod sequence;
pub mod subject;
pub mod sys;

pub use bench::{Bench, Capabilities};
pub use rig::{Fault, Rig};
