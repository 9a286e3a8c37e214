//! `superpoll-lab idle --ramp`: how many idle connections there can be, and what ends their number.
//!
//! Connections of a kind come in steps, each time as many again as there are. When the servers' memory has come to
//! rest it is read as in `superpoll-lab idle`: what their processes have to themselves, the kernel's slabs and socket pages, and
//! what the whole machine has less. A server process takes as many connections as its limit of descriptors leaves;
//! when it has them the next one is started, and so are processes of clients, each with an address of its own
//! (127.0.0.2 and up), which has all ports to itself.
//!
//! The last step of each server names what ended it: `descriptors` (of as many server processes as may be,
//! `--servers`), `ports` (that a relay has towards its origin), `memory` (a quarter of what was available at the start is
//! never used), `files` or `processes` of the whole system, `refused` if a connection was not answered as it should be
//! (a note says how), or the bounds of the experiment itself, `time` and `steps`. What can be known beforehand is: the
//! last step is cut down to what is possible, and so nothing is driven against the wall.

use serde::{Deserialize, Serialize};

mod climb;
pub mod experiment;
mod hosts;
pub mod plot;
pub mod table;
mod trial;

/// One step of one kind of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server and the kind.
    pub subject: String,
    /// What its connections have done, as in `superpoll-lab idle`.
    pub kind: String,
    /// The number of the step, from 1 on.
    pub step: usize,
    /// Connections, all told.
    pub connections: usize,
    /// Processes of the server that share them.
    pub servers: usize,
    /// What these have to themselves more than without connections, by connection, in bytes.
    pub user_bytes_per_connection: f64,
    /// The kernel's slabs by connection, both ends and all else on this machine since the start, in bytes.
    pub slab_bytes_per_connection: f64,
    /// The kernel's pages for sockets, likewise.
    pub socket_bytes_per_connection: f64,
    /// What the machine has less memory available than at the start, by connection, in bytes: servers and clients in
    /// user memory and kernel, and all else.
    pub machine_bytes_per_connection: f64,
    /// Memory that is available, in bytes.
    pub available_bytes: u64,
    /// How long the connections of this step took to come, in seconds.
    pub seconds: f64,
    /// What ended it: there in the last step of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}
