//! Join and leave events, when another server goes on with the subscribers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::keep::succession::Nursery;
use crate::stage::connect;
use superpoll_test_support::tokens::{rule, token};

/// A stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(nursery: &Nursery) -> Stream {
        let mut stream = connect(nursery.at());
        let token = token(&["/present"], &["/present"], 600);
        let request = format!(
            "GET /present?token={token} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        Stream(BufReader::new(stream))
    }

    /// Returns the type and the data of the next event.
    fn next(&mut self) -> String {
        let mut kind = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream ends");
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim_end().clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return format!("{kind} {}", data.trim_end());
            }
        }
    }
}

#[test]
fn only_subscribers_that_go_are_told_of() {
    let options = format!("presence = true, subscribe = \"token\", poll = \"10m\", {}", rule(""));
    let nursery = Nursery::new(&format!(
        "[[hosts.routes]]\npath = \"/present\"\nchannel = {{ {options} }}\n"
    ));
    let mut server = nursery.server(&[]);
    // One after the other: several engines accept them.
    let mut first = Stream::open(&nursery);
    let mut joins = |number: usize| {
        let expected = format!("join {{\"subscribers\":{number},\"sub\":\"joe\"}}");
        assert_eq!(first.next(), expected);
    };
    joins(1);
    let second = Stream::open(&nursery);
    joins(2);
    let third = Stream::open(&nursery);
    joins(3);
    for turn in 0..4 {
        nursery.until_held(3);
        // The second way in which a server ends is a crash.
        if turn % 2 == 0 {
            let next = nursery.server(&["--upgrade"]);
            assert!(server.ended().0.success());
            server = next;
        } else {
            server.signal("KILL");
            drop(server.ended());
            server = nursery.server(&[]);
        }
        server.says("took over");
    }
    nursery.until_held(3);
    // Nothing was told meanwhile, and the name has come along.
    drop(second);
    assert_eq!(first.next(), "leave {\"subscribers\":2,\"sub\":\"joe\"}");
    nursery.until_held(2);
    // One that goes while no server runs.
    server.signal("KILL");
    drop(server.ended());
    drop(third);
    let server = nursery.server(&[]);
    // It may have come to the next server before its end was noticed, and then has its name.
    let told = first.next();
    assert!(
        ["\"left_out\":1}", "\"sub\":\"joe\"}"].iter().any(|end| told.ends_with(end)),
        "{told}"
    );
    assert!(told.starts_with("leave {\"subscribers\":1,"), "{told}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}
