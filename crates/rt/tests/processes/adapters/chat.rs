//! The chat.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use superpoll_rt::BackendKind;

use super::example::Example;

/// A test that hangs fails.
const LIMIT: Duration = Duration::from_secs(60);

struct Client(BufReader<TcpStream>);

impl Client {
    fn join(example: &Example) -> Client {
        let stream = example.connect();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client(BufReader::new(stream))
    }

    fn say(&self, text: &str) {
        self.0.get_ref().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }
}

#[test]
fn a_line_goes_to_all_others_and_the_chat_ends_gracefully() {
    for backend in BackendKind::available() {
        let mut example = Example::start("chat", backend);
        let mut first = Client::join(&example);
        let mut second = Client::join(&example);
        // Connections are accepted in order, so a client that is heard is known, and so is the
        // first.
        second.say("he");
        second.say("llo\n");
        assert_eq!(first.line(), "hello\n");
        let mut third = Client::join(&example);
        third.say("one\ntwo\n");
        for client in [&mut first, &mut second] {
            assert_eq!((client.line(), client.line()), ("one\n".into(), "two\n".into()));
        }
        drop(first);
        second.say("bye\n");
        assert_eq!(third.line(), "bye\n");
        example.signal("TERM");
        for mut client in [second, third] {
            let mut rest = String::new();
            client.0.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "the chat is over\n");
        }
        example.output_until("the chat is over");
        assert!(example.wait().success());
    }
}

#[test]
fn a_client_with_endless_lines_or_one_that_does_not_read_costs_the_others_nothing() {
    let example = Example::start("chat", BackendKind::Epoll);
    let (mut listener, endless) = (Client::join(&example), Client::join(&example));
    endless.say(&"x".repeat(5000));
    let mut end = String::new();
    // The connection may be reset, because not all that it sent was read.
    let _ = (&endless.0.into_inner()).read_to_string(&mut end);
    assert_eq!(end, "");
    let (silent, speaker) = (Client::join(&example), Client::join(&example));
    // Far more than the buffers of the kernel and 64 lines hold, and never more than 16 lines that
    // the client that reads has not read.
    let line = format!("{}\n", "y".repeat(4000));
    for _ in 0..300 {
        speaker.say(&line.repeat(16));
        for _ in 0..16 {
            assert_eq!(listener.line().len(), line.len());
        }
    }
    // The chat has closed the connection of the client that did not read.
    let mut rest = Vec::new();
    let _ = silent.0.into_inner().read_to_end(&mut rest);
    assert!(rest.len() < 300 * 16 * line.len(), "{}", rest.len());
}
