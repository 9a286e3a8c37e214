//! The reverse proxy: requests are forwarded to the servers of a group, in HTTP/1.1, HTTP/2 or
//! FastCGI.
//!
//! A [`Group`] is the state of some servers that all engines share: the servers that are up, and
//! the work that each has done. Everything else belongs to one engine: connections, the turns of
//! servers, and the `Forwarder` of each route. So a request that finds an idle connection takes no
//! lock and wakes no other task; engines share only a handful of atomic counters.
//!
//! | module | purpose |
//! |---|---|
//! | `forwarder` | a request's way to a server and back |
//! | `attempts` | the choice of the next server after a failure |
//! | `strict`, `fields` | requests that are refused, and the fields that are passed on |
//! | `heads`, `request` | the heads that are passed on, and a request on its way |
//! | `rewritten` | fields of responses that name places on a server |
//! | `client` | the client's side of a request |
//! | `own_request` | requests of this server's own |
//! | `group`, `server`, `outcomes` | the servers, their states, and the events that change those |
//! | `balance`, `health` | the choice among servers that are up, and their checks |
//! | `operator`, `operator_setting` | servers that operators have taken out, and their weights |
//! | `names`, `named_servers` | servers that are found by names |
//! | `ejection`, `error_record` | servers that answer with errors are left out |
//! | `sticky` | cookies by which clients come back to their servers |
//! | `fault` | reasons for which a request has failed |
//! | `local_shortage` | shortages on this machine, which are no faults of a server |
//! | `pool`, `idle_life`, `dial`, `client_tls` | connections: kept, for how long, new, and encrypted |
//! | `http1`, `http2` | HTTP/1.1 without a task, HTTP/2 with one |
//! | `fastcgi` | servers that speak FastCGI, on connections of `http1` |
//! | `outgoing`, `incoming` | the bodies of requests and of responses |
//! | `spool` | bodies that are read to their end first |
//! | `tunnel`, `websocket` | connections that have left HTTP: WebSocket |

mod attempts;
mod balance;
mod client;
mod client_tls;
mod dial;
mod ejection;
mod error_record;
mod fastcgi;
mod fault;
mod fields;
mod forwarder;
mod group;
mod heads;
mod health;
mod http1;
mod http2;
mod idle_life;
mod incoming;
mod local_shortage;
mod named_servers;
mod names;
mod operator;
mod operator_setting;
mod outcomes;
mod outgoing;
mod own_request;
mod pool;
mod request;
mod rewritten;
mod server;
mod spool;
mod sticky;
mod strict;
mod tunnel;
mod websocket;

pub use client::{Client, LinesClient};
pub use client_tls::{AuthoritiesError, ClientTlsError, authorities, client_tls};
pub use dial::{begin, connect, connect_any, dial_for_relay};
pub use fastcgi::Script;
pub use forwarder::{Forwarder, LimitTimer, OriginalTarget, Pages, ServerAnswer, Unanswered};
pub use group::{Group, ServerList};
pub use heads::{ClientFacts, ClientHead};
pub use http2::StreamReset;
pub use local_shortage::{LocalShortage, way_out};
pub use names::watch;
pub use own_request::exchange;
pub use pool::{Pool, PooledServer, limit_idle_connections};
pub use request::ServerRequest;
pub use server::GroupServer;
pub use spool::limit_spooled_bytes;
