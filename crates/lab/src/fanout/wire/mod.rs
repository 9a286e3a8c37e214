//! The bytes that arrive on a subscriber's connection, up to the messages in them.
//!
//! A unit is a head, a frame, a chunk or a whole answer, by the protocol. Complete units are parsed
//! where they were read; only the beginning of a unit whose rest has not arrived is copied. A
//! message usually arrives as one unit in one read, so thousands of subscribers have no buffer.

use crate::fanout::Transport;

mod events;
mod head;
mod poll;
mod websocket;

use events::Events;
pub(crate) use head::{Head, chunk};
pub(super) use poll::Form;
use poll::LongPoll;
pub(crate) use websocket::{FIELDS, check, frame};

/// The longest unit of which only a part has arrived.
const LONGEST: usize = 1 << 17;

/// A function that takes the text of a message.
pub(crate) type Hear<'a> = dyn FnMut(&[u8]) -> Result<(), String> + 'a;

/// The request that begins a subscription, and the form of the messages that follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    /// The protocol.
    pub transport: Transport,
    /// The path of the channel.
    pub path: &'static str,
    /// The way to ask for the next message, for long-polls.
    pub form: Form,
}

impl Subscription {
    /// Returns the first request.
    pub(super) fn request(&self) -> Vec<u8> {
        let path = self.path;
        let fields = match self.transport {
            Transport::WebSocket => websocket::FIELDS,
            Transport::Events => "accept: text/event-stream\r\n",
            Transport::LongPoll => "",
        };
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n").into_bytes()
    }
}

/// A subscriber's connection.
#[derive(Debug)]
pub(super) struct Wire {
    kind: Kind,
    /// The beginning of a unit.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum Kind {
    /// A WebSocket or a stream of events whose head has not come.
    Head(Transport),
    WebSocket,
    Events(Events),
    LongPoll(LongPoll),
}

impl Wire {
    /// Creates the connection of a subscription whose first request was sent.
    pub(super) fn new(subscription: &Subscription) -> Wire {
        let kind = match subscription.transport {
            Transport::LongPoll => {
                Kind::LongPoll(LongPoll::new(subscription.path, subscription.form))
            }
            transport => Kind::Head(transport),
        };
        Wire { kind, partial: Vec::new() }
    }

    /// Whether the server has accepted the subscription; a long-poll's acceptance does not show.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.kind, Kind::Head(_))
    }

    /// Takes bytes that arrived, and calls `hear` with each message among them. Returns the bytes
    /// to send, which are often none.
    pub(super) fn take(&mut self, bytes: &[u8], hear: &mut Hear<'_>) -> Result<Vec<u8>, String> {
        let mut reply = Vec::new();
        if self.partial.is_empty() {
            let used = self.units(bytes, hear, &mut reply)?;
            self.partial.extend_from_slice(&bytes[used..]);
        } else {
            let mut all = std::mem::take(&mut self.partial);
            all.extend_from_slice(bytes);
            let used = self.units(&all, hear, &mut reply)?;
            all.drain(..used);
            if !all.is_empty() {
                self.partial = all;
            }
        }
        if self.partial.len() > LONGEST {
            return Err(format!("an answer or a frame did not end within {LONGEST} bytes"));
        }
        Ok(reply)
    }

    /// Parses the complete units at the beginning of some bytes, and returns their length.
    fn units(
        &mut self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let mut used = 0;
        while used < bytes.len() {
            match self.unit(&bytes[used..], hear, reply)? {
                0 => break,
                count => used += count,
            }
        }
        Ok(used)
    }

    /// Parses one unit and returns its length; zero if it is not complete.
    fn unit(
        &mut self,
        bytes: &[u8],
        hear: &mut Hear<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<usize, String> {
        match &mut self.kind {
            Kind::Head(transport) => {
                let Some(head) = Head::parse(bytes)? else { return Ok(0) };
                self.kind = match transport {
                    Transport::WebSocket => {
                        websocket::check(&head)?;
                        Kind::WebSocket
                    }
                    _ => Kind::Events(Events::new(&head)?),
                };
                Ok(head.end)
            }
            Kind::WebSocket => websocket::frame(bytes, hear, reply),
            Kind::Events(events) => events.take(bytes, hear),
            Kind::LongPoll(poll) => poll.take(bytes, hear, reply),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the messages and the reply of bytes that arrive at once, and checks that they are
    /// the same when the bytes arrive one by one.
    pub(super) fn heard(
        subscription: &Subscription,
        bytes: &[u8],
    ) -> Result<(Vec<String>, Vec<u8>), String> {
        let of = |step: usize| {
            let (mut wire, mut all, mut replies) =
                (Wire::new(subscription), Vec::new(), Vec::new());
            for part in bytes.chunks(step) {
                let reply = wire.take(part, &mut |text| {
                    all.push(String::from_utf8_lossy(text).into_owned());
                    Ok(())
                })?;
                replies.extend(reply);
            }
            Ok((all, replies))
        };
        let whole: Result<_, String> = of(bytes.len().max(1));
        for step in [1, 2, 7] {
            assert_eq!(of(step).is_ok(), whole.is_ok());
            if let (Ok(parts), Ok(whole)) = (of(step), &whole) {
                assert_eq!(&parts, whole);
            }
        }
        whole
    }

    pub(super) fn subscription(transport: Transport, form: Form) -> Subscription {
        Subscription { transport, path: "/channel", form }
    }

    #[test]
    fn a_unit_without_an_end_is_given_up() {
        let mut wire = Wire::new(&subscription(Transport::LongPoll, Form::Plain));
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n";
        wire.take(head, &mut |_| Ok(())).unwrap();
        let mut parts = (0..20).map(|_| wire.take(&[b'x'; 10_000], &mut |_| Ok(())));
        assert!(parts.any(|taken| taken.is_err_and(|why| why.contains("did not end"))));
    }
}
