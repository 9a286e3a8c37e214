//! Scripts of an application, a publisher and a client, and their transcripts with a server.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use superpoll_gateway::config::TokenRule;
use superpoll_http::token::Verifier;
use superpoll_test_support::http1::read_chunk;
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

use crate::gateway::LIMIT;
use crate::grip_sockets::{EVENTS, event};
use crate::origin::{Client, Origin, Reply, Seen};

/// The beginning of paths at which applications hold long-polls for the channels in the query,
/// until they are asked again.
pub(super) const POLLS: &str = "/polls";

/// The script in which the features that a server names are compared.
pub(super) const FEATURES: &str = "features";

/// Names in the texts of a script: `$n` is its own, and these are its channels.
const CHANNELS: [&str; 3] = ["$a", "$b", "$c"];

/// The answers of an application, and the steps of a publisher and a client.
pub(super) struct Script {
    pub name: &'static str,
    /// The answers to the requests for each path, in their order. The last one is that to all
    /// further requests.
    pub answers: Vec<(&'static str, Vec<Answer>)>,
    pub steps: Vec<Step>,
}

impl Script {
    /// Returns the channels in the application's answers.
    pub(super) fn channels(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for answer in self.answers.iter().flat_map(|(_, answers)| answers) {
            texts.push(answer.fields);
            match answer.content {
                Content::Text(text) => texts.push(text),
                Content::Events(all) => texts.extend(all),
            }
        }
        let mut channels = CHANNELS.to_vec();
        channels.retain(|channel| texts.iter().any(|text| text.contains(channel)));
        channels.into_iter().map(|channel| self.named(channel)).collect()
    }

