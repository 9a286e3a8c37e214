//! The answer to a long-poll, in JSON: small ones in memory, large ones made while they are sent.
//!
//! Without this module, a client that asks for the whole history and reads none of it would hold a
//! copy of it, and so would each further client of that kind. A large answer is made some kilobytes
//! at a time from the history that all share. It does not keep messages that the history has
//! dropped meanwhile: the answer ends before them, and says so by its `next`.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::str;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use data_encoding::BASE64;
use http_body::Frame;

use super::cursor::Cursor;
use super::history::Since;
use super::hub::Hub;
use super::message::Message;
use superpoll_http::body::PollFrame;

/// From this many bytes of messages on, an answer is made while it is sent.
const LARGE: usize = 32 << 10;

/// The bytes that are made at a time, give or take a part of a message.
const PIECE: usize = 16 << 10;

/// The bytes of a message that are written at a time, a multiple of three for base64.
const PART: usize = 12 << 10;

/// Whether messages make a large answer.
pub(super) fn is_large(messages: &[Message]) -> bool {
    messages.iter().map(|message| message.data.len()).sum::<usize>() >= LARGE
}

/// Returns messages as JSON, with the place that their reader then has.
pub(super) fn json(messages: &[Message], missed: bool, next: Cursor) -> Bytes {
    let mut json = Vec::new();
    begin(&mut json);
    let valid = messages.iter().filter(|message| !message.is_expired());
    for (index, message) in valid.enumerate() {
        let mut writing = Writing::begin(&mut json, message.clone(), index == 0);
        while writing.go_on(&mut json) {}
    }
    end(&mut json, missed, next);
    json.into()
}

fn begin(json: &mut Vec<u8>) {
    json.extend_from_slice(b"{\"messages\":[");
}

fn end(json: &mut Vec<u8>, missed: bool, next: Cursor) {
    let missed = if missed { ",\"missed\":true" } else { "" };
    let epoch = next.epoch.unwrap_or(0);
    let end = format!("],\"next\":{},\"epoch\":\"{epoch:x}\"{missed}}}\n", next.id);
    json.extend_from_slice(end.as_bytes());
}

/// A message that was written in part.
struct Writing {
    message: Message,
    is_text: bool,
    at: usize,
}

impl Writing {
    fn begin(json: &mut Vec<u8>, message: Message, is_first: bool) -> Writing {
        let is_text = message.is_text && str::from_utf8(&message.data).is_ok();
        let comma = if is_first { "" } else { "," };
        let name = if is_text { "data" } else { "base64" };
        json.extend_from_slice(format!("{comma}{{\"id\":{}", message.id).as_bytes());
        if let Some(event) = message.event() {
            json.extend_from_slice(b",\"event\":");
            // Neither the text nor the memory can refuse it.
            let _ = serde_json::to_writer(&mut *json, event);
        }
        json.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
        Writing { message, is_text, at: 0 }
    }

    /// Writes another part, and returns whether there is more to write.
    fn go_on(&mut self, json: &mut Vec<u8>) -> bool {
        let data = &self.message.data;
        let mut end = data.len().min(self.at + PART);
        // A character is not cut in two: each byte after its first has these two bits.
        while self.is_text && end < data.len() && data[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let part = &data[self.at..end];
        self.at = end;
        if self.is_text {
            let quote = json.len();
            // Neither the text nor the memory can refuse it.
            let _ = serde_json::to_writer(&mut *json, str::from_utf8(part).unwrap_or_default());
            json.pop();
            json.remove(quote);
        } else {
            json.extend_from_slice(BASE64.encode(part).as_bytes());
        }
        let has_more = end < data.len();
        if !has_more {
            json.extend_from_slice(b"\"}");
        }
        has_more
    }
}

/// A large answer.
pub(super) struct Replay {
    hub: Arc<Hub>,
    /// Messages that the answer has already.
    queue: VecDeque<Message>,
    /// The next message that it takes from the history, and the last one.
    rest: Option<(u64, u64)>,
    writing: Option<Writing>,
    missed: bool,
    /// The last message that was written or passed over, if there is one.
    written: Option<u64>,
    has_messages: bool,
    last: u64,
    has_begun: bool,
    is_over: bool,
}

impl Replay {
    /// Creates an answer of all messages after a place, taken from the history bit by bit.
    pub(super) fn from_history(hub: &Arc<Hub>, since: &Since) -> Replay {
        let rest = since.messages.first().map(|first| (first.id, since.last));
        Replay { rest, ..Replay::given(hub, VecDeque::new(), since.missed, since.last) }
    }

    /// Creates an answer of messages that the history may not have; `last` is the last of them.
    pub(super) fn given(
        hub: &Arc<Hub>,
        queue: VecDeque<Message>,
        missed: bool,
        last: u64,
    ) -> Replay {
        Replay {
            hub: hub.clone(),
            queue,
            rest: None,
            writing: None,
            missed,
            written: None,
            has_messages: false,
            last,
            has_begun: false,
            is_over: false,
        }
    }

