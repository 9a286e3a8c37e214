//! A WebSocket's protocol, without its socket.
//!
//! tungstenite reads from memory and writes to memory here, so that it never has to wait. Its own
//! frames and the messages of the channel are in one order, and the owner of the socket, encrypted
//! or not, moves the bytes.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use superpoll_http::held::FrameKind;
use tungstenite::error::ProtocolError;
use tungstenite::protocol::frame::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{Role, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message, Utf8Bytes};

use super::form::Form;
use super::frames::{self, Track};
use super::grip::app_socket::{AppSocket, Step};
use super::hub::{Hub, NotPublished, Published};
use super::json_frame::{self, Publication, Source};
use super::message::{self, Draft};
use super::presence::RESERVED;
use super::publish_target::PublishTarget;
use super::shared::Publishing;
use super::{publication, publish_limits};

/// tungstenite's buffer, which is made with each session.
const READ_BUFFER: usize = 4096;

/// From this many bytes on a message is not copied into the output.
const SHARED: usize = 4096;

/// Tells a client that its message was not published, as it has no right to.
const NO_PUBLISHER: &str = "you may not publish here";

/// How many pieces are written at a time.
const PIECES: usize = 8;

/// The stage of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SessionState {
    /// Messages go both ways.
    Open,
    /// We have sent the end; the client has not.
    Closing,
    /// There is nothing more to read or to send, except the rest of the output.
    Over,
}

/// One end of a WebSocket.
pub(super) struct Session {
    socket: WebSocket<Memory>,
    state: SessionState,
    /// The client has gone without a word, although messages still went both ways.
    has_vanished: bool,
    /// The client's next message, if there is one, has to wait until messages before it are
    /// delivered.
    is_held_up: bool,
    /// Messages are frames of JSON both ways.
    is_json: bool,
    /// The channel that messages are published to which name none.
    own: PublishTarget,
    /// The further channels, which a frame of JSON may name.
    others: Vec<PublishTarget>,
    /// The client's last message, on its way to the log that other servers have as well, with the
    /// key that its publication has.
    publishing: Option<Box<(Publishing, Option<String>)>>,
    /// The client's next message and the index of its channel, if the message has to wait.
    waiting: Option<(usize, Draft)>,
    /// The time that it waits, if it came sooner than it may.
    pause: Option<Duration>,
    /// The application that gets the client's messages, if one holds the connection.
    app: Option<Box<AppSocket>>,
}

