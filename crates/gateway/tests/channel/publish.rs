//! Publishing by POST, and requests that are not messages.

use crate::clients::{ask, field, messages, post, publish, stage};
use crate::stage::BACKENDS;

#[test]
fn messages_are_numbered_and_kept() {
    for backend in BACKENDS {
        let stage = stage(backend, 1, "history = 2");
        let mut client = stage.connect();
        for id in 1..=3 {
            assert_eq!(post(&mut client, format!("message {id}")), id);
        }
        let answer = client.get("/c?after=1");
        assert_eq!(messages(&answer), [(2, "message 2".to_owned()), (3, "message 3".to_owned())]);
        assert_eq!(field(&answer, "cache-control"), "no-store");
        assert_eq!(field(&answer, "content-type"), "application/json");
    }
}

#[test]
fn a_body_may_come_in_chunks() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    client.send("POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.send("2\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 201);
    assert_eq!(messages(&client.get("/c?after=0")), [(1, "abcde".to_owned())]);
    // An empty message is a message.
    assert_eq!(post(&mut client, ""), 2);
    assert_eq!(messages(&client.get("/c?after=1")), [(2, String::new())]);
}

#[test]
fn too_much_is_refused_and_not_published() {
    let stage = stage(BACKENDS[3], 1, "message_bytes = \"10\"");
    let mut client = stage.connect();
    assert_eq!(post(&mut client, "0123456789"), 1);
    client.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 11\r\n\r\n0123456789x");
    let answer = client.answer();
    assert_eq!(answer.status, 413);
    assert_eq!(answer.body, b"a message of this channel has 10 bytes at most\n");
    let mut client = stage.connect();
    client.send("POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send("a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    assert_eq!(publish(&stage, "next"), 2);
}

#[test]
fn invalid_messages_are_refused() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    client.send("POST /c HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.answer().status, 411);
    client.send("DELETE /c HTTP/1.1\r\nhost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, field(&answer, "allow")), (405, "GET, HEAD, OPTIONS, POST"));
    assert_eq!(client.get("/c/below").status, 404);
    let answer = client.get("/c?after=yesterday");
    assert_eq!(answer.status, 400);
    assert_eq!(answer.body, b"after=\"yesterday\" in the URL: the id of a message is expected\n");
    assert_eq!(client.get("/c?wait=").status, 400);
    client.send("HEAD /c HTTP/1.1\r\nhost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, field(&answer, "channel-next")), (200, "0"));
    // A body that ends too early, on a connection of its own.
    let mut other = stage.connect();
    other.send("POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab");
    drop(other);
    ask(&mut client, "?after=0&wait=0");
    assert_eq!(client.answer().status, 204);
}
