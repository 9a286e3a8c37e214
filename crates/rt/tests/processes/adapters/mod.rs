//! Third-party code on this runtime, and the built examples driven by third-party clients.
//!
//! The servers are the example programs, each started by the test that needs it and ended by its
//! handle. The clients are curl (tests say so and pass if there is none), tungstenite and rustls on
//! blocking sockets, and hyper, tungstenite and rustls on this runtime.

mod adapt;
mod chat;
mod curl;
mod example;
mod http;
mod mixed_reads;
mod options;
mod tcp;
mod tls;
mod tower;
mod websocket;