impl Session {
    /// Begins, or continues a session in which nothing is under way. The client publishes to the
    /// channel `own`, or to one that its message names.
    pub(super) fn new(form: Form, own: PublishTarget, others: Vec<PublishTarget>) -> Session {
        let is_json = form == Form::Json;
        let sizes = others.iter().map(PublishTarget::message_bytes);
        let longest = sizes.fold(own.message_bytes(), u64::max);
        let longest = if is_json { json_frame::longest(longest) } else { longest };
        let limit = usize::try_from(longest).unwrap_or(usize::MAX);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit));
        let memory = Memory::default();
        let socket = WebSocket::from_raw_socket(memory, Role::Server, Some(config));
        Session {
            socket,
            state: SessionState::Open,
            has_vanished: false,
            is_held_up: false,
            is_json,
            own,
            others,
            publishing: None,
            waiting: None,
            pause: None,
            app: None,
        }
    }

    /// Makes an application get the client's messages.
    pub(super) fn with_app(mut self, app: AppSocket) -> Session {
        self.app = Some(Box::new(app));
        self
    }

    /// Returns the application that gets the client's messages, if there is one.
    pub(super) fn app(&mut self) -> Option<&mut AppSocket> {
        self.app.as_deref_mut()
    }

    /// Takes the application, to tell it of the end.
    pub(super) fn take_app(&mut self) -> Option<Box<AppSocket>> {
        self.app.take()
    }

    /// Does what an application has answered.
    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Send(bytes) if self.state == SessionState::Open => self.send_raw(&bytes),
            Step::Send(_) => {}
            Step::Close(code, reason) => self.close(CloseCode::from(code), reason),
            Step::Abort => self.state = SessionState::Over,
        }
    }

    /// Returns a channel by its index; the own one has index 0.
    fn target(&self, index: usize) -> &PublishTarget {
        index.checked_sub(1).map_or(&self.own, |index| &self.others[index])
    }

    fn memory(&mut self) -> &mut Memory {
        self.socket.get_mut()
    }

    pub(super) fn state(&self) -> SessionState {
        self.state
    }

    /// Whether the client has gone without a word.
    pub(super) fn has_vanished(&self) -> bool {
        self.has_vanished
    }

    /// Whether the session can be dropped and made again without a loss.
    pub(super) fn is_idle(&self) -> bool {
        let memory = self.socket.get_ref();
        self.state == SessionState::Open
            && !self.is_held_up
            && self.publishing.is_none()
            && self.app.as_ref().is_none_or(|app| app.is_idle())
            && memory.pieces.is_empty()
            && memory.input.is_empty()
            && !memory.has_ended
            && memory.taken == memory.output.len()
            && memory.track.is_between_messages()
    }

    /// Takes in bytes that were read from the socket (no bytes: its end), and publishes the
    /// messages in them, as far as their channels have room for them.
    pub(super) fn read(&mut self, bytes: Bytes) {
        let memory = self.memory();
        memory.has_ended |= bytes.is_empty();
        memory.input = bytes;
        self.go_on(false);
    }

    /// Whether [`go_on`](Session::go_on) has to be called when the channel has room, or after the
    /// [`pause`](Session::pause), with no read before that.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Returns how long the client's next message has to wait, if it came sooner than it may.
    pub(super) fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// Returns the channel that the client's next message waits for.
    pub(super) fn next_hub(&self) -> &Arc<Hub> {
        &self.target(self.waiting.as_ref().map_or(0, |(index, _)| *index)).hub
    }

    /// Continues with the bytes that were read. `may_publish` says that it is the turn of this
    /// WebSocket to publish a message.
    pub(super) fn go_on(&mut self, mut may_publish: bool) {
        self.is_held_up = false;
        self.pause = None;
        if self.app.is_some() {
            return self.go_on_with_app();
        }
        while self.state != SessionState::Over {
            if self.pause.is_some() || self.publishing.is_some() {
                self.is_held_up = true;
                return;
            }
            let Some((index, draft)) = self.waiting.take().or_else(|| self.next_draft()) else {
                return;
            };
            if !std::mem::take(&mut may_publish) && !self.target(index).hub.has_room() {
                self.waiting = Some((index, draft));
                self.is_held_up = true;
                return;
            }
            self.publish(index, draft);
        }
    }

    /// Gives the messages of the client to its application, as far as that takes them.
    fn go_on_with_app(&mut self) {
        while self.state != SessionState::Over {
            let Some(app) = &mut self.app else { return };
            if app.is_full() {
                self.is_held_up = true;
                return;
            }
            match self.socket.read() {
                Ok(Message::Text(text)) => app.message(FrameKind::Text, text.into()),
                Ok(Message::Binary(data)) => app.message(FrameKind::Binary, data),
                Ok(Message::Close(frame)) => {
                    let said =
                        frame.as_ref().map(|frame| (frame.code.into(), frame.reason.as_str()));
                    if self.state == SessionState::Open {
                        app.closed(said);
                    }
                }
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.end(&error),
            }
        }
    }

    /// Publishes none of the messages that the client sends from now on.
    pub(super) fn end_publishing(&mut self) {
        self.own.may_publish = false;
        self.others.iter_mut().for_each(|other| other.may_publish = false);
    }

    /// Whether the client may publish to any of the channels.
    fn is_publisher(&self) -> bool {
        self.own.may_publish || self.others.iter().any(|other| other.may_publish)
    }

    /// Returns the next message that the client may publish, and the index of its channel. The
    /// messages before it are refused.
    fn next_draft(&mut self) -> Option<(usize, Draft)> {
        while self.state != SessionState::Over {
            match self.socket.read() {
                Ok(Message::Text(_) | Message::Binary(_)) if !self.is_publisher() => {
                    self.refuse_client();
                }
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                    match self.draft(message) {
                        Ok((index, _)) if !self.target(index).may_publish => self.refuse_client(),
                        Ok(next) => return Some(next),
                        Err(what) => self.refuse(&what),
                    }
                }
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => self.end(&error),
            }
        }
        None
    }

    /// Reads a message of the client.
    fn draft(&self, message: Message) -> Result<(usize, Draft), String> {
        let is_text = message.is_text();
        if !self.is_json || !is_text {
            let (data, limit) = (message.into_data(), self.own.message_bytes());
            // tungstenite has the limit of the beginning.
            if data.len() as u64 > limit {
                return Err(publication::too_large(limit));
            }
            return Ok((0, Draft { data, is_text, meta: None }));
        }
        let publication = Publication::read(message.to_text().unwrap_or_default())?;
        let index = match &publication.channel {
            None => 0,
            Some(name) => {
                let mut indices = 0..=self.others.len();
                let found = indices.find(|&index| **self.target(index).hub.name() == **name);
                found.ok_or_else(|| json_frame::elsewhere(name))?
            }
        };
        Ok((index, publication.draft(self.target(index).message_bytes())?))
    }

    /// Tells a client of `superpoll.v1` that something was refused.
    fn refuse(&mut self, what: &str) {
        if self.state == SessionState::Open {
            json_frame::error(what, &mut self.memory().output);
        }
    }

    /// Refuses a message of a client that has no right to publish.
    fn refuse_client(&mut self) {
        match self.is_json {
            true => self.refuse(NO_PUBLISHER),
            false => self.close(CloseCode::Policy, NO_PUBLISHER),
        }
    }

    /// Publishes a message of the client, if it may be published.
    fn publish(&mut self, index: usize, draft: Draft) {
        let target = self.target(index);
        if !target.may_publish {
            // The right has ended while the message waited.
            return self.refuse_client();
        }
        let hub = target.hub.clone();
        if let Some(limit) = &target.limit
            && let Err(error) = limit.admit(hub.name())
        {
            if self.is_json {
                limit.count_refused(Some(&hub));
                return self.refuse(&publish_limits::reason(error));
            }
            // Plain frames have no way to tell: the client notices by a socket that is full.
            (self.waiting, self.pause) = (Some((index, draft)), Some(error.wait));
            return;
        }
        let key = draft.meta.as_ref().and_then(|meta| meta.key.clone());
        match hub.shared() {
            None => self.published(key.as_deref(), hub.publish_as(draft)),
            Some(shared) => self.publishing = Some(Box::new((shared.begin(draft), key))),
        }
    }

    /// Whether a message of the client is on its way. The next ones wait for it, so that they stay
    /// in order.
    pub(super) fn is_publishing(&self) -> bool {
        self.publishing.is_some()
    }

    /// Ready when no message of the client is on its way any more.
    pub(super) fn poll_publishing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(under_way) = &mut self.publishing else { return Poll::Ready(()) };
        let outcome = ready!(Pin::new(&mut under_way.0).poll(cx));
        let key = self.publishing.take().and_then(|under_way| under_way.1);
        self.published(key.as_deref(), outcome);
        Poll::Ready(())
    }

    /// Tells the client whether its last message was published.
    fn published(&mut self, key: Option<&str>, outcome: Result<Published, NotPublished>) {
        match outcome {
            Ok(published) => {
                if let (Some(key), SessionState::Open) = (key, self.state) {
                    json_frame::published(published.id, key, &mut self.memory().output);
                }
            }
            Err(NotPublished::Unshared(_)) if self.is_json => {
                self.refuse("the message log of this channel did not answer; the message may not be published");
            }
            Err(NotPublished::Unshared(_)) => {
                self.close(CloseCode::Again, "the message log of this channel did not answer");
            }
            Err(NotPublished::OtherWithKey) => {
                self.refuse("another message was published with this key");
            }
            Err(NotPublished::Reserved) => self.refuse(RESERVED),
            Err(NotPublished::HandedOver) => {
                self.close(CloseCode::Restart, "another server has taken over; connect again");
            }
            Err(NotPublished::Full) => {
                self.close(CloseCode::Again, "the channels here keep as many bytes as they may");
            }
        }
    }

    /// Ends the session because of an error of tungstenite, and tells the client unless it has
    /// gone.
    fn end(&mut self, error: &Error) {
        let code = match error {
            Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) => None,
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
            Error::Capacity(_) => Some(CloseCode::Size),
            Error::Utf8(_) => Some(CloseCode::Invalid),
            _ => Some(CloseCode::Protocol),
        };
        let is_cut = matches!(
            error,
            Error::Io(_) | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
        );
        self.has_vanished |= is_cut && self.state == SessionState::Open;
        if let Some(code) = code {
            self.close(code, "");
        }
        self.state = SessionState::Over;
    }

    /// Tells the client that the session ends.
    pub(super) fn close(&mut self, code: CloseCode, reason: impl Into<Utf8Bytes>) {
        if self.state == SessionState::Open {
            self.state = SessionState::Closing;
            // The output accepts any number of bytes.
            let _ = self.socket.close(Some(CloseFrame { code, reason: reason.into() }));
        }
    }

    /// Sends a message of a channel.
    pub(super) fn send(&mut self, message: &message::Message, source: Source<'_>) {
        let is_json = self.is_json;
        let memory = self.memory();
        if is_json {
            return json_frame::message(message, source, &mut memory.output);
        }
        if message.data.len() < SHARED {
            return frames::write(message, &mut memory.output);
        }
        frames::write_header(message, &mut memory.output);
        let mut before = Bytes::from(std::mem::take(&mut memory.output));
        before.advance(std::mem::take(&mut memory.taken));
        memory.pieces.extend([before, message.data.clone()]);
    }

    /// Sends a position in a channel to a client of `superpoll.v1`.
    pub(super) fn send_place(&mut self, id: u64, missed: bool, source: Source<'_>) {
        json_frame::place(id, missed, source, &mut self.memory().output);
    }

    /// Sends bytes that are frames, or the rest of one, already.
    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.memory().output.extend_from_slice(bytes);
    }

    /// Returns how many bytes are still to be written to the socket.
    pub(super) fn left(&self) -> usize {
        let memory = self.socket.get_ref();
        let pieces = memory.pieces.iter().map(Bytes::len).sum::<usize>();
        pieces + memory.output.len() - memory.taken
    }

    /// Passes the first of these bytes to a function that writes them, and returns how many it
    /// wrote.
    pub(super) fn write<E>(
        &mut self,
        by: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let memory = self.socket.get_ref();
        let mut parts = [IoSlice::new(&[]); PIECES];
        let rest = [&memory.output[memory.taken..]];
        let all = memory.pieces.iter().map(|piece| &piece[..]).chain(rest);
        let mut count = 0;
        for (part, bytes) in parts.iter_mut().zip(all) {
            *part = IoSlice::new(bytes);
            count += 1;
        }
        let written = by(&parts[..count])?;
        self.written(written);
        Ok(written)
    }

    /// Removes this many bytes, which were written.
    fn written(&mut self, mut count: usize) {
        let memory = self.memory();
        while let Some(first) = memory.pieces.front_mut() {
            let step = count.min(first.len());
            first.advance(step);
            count -= step;
            if !first.is_empty() {
                return;
            }
            memory.pieces.pop_front();
        }
        memory.taken += count;
        if memory.taken == memory.output.len() {
            // A subscriber that has been slow once does not keep the memory that it needed then.
            if memory.output.capacity() > SHARED {
                memory.output = Vec::new();
            }
            memory.output.clear();
            memory.taken = 0;
        }
    }
}

