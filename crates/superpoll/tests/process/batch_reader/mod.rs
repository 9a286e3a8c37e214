//! The batch reader, on every back-end.

mod face;
mod left;
mod moves;
mod order;
mod places;
mod records;
mod stage;
mod sys;
mod wakes;
