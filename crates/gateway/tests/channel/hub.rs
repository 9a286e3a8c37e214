//! A hub of Mercure, its publishers and its subscribers.

use std::io::BufRead;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::clients::field;
use crate::stage::{Answer, BACKENDS, Client, Stage};
use superpoll_test_support::tokens::{SECRET, with_claims};

pub(crate) const PATH: &str = "/.well-known/mercure";

/// A hub with these options, and a page of the same host.
pub(crate) fn hub_with(backend: superpoll_rt::BackendKind, workers: usize, options: &str) -> Stage {
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n[[hosts]]\n\
         [[hosts.routes]]\npath = \"/moved\"\nredirect = {{ to = \"/\" }}\n\
         [[hosts.routes]]\npath = {PATH:?}\nmercure = {{ {options} }}\n"
    );
    Stage::new(backend, workers, &text)
}

/// A hub with tokens and these further options.
pub(crate) fn hub(options: &str) -> Stage {
    let token = format!("token = {{ key = \"{SECRET}\", leeway = \"1ms\" }}");
    let more = if options.is_empty() { token } else { format!("{token}, {options}") };
    hub_with(BACKENDS[3], 1, &more)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn token(claim: &Value) -> String {
    with_claims(&json!({ "exp": now() + 600, "mercure": claim }), SECRET)
}

pub(crate) fn bearer(claim: &Value) -> String {
    format!("authorization: Bearer {}\r\n", token(claim))
}

/// The field of a client that may do everything.
pub(crate) fn all() -> String {
    bearer(&json!({ "publish": ["*"], "subscribe": ["*"] }))
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

pub(crate) fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={}", encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

pub(crate) fn post(stage: &Stage, fields: &str, body: &str) -> Answer {
    let mut client = stage.connect();
    client.send(format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n{fields}\r\n{body}",
        body.len()
    ));
    client.answer()
}

/// Publishes an update, and returns its id.
pub(crate) fn publish(stage: &Stage, pairs: &[(&str, &str)]) -> String {
    let answer = post(stage, &all(), &form(pairs));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(field(&answer, "content-type").starts_with("text/plain"), "{answer:?}");
    String::from_utf8(answer.body).unwrap()
}

pub(crate) fn get(stage: &Stage, target: &str, fields: &str) -> Answer {
    let mut client = stage.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n"));
    client.answer()
}

pub(crate) fn reason(answer: &Answer) -> String {
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    json["error"].as_str().unwrap().to_owned()
}

/// A subscriber, which reads events as the HTML standard says.
pub(crate) struct Subscriber {
    pub client: Client,
    head: String,
    text: String,
    /// The id that it would come back with.
    pub last_id: String,
}

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub id: String,
    pub kind: String,
    pub data: String,
    pub retry: Option<String>,
}

impl Subscriber {
    pub(crate) fn new(stage: &Stage, topics: &[&str], fields: &str) -> Subscriber {
        Subscriber::asking(stage, topics, "", fields)
    }

    pub(crate) fn asking(stage: &Stage, topics: &[&str], more: &str, fields: &str) -> Subscriber {
        let topics = topics.iter().map(|topic| format!("topic={}", encode(topic)));
        let query = topics.collect::<Vec<_>>().join("&");
        let mut client = stage.connect();
        client.send(format!(
            "GET {PATH}?{query}{more} HTTP/1.1\r\nhost: localhost\r\n\
             accept: text/event-stream\r\n{fields}\r\n"
        ));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(client.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        let (text, last_id) = (String::new(), String::new());
        let mut subscriber = Subscriber { client, head, text, last_id };
        // The place at which the stream begins.
        assert_eq!(subscriber.line().as_deref(), Some("retry: 2000"));
        let place = subscriber.line().unwrap();
        place.strip_prefix("id: ").unwrap().clone_into(&mut subscriber.last_id);
        subscriber
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Returns the next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        while !self.text.contains('\n') {
            let mut bytes = Vec::new();
            if !self.client.chunk(&mut bytes) {
                return None;
            }
            self.text += std::str::from_utf8(&bytes).unwrap();
        }
        let (line, rest) = self.text.split_once('\n').unwrap();
        let (line, rest) = (line.to_owned(), rest.to_owned());
        self.text = rest;
        Some(line)
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let kind = "message".to_owned();
        let mut event = Event { id: String::new(), kind, data: String::new(), retry: None };
        let mut data = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("data", line)) => data.push(line.to_owned()),
                Some(("retry", retry)) => event.retry = Some(retry.to_owned()),
                _ if line == ":" => {}
                _ => {
                    assert_eq!(line, "");
                    // Some libraries would deliver it as an empty message.
                    assert!(!data.is_empty(), "an event without data: {event:?}");
                    event.id.clone_into(&mut self.last_id);
                    event.data = data.join("\n");
                    return Some(event);
                }
            }
        }
    }

    pub(crate) fn data(&mut self) -> String {
        self.next().expect("an event").data
    }
}
