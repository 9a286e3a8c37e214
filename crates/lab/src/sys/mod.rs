//! The system calls of the harness and of the raw subjects, as thin as a C program would make
//! them, and (with an `ffi` module of a rival's) the only `unsafe` code of the laboratory.

pub mod aio;
pub mod descriptor;
pub mod epoll;
#[cfg(feature = "rivals-c")]
pub mod libev;
#[cfg(feature = "rivals-c")]
pub mod libevent;
pub mod library;
#[cfg(feature = "rivals-c")]
pub mod libuv;
pub mod memory;
pub mod network;
pub mod poll;
#[cfg(feature = "rival-polling")]
pub mod polling;
pub mod process;
#[cfg(feature = "rivals-c")]
pub mod ready;
pub mod select;
pub mod signal;
pub mod socket;
pub mod uring;
