//! The forms in which parked subscribers get messages.
//!
//! Messages are made into a form once, for all subscribers that are parked with it. The bytes of a
//! message depend on nothing but the message and the epoch and name of the channel. So a successor
//! can make them again, and tell by their number alone which of them a subscriber has
//! ([`LocalSubscribers::adopt`](super::LocalSubscribers::adopt)). Bytes that are no messages are
//! written only where the state of the connection is left again after them.
//!
//! A further form is a variant of [`Form`], an [`Activity`] for the successor, and a session for
//! subscribers that are not parked (`parked.rs`).

use std::ops::Range;

use bytes::Bytes;
use superpoll_http::connection_state::{Activity, SubscriberRecord};
use superpoll_http::held::{HeldFor, HeldRecord};
use superpoll_http::parking_lot::WakeOn;
use superpoll_http::tls::MOST_TEXT;
use superpoll_http::transport::Socket;
use superpoll_http1::chunk;

use super::cursor::Cursor;
use super::event_text;
use super::frames;
use super::grip::content;
use super::json_frame::{self, Source};
use super::mercure::update;
use super::message::Message;
use super::reader::Selection;
use super::send_queue::SendQueue;

/// The bytes of all messages of a channel up to one, in each form in which all subscribers get all
/// messages: where each of them is in a stream of that form.
///
/// A successor may know only the last messages. Together with the place that a subscriber had when
/// its state was left, these numbers tell it which of them the subscriber was sent since.
pub type Offsets = [u64; COUNTED.len()];

/// The forms that offsets are for.
const COUNTED: [Form; 3] = [Form::WebSocket, Form::Json, Form::Events];

/// Adds the bytes of a message.
pub(super) fn add(offsets: &mut Offsets, message: &Message, source: Source<'_>) {
    let mut bytes = Vec::new();
    for (offset, form) in offsets.iter_mut().zip(COUNTED) {
        bytes.clear();
        form.write(message, source, &mut bytes);
        *offset += bytes.len() as u64;
    }
}

/// The form of a parked subscriber's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A frame of a WebSocket.
    WebSocket,
    /// A frame of a WebSocket with the subprotocol `superpoll.v1`.
    Json,
    /// A server-sent event, as a chunk of a response of HTTP/1.1.
    Events,
    /// The same, with the ids of Mercure.
    Mercure,
    /// The content of an item for a stream that an application holds, as a chunk of HTTP/1.1.
    Held,
    /// The content of an item for a WebSocket that an application holds, as a frame.
    HeldSocket,
}

impl Form {
    /// The number of forms.
    pub(super) const COUNT: usize = 6;

    /// Returns its place among offsets, if all subscribers get all messages.
    pub(super) fn counted(self) -> Option<usize> {
        COUNTED.iter().position(|form| *form == self)
    }

    /// Returns about as many bytes as a message needs.
    fn room(self, message: &Message, source: Source<'_>) -> usize {
        match self {
            Form::WebSocket => frames::room(message),
            Form::Json => json_frame::room(message, source),
            Form::Events | Form::Mercure => event_text::room(message),
            Form::Held | Form::HeldSocket => message.data.len(),
        }
    }

    /// Appends a message.
    pub(super) fn write(self, message: &Message, source: Source<'_>, to: &mut Vec<u8>) {
        match self {
            Form::WebSocket => frames::write(message, to),
            Form::Json => json_frame::message(message, source, to),
            Form::Events | Form::Mercure => {
                chunk(to, |to| self.write_event(message, source.epoch, to));
            }
            Form::Held => match content::of_stream(message) {
                // An empty chunk would end the body.
                Some(content) if !content.is_empty() => {
                    chunk(to, |to| to.extend_from_slice(&content));
                }
                _ => {}
            },
            Form::HeldSocket => content::write_frame(message, to),
        }
    }

