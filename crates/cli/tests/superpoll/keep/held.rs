//! Connections that an application holds, while the server is killed and upgraded, and the
//! application restarted: no item is lost or doubled, and no client has to come again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use superpoll_test_support::http1::{field, read_body, read_head};
use tungstenite::{ClientRequestBuilder, Message, client};

use super::http2::{Client, DATA, END, Kind, RST_STREAM, Table, WINDOW_UPDATE, settings};
use super::succession::Nursery;
use crate::stage::{PATIENCE, connect, free_port, until};

const KEY: &str = "a secret of at least thirty-two bytes";
const EVENTS: &str = "application/websocket-events";

/// The number of the last item, which the application knows before anybody else.
type Last = Arc<AtomicU64>;

/// An application.
struct App {
    port: u16,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl App {
    fn start(port: u16, last: &Last) -> App {
        let mut listening = None;
        until("the application listens", || {
            listening = TcpListener::bind(("127.0.0.1", port)).ok();
            listening.is_some()
        });
        let (listener, ended) = (listening.unwrap(), Arc::new(AtomicBool::new(false)));
        let (last, has_ended) = (last.clone(), ended.clone());
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if has_ended.load(Ordering::SeqCst) {
                    return;
                }
                let last = last.clone();
                // A client may have gone.
                thread::spawn(move || stream.and_then(|stream| answer(stream, &last)));
            }
        });
        App { port, ended, accepting: Some(accepting) }
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers a request; each has a connection of its own.
fn answer(stream: TcpStream, last: &Last) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let head = read_head(&mut reader)?;
    let body = read_body(&mut reader, &head)?.map_or_else(Vec::new, |(body, _)| body);
    let path = head.split(' ').nth(1).unwrap();
    let (fields, body) = match path.split_once("?since=") {
        _ if path.ends_with("/ws") && body.starts_with(b"OPEN") => {
            let subscribe = r#"c:{"type":"subscribe","channel":"news"}"#;
            let events = format!("OPEN\r\nTEXT {:x}\r\n{subscribe}\r\n", subscribe.len());
            (format!("Content-Type: {EVENTS}\r\nSec-WebSocket-Extensions: grip\r\n"), events)
        }
        _ if path.ends_with("/ws") => {
            let text = String::from_utf8(body).unwrap();
            let said = text.split("\r\n").nth(1).unwrap_or("");
            let reply = format!("m:echo {said}");
            let events = match text.starts_with("TEXT") {
                true => format!("TEXT {:x}\r\n{reply}\r\n", reply.len()),
                false => String::new(),
            };
            (format!("Content-Type: {EVENTS}\r\n"), events)
        }
        Some((_, since)) => {
            let (since, last): (u64, u64) = (since.parse().unwrap(), last.load(Ordering::SeqCst));
            match since < last {
                true => (String::new(), format!("{last}")),
                false => {
                    let channel = format!("news; prev-id={since}");
                    let hold = "Grip-Hold: response\r\nGrip-Timeout: 600\r\n";
                    (format!("{hold}Grip-Channel: {channel}\r\n"), "late".to_owned())
                }
            }
        }
        None => ("Grip-Hold: stream\r\nGrip-Channel: news\r\n".to_owned(), "begin\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n");
    (&stream).write_all((head + &body).as_bytes())
}

/// Publishes an item until the server has taken it.
fn publish(address: SocketAddr, number: u64) {
    let previous = number - 1;
    let items = format!(
        r#"{{"items":[{{"channel":"news","id":"{number}","prev-id":"{previous}","no-seq":true,"formats":{{
           "http-stream":{{"content":"{number}\n"}},"http-response":{{"body":"{number}"}},
           "ws-message":{{"content":"{number}"}}}}}}]}}"#
    );
    let length = items.len();
    let request = format!(
        "POST /publish/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{items}"
    );
    until("the item is published", || {
        let Ok(mut stream) = TcpStream::connect(address) else { return false };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reply = String::new();
        stream.write_all(request.as_bytes()).is_ok()
            && stream.read_to_string(&mut reply).is_ok()
            && reply.starts_with("HTTP/1.1 200")
    });
}

/// What a client has got: the last number, and mistakes.
#[derive(Clone, Default, Debug)]
struct Got {
    last: Arc<AtomicU64>,
    mistakes: Arc<Mutex<Vec<String>>>,
}

impl Got {
    /// Notes the next number.
    fn next(&self, number: u64) {
        let before = self.last.swap(number, Ordering::SeqCst);
        if before != 0 && number != before + 1 {
            self.mistake(format!("{number} after {before}"));
        }
    }

