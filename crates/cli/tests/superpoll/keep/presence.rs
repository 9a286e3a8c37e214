//! Users who come and go, when another server continues with their connections.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::keep::succession::Nursery;
use crate::stage::connect;
use superpoll_test_support::tokens::{SECRET, rule, with_claims};

/// A stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    /// Opens a stream of a user.
    fn open(nursery: &Nursery, name: &str) -> Stream {
        let mut stream = connect(nursery.at());
        let channels = serde_json::json!({ "subscribe": ["/present"] });
        let claims = serde_json::json!({ "sub": name, "info": [name], "superpoll": channels });
        let token = with_claims(&claims, SECRET);
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
fn only_users_who_go_are_told_of() {
    let options = format!(
        "presence = true, presence_grace = \"1s\", subscribe = \"token\", poll = \"10m\", {}",
        rule("")
    );
    let nursery = Nursery::new(&format!(
        "[[hosts.routes]]\npath = \"/present\"\nchannel = {{ {options} }}\n"
    ));
    let mut server = nursery.server(&[]);
    // One after the other: several engines accept them.
    let mut first = Stream::open(&nursery, "ada");
    let mut joins = |name: &str, users: usize| {
        let info = format!("\"info\":[\"{name}\"]");
        let expected = format!("join {{\"user\":\"{name}\",{info},\"users\":{users}}}");
        assert_eq!(first.next(), expected);
    };
    joins("ada", 1);
    let second = Stream::open(&nursery, "bob");
    joins("bob", 2);
    let tab = Stream::open(&nursery, "bob");
    let third = Stream::open(&nursery, "cid");
    joins("cid", 3);
    for turn in 0..4 {
        nursery.until_held(4);
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
    nursery.until_held(4);
    // Nothing was told meanwhile, and the names have come along.
    drop(tab);
    drop(second);
    assert_eq!(first.next(), "leave {\"user\":\"bob\",\"users\":2}");
    nursery.until_held(2);
    // One that goes while no server runs, and one that comes again.
    let tab = Stream::open(&nursery, "dan");
    assert_eq!(first.next(), "join {\"user\":\"dan\",\"info\":[\"dan\"],\"users\":3}");
    nursery.until_held(3);
    server.signal("KILL");
    drop(server.ended());
    drop((third, tab));
    let server = nursery.server(&[]);
    let _tab = Stream::open(&nursery, "dan");
    assert_eq!(first.next(), "leave {\"user\":\"cid\",\"users\":2}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}