    /// Appends a message as an event, without a chunk around it.
    pub(super) fn write_event(self, message: &Message, epoch: u64, to: &mut Vec<u8>) {
        match self {
            Form::Mercure => event_text::message(to, message, update::id(message, epoch)),
            Form::WebSocket | Form::Json | Form::Events | Form::Held | Form::HeldSocket => {
                let cursor = Cursor { id: message.id, epoch: Some(epoch) };
                event_text::message(to, message, cursor);
            }
        }
    }

    /// Appends a message as data of a stream of HTTP/2.
    pub(super) fn write_data(self, message: &Message, source: Source<'_>, to: &mut Vec<u8>) {
        match self {
            Form::WebSocket | Form::Json | Form::HeldSocket => self.write(message, source, to),
            Form::Events | Form::Mercure => self.write_event(message, source.epoch, to),
            Form::Held => {
                to.extend_from_slice(&content::of_stream(message).unwrap_or_default());
            }
        }
    }

    /// Whether its messages are the body of a response.
    pub(super) const fn is_body(self) -> bool {
        matches!(self, Form::Events | Form::Mercure | Form::Held)
    }

    /// Returns the form of a connection that an application holds.
    pub(super) fn of_held(held: &HeldRecord) -> Form {
        match held.purpose {
            HeldFor::Socket { .. } => Form::HeldSocket,
            HeldFor::Stream { .. } | HeldFor::Response { .. } => Form::Held,
        }
    }

    /// Whether an application holds its connections.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Form::Held | Form::HeldSocket)
    }

    /// Returns the bytes that say that messages up to a position were left out, if the form has
    /// any.
    pub(super) fn missed(self, id: u64, source: Source<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            // Mercure has no way to say it, and an application has its own.
            Form::WebSocket | Form::Mercure | Form::Held | Form::HeldSocket => {}
            Form::Json => json_frame::place(id, true, source, &mut bytes),
            Form::Events => {
                let cursor = Cursor { id, epoch: Some(source.epoch) };
                chunk(&mut bytes, |to| event_text::missed(to, cursor));
            }
        }
        bytes
    }

    /// Returns the bytes that are written after a silence, to find out whether the client lives.
    pub(super) const fn sign_of_life(self) -> &'static [u8] {
        match self {
            Form::WebSocket | Form::Json | Form::HeldSocket => frames::PING,
            Form::Events | Form::Mercure => event_text::COMMENT_CHUNK,
            // The application says what is sent.
            Form::Held => b"",
        }
    }

    /// The same, as data of a stream of HTTP/2.
    pub(super) const fn data_of_life(self) -> &'static [u8] {
        match self {
            Form::WebSocket | Form::Json | Form::HeldSocket => frames::PING,
            Form::Events | Form::Mercure => event_text::COMMENT,
            Form::Held => b"",
        }
    }

    /// Whether a client has gone that was silent since it was sent a sign of life.
    pub(super) fn has_gone(self, queue: SendQueue, socket: &Socket) -> bool {
        match self {
            // It neither answers nor reads.
            Form::WebSocket | Form::Json | Form::HeldSocket => !queue.has_moved(socket),
            // No answer is expected.
            Form::Events | Form::Mercure | Form::Held => queue.is_stuck(socket),
        }
    }

    /// Returns the event that ends a stay in the parking lot.
    pub(super) const fn wakes_on(self) -> WakeOn {
        match self {
            Form::WebSocket | Form::Json | Form::HeldSocket => WakeOn::Readable,
            Form::Events | Form::Mercure | Form::Held => WakeOn::HungUp,
        }
    }

    /// Returns the state for a successor.
    pub(super) fn activity(
        self,
        subscriber: SubscriberRecord,
        selection: Option<&Selection>,
    ) -> Activity {
        match self {
            Form::WebSocket => Activity::Socket(subscriber),
            Form::Json => Activity::JsonSocket(subscriber),
            Form::Events => Activity::Events(subscriber),
            Form::Held | Form::HeldSocket => match selection {
                Some(Selection::Held(record)) => {
                    Activity::Held { subscriber, held: Box::new(record.clone()) }
                }
                // There is no other one.
                _ => Activity::Events(subscriber),
            },
            Form::Mercure => {
                let record = selection.and_then(Selection::mercure);
                let reader = record.map(|record| (**record).clone()).unwrap_or_default();
                let SubscriberRecord { space, last, grant, pinged, .. } = subscriber;
                Activity::Mercure { space, last, grant, pinged, reader }
            }
        }
    }
}

