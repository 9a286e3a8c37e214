//! The built command, from the outside: its help, `doctor`, and the way to the laboratory.

mod doctor;
mod help;
#[path = "../program/mod.rs"]
mod program;
