//! The system calls of the harness and of the raw subjects, and (with an `ffi` module of a rival's)
//! the only `unsafe` code of the laboratory. Calls that an experiment measures are as thin as a C
//! program would make them; all others go through the crate nix.

pub(crate) mod aio;
pub(crate) mod descriptor;
pub(crate) mod epoll;
#[cfg(feature = "rivals-c")]
pub(crate) mod libev;
#[cfg(feature = "rivals-c")]
pub(crate) mod libevent;
pub(crate) mod libkqueue;
#[cfg(feature = "rivals-c")]
pub(crate) mod libuv;
pub(crate) mod memory;
pub(crate) mod poll;
#[cfg(feature = "rival-polling")]
pub(crate) mod polling;
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod uring;
