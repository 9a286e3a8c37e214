//! A babysitter: whoever watches descriptors on which nothing happens, in the place of a loop that has work to do.
//!
//! A [`Babysitter`] is a loop of its own, in a thread of the process that it works for or in a process of its own. It
//! is given descriptors in batches, watches them with epoll, and gives those back on which something has happened.
//! Both sides speak over a [`Line`], a Unix-domain socket that keeps the borders of messages (`SOCK_SEQPACKET`,
//! `unix(7)`). A thread has the same descriptors, and is told their numbers; to another process they travel with the
//! message (`SCM_RIGHTS`), up to 253 at a time.
//!
//! A process holds the open files as well. When the server that gave them has ended, however it ended, the
//! connections live on, and the server that comes next is given them, each with the few bytes of state that it was
//! left with ([`Watching::state`]). What a server knows and its connections need, but that belongs to none of them, is
//! left with it as [records](Record). Until somebody comes the babysitter only drops who hangs up, and after a while
//! all of them.
//!
//! `protocol` has what is said, `line` how, `babysitter` the loop, and `control` what a server does that wants to be
//! succeeded.

#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod babysitter;
mod control;
mod happening;
mod line;
mod protocol;
mod records;
mod registrations;
mod sys;

pub use babysitter::{Babysitter, Options};
pub use control::{Adopted, Control, Error, Orphan};
pub use happening::Happening;
pub use line::{Line, Listener, Peer, Received};
pub use protocol::{FULL, Notice, PACKET, Record, Request, Role, STATE, Sums, VERSION, Watching};
