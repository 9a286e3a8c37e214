//! A keeper watches idle descriptors on behalf of event loops that have work to do.
//!
//! A [`Keeper`] is an event loop of its own, in a thread of the process that it works for or in a
//! process of its own. It receives descriptors in batches, watches them with epoll, and gives back
//! those that become active. Both sides communicate over a [`KeeperLink`], a Unix-domain socket
//! that preserves message boundaries (`SOCK_SEQPACKET`, `unix(7)`). A thread shares the descriptors
//! of its process, so it receives only their numbers. For another process, the descriptors travel
//! with the message (`SCM_RIGHTS`), up to 253 at a time.
//!
//! A keeper process holds the open files as well. When the server that gave them ends, however
//! it ends, the connections live on. The next server receives them, each with the few bytes of
//! state that were left with it ([`Watching::state`]). State that connections need but that belongs
//! to no single connection is left as [records](Record). Until the next server comes, the
//! keeper only drops connections that hang up; after a while it drops all of them.
//!
//! `protocol` defines the messages and `layout` their bytes, `link` the transport, `keeper` the
//! loop, and `control` the side of a server that wants to be succeeded.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod control;
mod event;
mod keeper;
mod layout;
mod link;
mod protocol;
mod records;
mod registrations;
mod sys;

pub use control::{Adopted, Control, Error, Orphan};
pub use event::KeeperEvent;
pub use keeper::{Keeper, Options};
pub use link::{KeeperLink, Listener, Peer, Received};
pub use protocol::{FULL, Notice, PACKET, Record, Request, Role, STATE, Sums, VERSION, Watching};
