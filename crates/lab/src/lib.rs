//! The laboratory.
pub mod simulator;
