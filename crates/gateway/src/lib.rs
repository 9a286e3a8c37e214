//! A web server, reverse proxy and publish-subscribe server, as a library: the command `superpoll`
//! without its command line.
//!
//! A [`serve::Server`] serves a [`Config`] on all engines of a runtime. Events of operation go to a
//! function of the caller. The server ends when it is dropped; [`serve::Server::change`] gives it
//! another configuration without closing a connection.
//!
//! ```no_run
//! use superpoll_gateway::Config;
//! use superpoll_gateway::serve::Server;
//! use superpoll_rt::Runtime;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"
//!     [[listeners]]
//!     address = "127.0.0.1:8080"
//!
//!     [[hosts]]
//!     names = ["localhost"]
//!     [[hosts.routes]]
//!     [hosts.routes.files]
//!     root = "/srv/www"
//! "#;
//! let config = Config::parse("site.toml", text)?;
//! let runtime = Runtime::new()?;
//! let server = Server::start(&runtime, &config, |event| eprintln!("{event}"))?;
//! for address in server.fronts() {
//!     println!("serving {address}");
//! }
//! runtime.block_on(std::future::pending::<()>());
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod accept;
#[cfg_attr(not(feature = "acme"), path = "without_acme.rs")]
mod acme;
pub mod admin;
mod admin_connections;
mod answers;
mod authority;
mod body;
mod broker;
mod certificates;
pub mod channel;
mod connection_limits;
mod cors;
mod descriptors;
mod dns;
mod encoding;
mod exchange;
mod file_region;
pub mod files;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    //! Comparisons with hyper, and with the rules of DNS, for the fuzz targets.

    use crate::dns;
    use crate::upstream::lane;

    /// Reads an answer of a server of DNS, and panics if it breaks a bound. Returns whether it
    /// counts.
    pub fn check_answer_of_dns(bytes: &[u8], form: u8) -> bool {
        dns::check_answer(bytes, form)
    }

    /// Reads a request by the lane and by hyper. Returns whether the lane takes it.
    pub fn compare_request(bytes: &[u8], piece: usize) -> bool {
        lane::compare_request(bytes, piece)
    }

    /// Reads a response by the lane and by hyper. Returns whether the lane takes it.
    pub fn compare_response(bytes: &[u8], is_head: bool, piece: usize) -> bool {
        lane::compare_response(bytes, is_head, piece)
    }
}
mod htpasswd;
mod http2_stream;
mod inherited;
mod io_activity;
mod ipc;
mod listen;
mod log;
mod memory;
mod parked_stream;
mod parking_lot;
mod peer;
mod plain_stream;
pub mod prepare;
pub mod processes;
mod proxy_protocol;
mod rate_table;
pub mod relay;
mod reply;
mod rules;
pub mod serve;
mod succession;
mod sys;
pub mod telemetry;
#[cfg(test)]
mod tests;
mod tls;
mod token;
mod trace;
mod transport;
mod trusted_proxies;
mod unix_time;
mod upload;
pub mod upstream;

pub use body::Body;
pub use inherited::Inherited;
pub use log::{ErrorLog, Event, LogLevel};
pub use superpoll_config as config;
pub use superpoll_config::{Address, AddressError, Config, ConfigError, Field, Level};
