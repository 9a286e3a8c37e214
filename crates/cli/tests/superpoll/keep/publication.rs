//! A publication that is repeated with its key is one message, whichever server answers it.

use std::io::{Read, Write};
use std::net::SocketAddr;

use crate::keep::succession::Nursery;
use crate::stage::{connect, get};

/// Publishes with a key, and returns the status and the body.
fn publish(at: SocketAddr, key: &str, message: &str) -> (u16, String) {
    let mut stream = connect(at);
    let request = format!(
        "POST /news HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
         Content-Length: {}\r\n\r\n{message}",
        message.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

#[test]
fn a_key_is_known_to_the_next_server_after_an_upgrade_and_after_a_crash() {
    let nursery = Nursery::new("");
    let at = nursery.at();
    let mut server = nursery.server(&[]);
    let (status, body) = publish(at, "k-1", "once");
    assert!(status == 201 && body.contains("\"id\":1"), "{status} {body}");
    for turn in 0..4 {
        if turn % 2 == 0 {
            server.signal("KILL");
            drop(server.ended());
            server = nursery.server(&[]);
        } else {
            let next = nursery.server(&["--upgrade"]);
            assert!(server.ended().0.success());
            server = next;
        }
        let (status, body) = publish(at, "k-1", "once");
        assert!(status == 200 && body.contains("\"id\":1"), "{status} {body}");
        assert_eq!(publish(at, "k-1", "another").0, 422);
    }
    let answer = get(&mut connect(at), "/news?after=0");
    assert_eq!(answer.matches("\"data\":\"once\"").count(), 1, "{answer}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}
