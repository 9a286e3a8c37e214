//! What the application is told of a channel.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use ring::hmac;
use serde_json::{Value, json};
use superpoll_test_support::tokens::{SECRET, rule, with_claims};

use crate::clients::{Events, publish, text, until_subscribers};
use crate::stage::{BACKENDS, PATIENCE, Stage};

const KEY: &str = "a secret for callbacks of 32 bytes";

/// An application that answers requests with what `answer` says of their number; an empty text is
/// no answer. It keeps the events of those that it takes.
struct Application {
    at: SocketAddr,
    told: Arc<Mutex<Vec<Value>>>,
    requests: Arc<Mutex<usize>>,
}

impl Application {
    fn new(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (told, requests): (Arc<Mutex<Vec<Value>>>, Arc<Mutex<usize>>) = Default::default();
        let (all, count, answer) = (told.clone(), requests.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, count, answer) = (all.clone(), count.clone(), answer.clone());
                thread::spawn(move || serve(&stream, &all, &count, &*answer));
            }
        });
        Application { at, told, requests }
    }

    fn options(&self, events: &str) -> String {
        format!(
            "presence = true, presence_grace = \"1ms\", subscribe = \"token\", {}, \
             callbacks = {{ upstream = \"app\", path = \"/events\", key = \"{KEY}\", \
             timeout = \"300ms\"{events} }}",
            rule("")
        )
    }

    fn stage(&self, events: &str) -> Stage {
        let servers = format!("[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n", self.at);
        Stage::new(BACKENDS[3], 2, &(text(&self.options(events)) + &servers))
    }

    /// Waits until it has been told of these events, and returns all that it was told.
    fn until_told(&self, names: &[&str]) -> Vec<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = self.told.lock().unwrap().clone();
            if told.iter().map(|event| event["event"].as_str().unwrap()).eq(names.iter().copied()) {
                return told;
            }
            assert!(Instant::now() < end, "{names:?} are not {told:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Checks a request, and returns its body; `None` at the end of the connection.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<Value> {
    let (mut length, mut signature) = (0, String::new());
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    assert!(line.starts_with("POST /events HTTP/1.1"), "{line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "content-type" => assert_eq!(value, "application/json"),
                "superpoll-signature" => value.clone_into(&mut signature),
                _ => {}
            }
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (time, mac) = signature.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    let signed = [format!("{time}.").as_bytes(), &body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    hmac::verify(&key, &signed, &HEXLOWER.decode(mac.as_bytes()).unwrap()).unwrap();
    Some(serde_json::from_slice(&body).unwrap())
}

fn serve(
    stream: &TcpStream,
    told: &Mutex<Vec<Value>>,
    requests: &Mutex<usize>,
    answer: &dyn Fn(usize) -> &'static str,
) {
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader) {
        let mut count = requests.lock().unwrap();
        let text = answer(*count);
        *count += 1;
        drop(count);
        if text.starts_with("HTTP/1.1 2") {
            told.lock().unwrap().extend(body["events"].as_array().unwrap().iter().cloned());
        }
        if (&*stream).write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";

fn query(name: &str) -> String {
    let claims = json!({ "sub": name, "superpoll": { "subscribe": ["*"], "publish": ["*"] } });
    format!("?token={}", with_claims(&claims, SECRET))
}

#[test]
fn the_application_is_told_in_order_until_it_takes_it() {
    // It fails, is silent, and then takes what it is told.
    let application = Application::new(|number| match number {
        0 => FAILED,
        1 => "",
        _ => TAKEN,
    });
    let stage = application
        .stage(", events = [\"joined\", \"left\", \"occupied\", \"empty\", \"published\"]");
    let (ada, _) = Events::new(&stage, &query("ada"), "");
    let (tab, _) = Events::new(&stage, &query("ada"), "");
    let (bob, _) = Events::new(&stage, &query("bob"), "");
    until_subscribers(&stage, 3);
    publish(&stage, "hello");
    drop((ada, bob));
    until_subscribers(&stage, 1);
    let told = application.until_told(&["joined", "occupied", "joined", "published", "left"]);
    assert!(*application.requests.lock().unwrap() >= 3);
    assert_eq!((&told[0]["user"], &told[2]["user"]), (&json!("ada"), &json!("bob")));
    assert_eq!((&told[3]["data"], &told[3]["channel"]), (&json!("hello"), &json!("/c")));
    let ids: HashSet<&str> = told.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 5);
    drop(tab);
    let all = ["joined", "occupied", "joined", "published", "left", "left", "empty"];
    application.until_told(&all);
    // Only what is wanted.
    let application = Application::new(|_| TAKEN);
    let stage = application.stage(", events = [\"left\"]");
    let (ada, _) = Events::new(&stage, &query("ada"), "");
    until_subscribers(&stage, 1);
    drop(ada);
    assert_eq!(application.until_told(&["left"])[0]["user"], "ada");
}

#[test]
fn a_reload_changes_whom_and_what_the_server_tells() {
    let (one, other) = (Application::new(|_| TAKEN), Application::new(|_| TAKEN));
    let stage = one.stage("");
    let (ada, _) = Events::new(&stage, &query("ada"), "");
    one.until_told(&["joined", "occupied"]);
    let servers = format!("[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n", other.at);
    stage.change(&(text(&other.options(", events = [\"left\"]")) + &servers));
    until_subscribers(&stage, 1);
    drop(ada);
    other.until_told(&["left"]);
    assert_eq!(one.told.lock().unwrap().len(), 2);
}
