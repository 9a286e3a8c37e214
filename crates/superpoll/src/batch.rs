//! Reading many streams at once, as bytes instead of readiness: [`BatchReader`].

pub use crate::batch_reader::{Arrival, Arrivals, BatchReader, Outcome, Refused};