    fn mistake(&self, what: String) {
        self.mistakes.lock().unwrap().push(what);
    }
}

/// A stream, which has one connection.
fn stream(address: SocketAddr, got: Got) {
    let mut stream = connect(address);
    stream.write_all(b"GET /app/stream HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader).unwrap();
    assert_eq!(field(&head, "transfer-encoding").as_deref(), Some("chunked"));
    thread::spawn(move || {
        let mut line = String::new();
        loop {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return got.mistake("a stream has ended".to_owned()),
                Ok(_) => {}
            }
            let mut data = vec![0; usize::from_str_radix(line.trim(), 16).unwrap_or(0) + 2];
            if reader.read_exact(&mut data).is_err() {
                return got.mistake("a stream was cut".to_owned());
            }
            match std::str::from_utf8(&data).unwrap().trim() {
                "begin" => {}
                number => match number.parse() {
                    Ok(number) => got.next(number),
                    Err(_) => return got.mistake(format!("no item: {number:?}")),
                },
            }
        }
    });
}

/// Long-polls, one after another. A connection that is not parked may be lost with a server.
fn polls(address: SocketAddr, got: Got, ended: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut since = 0;
        while !ended.load(Ordering::SeqCst) {
            let Ok(stream) = TcpStream::connect(address) else { continue };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let request = format!("GET /app/lp?since={since} HTTP/1.1\r\nHost: a\r\n\r\n");
                if (&stream).write_all(request.as_bytes()).is_err() {
                    break;
                }
                let Ok(head) = read_head(&mut reader) else { break };
                let Ok(Some((body, _))) = read_body(&mut reader, &head) else { break };
                if !head.starts_with("HTTP/1.1 200") {
                    // The application is away.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
                // A server that ends answers a poll that came too late for the next one.
                if body == b"late" {
                    continue;
                }
                let number: u64 = String::from_utf8(body).unwrap().parse().unwrap();
                if number <= since {
                    got.mistake(format!("the answer {number} to a poll since {since}"));
                }
                since = number;
                got.last.store(number, Ordering::SeqCst);
            }
        }
    });
}

/// A WebSocket, which has one connection. Returns a function that says something to it.
fn socket(address: SocketAddr, got: Got, echoes: Arc<AtomicU64>) -> TcpStream {
    let stream = connect(address);
    let writer = stream.try_clone().unwrap();
    let uri = format!("ws://{address}/app/ws").parse().unwrap();
    let (mut socket, _) = client(ClientRequestBuilder::new(uri), stream).unwrap();
    thread::spawn(move || {
        loop {
            match socket.read() {
                Ok(Message::Text(text)) if text.starts_with("echo ") => {
                    echoes.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Message::Text(text)) => match text.parse() {
                    Ok(number) => got.next(number),
                    Err(_) => return got.mistake(format!("no item: {text:?}")),
                },
                Ok(_) => {}
                Err(error) => return got.mistake(format!("a WebSocket: {error}")),
            }
        }
    });
    writer
}

/// A connection of HTTP/2 with two streams and a WebSocket.
fn http2(mut client: Client, got: [Got; 3]) {
    // All that comes, so that the client says nothing while the server ends.
    client.send(WINDOW_UPDATE, 0, 0, &[0x3f, 0, 0, 0]);
    let kinds = [Kind::Events, Kind::Events, Kind::Socket];
    let streams = kinds.map(|kind| match kind {
        Kind::Socket => client.ask("/app/ws", kind, 0),
        _ => client.ask("/app/stream", kind, 0),
    });
    for stream in streams {
        client.send(WINDOW_UPDATE, 0, stream, &[0x3f, 0, 0, 0]);
    }
    thread::spawn(move || {
        let mut all: [Vec<u8>; 3] = Default::default();
        loop {
            let (frame, flags, of, payload) = client.receive();
            let Some(place) = streams.iter().position(|&stream| stream == of) else { continue };
            let (kind, got, rest) = (kinds[place], &got[place], &mut all[place]);
            if frame == RST_STREAM || flags & END > 0 {
                return got.mistake(format!("a stream of HTTP/2 for {kind:?} has ended"));
            }
            if frame == DATA {
                rest.extend_from_slice(&payload);
            }
            while let Some(text) = next_text(kind, rest) {
                match text.parse() {
                    _ if text == "begin" => {}
                    Ok(number) => got.next(number),
                    Err(_) => return got.mistake(format!("no item: {text:?}")),
                }
            }
        }
    });
}

