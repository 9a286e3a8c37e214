//! A hub of Mercure (draft-dunglas-mercure-07): the demands of the draft on hubs, and its
//! recommendations, section by section. Sections "Reconnection" and "Active Subscriptions" are in
//! `mercure_state.rs`.

use std::io::BufRead;

use serde_json::{Value, json};

use crate::clients::field;
use crate::expiry::SOON;
use crate::hub::{
    Event, PATH, Subscriber, all, bearer, form, get, hub, hub_with, now, post, publish, reason,
    token,
};
use crate::stage::{BACKENDS, PATIENCE};
use superpoll_test_support::tokens::{SECRET, with_claims};

// Discovery

#[test]
fn the_hub_is_named_by_the_responses_of_its_host() {
    let stage = hub("");
    let link = "</.well-known/mercure>; rel=\"mercure\"";
    assert_eq!(field(&get(&stage, "/moved", ""), "link"), link);
    assert_eq!(field(&post(&stage, &all(), "topic=a"), "link"), link);
    let stage = hub("discovery = false");
    assert!(!get(&stage, "/moved", "").head.contains("\r\nlink:"));
}

#[test]
fn the_path_of_a_hub_is_the_well_known_one() {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n\
                routes = [{ path = \"/hub\", mercure = {} }]\n";
    let error = superpoll_gateway::config::Config::parse("t.toml", text).unwrap_err().to_string();
    assert!(error.contains("expected path = \"/.well-known/mercure\""), "{error}");
}

// Topic selectors, subscription

#[test]
fn a_subscriber_gets_the_updates_that_match_one_of_its_selectors_once() {
    for backend in BACKENDS {
        let stage = hub_with(backend, 2, "publish = \"anyone\"");
        let topics = ["https://example.com/foo", "bar", "https://example.com/bar/{id}"];
        let mut some = Subscriber::new(&stage, &topics, "");
        let mut every = Subscriber::new(&stage, &["*"], "");
        stage.until(|engine| &engine.active, 0);
        for (topics, is_wanted) in [
            (&["https://example.com/foo"][..], true),
            (&["https://example.com/fo"], false),
            (&["bar"], true),
            (&["https://example.com/bar/7"], true),
            (&["https://example.com/bar/7/8"], false),
            // By an alternate topic, and by several.
            (&["https://example.com/x", "bar"], true),
            (&["bar", "https://example.com/bar/1", "https://example.com/foo"], true),
            (&["https://example.com/bar/{id}"], true),
        ] {
            let data = topics.join(" ");
            let mut pairs: Vec<(&str, &str)> = topics.iter().map(|one| ("topic", *one)).collect();
            pairs.push(("data", &data));
            publish(&stage, &pairs);
            assert_eq!(every.data(), data);
            if is_wanted {
                assert_eq!(some.data(), data, "{backend:?}");
            }
        }
    }
}

#[test]
fn events_have_all_properties_of_the_publication() {
    let stage = hub("");
    let mut subscriber = Subscriber::new(&stage, &["a"], "");
    let data = "{\n  \"@id\": \"a\"\r\n}\u{e4}";
    let id = publish(
        &stage,
        &[("topic", "a"), ("data", data), ("id", "urn:x:1"), ("type", "added"), ("retry", "1500")],
    );
    assert_eq!(id, "urn:x:1");
    let expected = Event {
        id,
        kind: "added".to_owned(),
        data: "{\n  \"@id\": \"a\"\n}\u{e4}".to_owned(),
        retry: Some("1500".to_owned()),
    };
    assert_eq!(subscriber.next(), Some(expected));
    // Without an id, the hub gives one, which the answer has.
    let id = publish(&stage, &[("topic", "a"), ("data", "b")]);
    assert_eq!(subscriber.next().unwrap().id, id);
}

#[test]
fn a_subscription_needs_topics_that_are_bounded() {
    let stage = hub("");
    for query in ["", "?topic=", "?topic=%ff", &format!("?topic={}", "x".repeat(3000))] {
        let answer = get(&stage, &format!("{PATH}{query}"), "");
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
    let answer = get(&stage, &format!("{PATH}/other?topic=a"), "");
    assert_eq!(answer.status, 404);
}

// Publication

#[test]
fn a_publication_is_a_form_with_a_topic() {
    let stage = hub("message_bytes = 10");
    let wrong = |body: &str| post(&stage, &all(), body).status;
    assert_eq!(wrong("data=x"), 400);
    assert_eq!(wrong("topic=a&id=%23x"), 400);
    assert_eq!(wrong("topic=a&data=%ff"), 400);
    assert_eq!(wrong("topic=a&retry=x"), 400);
    assert_eq!(wrong("topic=a&data=12345678901"), 413);
    assert_eq!(wrong(&format!("topic=a&x={}", "x".repeat(200_000))), 413);
    assert_eq!(wrong("topic=a&data=%E2%82%AC%E2%82%AC%E2%82%AC"), 200);
    let mut client = stage.connect();
    client.send(format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 2\r\n{}\r\n{{}}",
        all()
    ));
    assert_eq!(client.answer().status, 415);
    let mut client = stage.connect();
    client.send(format!("PUT {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"));
    assert_eq!(client.answer().status, 405);
}

// Authorization

#[test]
fn a_publisher_needs_a_right_to_each_topic() {
    let stage = hub("");
    let mut every = Subscriber::new(&stage, &["*"], &all());
    let body = "topic=https%3A%2F%2Fexample.com%2Fbooks%2F1&topic=b&data=x";
    for (claim, status) in [
        (json!({}), 403),
        (json!({ "subscribe": ["*"] }), 403),
        (json!({ "publish": [] }), 403),
        // One topic of two.
        (json!({ "publish": ["b"] }), 403),
        (json!({ "publish": ["https://example.com/books/{id}"] }), 403),
        (json!({ "publish": ["https://example.com/books/{id}", "b"] }), 200),
        (json!({ "publish": ["*"] }), 200),
    ] {
        let answer = post(&stage, &bearer(&claim), body);
        assert_eq!(answer.status, status, "{claim} {answer:?}");
        if status == 200 {
            assert_eq!(every.data(), "x");
        } else {
            assert!(reason(&answer).contains("is not for this client"), "{answer:?}");
            let challenge = field(&answer, "www-authenticate");
            assert_eq!(challenge, "Bearer error=\"insufficient_scope\"");
        }
    }
    assert_eq!(post(&stage, "", body).status, 401);
    let foreign = with_claims(&json!({ "mercure": { "publish": ["*"] } }), &"x".repeat(32));
    let answer = post(&stage, &format!("authorization: Bearer {foreign}\r\n"), body);
    assert_eq!(answer.status, 401);
    let old = json!({ "exp": now() - 60, "mercure": { "publish": ["*"] } });
    let old = format!("authorization: Bearer {}\r\n", with_claims(&old, SECRET));
    assert_eq!(post(&stage, &old, body).status, 401);
    // Nothing of what was refused was published.
    publish(&stage, &[("topic", "b"), ("data", "last")]);
    assert_eq!(every.data(), "last");
}

#[test]
fn only_the_hub_publishes_to_its_own_topics() {
    let stage = hub("");
    for topic in ["/.well-known/mercure/subscriptions/a/b", "https://x/.well-known/mercure"] {
        let answer = post(&stage, &all(), &form(&[("topic", topic)]));
        assert_eq!(answer.status, 403, "{topic} {answer:?}");
    }
}

#[test]
fn a_private_update_is_for_subscribers_with_a_right_to_one_of_its_topics() {
    let stage = hub("");
    let book = "https://example.com/books/1";
    let alternate = "https://example.com/users/foo/?topic=https%3A%2F%2Fexample.com%2Fbooks%2F1";
    let subscribe = |claim: Option<Value>| {
        let fields = claim.map_or(String::new(), |claim| bearer(&claim));
        Subscriber::new(&stage, &["https://example.com/books/{id}"], &fields)
    };
    let mut with = [
        json!({ "subscribe": ["https://example.com/books/{id}"] }),
        json!({ "subscribe": ["https://example.com/users/foo/{?topic}"] }),
        json!({ "subscribe": ["*"] }),
    ]
    .map(|claim| subscribe(Some(claim)));
    let mut without = [
        None,
        Some(json!({})),
        Some(json!({ "subscribe": [] })),
        Some(json!({ "publish": ["*"] })),
        Some(json!({ "subscribe": ["https://example.com/users/bar/{?topic}"] })),
    ]
    .map(subscribe);
    for private in ["on", "", "off"] {
        let pairs =
            [("topic", book), ("topic", alternate), ("data", "secret"), ("private", private)];
        publish(&stage, &pairs);
    }
    publish(&stage, &[("topic", book), ("data", "public")]);
    for subscriber in &mut with {
        let found = [(); 4].map(|()| subscriber.data());
        assert_eq!(found, ["secret", "secret", "secret", "public"]);
    }
    for subscriber in &mut without {
        assert_eq!(subscriber.data(), "public");
    }
    // Neither from the history, nor with the topic in a URL.
    let mut late = Subscriber::asking(&stage, &["*"], "&Last-Event-ID=earliest", "");
    assert_eq!(late.data(), "public");
}

#[test]
fn the_field_counts_more_than_the_parameter_and_the_cookie() {
    let stage = hub("");
    let (right, wrong) = (token(&json!({ "subscribe": ["*"] })), "no token");
    let cookie = |token: &str| format!("cookie: mercureAuthorization={token}\r\n");
    let field = |token: &str| format!("authorization: Bearer {token}\r\n");
    let reads = |query: &str, fields: &str| {
        let target = format!("{PATH}?topic=a{query}&Last-Event-ID=earliest");
        let mut client = stage.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"));
        let mut head = String::new();
        client.0.read_line(&mut head).unwrap();
        head.contains(" 200 ")
    };
    let parameter = |token: &str| format!("&authorization={token}");
    assert!(reads("", &field(&right)));
    assert!(reads(&parameter(&right), ""));
    assert!(reads("", &cookie(&right)));
    assert!(reads("", &(field(&right) + &cookie(wrong))));
    assert!(!reads("", &(field(wrong) + &cookie(&right))));
    assert!(!reads(&parameter(wrong), &cookie(&right)));
    assert!(reads("", ""), "anyone may have public updates");
    let stage = hub("subscribe = \"token\"");
    assert_eq!(get(&stage, &format!("{PATH}?topic=a"), "").status, 401);
    drop(Subscriber::new(&stage, &["a"], &all()));
}

#[test]
fn a_cookie_publishes_only_for_pages_that_say_where_they_are_from() {
    let stage = hub("origins = [\"https://app.example\"]");
    let cookie =
        format!("cookie: mercureAuthorization={}\r\n", token(&json!({ "publish": ["*"] })));
    for (fields, status) in [
        ("", 403),
        ("origin: http://localhost\r\n", 200),
        ("origin: https://app.example\r\n", 200),
        ("origin: https://evil.example\r\n", 403),
        ("origin: null\r\n", 403),
        ("referer: http://localhost/page\r\n", 200),
        ("referer: https://app.example/page?x\r\n", 200),
        ("referer: https://evil.example/https://app.example\r\n", 403),
        ("referer: /page\r\n", 403),
    ] {
        let answer = post(&stage, &format!("{cookie}{fields}"), "topic=a");
        assert_eq!(answer.status, status, "{fields} {answer:?}");
    }
    // A program that sets a field is no browser that was made to.
    assert_eq!(post(&stage, &all(), "topic=a").status, 200);
}

#[test]
fn a_page_of_another_site_may_ask_for_what_the_protocol_needs() {
    let stage = hub("origins = [\"https://app.example\"]");
    let mut client = stage.connect();
    client.send(format!(
        "OPTIONS {PATH} HTTP/1.1\r\nhost: localhost\r\norigin: https://app.example\r\n\
         access-control-request-method: GET\r\n\
         access-control-request-headers: authorization, cache-control, last-event-id\r\n\r\n"
    ));
    let answer = client.answer();
    assert_eq!(answer.status, 204);
    assert_eq!(field(&answer, "access-control-allow-origin"), "https://app.example");
    assert_eq!(field(&answer, "access-control-allow-credentials"), "true");
    for name in ["authorization", "cache-control", "last-event-id"] {
        assert!(field(&answer, "access-control-allow-headers").contains(name));
    }
    let fields = "origin: https://app.example\r\n";
    let subscriber = Subscriber::asking(&stage, &["a"], "&Last-Event-ID=earliest", fields);
    assert_eq!(subscriber.field("access-control-allow-origin"), Some("https://app.example"));
    assert!(subscriber.field("access-control-expose-headers").unwrap().contains("last-event-id"));
}

#[test]
fn a_stream_ends_with_its_token() {
    let stage = hub("");
    let claims = json!({ "exp": now() + SOON.unsigned_abs(), "mercure": { "subscribe": ["*"] } });
    let fields = format!("authorization: Bearer {}\r\n", with_claims(&claims, SECRET));
    let mut subscriber = Subscriber::new(&stage, &["a"], &fields);
    subscriber.client.0.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(subscriber.next(), None);
}

// Over HTTP/1.1 an idle subscriber is parked.

#[test]
fn an_idle_subscriber_has_no_task_and_gets_its_updates_where_it_is_parked() {
    for backend in BACKENDS {
        let stage = hub_with(backend, 1, "publish = \"anyone\"");
        let mut subscribers = ["/a", "/b", "/{x}"].map(|one| Subscriber::new(&stage, &[one], ""));
        stage.until(|engine| &engine.parked, 3);
        stage.until(|engine| &engine.active, 0);
        assert_eq!(stage.count(|engine| &engine.running), 0);
        let mut client = stage.connect();
        for number in 0..60_u32 {
            let topic = ["/a", "/b", "/c"][number as usize % 3];
            let body = form(&[("topic", topic), ("data", &number.to_string())]);
            client.send(format!(
                "POST {PATH} HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert_eq!(client.answer().status, 200);
            let [a, b, all] = &mut subscribers;
            assert_eq!(all.data(), number.to_string(), "{backend:?}");
            match topic {
                "/a" => assert_eq!(a.data(), number.to_string()),
                "/b" => assert_eq!(b.data(), number.to_string()),
                _ => {}
            }
        }
        drop(client);
        stage.until(|engine| &engine.parked, 3);
        drop(subscribers);
        stage.until(|engine| &engine.parked, 0);
        assert_eq!(stage.drained(), 0);
    }
}

/// Streams that are not parked: those over HTTP/1.0, HTTP/2 and TLS.
#[test]
fn a_stream_with_a_task_gets_the_same_updates() {
    let stage = hub("history = 10");
    publish(&stage, &[("topic", "a"), ("data", "missed")]);
    let mut client = stage.connect();
    client.send(format!(
        "GET {PATH}?topic=a&lastEventID=earliest HTTP/1.0\r\nhost: localhost\r\n\r\n"
    ));
    let mut text = String::new();
    let mut read_until = |end: &str| {
        while !text.ends_with(end) {
            assert_ne!(client.0.read_line(&mut text).unwrap(), 0, "{text}");
        }
    };
    read_until("data: missed\n\n");
    for (topic, data, private) in [("b", "1", false), ("a", "2", true), ("a", "3", false)] {
        let mut pairs = vec![("topic", topic), ("data", data)];
        pairs.extend(private.then_some(("private", "on")));
        publish(&stage, &pairs);
    }
    read_until("data: 3\n\n");
    assert!(text.contains("\r\nlast-event-id: earliest\r\n"), "{text}");
    assert_eq!(text.matches("data: ").count(), 2, "{text}");
}

#[test]
fn comments_show_that_the_connection_lives() {
    let stage = hub_with(BACKENDS[3], 1, "publish = \"anyone\", poll = \"20m\"");
    let mut subscriber = Subscriber::new(&stage, &["a"], "");
    for _ in 0..2 {
        stage.elapse(std::time::Duration::from_secs(12 * 60));
        assert_eq!(subscriber.line().as_deref(), Some(":"));
    }
    publish(&stage, &[("topic", "a"), ("data", "x")]);
    assert_eq!(subscriber.data(), "x");
}