// The memory that tungstenite reads and writes in place of a socket.

/// The stream below tungstenite.
#[derive(Default)]
struct Memory {
    input: Bytes,
    /// No bytes follow the input.
    has_ended: bool,
    /// The bytes to be sent before the output: large messages, which all subscribers share, and the
    /// bytes before them.
    pieces: VecDeque<Bytes>,
    output: Vec<u8>,
    /// How many bytes of the output were taken, after all pieces before it.
    taken: usize,
    track: Track,
}

impl Read for Memory {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return if self.has_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = room.len().min(self.input.len());
        room[..count].copy_from_slice(&self.input[..count]);
        self.track.follow(&self.input[..count]);
        self.input.advance(count);
        Ok(count)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use superpoll_config::Channel;

    use super::*;

    /// A client's frame.
    fn frame(first: u8, data: &[u8]) -> Vec<u8> {
        let mask = [9, 8, 7, 6];
        let mut frame = vec![first, 0x80 | data.len() as u8];
        frame.extend(mask);
        frame.extend(data.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    fn begin(hub: &Arc<Hub>, message_bytes: u64, may_publish: bool) -> Session {
        hub.change(Channel { message_bytes, ..(*hub.options()).clone() });
        let target = PublishTarget { hub: hub.clone(), may_publish, limit: None };
        Session::new(Form::WebSocket, target, Vec::new())
    }

    fn output(session: &mut Session) -> Vec<u8> {
        let mut all = Vec::new();
        let copy = |parts: &[IoSlice<'_>]| {
            parts.iter().for_each(|part| all.extend_from_slice(part));
            Ok::<_, ()>(0)
        };
        session.write(copy).unwrap();
        assert!(all.len() <= session.left());
        all
    }

    fn published(hub: &Hub) -> Vec<Vec<u8>> {
        let start = super::super::Cursor { id: 0, epoch: None };
        hub.since(Some(start)).messages.iter().map(|one| one.data.to_vec()).collect()
    }

    #[test]
    fn it_is_idle_only_between_messages_and_when_all_was_written() {
        let hub = Hub::new(Channel::default());
        let mut session = begin(&hub, 100, true);
        assert!(session.is_idle());
        let mut stream = frame(0x01, b"be");
        stream.extend(frame(0x89, b"?"));
        stream.extend(frame(0x80, b"gin"));
        for byte in &stream {
            assert_eq!(published(&hub).len(), 0);
            session.read(Bytes::copy_from_slice(&[*byte]));
        }
        assert_eq!(published(&hub), [b"begin"]);
        assert!(!session.is_idle(), "a pong waits");
        assert_eq!(output(&mut session), [0x8a, 1, b'?']);
        session.written(2);
        assert!(!session.is_idle());
        session.written(1);
        assert!(session.is_idle());
    }

    #[test]
    fn large_messages_are_shared_and_all_is_sent_in_order() {
        let hub = Hub::new(Channel::default());
        for step in [1, 3, 1000, 100_000] {
            let mut session = begin(&hub, 100, true);
            let mut expected = Vec::new();
            let mut found = Vec::new();
            for (id, length) in
                (1..).zip([10, SHARED, 0, 9 * SHARED, SHARED + 1, SHARED - 1, 70_000])
            {
                let data = Bytes::from(vec![id as u8; length]);
                let message = message::Message::new(id, data.clone(), false);
                session.send(&message, 1.into());
                session.send_raw(b"between");
                frames::write(&message, &mut expected);
                expected.extend_from_slice(b"between");
                if length >= SHARED {
                    let pieces = &session.socket.get_ref().pieces;
                    assert!(pieces.iter().any(|piece| piece.as_ptr() == data.as_ptr()));
                }
                let some = |parts: &[IoSlice<'_>]| {
                    let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                    let count = all.len().min(step);
                    found.extend_from_slice(&all[..count]);
                    Ok::<_, ()>(count)
                };
                session.write(some).unwrap();
            }
            while session.left() > 0 {
                let all = output(&mut session);
                let count = all.len().min(step);
                found.extend_from_slice(&all[..count]);
                session.written(count);
            }
            assert!(found == expected, "{step}");
            assert!(session.is_idle());
        }
    }

    #[test]
    fn messages_wait_until_the_channel_has_room() {
        let options = Channel { queue_bytes: 100, ..Channel::default() };
        let hub = Hub::new(options);
        let queue_id = hub.open(&std::sync::Arc::default());
        hub.join(queue_id, None);
        let mut session = begin(&hub, 200, true);
        let mut stream = Vec::new();
        for byte in 0..6 {
            stream.extend(frame(0x82, &[byte; 90]));
        }
        stream.extend(frame(0x88, &1000_u16.to_be_bytes()));
        session.read(stream.into());
        assert_eq!(published(&hub).len(), 1);
        for count in 2..=6 {
            assert!(session.is_held_up() && !session.is_idle());
            session.go_on(false);
            assert_eq!(published(&hub).len(), count - 1, "there is no room");
            session.go_on(true);
            assert_eq!(published(&hub).len(), count);
        }
        hub.leave(queue_id);
        session.go_on(false);
        assert!(!session.is_held_up() && session.state() == SessionState::Over);
        assert_eq!(published(&hub), (0..6).map(|byte| vec![byte; 90]).collect::<Vec<_>>());
    }

    #[test]
    fn the_client_closes() {
        let hub = Hub::new(Channel::default());
        let mut session = begin(&hub, 100, true);
        session.read(frame(0x88, &1000_u16.to_be_bytes()).into());
        assert_eq!(session.state(), SessionState::Over);
        assert_eq!(output(&mut session), [0x88, 2, 0x03, 0xe8]);
    }

    #[test]
    fn protocol_violations_are_answered_with_their_close_code() {
        let hub = Hub::new(Channel::default());
        for (bytes, code) in [
            (frame(0x81, &[b'x'; 101]), 1009_u16),
            (frame(0x81, b"\xff"), 1007),
            (frame(0x83, b""), 1002),
            (vec![0x81, 1, b'x'], 1002),
        ] {
            let mut session = begin(&hub, 100, true);
            session.read(bytes.into());
            assert_eq!(session.state(), SessionState::Over);
            assert_eq!(output(&mut session), [&[0x88, 2][..], &code.to_be_bytes()].concat());
        }
        let mut session = begin(&hub, 100, true);
        session.read(Bytes::new());
        assert_eq!((session.state(), session.left()), (SessionState::Over, 0));
        assert_eq!(published(&hub).len(), 0);
    }

    #[test]
    fn a_client_without_the_right_publishes_nothing() {
        let hub = Hub::new(Channel::default());
        let mut session = begin(&hub, 100, false);
        session.read([frame(0x89, b""), frame(0x81, b"one"), frame(0x81, b"two")].concat().into());
        let reason = b"you may not publish here";
        let close = [&[0x88, 2 + reason.len() as u8, 0x03, 0xf0][..], reason].concat();
        assert_eq!(output(&mut session), [&[0x8a, 0][..], &close].concat());
        assert_eq!((session.state(), published(&hub).len()), (SessionState::Closing, 0));
        // The right ends while the client is sending.
        let mut session = begin(&hub, 100, true);
        session.read(frame(0x81, b"one").into());
        session.close(CloseCode::Policy, "the token has expired");
        session.end_publishing();
        session.read(frame(0x81, b"two").into());
        assert_eq!((session.state(), published(&hub).len()), (SessionState::Closing, 1));
    }

    #[test]
    fn a_frame_of_json_names_its_channel_and_a_refusal_is_told() {
        let options = Channel { queue_bytes: 100, ..Channel::default() };
        let hubs = ["/a", "/b", "/c"].map(|name| {
            let hub = Hub::restore(name.into(), 7, Vec::new());
            hub.change(options.clone());
            hub.finish_gathering();
            hub
        });
        let mut targets = hubs.iter().zip([9, 50, 50]).map(|(hub, message_bytes)| {
            let may_publish = **hub.name() != *"/c";
            hub.change(Channel { message_bytes, ..options.clone() });
            PublishTarget { hub: hub.clone(), may_publish, limit: None }
        });
        let own = targets.next().unwrap();
        let mut session = Session::new(Form::Json, own, targets.collect());
        for (text, refusal) in [
            (r#"{"data":"own"}"#, None),
            (r#"{"data":"named","channel":"/a"}"#, None),
            (r#"{"data":"0123456789","channel":"/b"}"#, None),
            (r#"{"data":"0123456789"}"#, Some("a message of this channel has 9 bytes at most")),
            (r#"{"data":"x","channel":"/c"}"#, Some(NO_PUBLISHER)),
            (r#"{"data":"x","channel":"/d"}"#, Some("does not have the channel \\\"/d\\\"")),
        ] {
            session.read(frame(0x81, text.as_bytes()).into());
            let told = String::from_utf8_lossy(&output(&mut session)).into_owned();
            assert_eq!(told.is_empty(), refusal.is_none(), "{text}: {told}");
            assert!(told.contains(refusal.unwrap_or_default()), "{text}: {told}");
            session.written(session.left());
        }
        assert_eq!(published(&hubs[0]), [&b"own"[..], b"named"]);
        assert_eq!(published(&hubs[1]), [b"0123456789"]);
        assert_eq!((published(&hubs[2]).len(), session.state()), (0, SessionState::Open));
        // The limit is that of now.
        hubs[1].change(Channel { message_bytes: 5, ..options.clone() });
        session.read(frame(0x81, br#"{"data":"0123456789","channel":"/b"}"#).into());
        let told = String::from_utf8_lossy(&output(&mut session)).into_owned();
        assert!(told.contains("a message of this channel has 5 bytes at most"), "{told}");
        session.written(session.left());
        hubs[1].change(options.clone());
        // A message waits for room in its own channel.
        let queue_id = hubs[1].open(&Arc::default());
        hubs[1].join(queue_id, None);
        hubs[1].publish(vec![b'x'; 90]);
        let text = br#"{"data":"0123456789","channel":"/b"}"#;
        session.read([frame(0x81, text), frame(0x81, br#"{"data":"next"}"#)].concat().into());
        assert!(session.is_held_up() && Arc::ptr_eq(session.next_hub(), &hubs[1]));
        session.end_publishing();
        session.go_on(true);
        assert!(!session.is_held_up() && published(&hubs[1]).len() == 2);
        let told = String::from_utf8_lossy(&output(&mut session)).into_owned();
        assert_eq!(told.matches(NO_PUBLISHER).count(), 2, "{told}");
    }

    #[test]
    fn we_close() {
        let hub = Hub::new(Channel::default());
        let mut session = begin(&hub, 100, true);
        session.close(CloseCode::Away, "bye");
        assert_eq!(output(&mut session), b"\x88\x05\x03\xe9bye");
        // Messages that the client had sent before it knew are not lost.
        session.read(frame(0x81, b"late").into());
        assert_eq!((published(&hub).len(), session.state()), (1, SessionState::Closing));
        session.read(frame(0x88, &1001_u16.to_be_bytes()).into());
        assert_eq!(session.state(), SessionState::Over);
    }
}
