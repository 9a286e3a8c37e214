//! The memory of channels of a path with parameters that nobody uses.

use superpoll_rt::BackendKind;

use crate::stage::Stage;
use crate::sys;
use superpoll_test_support::alone;

/// The number of channels before the measurement, and the number at it.
const BEFORE: usize = 1000;
const COUNTED: usize = 5000;

/// The most memory of each channel, in bytes.
const BOUND: usize = 512;

#[test]
fn an_idle_named_channel_costs_at_most_512_bytes() {
    alone(|| {
        let stage = Stage::new(
            BackendKind::Epoll,
            1,
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[hosts]]\n[[hosts.routes]]\npath = \"/rooms/{room}\"\n\
         channel = { history = 0, max_channels = 100_000 }\n",
        );
        let mut client = stage.connect();
        let mut make = |from: usize, to: usize| {
            // Each has had a message, and a subscriber that did not wait.
            for name in from..to {
                client.send(format!(
                    "POST /rooms/{name:06} HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx\
                 GET /rooms/{name:06}?wait=0 HTTP/1.1\r\nhost: a\r\n\r\n"
                ));
                assert_eq!(client.answer().status, 201);
                assert_eq!(client.answer().status, 204);
            }
        };
        make(0, BEFORE);
        let before = sys::bytes();
        make(BEFORE, BEFORE + COUNTED);
        let cost = sys::bytes().saturating_sub(before) / COUNTED;
        println!("{cost} bytes allocated");
        assert!(cost > 100, "{cost} bytes are too few to be true");
        assert!(cost <= BOUND, "each channel costs {cost} bytes");
    });
}
