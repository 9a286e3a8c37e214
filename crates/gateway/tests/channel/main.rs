//! Channels, from the outside: all subscribers get each published message, in order, once, by each
//! of the ways to subscribe.

mod admin;
mod alive;
mod authorize;
mod callbacks;
mod clients;
mod cluster;
mod ending;
mod events;
mod expiry;
mod http2;
mod hub;
mod ids;
mod logged;
mod mercure;
mod mercure_change;
mod mercure_state;
mod names;
mod origins;
mod parked_events;
mod parked_tls;
mod poll;
mod presence;
mod pressure;
mod publication;
mod publish;
mod rate;
mod reload;
mod rights;
mod rules;
mod script;
mod several;
mod slow;
mod socket;
#[path = "../serve/stage.rs"]
#[expect(dead_code, reason = "shared with the tests of the web server")]
mod stage;
mod tls;
#[path = "../serve/websocket2.rs"]
mod websocket2;
