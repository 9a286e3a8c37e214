//! Long-polls: an answer for each message, after which the next request is sent.

use std::borrow::Cow;

use serde::Deserialize;

use super::Hear;
use super::head::{self, Head};

/// The way in which a server is asked for the message after the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fanout) enum Form {
    /// Superpoll: messages as JSON, with the number that the next request gives in `?after=`.
    Superpoll,
    /// nchan: `If-Modified-Since` and `If-None-Match` with the fields of the last answer.
    Nchan,
    /// The laboratory's own servers: `?after=` with the answer's field `Next`.
    Numbered,
    /// The same request again, after which the server sends only later messages.
    Plain,
}

/// An answer of Superpoll.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    next: u64,
    #[serde(default)]
    missed: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// The long-polls on a connection.
#[derive(Debug)]
pub(super) struct LongPoll {
    path: &'static str,
    form: Form,
}

impl LongPoll {
    /// Creates the long-polls of a connection on which the first request was sent.
    pub(super) fn new(path: &'static str, form: Form) -> LongPoll {
        LongPoll { path, form }
    }

    /// Takes the answer at the beginning of some bytes and returns its length; zero if the answer
    /// is not complete. The next request is added to the reply.
    pub(super) fn take(
        &self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let Some(head) = Head::parse(bytes)? else { return Ok(0) };
        if head.code != 200 || head.closes {
            return Err(format!(
                "a long-poll was answered {}{}",
                head.code,
                if head.closes { ", and its connection ends" } else { "" }
            ));
        }
        let rest = &bytes[head.end..];
        let (body, length) = match head.length {
            Some(length) => match rest.get(..length) {
                Some(body) => (Cow::Borrowed(body), length),
                None => return Ok(0),
            },
            None if head.is_chunked => match dechunked(rest)? {
                Some((body, length)) => (Cow::Owned(body), length),
                None => return Ok(0),
            },
            None => return Err("an answer to a long-poll has no length".to_owned()),
        };
        let (path, mut query, mut fields) = (self.path, String::new(), String::new());
        match self.form {
            Form::Superpoll => {
                let text = || String::from_utf8_lossy(&body);
                let answer: Answer<'_> = serde_json::from_slice(&body)
                    .map_err(|error| format!("an answer is {:?}: {error}", text()))?;
                if answer.missed {
                    return Err("messages were missed".to_owned());
                }
                answer.messages.iter().try_for_each(|one| hear(one.data.as_bytes()))?;
                query = format!("?after={}", answer.next);
            }
            Form::Nchan => {
                hear(&body)?;
                let (since, tag) = (head.last_modified, head.etag);
                fields = format!("if-modified-since: {since}\r\nif-none-match: {tag}\r\n");
            }
            Form::Numbered => {
                hear(&body)?;
                query = format!("?after={}", head.next);
            }
            Form::Plain => hear(&body)?,
        }
        let request = format!("GET {path}{query} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
        reply.extend_from_slice(request.as_bytes());
        Ok(head.end + length)
    }
}

/// Returns a body that comes in chunks, and the length of all chunks; `None` if it is not complete.
fn dechunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut used) = (Vec::new(), 0);
    while let Some((data, length)) = head::chunk(&bytes[used..])? {
        used += length;
        if data.is_empty() {
            return Ok(Some((body, used)));
        }
        body.extend_from_slice(data);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::Transport;
    use crate::fanout::wire::tests::{heard, subscription};

    fn of(form: Form, answer: &str) -> Result<(Vec<String>, String), String> {
        let subscription = subscription(Transport::LongPoll, form);
        let (texts, reply) = heard(&subscription, answer.as_bytes())?;
        Ok((texts, String::from_utf8(reply).unwrap()))
    }

    #[test]
    fn the_next_request_asks_for_what_comes_after_the_answer() {
        let body =
            r#"{"messages":[{"id":4,"data":"a"},{"id":5,"data":"\"b"}],"next":5,"epoch":"x"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let (texts, request) = of(Form::Superpoll, &(head + body)).unwrap();
        assert_eq!(texts, ["a", "\"b"]);
        assert_eq!(request, "GET /channel?after=5 HTTP/1.1\r\nhost: localhost\r\n\r\n");

        let answer =
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nLast-Modified: Tue\r\nEtag: 3\r\n\r\na";
        let (texts, request) = of(Form::Nchan, answer).unwrap();
        assert_eq!(texts, ["a"]);
        assert!(request.contains("\r\nif-modified-since: Tue\r\nif-none-match: 3\r\n\r\n"));

        let answer =
            "HTTP/1.1 200 OK\r\nnext: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        let (texts, request) = of(Form::Numbered, &answer.repeat(2)).unwrap();
        assert_eq!(texts, ["a", "a"]);
        assert_eq!(request.matches("GET /channel?after=9 ").count(), 2);
    }

    #[test]
    fn anything_but_messages_is_refused() {
        for (form, answer, part) in [
            (Form::Plain, "HTTP/1.1 204 No\r\n\r\n", "204"),
            (
                Form::Plain,
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                "ends",
            ),
            (Form::Plain, "HTTP/1.1 200 OK\r\n\r\n", "no length"),
            (Form::Superpoll, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "messages"),
            (
                Form::Superpoll,
                "HTTP/1.1 200 OK\r\ncontent-length: 40\r\n\r\n{\"messages\":[],\"next\":1,\"missed\":true}  ",
                "missed",
            ),
        ] {
            let error = of(form, answer).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