/// Messages in a form, one after another, made once for all the subscribers that they are sent to.
pub(super) struct Encoded {
    bytes: Bytes,
    /// Where each message ends.
    ends: Vec<usize>,
}

impl Encoded {
    pub(super) fn new<'a>(
        form: Form,
        source: impl Into<Source<'a>>,
        messages: &[Message],
    ) -> Encoded {
        let source = source.into();
        let room = messages.iter().map(|message| form.room(message, source)).sum();
        Encoded::up_to(form, source, messages, Vec::with_capacity(room), usize::MAX)
    }

    /// Makes messages as data of a stream of HTTP/2.
    pub(super) fn data<'a>(
        form: Form,
        source: impl Into<Source<'a>>,
        messages: &[Message],
    ) -> Encoded {
        let (source, mut bytes, mut ends) = (source.into(), Vec::new(), Vec::new());
        for message in messages {
            form.write_data(message, source, &mut bytes);
            ends.push(bytes.len());
        }
        Encoded::of_parts(bytes, ends)
    }

    /// Returns parts that were made already, and where each of them ends.
    pub(super) fn of_parts(bytes: Vec<u8>, ends: Vec<usize>) -> Encoded {
        Encoded { bytes: bytes.into(), ends }
    }

    /// Makes as many of the messages as have this many bytes, or all.
    pub(super) fn covering<'a>(
        form: Form,
        source: impl Into<Source<'a>>,
        messages: &[Message],
        count: usize,
    ) -> Encoded {
        Encoded::up_to(form, source.into(), messages, Vec::new(), count)
    }

    fn up_to(
        form: Form,
        source: Source<'_>,
        messages: &[Message],
        mut bytes: Vec<u8>,
        count: usize,
    ) -> Encoded {
        let mut ends = Vec::new();
        for message in messages {
            if bytes.len() >= count {
                break;
            }
            form.write(message, source, &mut bytes);
            ends.push(bytes.len());
        }
        Encoded { bytes: bytes.into(), ends }
    }

    /// Returns the bytes of the messages from one on.
    #[cfg(test)]
    pub(super) fn from(&self, index: usize) -> Bytes {
        self.bytes.slice(self.start(index)..)
    }

    /// Returns the bytes of some of the messages.
    pub(super) fn bytes_of(&self, indexes: Range<usize>) -> Bytes {
        self.bytes.slice(self.start(indexes.start)..self.start(indexes.end))
    }

    /// Returns how many bytes all of them have.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the position after so many bytes of records were sent, each of which is by
    /// `overhead` bytes longer than the message in it: how many messages have begun to be sent, and
    /// how many bytes of the record of the last of these were sent, if not all. `None` if there are
    /// not as many messages, or if one of them is too long for a record.
    pub(super) fn sent_in_records(
        &self,
        count: usize,
        overhead: usize,
    ) -> Option<(usize, Option<usize>)> {
        let (mut left, mut begun) = (count, 0);
        while left > 0 {
            let text = (begun < self.ends.len()).then(|| self.bytes_of(begun..begun + 1).len())?;
            begun += 1;
            match left.checked_sub(text + overhead) {
                _ if text > MOST_TEXT => return None,
                Some(rest) => left = rest,
                None => return Some((begun, Some(left))),
            }
        }
        Some((begun, None))
    }

    /// Returns the position after this many bytes of the messages from one on were sent: how many
    /// messages have begun to be sent, and the rest of the last of these.
    pub(super) fn sent(&self, index: usize, count: usize) -> (usize, Bytes) {
        let at = self.start(index) + count;
        let whole = self.ends.partition_point(|&end| end <= at);
        if self.start(whole) == at {
            return (whole - index, Bytes::new());
        }
        (whole + 1 - index, self.bytes.slice(at..self.ends[whole]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: [Form; 4] = [Form::WebSocket, Form::Json, Form::Events, Form::Mercure];

    fn message(id: u64, data: impl Into<Bytes>, is_text: bool) -> Message {
        Message::new(id, data, is_text)
    }

    fn messages() -> [Message; 4] {
        [
            message(9, "first", true),
            message(10, "", true),
            message(11, vec![7; 200], false),
            message(12, "two\nlines", true),
        ]
    }

    #[test]
    fn the_bytes_are_those_of_the_form() {
        let messages = messages();
        let frames = Encoded::new(Form::WebSocket, 10, &messages[..3]).from(0);
        assert_eq!(frames.len(), 7 + 2 + 204);
        assert_eq!((frames[0], frames[7], frames[9]), (0x81, 0x81, 0x82));
        let events = Encoded::new(Form::Events, 10, &messages[..2]).from(0);
        let expected = "15\r\nid: 9-a\ndata: first\n\n\r\n11\r\nid: 10-a\ndata: \n\n\r\n";
        assert_eq!(String::from_utf8_lossy(&events), expected);
    }

    /// The beginning that was sent, the rest of the last message that has begun, and the messages
    /// after that are all of the bytes.
    #[test]
    fn each_byte_that_was_sent_counts() {
        let messages = messages();
        for form in FORMS {
            let encoded = Encoded::new(form, 10, &messages);
            let each: Vec<Bytes> = messages
                .iter()
                .map(|one| Encoded::new(form, 10, std::slice::from_ref(one)).from(0))
                .collect();
            for first in 0..messages.len() {
                let all = encoded.from(first);
                for count in 0..=all.len() {
                    let (begun, rest) = encoded.sent(first, count);
                    let after = each[first + begun..].concat();
                    let whole = [&all[..count], &rest, &after].concat();
                    assert!(whole == all, "{form:?} from {first}, {count} bytes");
                    // A message of which no byte was sent has not begun.
                    let before = each[first..first + begun].concat().len();
                    assert!(before - rest.len() == count, "{form:?} from {first}, {count} bytes");
                    assert!(begun == 0 || rest.len() < each[first + begun - 1].len());
                }
            }
        }
    }

    #[test]
    fn as_many_messages_are_made_as_are_needed() {
        let messages = messages();
        for form in FORMS {
            let all = Encoded::new(form, 10, &messages);
            for count in 0..=all.len() + 1 {
                let some = Encoded::covering(form, 10, &messages, count);
                assert!(all.bytes.starts_with(&some.bytes));
                if count <= all.len() {
                    assert!(some.len() >= count);
                    assert_eq!(some.sent(0, count), all.sent(0, count), "{form:?} {count}");
                }
            }
            assert_eq!(Encoded::covering(form, 10, &messages, 0).len(), 0);
        }
    }

    #[test]
    fn epochs_and_ids_make_a_difference_to_events() {
        let bytes =
            |id, epoch| Encoded::new(Form::Events, epoch, &[message(id, "same", true)]).from(0);
        assert_ne!(bytes(1, 1), bytes(2, 1));
        assert_ne!(bytes(1, 1), bytes(1, 2));
        assert_eq!(Form::WebSocket.missed(1, 10.into()), b"");
        let missed = Form::Events.missed(1, 10.into());
        assert_eq!(missed, b"22\r\nevent: missed\nid: 1-a\ndata: true\n\n\r\n");
    }
}