    fn next(&mut self) -> Option<Message> {
        if let Some(message) = self.queue.pop_front() {
            return Some(message);
        }
        let (from, last) = self.rest.take()?;
        // One message alone.
        let message = self.hub.kept(from, last, 0).messages.pop();
        let is_next = message.as_ref().is_some_and(|message| message.id == from);
        if !is_next && self.written.is_some() {
            // The reader asks for the messages that follow, and learns then that some of them are
            // missing.
            return None;
        }
        self.missed |= !is_next;
        self.rest = message.as_ref().map(|message| (message.id + 1, last));
        self.rest.take_if(|(next, last)| next > last);
        message
    }
}

impl http_body::Body for Replay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> PollFrame {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let mut json = Vec::with_capacity(2 * PIECE);
        if !std::mem::replace(&mut this.has_begun, true) {
            begin(&mut json);
        }
        while json.len() < PIECE && !this.is_over {
            if let Some(writing) = &mut this.writing {
                if !writing.go_on(&mut json) {
                    this.written = Some(writing.message.id);
                    this.writing = None;
                }
            } else if let Some(message) = this.next() {
                if message.is_expired() {
                    this.written = Some(message.id);
                    continue;
                }
                let is_first = !std::mem::replace(&mut this.has_messages, true);
                this.writing = Some(Writing::begin(&mut json, message, is_first));
            } else {
                let id = this.written.unwrap_or(this.last);
                end(&mut json, this.missed, Cursor { id, epoch: Some(this.hub.epoch()) });
                this.is_over = true;
            }
        }
        Poll::Ready(Some(Ok(Frame::data(json.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use serde_json::Value;
    use superpoll_config::Channel;

    use super::*;

    fn message(id: u64, data: impl Into<Bytes>, is_text: bool) -> Message {
        Message::new(id, data, is_text)
    }

    fn frame(replay: &mut Replay) -> Option<Bytes> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(replay).poll_frame(&mut cx) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap()),
            Poll::Pending => panic!("it never waits"),
        }
    }

    fn read(replay: &mut Replay) -> Value {
        let mut all = Vec::new();
        while let Some(frame) = frame(replay) {
            assert!(frame.len() < 2 * PIECE + 6 * PART);
            all.extend_from_slice(&frame);
        }
        serde_json::from_slice(&all).unwrap()
    }

    fn ids(value: &Value) -> Vec<u64> {
        let messages = value["messages"].as_array().unwrap().iter();
        messages.map(|one| one["id"].as_u64().unwrap()).collect()
    }

    #[test]
    fn every_setting_can_be_written_in_json() {
        let messages = [
            message(7, "\"\u{0}\n\u{1f600}", true),
            message(8, &b"\xff"[..], false),
            message(9, "text", false),
            message(10, "", true),
        ];
        let next = Cursor { id: 10, epoch: Some(0xbee) };
        let json = json(&messages, true, next);
        let value: Value = serde_json::from_slice(&json).unwrap();
        let expected = serde_json::json!({
            "messages": [
                {"id": 7, "data": "\"\u{0}\n\u{1f600}"},
                {"id": 8, "base64": "/w=="},
                {"id": 9, "base64": "dGV4dA=="},
                {"id": 10, "data": ""},
            ],
            "next": 10,
            "epoch": "bee",
            "missed": true,
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_large_answer_is_the_same_bit_by_bit() {
        let options = Channel { history: 50, ..Channel::default() };
        let hub = Hub::new(options);
        for id in 0..50_u32 {
            match id % 3 {
                0 => hub.publish("\u{1f600}\"".repeat(id as usize * 500)),
                1 => hub.publish(vec![0xff; id as usize * 1000]),
                _ => hub.publish(""),
            };
        }
        for after in [0, 1, 30, 49] {
            let since = hub.since(Some(Cursor { id: after, epoch: None }));
            let expected =
                json(&since.messages, since.missed, Cursor { id: 50, epoch: Some(hub.epoch()) });
            let expected: Value = serde_json::from_slice(&expected).unwrap();
            assert_eq!(read(&mut Replay::from_history(&hub, &since)), expected);
            let mut given = Replay::given(&hub, since.messages.into(), since.missed, 50);
            assert_eq!(read(&mut given), expected);
        }
    }

    #[test]
    fn an_answer_ends_before_messages_that_the_history_has_dropped() {
        let hub = Hub::new(Channel { history: 10, ..Channel::default() });
        let publish = |count: u64| {
            for _ in 0..count {
                hub.publish(vec![b'x'; 20_000]);
            }
        };
        let all = Some(Cursor { id: 0, epoch: None });
        publish(10);
        let since = hub.since(all);
        let mut replay = Replay::from_history(&hub, &since);
        let mut begun = frame(&mut replay).unwrap().to_vec();
        // The answer has a part of the first message, and nothing of the messages after it.
        publish(9);
        while let Some(frame) = frame(&mut replay) {
            begun.extend_from_slice(&frame);
        }
        let value: Value = serde_json::from_slice(&begun).unwrap();
        assert_eq!(
            (ids(&value), &value["next"], value.get("missed")),
            (vec![1], &Value::from(1), None)
        );
        // Messages that were dropped before anything was written count as missed.
        let since = hub.since(all);
        let mut replay = Replay::from_history(&hub, &since);
        publish(4);
        let value = read(&mut replay);
        assert_eq!(ids(&value), (14..=19).collect::<Vec<_>>());
        assert_eq!((&value["next"], &value["missed"]), (&Value::from(19), &Value::from(true)));
        // All of it.
        let mut replay = Replay::from_history(&hub, &hub.since(all));
        publish(100);
        let value = read(&mut replay);
        assert_eq!(
            (ids(&value), &value["next"], &value["missed"]),
            (vec![], &Value::from(23), &Value::from(true))
        );
    }
}
