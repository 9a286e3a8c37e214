//! The system calls that neither `std` nor a library offers safely, and the only `unsafe` code of
//! the crate.

#[cfg(any(feature = "hyper", feature = "tokio"))]
pub(crate) mod buffer;
pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod run_queue;
pub(crate) mod signal;
pub(crate) mod thread_slot;
pub(crate) mod transfer;