    /// Returns a text with the names of this script.
    pub(super) fn named(&self, text: &str) -> String {
        let mut text = text.replace("$n", self.name);
        for channel in CHANNELS {
            text = text.replace(channel, &format!("{}-{}", self.name, &channel[1..]));
        }
        text
    }
}

/// A response of an application.
pub(super) struct Answer {
    status: &'static str,
    fields: &'static str,
    content: Content,
}

enum Content {
    Text(&'static str),
    /// Each is `TEXT content`, `CLOSE 1000 reason` or a name alone.
    Events(&'static [&'static str]),
}

pub(super) fn status(status: &'static str, fields: &'static str, body: &'static str) -> Answer {
    Answer { status, fields, content: Content::Text(body) }
}

pub(super) fn ok(fields: &'static str, body: &'static str) -> Answer {
    status("200 OK", fields, body)
}

/// Returns an answer with events.
pub(super) fn events(fields: &'static str, all: &'static [&'static str]) -> Answer {
    Answer { status: "200 OK", fields, content: Content::Events(all) }
}

impl Answer {
    fn bytes(&self, script: &Script, is_head: bool) -> Vec<u8> {
        let (kind, body) = match self.content {
            Content::Text(text) => (String::new(), script.named(text).into_bytes()),
            Content::Events(all) => (
                format!("Content-Type: {EVENTS}\r\n"),
                all.iter().flat_map(|event| encoded(&script.named(event))).collect(),
            ),
        };
        let fields = script.named(self.fields);
        let fields: String =
            fields.lines().map(|line| format!("{}\r\n", line.trim_start())).collect();
        let (status, length) = (self.status, body.len());
        let head = format!("HTTP/1.1 {status}\r\n{kind}{fields}Content-Length: {length}\r\n\r\n");
        [head.into_bytes(), if is_head { Vec::new() } else { body }].concat()
    }
}

fn encoded(text: &str) -> Vec<u8> {
    match text.split_once(' ') {
        None => format!("{text}\r\n").into_bytes(),
        Some(("CLOSE", end)) => {
            let (code, reason) = end.split_once(' ').unwrap_or((end, ""));
            let code: u16 = code.parse().unwrap();
            event("CLOSE", [&code.to_be_bytes(), reason.as_bytes()].concat())
        }
        Some((kind, content)) => event(kind, content),
    }
}

/// Starts the application of some scripts.
pub(super) fn app(scripts: Arc<Vec<Script>>) -> Origin {
    let counts: Mutex<HashMap<String, usize>> = Mutex::default();
    Origin::start(move |line| {
        loop {
            let seen = line.request()?;
            let target = target(&seen);
            let number = {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry(target.to_owned()).or_default();
                *count += 1;
                *count - 1
            };
            if let Some((path, channels)) = target.split_once('?')
                && path.starts_with(POLLS)
                && number == 0
            {
                line.send(format!(
                    "HTTP/1.1 200 OK\r\nGrip-Hold: response\r\nGrip-Timeout: 600\r\n\
                     Grip-Channel: {channels}\r\nContent-Length: 0\r\n\r\n"
                ))?;
                continue;
            }
            let name = target[1..].split('/').next().unwrap_or_default();
            let Some(script) = scripts.iter().find(|script| script.name == name) else {
                line.answer("ready")?;
                continue;
            };
            let path = &target[1 + name.len()..];
            let Some((_, answers)) = script.answers.iter().find(|(known, _)| *known == path) else {
                line.answer("no such path")?;
                continue;
            };
            let number = number.min(answers.len() - 1);
            line.send(answers[number].bytes(script, seen.line().starts_with("HEAD")))?;
        }
    })
}

pub(super) fn target(seen: &Seen) -> &str {
    seen.line().split(' ').nth(1).unwrap()
}

/// One step of a script.
pub(super) enum Step {
    /// Sends a request on a new connection: its method, path and fields, and its body.
    Ask(&'static str, &'static str),
    /// Sends one on the same connection.
    Again(&'static str),
    /// Sends one on the same connection, which may have ended, and reads the response.
    Further(&'static str),
    /// Sends one of HTTP/1.0 on a new connection.
    AskOld(&'static str),
    /// Reads the head of a response.
    Head,
    /// Reads the body until it has this text.
    Text(&'static str),
    /// As `Text`, of content for silence, which may come more than once.
    Beat(&'static str),
    /// Reads a response with its body.
    Reply,
    /// Reads the body up to its end.
    End,
    /// Ends the connection.
    Leave,
    /// Publishes items.
    Publish(&'static str),
    /// Sends a request to the control endpoint: its method and fields, and its body.
    Control(&'static str, &'static str),
    /// Waits until a connection has begun to be subscribed to a channel, so many times.
    Held(&'static str, &'static str, usize),
    /// Waits until no WebSocket is subscribed to a channel.
    Left(&'static str),
    /// Waits until the application has got so many requests.
    Asked(usize),
    /// As `Asked`, if the server has this feature.
    AskedIf(&'static str, usize),
    /// Opens a WebSocket: its path and fields.
    Open(&'static str),
    Say(Message),
    /// Reads so many messages of a WebSocket.
    Messages(usize),
    Close(u16, &'static str),
}

/// A server that scripts run with.
pub(super) trait Subject: Sync {
    /// The address for clients.
    fn front(&self) -> &str;
    /// The address for publishers, the path, and the field that they need.
    fn control(&self, script: &str) -> (String, String, String);
    fn app(&self) -> &Origin;
    /// The secret of its signatures.
    fn key(&self, script: &str) -> String;
    /// Whether a subscription to a channel has begun so many times.
    fn is_held(&self, script: &str, mode: &str, channel: &str, times: usize) -> bool;
    fn has_left(&self, channel: &str) -> bool;
}

/// The client of a script.
struct Run<'a> {
    script: &'a Script,
    subject: &'a dyn Subject,
    told: Vec<String>,
    http: Option<Client>,
    is_chunked: bool,
    /// The body so far, if one is being read.
    body: Option<Vec<u8>>,
    beats: Vec<String>,
    socket: Option<WebSocket<TcpStream>>,
}

/// Runs a script with a server. Returns the transcript: the lines of the client and the publisher,
/// and then those of the application.
pub(super) fn run(script: &Script, subject: &dyn Subject) -> Vec<String> {
    let mut run = Run {
        script,
        subject,
        told: Vec::new(),
        http: None,
        is_chunked: false,
        body: None,
        beats: Vec::new(),
        socket: None,
    };
    for (number, step) in script.steps.iter().enumerate() {
        if let Err(error) = run.step(step) {
            run.tell(format!("FAILED: step {number}: {error}"));
            break;
        }
    }
    run.tell_body("goes on");
    let mut told = std::mem::take(&mut run.told);
    told.extend(run.asked_for());
    told
}

type Outcome = Result<(), String>;

fn failed(error: io::Error) -> String {
    error.to_string()
}

impl Run<'_> {
    fn tell(&mut self, line: impl Into<String>) {
        self.told.push(line.into());
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Ask(head, body) => self.ask(head, "1.1", body, true)?,
            Step::Again(head) => self.ask(head, "1.1", "", false)?,
            Step::Further(head) => {
                let request = self.request(head, "1.1") + "\r\n";
                let client = self.http.as_mut().ok_or("no connection")?;
                let sent = client.stream.write_all(request.as_bytes());
                match sent.and_then(|()| client.reply_to("GET")) {
                    Ok(reply) => self.tell_reply(&reply),
                    Err(_) => self.tell("the connection has ended"),
                }
            }
            Step::AskOld(head) => self.ask(head, "1.0", "", true)?,
            Step::Head => self.head()?,
            Step::Text(text) => self.text(text)?,
            Step::Beat(text) => {
                self.beats.push(self.script.named(text));
                self.text(text)?;
            }
            Step::Reply => {
                let client = self.http.as_mut().ok_or("no connection")?;
                let reply = client.reply_to("GET").map_err(failed)?;
                self.tell_reply(&reply);
            }
            Step::End => self.end()?,
            Step::Leave => {
                self.tell_body("left");
                (self.http, self.socket) = (None, None);
            }
            Step::Publish(items) => {
                let body = format!("{{\"items\":[{}]}}", self.script.named(items));
                self.control("POST", &body)?;
            }
            Step::Control(head, body) => self.control(head, &self.script.named(body))?,
            Step::Held(mode, channel, times) => {
                let (channel, times) = (self.script.named(channel), *times);
                let (subject, name) = (self.subject, self.script.name);
                let is_held = || subject.is_held(name, mode, &channel, times);
                wait(&format!("{channel} is subscribed to"), is_held)?;
            }
            Step::Left(channel) => {
                let (channel, subject) = (self.script.named(channel), self.subject);
                wait(&format!("{channel} is left"), || subject.has_left(&channel))?;
            }
            Step::Asked(count) => self.until_asked(*count)?,
            Step::AskedIf(feature, count) => {
                let features = self.seen().first().and_then(|seen| seen.field("grip-feature"));
                if features.is_some_and(|all| all.split(", ").any(|one| one == *feature)) {
                    self.until_asked(*count)?;
                }
            }
            Step::Open(head) => self.open(head)?,
            Step::Say(message) => {
                let socket = self.socket.as_mut().ok_or("no WebSocket")?;
                socket.send(message.clone()).map_err(|error| error.to_string())?;
            }
            Step::Messages(count) => {
                for _ in 0..*count {
                    self.message()?;
                }
            }
            Step::Close(code, reason) => {
                let socket = self.socket.as_mut().ok_or("no WebSocket")?;
                let frame = CloseFrame { code: (*code).into(), reason: (*reason).into() };
                socket.close(Some(frame)).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Returns the beginning of a request with the path of this script.
    fn request(&self, head: &str, version: &str) -> String {
        let mut lines = head.lines();
        let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
        let fields: String = lines.map(|line| format!("{}\r\n", line.trim())).collect();
        let name = self.script.name;
        format!("{method} /{name}{path} HTTP/{version}\r\nHost: a.example\r\n{fields}")
    }

    fn ask(&mut self, head: &str, version: &str, body: &str, is_new: bool) -> Outcome {
        self.tell_body("left");
        let begin = self.request(head, version);
        let length = match body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        if is_new {
            self.http = Some(Client::connect(self.subject.front()));
        }
        let client = self.http.as_mut().ok_or("no connection")?;
        client.send(format!("{begin}{length}\r\n{body}"));
        self.tell(format!("> {}", head.lines().next().unwrap()));
        Ok(())
    }

    fn head(&mut self) -> Outcome {
        let reply = self.http.as_mut().ok_or("no connection")?.head().map_err(failed)?;
        self.tell_head(&reply);
        self.is_chunked = reply.field("transfer-encoding").as_deref() == Some("chunked");
        self.body = Some(Vec::new());
        Ok(())
    }

    fn tell_head(&mut self, reply: &Reply) {
        let line = reply.head.lines().next().unwrap();
        self.tell(line.to_owned());
        let fields = shown_fields(&reply.head, |name| !NOT_COMPARED.contains(&name));
        fields.into_iter().for_each(|field| self.tell(field));
    }

    fn tell_reply(&mut self, reply: &Reply) {
        self.tell_head(reply);
        self.tell(format!("body: \"{}\"", reply.body.escape_ascii()));
    }

    /// Reads more of a body; `false` at its end.
    fn read_more(&mut self) -> Result<bool, String> {
        let (Some(client), Some(body)) = (&mut self.http, &mut self.body) else {
            return Err("no body".to_owned());
        };
        if self.is_chunked {
            return read_chunk(&mut client.reader, body).map(|end| end.is_none()).map_err(failed);
        }
        let mut room = [0; 1024];
        let count = client.reader.read(&mut room).map_err(failed)?;
        body.extend(&room[..count]);
        Ok(count > 0)
    }

    fn text(&mut self, text: &str) -> Outcome {
        let text = self.script.named(text);
        let has_it = |body: &Option<Vec<u8>>| {
            let body = body.as_deref().unwrap_or_default();
            String::from_utf8_lossy(body).contains(&text)
        };
        while !has_it(&self.body) {
            if !self.read_more().map_err(|error| format!("no {text:?}: {error}"))? {
                return Err(format!("the body ends without {text:?}"));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Outcome {
        while self.read_more()? {}
        self.tell_body("ends");
        Ok(())
    }

    /// Tells the body so far, if there is one, and its end.
    fn tell_body(&mut self, end: &str) {
        let Some(body) = self.body.take() else { return };
        let mut text = body.escape_ascii().to_string();
        for beat in std::mem::take(&mut self.beats) {
            let beat = beat.as_bytes().escape_ascii().to_string();
            while text.contains(&beat.repeat(2)) {
                text = text.replace(&beat.repeat(2), &beat);
            }
        }
        self.tell(format!("body: \"{text}\" {end}"));
    }

    fn control(&mut self, head: &str, body: &str) -> Outcome {
        let (address, path, own) = self.subject.control(self.script.name);
        let mut lines = head.lines();
        let method = lines.next().unwrap();
        let fields: String = lines.map(|line| format!("{}\r\n", line.trim())).collect();
        let mut client = Client::connect(&address);
        let length = match method {
            "GET" => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{own}{fields}{length}\r\n{body}"
        ));
        let reply = client.reply_to(method).map_err(failed)?;
        let field = |name: &str| reply.field(name).unwrap_or_default();
        let (kind, allow) = (field("content-type"), field("allow"));
        let kind = kind.split(';').next().unwrap();
        self.tell(format!(
            "published: {} {kind} {allow} \"{}\"",
            reply.status,
            reply.body.escape_ascii()
        ));
        Ok(())
    }

    fn open(&mut self, head: &str) -> Outcome {
        let begin = self.request(&format!("GET {head}"), "1.1");
        let mut client = Client::connect(self.subject.front());
        client.send(format!(
            "{begin}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        self.tell(format!("> open {}", head.lines().next().unwrap()));
        let mut reply = client.head().map_err(failed)?;
        if reply.status == 101 {
            self.tell_head(&reply);
            let read = client.reader.buffer().to_vec();
            let stream = client.stream;
            self.socket = Some(WebSocket::from_partially_read(stream, read, Role::Client, None));
            return Ok(());
        }
        let length: usize = reply.field("content-length").ok_or("no length")?.parse().unwrap();
        reply.body = vec![0; length];
        client.reader.read_exact(&mut reply.body).map_err(failed)?;
        self.tell_reply(&reply);
        Ok(())
    }

    fn message(&mut self) -> Outcome {
        let socket = self.socket.as_mut().ok_or("no WebSocket")?;
        let read = socket.read();
        // Pongs and the answer to an end wait for the next call.
        let _ = socket.flush();
        let line = match read {
            Ok(Message::Text(text)) => format!("text {:?}", text.as_str()),
            Ok(Message::Binary(data)) => format!("binary \"{}\"", data.escape_ascii()),
            Ok(Message::Ping(data)) => format!("ping \"{}\"", data.escape_ascii()),
            Ok(Message::Pong(data)) => format!("pong \"{}\"", data.escape_ascii()),
            Ok(Message::Close(None)) => "close".to_owned(),
            Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                format!("close {} {:?}", u16::from(code), reason.as_str())
            }
            Ok(Message::Frame(frame)) => return Err(format!("{frame:?}")),
            Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err("no message".to_owned());
            }
            Err(_) => "ends without a word".to_owned(),
        };
        self.tell(line);
        Ok(())
    }

    fn until_asked(&self, count: usize) -> Outcome {
        let what = format!("the application gets {count} requests");
        wait(&what, || self.seen().len() >= count)
    }

    /// Returns the requests of this script that the application has got, without the pongs that
    /// pushpin forwards: the client's library chooses their time.
    fn seen(&self) -> Vec<Seen> {
        let mut seen = self.subject.app().seen();
        let begin = format!("/{}/", self.script.name);
        seen.retain(|seen| target(seen).starts_with(&begin) && !seen.body.starts_with(b"PONG"));
        seen
    }

    fn asked_for(&self) -> Vec<String> {
        let key = self.subject.key(self.script.name);
        let verifier = Verifier::with_secret(key.as_bytes(), &TokenRule::default());
        let (mut lines, mut ids) = (Vec::new(), Vec::new());
        for seen in self.seen() {
            let method = seen.line().split(' ').next().unwrap();
            lines.push(format!("app: {method} {}", target(&seen)));
            let shows_features = self.script.name == FEATURES;
            let is_shown =
                |name: &str| is_compared(name) || (shows_features && name == "grip-feature");
            let mut fields = shown_fields(&seen.head, is_shown);
            // Pushpin tells of channels in any order.
            fields.sort();
            for field in fields {
                let (name, value) = field.split_once(": ").unwrap_or((&field, ""));
                let shown = match name {
                    "grip-sig" if verifier.verify(value).is_ok() => "signed".to_owned(),
                    "connection-id" => {
                        let id = value.to_owned();
                        assert!(id.len() == 36, "{id}");
                        if !ids.contains(&id) {
                            ids.push(id.clone());
                        }
                        format!("number {}", ids.iter().position(|known| *known == id).unwrap())
                    }
                    _ => value.to_owned(),
                };
                lines.push(format!("app: {name}: {shown}"));
            }
            if !seen.body.is_empty() {
                lines.push(format!("app: \"{}\"", seen.body.escape_ascii()));
            }
        }
        lines
    }
}

/// The fields of responses that are not compared: a server's own, and those of a connection.
const NOT_COMPARED: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "sec-websocket-accept",
    "server",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// Whether a field of a request to the application is compared: those of GRIP and of a script.
fn is_compared(name: &str) -> bool {
    let begins = ["meta-", "x-own"];
    let names = [
        "connection-id",
        "content-type",
        "cookie",
        "grip-last",
        "grip-sig",
        "host",
        "sec-websocket-extensions",
        "sec-websocket-protocol",
    ];
    begins.iter().any(|begin| name.starts_with(begin)) || names.contains(&name)
}

/// Returns some fields of a head, by name; those of one name are in their order.
fn shown_fields(head: &str, is_shown: impl Fn(&str) -> bool) -> Vec<String> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut shown: Vec<(String, &str)> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .filter(|(name, _)| is_shown(name))
        .collect();
    shown.sort_by(|one, other| one.0.cmp(&other.0));
    shown.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) -> Outcome {
    let end = Instant::now() + LIMIT;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("never: {what}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
