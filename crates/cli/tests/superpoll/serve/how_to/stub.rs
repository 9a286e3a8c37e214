//! A stub of an application: it answers requests of HTTP/1.1 as it is told, and echoes WebSockets.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Answer = dyn Fn(&str) -> (u16, String) + Send + Sync;

/// An application, which ends with this.
pub(super) struct Stub {
    pub(super) address: SocketAddr,
    has_ended: Arc<AtomicBool>,
}

impl Stub {
    /// Starts one that answers the head of each request with a status and a body.
    pub(super) fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (ended, answer): (_, Arc<Answer>) = (has_ended.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (answer, ended) = (answer.clone(), ended.clone());
                thread::spawn(move || serve(stream, &answer, &ended));
            }
        });
        Stub { address, has_ended }
    }

    /// Starts one whose answers repeat the head of the request.
    pub(super) fn echo() -> Stub {
        Stub::start(|head| (200, head.to_owned()))
    }

    /// Starts one whose answers are its name.
    pub(super) fn named(name: &'static str) -> Stub {
        Stub::start(move |_| (200, name.to_owned()))
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Its thread sees that with the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, answer: &Arc<Answer>, ended: &AtomicBool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let Some(head) = head(&mut reader) else { return };
        if ended.load(Ordering::Relaxed) {
            return;
        }
        if let Some(key) = field(&head, "sec-websocket-key") {
            return echo(stream, key);
        }
        let (status, body) = answer(&head);
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n{body}");
        let text = if status == 204 { "HTTP/1.1 204 No Content\r\n\r\n".to_owned() } else { text };
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads a head without the line behind it; none at the end.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Returns a field of a head.
pub(super) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Sends each message of a WebSocket back.
fn echo(mut stream: TcpStream, key: &str) {
    let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let role = tungstenite::protocol::Role::Server;
    let mut socket = tungstenite::WebSocket::from_raw_socket(stream, role, None);
    while let Ok(message) = socket.read() {
        if message.is_text() && socket.send(message).is_err() {
            return;
        }
    }
}
