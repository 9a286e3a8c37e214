//! An event poller for Linux that adapts: it watches busy descriptors with `poll` and idle ones
//! with `epoll`, and moves each as its activity changes.
//!
//! [`Poller`] is the centre. It is given descriptors with an [`Interest`] and a [`Mode`], and says
//! which are ready in [`Events`], each under the [`Key`] its registration got. The [`guide`] tells
//! the rest: a start, the whole contract, how to choose a back-end, bytes instead of readiness,
//! forking, and coming from other pollers.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Parts that only one feature uses are not marked one by one.
#![cfg_attr(not(all(feature = "keeper", feature = "uring")), allow(dead_code))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(not(target_os = "linux"))]
compile_error!("superpoll runs on Linux; other systems have no epoll to adapt to");

pub mod backend;
pub mod batch;
mod batch_reader;
mod costs;
mod counted_calls;
mod debug_fields;
pub mod diagnostics;
mod error;
mod event;
pub mod guide;
mod interest;
mod key;
mod key_map;
mod named;
mod owned;
mod policy;
mod poller;
mod registrar;
mod shared;
mod sleep;
mod stats;
mod sys;
mod table;
mod waker;

pub use backend::BackendKind;
pub use error::{Error, Result};
pub use event::{Event, Events, Readiness};
pub use interest::{Hint, Interest, Mode, Watch};
pub use key::Key;
pub use key_map::KeyMap;
pub use owned::{Owned, Rejected};
pub use poller::{Builder, Poller};
pub use registrar::Registrar;
pub use sys::{call, limits};
pub use waker::Waker;

/// The program of the crate's page in the registry, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
