//! Tests of the keeper with random histories.

mod model;
mod random;
