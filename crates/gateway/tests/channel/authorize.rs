//! Servers of the application that decide about clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, Message};

use crate::clients::{address, field, text, until_options, until_subscribers};
use crate::stage::{Answer, BACKENDS, Stage};

/// A server that answers each request with the status that `answer` returns, and perhaps fields
/// and a body; an empty text is no answer. It keeps the heads of the requests, one a line.
struct Application {
    at: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

impl Application {
    fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let connections: Arc<Mutex<usize>> = Arc::default();
        let (seen, counted) = (heads.clone(), connections.clone());
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *counted.lock().unwrap() += 1;
                let (seen, answer) = (seen.clone(), answer.clone());
                thread::spawn(move || serve(stream, &seen, &*answer));
            }
        });
        Application { at, heads, connections }
    }

    /// The heads that have come.
    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }

    fn stage(&self, options: &str) -> Stage {
        self.stage_for("20s", options)
    }

    /// A server that waits so long for an answer.
    fn stage_for(&self, timeout: &str, options: &str) -> Stage {
        Stage::new(BACKENDS[3], 1, &self.text(timeout, options))
    }

    /// The configuration of such a server.
    fn text(&self, timeout: &str, options: &str) -> String {
        let at = self.at;
        let options = format!(
            "{options}, authorize = {{ upstream = \"app\", path = \"/may\", \
             timeout = \"{timeout}\" }}"
        );
        text(&options) + &format!("[upstreams.app]\nservers = [{{ address = \"{at}\" }}]\n")
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> String) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        seen.lock().unwrap().push(head.clone());
        let answer = answer(&head);
        if (&stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn post(stage: &Stage, fields: &str) -> Answer {
    let mut client = stage.connect();
    client.send(format!(
        "POST /c?x=1 HTTP/1.1\r\nhost: chat.example\r\ncontent-length: 2\r\n{fields}\r\nhi"
    ));
    client.answer()
}

#[test]
fn the_application_learns_who_asks_for_what() {
    let application =
        Application::new(|_| "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned());
    let stage = application.stage("publish = \"authorize\", subscribe = \"authorize\"");
    let fields = "authorization: Bearer a.b.c\r\ncookie: session=1\r\n\
                  x-original-uri: /forged\r\nx-channel-action: subscribe\r\nx-forwarded-for: 9.9.9.9\r\n\
                  x-custom: secret\r\n";
    for _ in 0..3 {
        assert_eq!(post(&stage, fields).status, 201);
    }
    let heads = application.heads();
    assert_eq!(heads.len(), 3);
    // One connection for all.
    assert_eq!(*application.connections.lock().unwrap(), 1);
    let mut lines: Vec<&str> = heads[0].lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.remove(0), "GET /may HTTP/1.1");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "authorization: Bearer a.b.c",
            "cookie: session=1",
            "host: chat.example",
            "x-channel-action: publish",
            "x-channel: /c",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: chat.example",
            "x-forwarded-proto: http",
            "x-original-method: POST",
            "x-original-uri: /c?x=1",
        ]
    );
    assert_eq!(stage.connect().get("/c?wait=0").status, 204);
    assert!(application.heads()[0].contains("x-channel-action: subscribe\r\n"));
    // HTTP/1.0 need not name a host, and the application gets one.
    let mut client = stage.connect();
    client.send("GET /c?wait=0 HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 204);
    assert!(application.heads()[0].contains(&format!("host: {}\r\n", application.at)));
}