/// Takes the next line of a stream, or the next message of a WebSocket.
fn next_text(kind: Kind, bytes: &mut Vec<u8>) -> Option<String> {
    let (from, to) = match (kind, &bytes[..]) {
        (Kind::Socket, [0x81, length, ..]) => (2, 2 + usize::from(*length)),
        (Kind::Socket, _) => return None,
        _ => (0, 1 + bytes.iter().position(|&byte| byte == b'\n')?),
    };
    let text = String::from_utf8(bytes.get(from..to)?.to_vec()).unwrap();
    bytes.drain(..to);
    Some(text.trim_end().to_owned())
}

/// Sends a text as a frame of a client, whose mask is zero.
fn say(mut stream: &TcpStream, text: &str) {
    let head = [0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
    stream.write_all(&[&head[..], text.as_bytes()].concat()).unwrap();
}

#[test]
fn held_connections_outlive_kills_upgrades_and_restarts_of_their_application() {
    let rounds = std::env::var("SUPERPOLL_TEST_ROUNDS");
    let rounds: usize = rounds.map_or(2, |rounds| rounds.parse().unwrap());
    let (last, port) = (Last::default(), free_port());
    let nursery = Nursery::encrypted(&format!(
        "[[hosts.routes]]\npath = \"/app\"\n\
         proxy = {{ upstream = \"app\", grip = {{ key = {KEY:?} }} }}\n\
         [[hosts.routes]]\npath = \"/publish\"\ngrip = {{ key = {KEY:?} }}\n\
         [upstreams.app]\nservers = [{{ address = \"127.0.0.1:{port}\" }}]\n"
    ));
    let mut app = App::start(port, &last);
    let mut server = nursery.server(&[]);
    let address = nursery.at();
    let flag = || Arc::new(AtomicBool::new(false));
    let (ended, rests, echoes) = (flag(), flag(), Arc::new(AtomicU64::new(0)));
    let all: Vec<Got> = (0..36).map(|_| Got::default()).collect();
    let (of_http1, of_http2) = all.split_at(24);
    let (config, encrypted) = settings(&nursery);
    let mut sockets = Vec::new();
    for (index, got) in of_http1.iter().cloned().enumerate() {
        match index % 3 {
            0 => stream(address, got),
            1 => polls(address, got, ended.clone()),
            _ => sockets.push(socket(address, got, echoes.clone())),
        }
    }
    let each = of_http2.chunks_exact(3).map(|each| each.to_vec().try_into().unwrap());
    for (index, got) in each.enumerate() {
        let client = match index % 2 {
            0 => Client::new(Box::new(connect(address)), false, Table::Unused),
            _ => Client::encrypted(&config, encrypted, Table::Unused),
        };
        http2(client, got);
    }
    let connections = of_http1.len() + of_http2.len() / 3;
    let publisher = {
        let (last, ended, rests) = (last.clone(), ended.clone(), rests.clone());
        thread::spawn(move || {
            let mut number = 0;
            while !ended.load(Ordering::SeqCst) {
                number += 1;
                last.store(number, Ordering::SeqCst);
                publish(address, number);
                thread::sleep(Duration::from_millis(2));
                while rests.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        })
    };
    let caught_up = |what: &str| {
        rests.store(false, Ordering::SeqCst);
        let target = last.load(Ordering::SeqCst) + 1;
        until(what, || {
            for got in &all {
                let mistakes = got.mistakes.lock().unwrap();
                assert!(mistakes.is_empty(), "{what}: {mistakes:?}");
            }
            all.iter().all(|got| got.last.load(Ordering::SeqCst) >= target)
        });
    };
    caught_up("all clients have items");
    for round in 0..rounds {
        app.stop();
        thread::sleep(Duration::from_millis(20));
        app = App::start(port, &last);
        caught_up(&format!("round {round}: the application is there again"));
        for upgrades in [false, true] {
            // A connection is with the keeper when it has rested for a second.
            rests.store(true, Ordering::SeqCst);
            nursery.until_held(connections);
            rests.store(false, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(30));
            server = nursery.next(server, upgrades);
            caught_up(&format!("round {round}: another server, by an upgrade: {upgrades}"));
        }
        let heard = echoes.load(Ordering::SeqCst) + sockets.len() as u64;
        sockets.iter().for_each(|socket| say(socket, "hello"));
        until("the application has answered all WebSockets", || {
            echoes.load(Ordering::SeqCst) == heard
        });
        caught_up(&format!("round {round}: the WebSockets go on"));
    }
    ended.store(true, Ordering::SeqCst);
    publisher.join().unwrap();
    server.signal("TERM");
    server.ended();
}
