//! Third-party code on this runtime, and the built examples driven by third-party clients.
//!
//! The servers are the example programs, each started by the test that needs it and ended by its
//! handle. The clients are curl (tests say so and pass if there is none), tungstenite and rustls on
//! blocking sockets, and hyper, tungstenite and rustls on this runtime.

mod adapters;
mod curl;
mod example;
mod http;
mod options;
#[path = "../refused/mod.rs"]
mod refused;
mod tcp;
mod tls;
mod tower;
mod websocket;

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    refused::all_again();
}
