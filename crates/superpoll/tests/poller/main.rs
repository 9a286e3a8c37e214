//! Pollers. No test here starts a process or forks: a child has copies of all descriptors for a
//! moment, and these tests look for the effect of a close at once.

mod adaptive;
mod around;
mod building;
mod gathering;
mod limits;
mod moves;
mod owning;
mod threads;
mod waits;
