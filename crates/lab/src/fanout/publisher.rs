//! The publisher: one `POST` for each message, on a connection that stays open if the server lets
//! it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::json;

use crate::error::{Error, Result};
use crate::fanout::wire::Head;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The way to publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publishing {
    /// The port, which may be another one than that of the subscribers.
    pub port: u16,
    /// The path.
    pub path: &'static str,
    /// The request's body for a message.
    pub body: Body,
}

/// The body of a request that publishes a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// The message.
    Text,
    /// The message in every form that pushpin has, as JSON.
    Pushpin,
}

impl Body {
    fn of(self, text: &str) -> String {
        match self {
            Body::Text => text.to_owned(),
            Body::Pushpin => {
                let formats = json!({
                    "http-stream": { "content": format!("data: {text}\n\n") },
                    "http-response": { "body": text },
                    "ws-message": { "content": text },
                });
                json!({ "items": [{ "channel": "test", "formats": formats }] }).to_string()
            }
        }
    }
}

/// A publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    subject: &'static str,
    publishing: Publishing,
    stream: Option<TcpStream>,
}

impl Publisher {
    /// Creates a publisher.
    pub(super) fn new(subject: &'static str, publishing: Publishing) -> Publisher {
        Publisher { subject, publishing, stream: None }
    }

    /// Publishes a message, and waits until the server has confirmed it.
    pub(super) fn publish(&mut self, text: &str) -> Result<()> {
        let Publishing { path, body, .. } = self.publishing;
        let body = body.of(text);
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.exchange(request.as_bytes()).map_err(|error| Error::Work {
            subject: self.subject,
            found: format!("it did not take a message: {error}"),
        })
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.publishing.port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream
            }
        };
        stream.write_all(request)?;
        if !confirmed(&mut stream)? {
            self.stream = Some(stream);
        }
        Ok(())
    }
}

/// Reads an answer that confirms a message; returns whether the connection ends with it.
fn confirmed(stream: &mut impl Read) -> io::Result<bool> {
    let (mut answer, mut room) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(head) = Head::parse(&answer).map_err(io::Error::other)? {
            if !(200..300).contains(&head.code) {
                let text = String::from_utf8_lossy(&answer);
                return Err(io::Error::other(format!("it answered {text:?}")));
            }
            if answer.len() >= head.end + head.length.unwrap_or(0) {
                return Ok(head.closes);
            }
        }
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&room[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_published_when_the_answer_is_complete_and_says_so() {
        let mut good = &b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nokHTTP"[..];
        assert!(!confirmed(&mut good).unwrap());
        let mut last = &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"[..];
        assert!(confirmed(&mut last).unwrap());
        let mut cut = &b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\no"[..];
        assert_eq!(confirmed(&mut cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut refused = &b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"[..];
        assert!(confirmed(&mut refused).unwrap_err().to_string().contains("503"));
    }

    #[test]
    fn pushpin_is_given_every_form_of_a_message() {
        let body = Body::Pushpin.of("a \"b\"");
        assert!(body.contains(r#""content":"a \"b\"""#), "{body}");
        assert!(body.contains(r#""content":"data: a \"b\"\n\n""#), "{body}");
    }
}
