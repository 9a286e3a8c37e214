//! Who may publish, and who may subscribe.

use serde_json::Value;
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message, WebSocket};

use crate::clients::{address, field, messages, publish, stage, text, until_subscribers};
use crate::stage::{Answer, BACKENDS, Stage};
use superpoll_test_support::tokens::{SECRET, rule, token, with_claims};

/// Sends a request with these fields, and returns the answer.
fn request(stage: &Stage, line: &str, fields: &str) -> Answer {
    let mut client = stage.connect();
    let length = if line.starts_with("POST") { "content-length: 2\r\n" } else { "" };
    let body = if line.starts_with("POST") { "hi" } else { "" };
    client.send(format!("{line} HTTP/1.1\r\nhost: localhost\r\n{length}{fields}\r\n{body}"));
    client.answer()
}

/// Sends a request with these fields, and returns the status. A response to HEAD has no body.
fn status(stage: &Stage, line: &str, fields: &str) -> u16 {
    let mut client = stage.connect();
    let (length, body) = match line.starts_with("POST") {
        true => ("content-length: 2\r\n", "hi"),
        false => ("", ""),
    };
    client.send(format!("{line} HTTP/1.1\r\nhost: localhost\r\n{length}{fields}\r\n{body}"));
    let mut first = String::new();
    std::io::BufRead::read_line(&mut client.0, &mut first).unwrap();
    first.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The reason of an answer.
fn reason(answer: &Answer) -> String {
    assert_eq!(field(answer, "content-type"), "application/json", "{answer:?}");
    assert_eq!(field(answer, "cache-control"), "no-store", "{answer:?}");
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    json["error"].as_str().unwrap().to_owned()
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Connects by WebSocket.
fn open(
    stage: &Stage,
    query: &str,
) -> Result<WebSocket<tungstenite::stream::MaybeTlsStream<std::net::TcpStream>>, u16> {
    let request = format!("ws://{}/c{query}", address(stage)).into_client_request().unwrap();
    match tungstenite::connect(request) {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_publisher_needs_a_token_that_names_the_channel() {
    let options = format!("publish = \"token\", {}", rule(", audience = \"chat\""));
    let stage = stage(BACKENDS[2], 1, &options);
    let claims = |audience: &str, channels: &[&str], secret: &str| {
        let claims = serde_json::json!({
            "aud": audience, "superpoll": { "publish": channels }
        });
        bearer(&with_claims(&claims, secret))
    };
    for (fields, status, challenge, why) in [
        (claims("chat", &["/c"], SECRET), 201, "", ""),
        (claims("chat", &["/a", "/{any}"], SECRET), 201, "", ""),
        (claims("chat", &["*"], SECRET), 201, "", ""),
        (String::new(), 401, "Bearer", "publishing needs a token with /c"),
        (
            claims("chat", &["/other"], SECRET),
            403,
            "Bearer error=\"insufficient_scope\"",
            "publishing needs a token with /c; this token has other channels",
        ),
        (
            claims("chat", &["/c"], "another secret of thirty-two bytes"),
            401,
            "Bearer error=\"invalid_token\", error_description=\"the token is not signed with the \
             key of this channel\"",
            "the token is not signed with the key of this channel",
        ),
        (
            claims("mail", &["/c"], SECRET),
            401,
            "Bearer error=\"invalid_token\", error_description=\"the token is for another audience \
             (aud)\"",
            "the token is for another audience (aud)",
        ),
        (
            bearer(&with_claims(&serde_json::json!({ "aud": "chat", "exp": 1 }), SECRET)),
            401,
            "Bearer error=\"invalid_token\", error_description=\"the token has expired (exp)\"",
            "the token has expired (exp)",
        ),
        (
            bearer("a") + &bearer("b"),
            400,
            "Bearer error=\"invalid_request\"",
            "several tokens, expected one",
        ),
    ] {
        let answer = request(&stage, "POST /c", &fields);
        assert_eq!(answer.status, status, "{fields} {answer:?}");
        if status != 201 {
            assert_eq!(reason(&answer), why);
            assert_eq!(field(&answer, "www-authenticate"), challenge);
        }
    }
    // Reading is open to all, and the three messages came.
    assert_eq!(messages(&stage.connect().get("/c?after=0")).len(), 3);
}

#[test]
fn tokens_come_as_a_field_in_the_url_or_as_a_cookie() {
    let options = format!("publish = \"token\", {}", rule(", cookie = \"session\""));
    let stage = stage(BACKENDS[3], 1, &options);
    let (good, bad) = (token(&[], &["/c"], 600), token(&[], &["/other"], 600));
    for (target, fields, status) in [
        ("/c".to_owned(), bearer(&good), 201),
        (format!("/c?token={good}"), String::new(), 201),
        (format!("/c?x=1&access_token={good}"), String::new(), 201),
        (format!("/c?access_token={good}&token={good}"), String::new(), 400),
        (format!("/c?access_token={bad}"), String::new(), 403),
        ("/c".to_owned(), format!("cookie: a=b; session={good}\r\n"), 201),
        ("/c".to_owned(), format!("cookie: other={good}\r\n"), 401),
        (format!("/c?token={bad}"), bearer(&good), 201),
        (format!("/c?token={bad}"), format!("cookie: session={good}\r\n"), 403),
        (format!("/c?x=token={good}"), String::new(), 401),
    ] {
        let answer = request(&stage, &format!("POST {target}"), &fields);
        assert_eq!(answer.status, status, "{target} {fields} {answer:?}");
    }
}

#[test]
fn a_token_is_for_the_channels_that_it_names_and_others_are_not_even_made() {
    let options =
        format!("publish = \"token\", subscribe = \"token\", max_channels = 2, {}", rule(""));
    let text = text(&options).replace("\"/c\"", "\"/rooms/{room}\"");
    let stage = Stage::new(BACKENDS[2], 1, &text);
    let one = bearer(&token(&["/rooms/42", "/rooms/a b"], &["/rooms/42", "/rooms/a b"], 600));
    for (line, expected) in [
        ("POST /rooms/1", 403),
        ("GET /rooms/2?wait=0", 403),
        ("HEAD /rooms/42", 404),
        ("GET /rooms/a%2Fb?wait=0", 400),
        ("POST /rooms/%34%32", 201),
        ("HEAD /rooms/42", 200),
        ("POST /rooms/a%20b", 201),
        ("GET /rooms/42?wait=0", 204),
        ("POST /rooms/3", 403),
        ("GET /rooms/42/x", 404),
    ] {
        assert_eq!(status(&stage, line, &one), expected, "{line}");
        let is_name = !line.contains("%2F") && !line.ends_with("/x");
        let without = status(&stage, line, "");
        assert_eq!(without, if is_name { 401 } else { expected }, "{line}");
    }
    // All others are for those that have a pattern, as far as there is room.
    let any = bearer(&token(&[], &["/rooms/{room}"], 600));
    assert_eq!(status(&stage, "POST /rooms/42", &any), 201);
    assert_eq!(status(&stage, "POST /rooms/third", &any), 503);
}

#[test]
fn every_way_to_subscribe_needs_the_right() {
    for backend in BACKENDS {
        let options = format!("subscribe = \"token\", {}", rule(""));
        let stage = stage(backend, 1, &options);
        publish(&stage, "before");
        let reads = token(&["/c"], &[], 600);
        let writes = token(&[], &["/c"], 600);
        let stream = "accept: text/event-stream\r\n";
        for (line, fields) in [("GET /c", ""), ("HEAD /c", ""), ("GET /c", stream)] {
            let mut client = stage.connect();
            client.send(format!("{line} HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n"));
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut client.0, &mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 401 "), "{line} {fields}: {answer}");
            assert!(answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
        }
        assert_eq!(open(&stage, "").unwrap_err(), 401, "{backend:?}");
        assert_eq!(open(&stage, &format!("?token={writes}")).unwrap_err(), 403);
        assert_eq!(stage.connect().get(&format!("/c?token={writes}")).status, 403);
        until_subscribers(&stage, 0);

        let answer = stage.connect().get(&format!("/c?after=0&token={reads}"));
        assert_eq!(messages(&answer), [(1, "before".to_owned())]);
        let mut client = stage.connect();
        client.send(format!("GET /c?token={reads} HTTP/1.1\r\nhost: a\r\n{stream}\r\n"));
        let mut socket = open(&stage, &format!("?after=0&token={reads}")).unwrap();
        assert_eq!(socket.read().unwrap(), Message::text("before"), "{backend:?}");
        until_subscribers(&stage, 2);
    }
}

#[test]
fn a_websocket_publishes_only_with_the_right() {
    for backend in BACKENDS {
        let options = format!("publish = \"token\", {}", rule(""));
        let stage = stage(backend, 1, &options);
        let reads = token(&["/c"], &[], 600);
        for query in ["", &format!("?token={reads}")] {
            for is_parked in [true, false] {
                let mut socket = open(&stage, query).unwrap();
                if is_parked {
                    stage.until(|engine| &engine.parked, 1);
                    stage.until(|engine| &engine.active, 0);
                }
                socket.send(Message::text("no")).unwrap();
                match socket.read() {
                    Ok(Message::Close(Some(close))) => {
                        assert_eq!(close.code, CloseCode::Policy, "{backend:?}");
                        assert_eq!(close.reason.as_str(), "you may not publish here");
                    }
                    other => panic!("{backend:?}: {other:?}"),
                }
                drop(socket);
                until_subscribers(&stage, 0);
            }
        }
        // A token that is not valid is refused even though no token is needed to read.
        let expired = token(&[], &["/c"], -60);
        assert_eq!(open(&stage, &format!("?token={expired}")).unwrap_err(), 401);
        assert_eq!(stage.channel.as_ref().unwrap().last(), 0);
        let both = token(&[], &["/c"], 600);
        let mut socket = open(&stage, &format!("?token={both}")).unwrap();
        for text in ["one", "two"] {
            stage.until(|engine| &engine.parked, 1);
            socket.send(Message::text(text)).unwrap();
            assert_eq!(socket.read().unwrap(), Message::text(text), "{backend:?}");
        }
    }
}

#[test]
fn a_client_of_the_subprotocol_is_told_that_it_may_not_publish_and_goes_on() {
    let options = format!("publish = \"token\", {}", rule(""));
    let stage = stage(BACKENDS[2], 1, &options);
    let mut request = format!("ws://{}/c", address(&stage)).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "superpoll.v1".parse().unwrap());
    let (mut socket, _) = tungstenite::connect(request).unwrap();
    let mut next = |send: Option<&str>| {
        send.into_iter().for_each(|text| socket.send(Message::text(text)).unwrap());
        match socket.read().unwrap() {
            Message::Text(text) => text.to_string(),
            other => panic!("{other:?}"),
        }
    };
    next(None);
    for text in ["{\"data\":\"no\"}", "no JSON at all"] {
        let error = next(Some(text));
        assert!(error.contains("you may not publish here"), "{error}");
    }
    assert_eq!(stage.channel.as_ref().unwrap().last(), 0);
    let good = bearer(&token(&[], &["/c"], 600));
    assert_eq!(status(&stage, "POST /c", &good), 201);
    assert!(next(None).contains("hi"));
}

#[test]
fn rights_are_for_all_for_this_machine_or_for_nobody() {
    let forwarded = "x-forwarded-for: 192.0.2.1\r\n";
    for (options, fields, posted, got) in [
        ("", "", 201, 204),
        ("", forwarded, 403, 204),
        ("publish = \"anyone\"", forwarded, 201, 204),
        ("publish = \"local\"", "", 201, 204),
        ("publish = \"local\"", forwarded, 403, 204),
        ("publish = \"nobody\"", "", 403, 204),
        ("publish = \"anyone\", subscribe = \"local\"", forwarded, 201, 403),
        ("publish = \"anyone\", subscribe = \"nobody\"", "", 201, 403),
    ] {
        let stage = stage(BACKENDS[3], 1, options);
        for (line, status) in [("POST /c", posted), ("GET /c?wait=0", got)] {
            let answer = request(&stage, line, fields);
            assert_eq!(answer.status, status, "{options} {fields} {line} {answer:?}");
            if status == 403 {
                let doing = if line.starts_with("POST") { "publishing" } else { "subscribing" };
                assert!(reason(&answer).starts_with(&format!("{doing} to /c is ")), "{answer:?}");
            }
        }
    }
}

#[test]
fn nobody_publishes_beyond_this_machine_until_a_right_is_configured() {
    let closed = "publishing to /c is closed here until the server's configuration says who may \
                  publish";
    for (listener, more, options, before, status) in [
        ("127.0.0.1:0", "", "", "", 201),
        ("[::1]:0", "", "", "", 201),
        ("localhost:0", "", "", "", 201),
        ("0.0.0.0:0", "", "", "", 403),
        ("0.0.0.0:0", "", "publish = \"anyone\"", "", 201),
        ("0.0.0.0:0", "", "publish = \"local\"", "", 201),
        ("127.0.0.1:0", "proxy_protocol = true", "", "PROXY TCP4 127.0.0.1 127.0.0.1 9 9\r\n", 403),
        ("127.0.0.1:0", "proxy_protocol = true", "publish = \"anyone\"", "PROXY UNKNOWN\r\n", 201),
    ] {
        let text = text(options).replace("127.0.0.1:0\"", &format!("{listener}\"\n{more}"));
        let stage = Stage::new(BACKENDS[2], 1, &text);
        let mut client = stage.connect();
        let head = "POST /c HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi";
        client.send(format!("{before}{head}"));
        let answer = client.answer();
        assert_eq!(answer.status, status, "{listener} {more} {options}: {answer:?}");
        if status == 403 {
            assert_eq!(reason(&answer), closed);
        }
        // Everyone may read.
        assert_eq!(client.get("/c?wait=0").status, 204);
    }
}

#[test]
fn a_proxy_on_this_machine_closes_a_channel_without_rights() {
    let stage = stage(BACKENDS[2], 1, "");
    for (version, fields, status) in [
        ("1.1", "", 201),
        ("1.1", "via: 1.1 proxy\r\n", 403),
        ("1.1", "x-real-ip: 127.0.0.1\r\n", 403),
        // nginx, as it is by default.
        ("1.0", "", 403),
    ] {
        let mut client = stage.connect();
        client.send(format!(
            "POST /c HTTP/{version}\r\nhost: a\r\ncontent-length: 2\r\n{fields}\r\nhi"
        ));
        assert_eq!(client.answer().status, status, "{version} {fields}");
    }
}

#[test]
fn a_page_of_another_site_may_send_its_token_and_read_why_it_is_refused() {
    let origin = "origin: https://app.example\r\n";
    let options = format!(
        "origins = [\"https://app.example\"], publish = \"token\", {}",
        rule(", cookie = \"session\"")
    );
    let stage = stage(BACKENDS[3], 1, &options);
    let preflight =
        request(&stage, "OPTIONS /c", &format!("{origin}access-control-request-method: POST\r\n"));
    assert_eq!(preflight.status, 204);
    let allowed = field(&preflight, "access-control-allow-headers");
    for name in
        ["authorization", "channel-event", "content-type", "idempotency-key", "last-event-id"]
    {
        assert!(allowed.split(", ").any(|known| known == name), "{allowed}");
    }
    assert_eq!(field(&preflight, "access-control-allow-credentials"), "true");
    let refused = request(&stage, "POST /c", origin);
    assert_eq!(refused.status, 401);
    assert_eq!(reason(&refused), "publishing needs a token with /c");
    assert_eq!(field(&refused, "access-control-allow-origin"), "https://app.example");
    assert!(field(&refused, "access-control-expose-headers").contains("www-authenticate"));
    let cookie = format!("cookie: session={}\r\n{origin}", token(&[], &["/c"], 600));
    assert_eq!(request(&stage, "POST /c", &cookie).status, 201);
    // The cookie helps no page of a site that is not named.
    let other = cookie.replace("app.example", "evil.example");
    assert_eq!(request(&stage, "POST /c", &other).status, 403);
}

#[test]
fn changed_rights_end_subscriptions() {
    for backend in BACKENDS {
        let with = |key: &str| {
            format!("subscribe = \"token\", token = {{ key = \"{key}\", leeway = \"1ms\" }}")
        };
        let stage = stage(backend, 1, &with(SECRET));
        let reads = token(&["/c"], &[], 600);
        let mut socket = open(&stage, &format!("?token={reads}")).unwrap();
        let mut poll = stage.connect();
        poll.send(format!("GET /c?token={reads} HTTP/1.1\r\nhost: a\r\n\r\n"));
        stage.until(|engine| &engine.parked, 2);
        let mut events = stage.connect();
        events.send(format!(
            "GET /c?token={reads} HTTP/1.0\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
        ));
        until_subscribers(&stage, 3);
        // Nothing changes with the same key, and everything with another.
        stage.change(&text(&format!("history = 7, {}", with(SECRET))));
        crate::clients::until_options(&stage, |channel| channel.history == 7);
        publish(&stage, "kept");
        assert_eq!(socket.read().unwrap(), Message::text("kept"), "{backend:?}");
        assert_eq!(messages(&poll.answer()), [(1, "kept".to_owned())]);
        poll.send(format!("GET /c?token={reads} HTTP/1.1\r\nhost: a\r\n\r\n"));
        until_subscribers(&stage, 3);
        stage.change(&text(&with("another secret of thirty-two bytes")));
        match socket.read() {
            Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Restart),
            other => panic!("{backend:?}: {other:?}"),
        }
        assert_eq!(poll.answer().status, 204, "{backend:?}");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut events.0, &mut rest).unwrap();
        assert!(rest.contains("data: kept\n"), "{rest}");
        assert_eq!(open(&stage, &format!("?token={reads}")).unwrap_err(), 401);
        drop(socket);
        until_subscribers(&stage, 0);
    }
}
