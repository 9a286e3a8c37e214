//! Connections and requests of the Superpoll server: listening sockets, TLS, parked connections,
//! requests and answers, rules, files, upstreams, logs and counters.
//!
//! A part of `superpoll-gateway` and of the command, without an interface of its own that would
//! stay the same. Programs use `superpoll-gateway`. `superpoll-hub`, the channels, is built on this
//! crate, and the gateway on both.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod accept;
pub mod admin;
pub mod admin_connections;
pub mod answers;
pub mod authority;
pub mod body;
pub mod buffer;
pub mod certificates;
pub mod connection_limits;
pub mod connection_state;
pub mod cors;
pub mod descriptors;
pub mod dns;
pub mod encoding;
pub mod exchange;
pub mod file_region;
pub mod files;
pub mod fixed;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    //! Comparisons with the rules of DNS, for the fuzz targets.

    use crate::dns;

    /// Reads an answer of a server of DNS, and panics if it breaks a bound. Returns whether it
    /// counts.
    pub fn check_answer_of_dns(bytes: &[u8], form: u8) -> bool {
        dns::check_answer(bytes, form)
    }
}
pub mod grant;
pub mod head;
pub mod held;
pub mod htpasswd;
pub mod http2_stream;
pub mod interim;
pub mod io_activity;
pub mod ipc;
pub mod listen;
pub mod log;
pub mod memory;
pub mod mercure;
pub mod message;
pub mod parked_stream;
pub mod parking_lot;
pub mod peer;
pub mod plain_stream;
pub mod progress;
pub mod proxy_protocol;
pub mod rate_table;
pub mod ready;
pub mod reply;
pub mod rules;
pub mod scripts;
pub mod sys;
pub mod telemetry;
pub mod tls;
pub mod token;
pub mod trace;
pub mod transport;
pub mod trusted_proxies;
pub mod unix_time;
pub mod upload;
pub mod upstream;