#[test]
fn cookies_do_not_count_for_the_page_of_any_site() {
    let application =
        Application::new(|_| "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned());
    for (origins, origin, counts) in [
        ("*", "https://evil.example", false),
        ("*", "https://chat.example", true),
        ("https://app.example", "https://app.example", true),
    ] {
        let options = format!("publish = \"authorize\", origins = [\"{origins}\"]");
        let stage = application.stage(&options);
        let fields = format!("cookie: session=1\r\norigin: {origin}\r\n");
        let answer = post(&stage, &fields);
        assert_eq!(answer.status, 201, "{origins} {origin}");
        let heads = application.heads();
        assert_eq!(heads[0].contains("cookie: session=1\r\n"), counts, "{heads:?}");
        assert!(heads[0].contains(&format!("origin: {origin}\r\n")), "{heads:?}");
        let allowed = answer.head.contains("access-control-allow-credentials: true\r\n");
        assert_eq!(allowed, origins != "*", "{answer:?}");
    }
}

#[test]
fn only_success_allows_and_only_401_and_403_refuse() {
    let huge =
        format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    let endless = "HTTP/1.1 204 No Content\r\n\r\n";
    for (answer, status, why) in [
        (endless, 201, ""),
        (&huge, 201, ""),
        (
            "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"a\"\r\n\
             content-length: 0\r\n\r\n",
            401,
            "the application refuses publishing to /c",
        ),
        (
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 5\r\n\r\nno no",
            403,
            "the application refuses publishing to /c",
        ),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 503, "does not answer"),
        (
            "HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n",
            503,
            "does not answer",
        ),
        ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", 503, "does not answer"),
        ("garbage\r\n\r\n", 503, "does not answer"),
        // It takes its time.
        ("", 503, "does not answer"),
    ] {
        let text = answer.to_owned();
        let application = Application::new(move |_| text.clone());
        let timeout = if answer.is_empty() { "500ms" } else { "20s" };
        let stage = application.stage_for(timeout, "publish = \"authorize\"");
        let refused = post(&stage, "");
        assert_eq!(refused.status, status, "{answer:.40}");
        if status != 201 {
            let json: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
            assert!(json["error"].as_str().unwrap().contains(why), "{json}");
        }
        if status == 401 {
            assert_eq!(field(&refused, "www-authenticate"), "Basic realm=\"a\"");
        }
        // Readers are not asked about.
        assert_eq!(stage.connect().get("/c?wait=0").status, 204);
    }
}

#[test]
fn a_server_that_is_down_refuses_with_503() {
    // Nothing listens at this address, which stays taken.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let at = socket.local_addr().unwrap().as_socket().unwrap();
    let none = Application { at, heads: Arc::default(), connections: Arc::default() };
    let stage = none.stage("publish = \"authorize\"");
    let refused = post(&stage, "");
    assert_eq!((refused.status, field(&refused, "retry-after")), (503, "1"));
}

/// The application's answer comes after a reload that took the right away.
#[test]
fn a_right_that_ended_while_the_application_decided_gives_no_subscription() {
    let both = Arc::new(Barrier::new(2));
    let decides = both.clone();
    let application = Application::new(move |_| {
        // The first time the question has come, the second time it may be answered.
        decides.wait();
        decides.wait();
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
    });
    let nobody = |history| text(&format!("subscribe = \"nobody\", history = {history}"));
    let stage = application.stage("subscribe = \"authorize\"");
    let with_right = |stage: &Stage| {
        stage.change(&application.text("20s", "subscribe = \"authorize\""));
        until_options(stage, |channel| channel.history != 7);
    };
    let take_right = |stage: &Stage| {
        both.wait();
        stage.change(&nobody(7));
        until_options(stage, |channel| channel.history == 7);
        both.wait();
    };
    let url = format!("ws://{}/c", address(&stage));
    let opening = thread::spawn(move || {
        let request = url.as_str().into_client_request().unwrap();
        let mut socket = tungstenite::connect(request).unwrap().0;
        socket.read()
    });
    take_right(&stage);
    match opening.join().unwrap() {
        Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Restart),
        other => panic!("{other:?}"),
    }
    for accept in ["text/event-stream", "application/json"] {
        with_right(&stage);
        stage.channel.as_ref().unwrap().publish("secret");
        let mut client = stage.connect();
        client.send(format!("GET /c?after=0 HTTP/1.0\r\nhost: a\r\naccept: {accept}\r\n\r\n"));
        take_right(&stage);
        // It ends, without the message that is kept.
        let mut all = String::new();
        client.0.read_to_string(&mut all).unwrap();
        assert!(all.starts_with("HTTP/1.") && !all.contains("secret"), "{accept}: {all}");
    }
    until_subscribers(&stage, 0);
}

