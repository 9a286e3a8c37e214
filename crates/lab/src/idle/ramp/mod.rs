//! `superpoll-lab idle --ramp`: how many idle connections there can be, and which limit ends their
//! number.
//!
//! Connections of a kind come in steps, each doubling their number. When the servers' memory has
//! settled, it is read as in `superpoll-lab idle`: the private memory of their processes, the
//! kernel's slabs and socket pages, and the decrease of the whole machine's available memory. A
//! server process takes as many connections as its limit of descriptors allows; when it is full,
//! the next one starts. Processes of clients are started in the same way, each with an address of
//! its own (127.0.0.2 and up), which has all ports to itself.
//!
//! The last step of each server names the limit that ended it: `descriptors` (of the maximum number
//! of server processes, `--servers`), `ports` (of a relay towards its origin), `memory` (a quarter
//! of the memory available at the start is never used), `files` or `processes` of the whole system,
//! `refused` if a connection did not get the right answer (a note gives details), or the bounds of
//! the experiment itself, `time` and `steps`. Limits that can be known beforehand are respected:
//! the last step is cut down to the possible number, and so the machine is not driven into any of
//! them.

use serde::{Deserialize, Serialize};

mod climb;
pub(crate) mod experiment;
mod hosts;
pub(crate) mod plot;
pub(crate) mod table;
mod trial;

/// One step of one kind of connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The server and the kind of connection.
    pub subject: String,
    /// The kind of connection, as in `superpoll-lab idle`.
    pub kind: String,
    /// The number of the step, from 1 on.
    pub step: usize,
    /// Connections in total.
    pub connections: usize,
    /// Processes of the server that share them.
    pub servers: usize,
    /// Private memory of these servers above that without connections, per connection, in bytes.
    pub user_bytes_per_connection: f64,
    /// The kernel's slabs per connection, with both ends and everything else on this machine since
    /// the start, in bytes.
    pub slab_bytes_per_connection: f64,
    /// The kernel's pages for sockets, likewise.
    pub socket_bytes_per_connection: f64,
    /// The decrease of the machine's available memory since the start, per connection, in bytes:
    /// servers and clients in user memory and kernel, and everything else.
    pub machine_bytes_per_connection: f64,
    /// Memory that is available, in bytes.
    pub available_bytes: u64,
    /// How long the connections of this step took to arrive, in seconds.
    pub seconds: f64,
    /// The limit that ended the ramp; present in the last step of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}
