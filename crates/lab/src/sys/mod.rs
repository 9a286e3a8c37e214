//! The system calls of the harness and of the raw subjects, as thin as a C program would make
//! them, and (with the rivals' `ffi` modules) the only `unsafe` code of the laboratory.

pub mod aio;
pub mod descriptor;
pub mod epoll;
pub mod library;
pub mod memory;
pub mod network;
pub mod poll;
pub mod process;
pub mod select;
pub mod signal;
pub mod socket;
pub mod uring;