#[test]
fn a_websocket_asks_for_both_uses_at_its_handshake() {
    let may_not_publish = |head: &str| {
        let status = match head.contains("x-channel-action: publish") {
            true => "403 Forbidden",
            false => "200 OK",
        };
        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
    };
    let application = Application::new(may_not_publish);
    let stage = application.stage("publish = \"authorize\", subscribe = \"authorize\"");
    let url = format!("ws://{}/c", address(&stage));
    let (mut socket, _) =
        tungstenite::connect(url.as_str().into_client_request().unwrap()).unwrap();
    assert_eq!(application.heads().len(), 2);
    socket.send(Message::text("no")).unwrap();
    match socket.read() {
        Ok(Message::Close(Some(close))) => assert_eq!(close.code, CloseCode::Policy),
        other => panic!("{other:?}"),
    }
    // Without an answer about publishing, the client has to come again.
    let silent = Application::new(|head| match head.contains("x-channel-action: publish") {
        true => String::new(),
        false => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
    });
    let options = "publish = \"authorize\", subscribe = \"authorize\"";
    let stage = silent.stage_for("500ms", options);
    let url = format!("ws://{}/c", address(&stage));
    match tungstenite::connect(url.as_str().into_client_request().unwrap()) {
        Err(Error::Http(response)) => assert_eq!(response.status(), 503),
        other => panic!("{other:?}"),
    }
}

/// An answer with a body in JSON.
fn json(body: &str) -> String {
    let kind = "content-type: application/json; charset=utf-8";
    format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn the_application_names_the_user_and_gives_both_rights_at_once() {
    let application = Application::new(|_| {
        json("{\"user\":\"ada\",\"info\":{\"a\":1},\"publish\":true,\"more\":[]}")
    });
    let options = "publish = \"authorize\", subscribe = \"authorize\", presence = true";
    let stage = application.stage(options);
    let url = format!("ws://{}/c", address(&stage));
    let mut socket = tungstenite::connect(url.as_str()).unwrap().0;
    assert_eq!(application.heads().len(), 1, "one question for both uses");
    let mut next = || loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return text.to_string();
        }
    };
    assert_eq!(next(), "{\"user\":\"ada\",\"info\":{\"a\":1},\"users\":1}");
    socket.send(Message::text("hi")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("hi"));
    // The right to publish may be missing.
    let quiet = Application::new(|_| json("{\"user\":\"ada\",\"publish\":false}"));
    let stage = quiet.stage(options);
    let url = format!("ws://{}/c", address(&stage));
    let mut socket = tungstenite::connect(url.as_str()).unwrap().0;
    socket.send(Message::text("hi")).unwrap();
    let close = std::iter::repeat_with(|| socket.read().unwrap()).find_map(|message| {
        if let Message::Close(close) = message { Some(close.unwrap()) } else { None }
    });
    assert_eq!(close.unwrap().code, CloseCode::Policy);
}

#[test]
fn what_the_application_allows_ends_when_it_says() {
    let application = Application::new(|_| json("{\"expires\":1}"));
    let stage = application.stage("subscribe = \"authorize\"");
    let mut client = stage.connect();
    client.send("GET /c?after=0 HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n");
    let mut all = String::new();
    client.0.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 200"), "{all}");
    until_subscribers(&stage, 0);
}

#[test]
fn an_answer_of_the_application_that_cannot_be_used_is_named() {
    for (body, part) in [
        ("{\"user\":", "EOF"),
        ("{\"user\":7}", "invalid type"),
        ("{\"expires\":\"soon\"}", "invalid type"),
        ("[]", "invalid length"),
    ] {
        let application = Application::new(move |_| json(body));
        let stage = application.stage("subscribe = \"authorize\"");
        let answer = stage.connect().get("/c");
        let reason = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, 502, "{body}: {reason}");
        assert!(reason.contains("answers with JSON that cannot be used"), "{reason}");
        assert!(reason.contains(part), "{body}: {reason}");
    }
}
