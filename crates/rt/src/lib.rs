//! An async runtime whose I/O back-end is chosen when the program starts.
//!
//! The [`superpoll`] poller below it watches descriptors with `select`, `poll`, `epoll` or the
//! adaptive mixture of the last two. A line in the builder or the environment variable
//! `SUPERPOLL_BACKEND` chooses the back-end, and no other line changes.
//!
//! ```
//! use futures_lite::{AsyncReadExt, AsyncWriteExt};
//! use superpoll_rt::net::{TcpListener, TcpStream};
//! use superpoll_rt::{Runtime, spawn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::new()?; // or Runtime::builder().backend(BackendKind::Epoll).build()?
//! runtime.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let server = spawn(async move {
//!         let (mut stream, _) = listener.accept().await?;
//!         let mut byte = [0];
//!         stream.read_exact(&mut byte).await?;
//!         stream.write_all(&byte).await
//!     });
//!     let mut client = TcpStream::connect(address).await?;
//!     client.write_all(b"x").await?;
//!     let mut echoed = [0];
//!     client.read_exact(&mut echoed).await?;
//!     assert_eq!(&echoed, b"x");
//!     server.await.expect("it neither panics nor is aborted")
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Engines
//!
//! An engine is a thread's poller, tasks and timers. A task lives on one engine and need not be
//! `Send`. Sockets are `Send`, go with the task that owns them, and are not shared between threads.
//! A runtime has one engine, or [several](Builder::workers), and a task never changes engines:
//! [`Handle::spawn`] and [`net::Listeners`] spread new work only. There is no work stealing. A
//! future that never gives way therefore stops its engine, and only that; [`Stats::longest_turn`]
//! shows it, and [`blocking::unblock`] is the place for such work. No call can end such a future:
//! dropping the runtime waits for it. A panic concerns only the caller that joins the task. A panic
//! of the future that is blocked on goes up to the caller that blocks, and the tasks continue with
//! the next [`block_on`](Runtime::block_on).
//!
//! # System calls
//!
//! An operation is tried first, and its descriptor is registered when it would block
//! ([`Builder::speculative`] changes that, for comparison). Readiness is remembered: a stream that
//! gave less than was asked for is not read again before the poller reports it, and an operation on
//! a ready descriptor does not wait. In steady state a reply costs one wait, one read and one
//! write. Two ends of a [`pipe`](pipe::pipe) on one engine, or of a socket pair, wake each other
//! without a wait.
//!
//! # Features
//!
//! `macros`, on by default, has the attributes `main` and `test`; `hyper` has hyper's I/O traits,
//! executor and timer; `hyper-util` has `serve` for HTTP and a connector for its pooled client;
//! `tokio` has tokio's I/O traits; `tokio-context` has a tokio runtime for libraries that need one;
//! `tracing` reports events. The `futures-io` traits are always there.
//!
//! # Left to other crates
//!
//! `select` and `join` (futures-lite), cancellation (tokio-util), channels and locks
//! (async-channel, async-lock, or tokio's) and files (async-fs) work as they are.
//! [`coming_from_tokio`] and
//! [`coming_from_smol`] show each of them, next to the lines that it replaces.
//!
//! # Libraries that need tokio
//!
//! A library that brings tokio's sockets or timers panics without a tokio runtime: "there is no
//! reactor running, must be called from the context of a Tokio 1.x runtime". With the feature
//! `tokio-context` and `Runtime::builder().tokio(true)` each engine enters the context of a tokio
//! runtime, and such a library works as it is.
//!
//! A library may also move a stream of this crate to a thread without an engine, for example into a
//! tokio task. The stream waits there too: a thread of its own, `superpoll-outside`, watches for
//! all threads without an engine, and starts with the first such wait. Timers of this crate need an
//! engine, and panic elsewhere with a message that says so.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "macros.rs"]
pub mod __macros;
#[cfg(any(feature = "hyper", feature = "tokio"))]
mod adapt;
mod async_fd;
pub mod blocking;
mod budget;
mod callbacks;
mod calls;
mod clock;
mod counters;
mod current_engine;
mod deadline;
mod engine;
mod error;
mod handle;
mod inbox;
mod io;
mod io_ref;
mod io_registration;
mod join_set;
mod late_timers;
mod named;
pub mod net;
mod outside;
mod peer_wake;
pub mod pipe;
pub mod process;
mod remote;
mod runtime;
mod short_reads;
pub mod signal;
mod slow_turns;
mod sources;
mod spin;
mod stats;
mod sys;
mod task;
mod thread_hooks;
pub mod time;
mod timer_wheel;
#[cfg(feature = "tokio-context")]
mod tokio_context;
mod trace;
pub mod transfer;
mod wake_list;
mod worker;

#[cfg(feature = "hyper")]
pub use adapt::hyper;
#[cfg(feature = "hyper-util")]
pub use adapt::hyper::serve::{serve, serve_until};
#[cfg(feature = "tokio")]
pub use adapt::tokio;
pub use async_fd::{AsyncFd, NotReady, ReadyGuard};
pub use budget::has_budget_remaining;
pub use calls::Calls;
pub use error::{Error, Result};
pub use handle::{Handle, TurnWatch};
pub use io::ShortCounts;
pub use join_set::JoinSet;
pub use named::{Named, named};
pub use runtime::{Builder, Runtime};
pub use slow_turns::SlowTurn;
pub use sources::Direction;
pub use stats::Stats;
pub use superpoll::BackendKind;
#[cfg(feature = "macros")]
pub use superpoll_rt_macros::{main, test};
pub use task::{JoinError, JoinHandle, TaskPanic, next_turn, spawn, yield_now};

/// The program of the crate's page in the registry, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doc)]
#[doc = include_str!("../docs/coming-from-tokio.md")]
pub mod coming_from_tokio {}

#[cfg(doc)]
#[doc = include_str!("../docs/coming-from-smol.md")]
pub mod coming_from_smol {}
