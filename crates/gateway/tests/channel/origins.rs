//! The requests that pages of other sites may send.

use tungstenite::client::IntoClientRequest;

use crate::clients::{address, field, messages, stage, until_subscribers};
use crate::stage::BACKENDS;

const ELSEWHERE: &str = "https://elsewhere.example";

fn from(origin: &str, line: &str, rest: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: here.example\r\norigin: {origin}\r\n{rest}\r\n")
}

#[test]
fn the_page_of_another_site_is_refused_by_default() {
    let stage = stage(BACKENDS[2], 1, "");
    let mut client = stage.connect();
    for origin in [ELSEWHERE, "null", "https://here.example:444"] {
        client.send(from(origin, "POST /c", "content-length: 2\r\n") + "no");
        let answer = client.answer();
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
        // A proxy that passes another Host on is found out by both names.
        let text = String::from_utf8_lossy(&answer.body);
        assert!(text.contains(&format!("this page is of {origin:?}")), "{text}");
        assert!(text.contains("arrived for the host \"here.example\". If"), "{text}");
    }
    client.send(from("https://here.example", "POST /c", "content-length: 3\r\n") + "yes");
    assert_eq!(client.answer().status, 201);
    assert_eq!(messages(&client.get("/c?after=0")), [(1, "yes".to_owned())]);

    let connect = |origin: &str| {
        let mut request = format!("ws://{}/c", address(&stage)).into_client_request().unwrap();
        request.headers_mut().insert("origin", origin.parse().unwrap());
        tungstenite::connect(request)
    };
    match connect(ELSEWHERE) {
        Err(tungstenite::Error::Http(response)) => assert_eq!(response.status(), 403),
        other => panic!("{other:?}"),
    }
    let own = connect(&format!("http://{}", address(&stage)));
    assert!(own.is_ok(), "{own:?}");
}

#[test]
fn the_page_of_a_named_site_may_read_responses() {
    let stage = stage(BACKENDS[3], 1, &format!("origins = [\"{ELSEWHERE}\"]"));
    let mut client = stage.connect();
    client.send(from(ELSEWHERE, "OPTIONS /c", "access-control-request-method: POST\r\n"));
    let answer = client.answer();
    assert_eq!(answer.status, 204);
    assert_eq!(field(&answer, "access-control-allow-origin"), ELSEWHERE);
    assert!(field(&answer, "access-control-allow-methods").contains("POST"));
    assert!(!answer.head.contains("access-control-allow-credentials"), "{answer:?}");
    // A request that waits, to which the answer comes later.
    client.send(from(ELSEWHERE, "GET /c", ""));
    until_subscribers(&stage, 1);
    let mut other = stage.connect();
    other.send(from(ELSEWHERE, "POST /c", "content-length: 4\r\n") + "news");
    let answers = [client.answer(), other.answer()];
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 201]);
    for answer in &answers {
        assert_eq!(field(answer, "access-control-allow-origin"), ELSEWHERE);
        assert_eq!(field(answer, "vary"), "origin");
    }
    client.send(from("https://third.example", "GET /c?after=0", ""));
    assert_eq!(client.answer().status, 403);
}

#[test]
fn a_channel_can_be_open_to_all() {
    let stage = stage(BACKENDS[1], 1, "origins = [\"*\"]");
    let mut client = stage.connect();
    client.send(from("null", "GET /c?wait=0", ""));
    let answer = client.answer();
    assert_eq!((answer.status, field(&answer, "access-control-allow-origin")), (204, "null"));
}
