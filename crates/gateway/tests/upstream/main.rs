//! The reverse proxy over real sockets, with servers and clients that are not ours on both sides.

mod access_log;
mod auth_request;
mod balance;
mod bodies;
mod client_certificates;
mod compression;
mod ejection;
mod failures;
mod fastcgi;
mod gateway;
mod grip;
mod grip_pushpin;
mod grip_sockets;
mod heads;
mod http2;
mod http2_clients;
mod http2_frames;
mod kept;
mod lane;
mod lane_bodies;
mod metrics;
mod names;
mod nameserver;
mod operator;
mod origin;
mod proxy_rules;
mod rates;
mod sticky;
mod streams;
mod tracing;
mod trusted_proxies;
#[path = "../serve/websocket2.rs"]
mod websocket2;
mod websockets;

/// The tests of the proxy itself once more, where responses are maps of fields.
#[test]
fn all_of_this_holds_where_responses_are_given() {
    let modules = ["access_log::", "balance::", "bodies::", "failures::", "heads::", "streams::"];
    superpoll_test_support::rerun(&modules, |command| {
        command.env(gateway::ALL_GIVEN, "1").args(["--skip", "lane_bodies::"]);
    });
}
