//! A connection of HTTP/2 at work: frames come in, streams are answered, frames go out.
//!
//! ```text
//!   transport --> receive --> begin, push --> Stream <-- run: its handler, its body
//!                                                |
//!   transport <------ Output <-- produce: data, in the order of the client's priorities
//! ```
//!
//! All of it happens in the connection's task. Each stream has a waker of its own (`wakes`), so a
//! turn costs as much as the streams with news do.
//!
//! Memory is bounded whatever a client does. A stream takes one frame of its response's body, and
//! the next one when that was written. Beyond [`MOST_HELD`] bytes of all streams, one whose window
//! is used up takes none. The bodies of requests are bounded by the windows that the client has,
//! and the bytes that are joined for a write by [`MOST`].

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use futures_io::AsyncRead;
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use superpoll_http::body::Body;
use superpoll_http::buffer::ReadBuffer;
use superpoll_http::exchange::Plan;
use superpoll_http::fixed::NoAnswer;
use superpoll_http::head::Head;
use superpoll_http::http2_stream::StreamPipe;
use superpoll_http::message::{date, recycle, to_request_of_http2};
use superpoll_http::ready::begin_stream;
use superpoll_http::transport::Transport;
use superpoll_http::upload::RequestBody;
use superpoll_http::upstream::{ClientFacts, ClientHead, StreamReset};
use superpoll_http1::{Asked, Limits as Http1Limits, Response as Http1Response, Room, response};
use superpoll_http2::{
    Config, Connection, ConnectionError, ErrorCode, Event, HeadWriter, Limits, Record, RequestHead,
    Scratch, StreamError, StreamKey,
};
use superpoll_hub::channel::carrier::{RestingStream, RestingWork};
use superpoll_rt::{has_budget_remaining, spawn};

use super::arriving::{ArrivingBody, Fed};
use super::grpc;
use super::output::{MOST, MOST_DATA, Output};
use super::stream::{Answering, Sending, Stream, Waiting, Work};
use super::wakes::Wakes;
use crate::serve::answer::{Answer, Begun, ConnectionState, Running, Source};
use crate::serve::handshake::Handshake;
use crate::serve::requests::LONGEST_TARGET;
use crate::serve::router::Decision;

/// The most requests of a connection at a time.
pub(super) const STREAMS: u16 = 128;

/// The most bytes of a file that are read at a time.
const READ: usize = 32 << 10;

/// The most bytes of responses that all streams may hold while some of them cannot write.
const MOST_HELD: usize = 1 << 20;

thread_local! {
    /// The memory for a head, which all connections of a thread share.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// A connection that was parked.
pub(in crate::serve) struct Parked {
    pub record: Record,
    /// The first bytes to be written.
    pub rest: Bytes,
    pub streams: Vec<RestingStream>,
}

/// The end of a connection, or of its task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Both sides know of it.
    Over,
    /// The client has closed it, or was not there any more.
    Gone,
    /// The client broke the protocol, and was told so.
    Refused,
    /// The connection can be parked.
    Quiet,
}

/// A connection at work.
pub(super) struct Session {
    state: Rc<ConnectionState>,
    facts: ClientFacts,
    pub transport: Transport,
    protocol: Connection,
    /// Bytes that were read and not used: the first ones, or frames of a client that takes no
    /// answers.
    read: ReadBuffer,
    out: Output,
    /// The streams by their slots, and the wakers of these.
    streams: Vec<Option<Box<Stream>>>,
    wakers: Vec<Waker>,
    wakes: Arc<Wakes>,
    /// The streams that have something to do, a bit for each slot.
    due: u128,
    /// The slot that has its turn next.
    turn: u32,
    /// The bytes of responses that the streams hold.
    held: usize,
    /// The bytes of requests whose streams have ended while their handlers read on.
    left_over: Rc<Cell<usize>>,
    /// Some streams wait until they may hold more.
    has_starved: bool,
    is_refused: bool,
    /// The client was asked to use no table, so that the connection is smaller while it is parked.
    gives_up_table: bool,
}

impl Session {
    /// Returns a new connection, perhaps with bytes that were read already, or one that was parked;
    /// `None` if its record is malformed.
    pub(super) fn new(
        state: Rc<ConnectionState>,
        transport: Transport,
        before: &[u8],
        parked: Option<Parked>,
    ) -> Option<Session> {
        let head = state.context.header_bytes as usize;
        let limits = Limits { head, target: LONGEST_TARGET, ..Limits::DEFAULT };
        let config = Config { limits, streams: STREAMS, ..Config::DEFAULT };
        let mut out = Output::default();
        let protocol = match &parked {
            None => Connection::new(config, out.bytes()),
            Some(parked) => Connection::from_record(config, parked.record.as_ref()).ok()?,
        };
        let mut session = Session {
            facts: ClientFacts::from_peer(&state.peer),
            state,
            transport,
            protocol,
            read: ReadBuffer::from(before),
            out,
            streams: Vec::new(),
            wakers: Vec::new(),
            wakes: Arc::default(),
            due: 0,
            turn: 0,
            held: 0,
            left_over: Rc::default(),
            has_starved: false,
            is_refused: false,
            gives_up_table: false,
        };
        if let Some(Parked { rest, streams, .. }) = parked {
            session.resume_streams(&rest, streams);
        }
        Some(session)
    }

    /// Tells the client that the connection will end.
    pub(super) fn begin_shutdown(&mut self) {
        self.protocol.begin_shutdown(self.out.bytes());
    }

    /// Tells a client that has not answered that the connection ends with the streams of now.
    /// Returns whether it is told now.
    pub(super) fn finish_shutdown(&mut self) -> bool {
        self.protocol.finish_shutdown(self.out.bytes())
    }

    /// Whether the rest of a head or of another frame is awaited, or the beginning of the protocol.
    pub(super) fn is_in_frame(&self) -> bool {
        self.protocol.is_in_frame()
    }

    /// Whether there are bytes for the client.
    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Drops everything but the transport.
    pub(super) fn into_transport(self) -> Transport {
        self.transport
    }

    /// Whether the connection can be parked: all streams rest, and no byte is under way.
    pub(super) fn is_quiet(&mut self) -> bool {
        let is_between = self.read.is_empty() && self.out.is_empty() && self.transport.is_quiet();
        if !is_between {
            return false;
        }
        for stream in self.streams.iter().flatten() {
            if !stream.can_rest() {
                self.streams.iter().flatten().for_each(|stream| stream.ask_to_rest());
                return false;
            }
            self.protocol.set_held(stream.key, true);
        }
        let is_quiet = self.protocol.is_quiet();
        if !is_quiet {
            self.streams.iter().flatten().for_each(|it| self.protocol.set_held(it.key, false));
        }
        is_quiet
    }

    /// Whether there are streams.
    pub(super) fn has_streams(&self) -> bool {
        self.protocol.streams() > 0
    }

    /// Takes the streams of a quiet connection.
    pub(super) fn take_streams(&mut self) -> Vec<RestingStream> {
        let streams = std::mem::take(&mut self.streams);
        streams.into_iter().flatten().filter_map(|stream| stream.take_resting()).collect()
    }

    /// Continues with the streams of a connection that was parked, after some bytes.
    pub(super) fn resume_streams(&mut self, rest: &[u8], streams: Vec<RestingStream>) {
        self.out.resume(rest);
        let keys: Vec<StreamKey> = self.protocol.keys().collect();
        for RestingStream { stream, work } in streams {
            let Some(&key) = keys.iter().find(|key| key.id() == stream) else { continue };
            self.protocol.set_held(key, false);
            let (work, is_received) = match work {
                RestingWork::Body(body, entry) => {
                    let answer = Answer::again(&self.state, body, entry);
                    (Work::Sending(Sending { answer, left: None }), true)
                }
                RestingWork::Answer(answer, note) => {
                    let running = Running::again(&self.state);
                    (Work::Waiting(Waiting { answer, running, note }), true)
                }
                RestingWork::Socket(resting) => {
                    let waker = self.wakes.waker(key.slot());
                    let pipe = StreamPipe::at_rest(waker, resting);
                    (Work::Tunnel(pipe, Running::again(&self.state)), false)
                }
            };
            let mut stream = Stream::new(key, work, None);
            stream.is_received = is_received;
            self.put(Box::new(stream));
            self.note(key.slot());
        }
    }

    /// Asks the client to give up its table of fields before the connection is parked, if it has
    /// one. Whether it was asked now.
    pub(super) fn give_up_table(&mut self) -> bool {
        let has_table = self.protocol.table_bytes() > 0;
        if !has_table || std::mem::replace(&mut self.gives_up_table, true) {
            return false;
        }
        // The answer of the client is no activity.
        self.state.io_activity.is_resting.set(true);
        self.protocol.set_table(0, self.out.bytes())
    }

    /// Whether the client has given up its table on demand, and the connection is quiet.
    pub(super) fn has_given_up_table(&mut self) -> bool {
        self.gives_up_table && self.protocol.table_bytes() == 0 && self.is_quiet()
    }

    /// Returns the record of a quiet connection.
    pub(super) fn record(&self) -> Record {
        let mut record = Vec::new();
        self.protocol.to_record(&mut record);
        Record::from(Box::from(record))
    }

    /// Goes on as far as that is possible. Ready at the end of the connection.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.wakes.register(cx);
        self.due |= self.wakes.take();
        // In each turn, the streams may leave no operation for writing.
        if let Poll::Ready(Err(_)) = self.poll_write(cx) {
            return Poll::Ready(End::Gone);
        }
        loop {
            let read = self.poll_read(cx);
            match read {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(End::Gone),
                Poll::Ready(Ok(_)) => {
                    if self.receive().is_err() {
                        self.is_refused = true;
                        (self.streams, self.held) = (Vec::new(), 0);
                    }
                }
                Poll::Pending => {}
            }
            self.run_all(cx);
            let was_full = self.out.len() >= MOST_DATA;
            match self.poll_write(cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Ready(Ok(())) if self.is_refused => return Poll::Ready(End::Refused),
                Poll::Ready(Ok(())) if self.protocol.is_over() => return Poll::Ready(End::Over),
                // There is room for more, or for frames that were read and not used.
                Poll::Ready(Ok(())) if was_full || !self.read.is_empty() => {}
                _ if read.is_ready() && !self.is_refused => {}
                _ => return Poll::Pending,
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.out.poll_write(cx, &mut self.transport, &self.state.io_activity)
    }

    /// Reads bytes of the client after those that were not used yet.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let activity = &self.state.io_activity;
        if self.is_refused || self.out.len() >= MOST {
            return Poll::Pending;
        }
        if !self.read.is_empty() {
            // They may be used now.
            return match self.out.is_empty() {
                true => Poll::Ready(Ok(self.read.bytes().len())),
                false => Poll::Pending,
            };
        }
        if activity.has_read_enough(cx) {
            return Poll::Pending;
        }
        let transport = &mut self.transport;
        let fill = |room: &mut [u8]| AsyncRead::poll_read(Pin::new(transport), cx, room);
        let count = ready!(self.read.fill(fill))?;
        activity.read(count);
        Poll::Ready(Ok(count))
    }

    /// Handles the frames that were read.
    fn receive(&mut self) -> Result<(), ConnectionError> {
        let mut read = std::mem::take(&mut self.read);
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let mut used = 0;
        let outcome = loop {
            let bytes = &read.bytes()[used..];
            let unsent = self.out.len();
            if bytes.is_empty() || unsent >= MOST {
                break Ok(());
            }
            let step = self.protocol.receive(bytes, unsent, &mut scratch, self.out.bytes());
            match step {
                Err(error) => break Err(error),
                Ok(step) => {
                    used += step.used;
                    match step.event {
                        Event::Full => break Ok(()),
                        event => self.handle(event, bytes),
                    }
                }
            }
        };
        read.consume(used);
        self.read = read;
        SCRATCH.set(Some(scratch));
        outcome
    }

    fn handle(&mut self, event: Event<'_>, bytes: &[u8]) {
        match event {
            Event::Nothing | Event::Full => {}
            Event::Request { stream, head, is_over } => self.begin(stream, &head, is_over),
            Event::Refused { error, .. } => {
                if let StreamError::Head(why) = error {
                    self.state.context.worker.counters.refused_heads.count(why);
                }
            }
            Event::Data { stream, data, is_over } => self.push(stream, &bytes[data], is_over),
            Event::Trailers { stream: key, fields } => {
                if let Some(stream) = self.stream(key) {
                    stream.is_received = true;
                    if let Some(arriving) = &mut stream.arriving {
                        arriving.push_trailers(fields);
                    }
                    self.received(key);
                }
            }
            Event::Reset { stream, .. } | Event::Failed { stream, .. } => self.remove(stream),
            Event::WindowOpened { .. } => _ = self.feed_starved(),
            Event::GoAway { .. } => _ = self.finish_shutdown(),
        }
    }

    fn stream(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(key.slot())?.as_deref_mut();
        stream.filter(|stream| stream.key == key)
    }

    fn remove(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get_mut(key.slot()).and_then(Option::take) {
            self.held -= stream.rest.len();
            drop(stream);
        }
    }

    fn put(&mut self, stream: Box<Stream>) {
        let slot = stream.key.slot();
        while self.streams.len() <= slot {
            self.wakers.push(self.wakes.waker(self.streams.len()));
            self.streams.push(None);
        }
        self.streams[slot] = Some(stream);
    }

    /// Notes that a stream has something to do.
    fn note(&mut self, slot: usize) {
        self.due |= 1 << slot;
    }

    /// Takes a stream that has something to do, each in its turn.
    fn take_due(&mut self) -> Option<usize> {
        if self.due == 0 {
            return None;
        }
        let slot = (self.turn + self.due.rotate_right(self.turn).trailing_zeros()) % u128::BITS;
        self.due &= !(1 << slot);
        self.turn = (slot + 1) % u128::BITS;
        Some(slot as usize)
    }

    /// Takes data of a request.
    fn push(&mut self, key: StreamKey, data: &[u8], is_over: bool) {
        let Some(stream) = self.stream(key) else { return };
        stream.is_received |= is_over;
        let unread = match (&mut stream.arriving, &stream.work) {
            (Some(arriving), _) => arriving.push(data, is_over),
            (None, Work::Tunnel(pipe, _)) => {
                pipe.push(data, is_over);
                0
            }
            (None, _) => data.len(),
        };
        self.protocol.release(key, unread, self.out.bytes());
        match is_over {
            true => self.received(key),
            false => self.note(key.slot()),
        }
    }

    /// Notes that all of a request has arrived. Its stream may be over then.
    fn received(&mut self, key: StreamKey) {
        match self.stream(key) {
            Some(stream) if stream.is_sent => {
                if let Some(arriving) = stream.arriving.take() {
                    self.leave(arriving);
                }
                self.remove(key);
            }
            Some(_) => self.note(key.slot()),
            None => {}
        }
    }

    /// Leaves the rest of a request to its handler, which reads on although the stream has ended.
    /// No window bounds such bytes any more, so beyond [`MOST_HELD`] they are dropped.
    fn leave(&self, arriving: ArrivingBody) {
        let (left_over, length) = (self.left_over.clone(), arriving.len());
        let all = left_over.get() + length;
        if all <= MOST_HELD {
            left_over.set(all);
            let finish = async move {
                arriving.finish().await;
                left_over.set(left_over.get() - length);
            };
            spawn(finish).detach();
        }
    }

    /// Begins to answer a request.
    fn begin(&mut self, key: StreamKey, head: &RequestHead<'_>, is_over: bool) {
        self.state.io_activity.is_resting.set(false);
        self.gives_up_table = false;
        if !self.protocol.allows_table() {
            self.protocol.set_table(Config::DEFAULT.table, self.out.bytes());
        }
        let (interim, is_grpc) = (Rc::default(), grpc::is_call(head));
        let (arriving, body) = match is_over {
            true => (None, RequestBody::Empty),
            false => {
                let (arriving, body) = ArrivingBody::new(head.length, head.wants.continues);
                (Some(arriving), body)
            }
        };
        let (serving, handshake, unread) = match head.protocol {
            None => {
                let begun = Begun::new(&self.state, Head::from(head), || usual_bytes(head));
                if is_over
                    && !is_grpc
                    && let Decision::Ready(ready) = &begun.routed.decision
                    && ready.is_plain(&begun.routed.additions)
                {
                    return self.answer_now(key, begun);
                }
                let upload = begun.upload(body);
                let of_client = ClientHead::of_http2(head, is_over);
                let request = match begun.prepare(of_client, &[], &self.facts) {
                    None => Source::Head(|| to_request_of_http2(head, upload)),
                    Some((mut request, body)) => {
                        if let Err(writer) = body {
                            request.expect(writer, upload);
                        }
                        Source::Prepared(Box::new(request))
                    }
                };
                (begun.serve(request, Some(&interim), None), None, None)
            }
            // The bytes that follow are not a body.
            Some(protocol) => match to_request_of_http2(head, RequestBody::Empty) {
                Some(mut request) => {
                    let handshake = Handshake::of(protocol, &mut request);
                    let about = Head::from(&request);
                    let begun = Begun::new(&self.state, about, || usual_bytes(head));
                    let request = request.map(|body| begun.upload(body));
                    let request = Source::Head(|| Some(request));
                    let serving = begun.serve(request, None, handshake.as_deref());
                    (serving, handshake, Some(body))
                }
                None => return self.reset(key, ErrorCode::INTERNAL_ERROR),
            },
        };
        let answering = Answering { serving, interim, handshake, is_grpc, _unread: unread };
        let work = Work::Answering(answering);
        self.put(Box::new(Stream::new(key, work, arriving)));
        self.note(key.slot());
    }

    /// Answers a request whose answer is there, from where it is.
    fn answer_now(&mut self, key: StreamKey, mut begun: Begun) {
        begun.routed.additions.trace = begun.trace.take();
        let Decision::Ready(ready) = &begun.routed.decision else { return };
        let (additions, out) = (&begun.routed.additions, self.out.bytes());
        let written = begin_stream(ready, additions, &mut self.protocol, key, out);
        let Some((status, bytes)) = written else { return };
        let is_over = bytes.is_empty();
        let answer = begun.answered(status, bytes.into());
        if !is_over {
            let sending = Sending { answer, left: None };
            let work = Work::Sending(sending);
            self.put(Box::new(Stream::new(key, work, None)));
            self.note(key.slot());
        }
    }

    fn reset(&mut self, key: StreamKey, code: ErrorCode) {
        // It may have ended.
        let _ = self.protocol.reset(key, code, self.out.bytes());
    }

    /// Runs the streams that have something to do, and writes data as long as there is room for it.
    fn run_all(&mut self, cx: &Context<'_>) {
        loop {
            while let Some(slot) = self.take_due() {
                self.run(slot);
                if !has_budget_remaining() {
                    // A stream that does more notes itself at once, and has to let tasks run first.
                    cx.waker().wake_by_ref();
                    self.produce();
                    return;
                }
            }
            if !self.produce() {
                return;
            }
        }
    }

    fn run(&mut self, slot: usize) {
        let Some(mut stream) = self.streams.get_mut(slot).and_then(Option::take) else { return };
        let waker = self.wakers[slot].clone();
        let mut cx = Context::from_waker(&waker);
        while self.step(&mut stream, &mut cx) {}
        if self.is_over(&mut stream) {
            self.held -= stream.rest.len();
        } else {
            self.streams[slot] = Some(stream);
        }
    }

    /// Goes on with a stream. Whether there may be more to do.
    fn step(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> bool {
        let has_more = match &mut stream.work {
            Work::Answering(answering) => match Pin::new(&mut answering.serving).poll(cx) {
                Poll::Ready(Ok(response)) => {
                    // It would be taken for that of another stream.
                    self.state.plan.take();
                    let handshake = answering.handshake.take();
                    let is_grpc = answering.is_grpc;
                    if response.extensions().get::<NoAnswer>().is_some() {
                        self.reset(stream.key, ErrorCode::CANCEL);
                        stream.end(true);
                        return true;
                    }
                    match response.extensions().get() {
                        Some(&reset) if is_grpc => {
                            // Its code says more than a status, as that a deadline is over.
                            self.reset(stream.key, code_of(reset));
                            stream.end(true);
                        }
                        _ if is_grpc => self.answer(stream, grpc::translate(response), handshake),
                        _ => self.answer(stream, response, handshake),
                    }
                    true
                }
                Poll::Pending => match answering.interim.take() {
                    Some(lines) => {
                        self.show(stream.key, &lines);
                        true
                    }
                    None => self.wait(stream),
                },
            },
            Work::Waiting(waiting) => match waiting.answer.poll(cx) {
                Poll::Ready(response) => {
                    self.answer_waiting(stream, response);
                    true
                }
                Poll::Pending => false,
            },
            Work::Sending(_) => self.fill(stream, cx),
            Work::Tunnel(..) => self.fill_from_tunnel(stream),
            Work::Uploading => false,
        };
        self.feed(stream, cx) || has_more
    }

    /// Lets a request wait without its handler, if that has left an answer for it.
    fn wait(&self, stream: &mut Stream) -> bool {
        if let Some(Plan::Rest(answer)) = self.state.plan.take()
            && let Work::Answering(answering) = &mut stream.work
            && let Some((running, note)) = answering.serving.take_rest()
        {
            stream.work = Work::Waiting(Waiting { answer, running, note });
            return true;
        }
        false
    }

    /// Answers a request that has waited.
    fn answer_waiting(&mut self, stream: &mut Stream, response: Response<Body>) {
        if let Work::Waiting(Waiting { running, note, .. }) =
            std::mem::replace(&mut stream.work, Work::Uploading)
        {
            let response = self.state.clone().finish(running, note, response);
            self.answer(stream, response, None);
        }
    }

    /// Gives the handler more of the request. Whether there was some.
    fn feed(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> bool {
        let Some(arriving) = &mut stream.arriving else { return false };
        let fed = arriving.feed(cx);
        let given = match fed {
            Fed::Nothing => arriving.drop_unread(),
            Fed::Invites => {
                // Never behind the response.
                let invited =
                    self.protocol.interim(stream.key, StatusCode::CONTINUE, self.out.bytes());
                invited.into_iter().for_each(HeadWriter::finish);
                0
            }
            Fed::Some(count) => count,
        };
        self.protocol.release(stream.key, given, self.out.bytes());
        if arriving.is_over() && stream.is_received {
            stream.arriving = None;
        }
        matches!(fed, Fed::Some(_))
    }

    /// Whether nothing is left of a stream. If only the rest of a request is left that the handler
    /// does not read, the stream is ended here.
    fn is_over(&mut self, stream: &mut Stream) -> bool {
        if !stream.is_sent {
            return false;
        }
        if stream.is_received {
            if let Some(arriving) = stream.arriving.take() {
                self.leave(arriving);
            }
            return true;
        }
        let is_read = match &stream.work {
            Work::Tunnel(pipe, _) => !pipe.is_dropped(),
            _ => stream.arriving.as_ref().is_some_and(|arriving| !arriving.is_over()),
        };
        if !is_read {
            self.reset(stream.key, ErrorCode::NO_ERROR);
        }
        !is_read
    }

    /// Writes an interim response, whose lines are those of HTTP/1.
    fn show(&mut self, key: StreamKey, lines: &[u8]) {
        let mut scratch = Vec::new();
        let mut room = Room::new(&mut scratch);
        let read = response(lines, Asked::default(), &Http1Limits::DEFAULT, &mut room);
        let Ok(Some(Http1Response::Interim(head))) = read else { return };
        if let Ok(mut writer) = self.protocol.interim(key, head.status, self.out.bytes()) {
            head.fields.iter().for_each(|field| writer.field(field.name, field.value));
            writer.finish();
        }
    }

    /// Writes the head of a response, and goes on with its body.
    fn answer(
        &mut self,
        stream: &mut Stream,
        response: Response<Answer>,
        handshake: Option<Box<Handshake>>,
    ) {
        let (parts, mut answer) = response.into_parts();
        let key = stream.key;
        let plan = handshake.and_then(|handshake| handshake.plan.take());
        let then = match plan {
            Some(Plan::TakeOver(then)) if parts.status == StatusCode::OK => Some(then),
            _ => None,
        };
        let is_over = then.is_none() && answer.is_end_stream();
        let mut left = None;
        let out = self.out.bytes();
        let Ok(mut writer) = self.protocol.respond(key, parts.status, is_over, out) else {
            stream.end(true);
            return;
        };
        let mut has_date = false;
        for (name, value) in &parts.headers {
            has_date |= name == DATE;
            writer.field(name.into(), value.into());
        }
        if !has_date {
            date(|date| writer.field((&DATE).into(), date.into()));
        }
        if !is_over && then.is_none() {
            let announced = parts.headers.get(CONTENT_LENGTH);
            left = announced.and_then(|length| length.to_str().ok()?.parse().ok());
            if let (None, Some(length)) = (announced, answer.size_hint().exact()) {
                left = Some(length);
                writer.field((&CONTENT_LENGTH).into(), (&HeaderValue::from(length)).into());
            }
        }
        writer.finish();
        recycle(parts.headers);
        if let Some(then) = then {
            let (data, has_ended) = match stream.arriving.take() {
                Some(arriving) => arriving.into_data(),
                None => (BytesMut::new(), true),
            };
            let waker = self.wakers[key.slot()].clone();
            let (pipe, io) = StreamPipe::new(waker, data, has_ended);
            spawn(then(Transport::Stream(Box::new(io)), Bytes::new())).detach();
            stream.work = Work::Tunnel(pipe, Running::again(&self.state));
        } else if is_over {
            stream.end(false);
        } else {
            answer.limit_reads(READ);
            stream.work = Work::Sending(Sending { answer, left });
        }
    }

    /// Takes the next frame of a body, if there is nothing to write of the last one. Whether there
    /// may be more to do.
    fn fill(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> bool {
        let Work::Sending(sending) = &mut stream.work else { return false };
        let key = stream.key;
        if !stream.rest.is_empty() {
            return false;
        }
        if self.held >= MOST_HELD && self.protocol.capacity(key) == 0 {
            (stream.is_starved, self.has_starved) = (true, true);
            return false;
        }
        let outcome = match Pin::new(&mut sending.answer).poll_frame(cx) {
            Poll::Pending => return false,
            Poll::Ready(frame) => frame.transpose(),
        };
        let is_whole = sending.left.is_none_or(|left| left == 0);
        let mut refused = 0;
        let mut code = ErrorCode::INTERNAL_ERROR;
        match outcome.map(|frame| frame.map(http_body::Frame::into_data)) {
            Ok(Some(Ok(data))) if data.is_empty() => return true,
            Ok(Some(Ok(data))) => {
                let length = data.len() as u64;
                refused = length;
                let left = sending.left.map(|left| left.checked_sub(length));
                if left != Some(None) {
                    sending.left = left.flatten();
                    self.held += data.len();
                    stream.rest = data;
                    self.protocol.set_ready(key, true);
                    return false;
                }
            }
            Ok(Some(Err(frame))) if is_whole => {
                self.end(key, frame.into_trailers().unwrap_or_default());
                stream.end(false);
                return true;
            }
            Ok(None) if is_whole => {
                self.end(key, HeaderMap::new());
                stream.end(false);
                return true;
            }
            Err(error) => code = reset_code(&error),
            _ => {}
        }
        // It has failed, or is not as long as was announced.
        sending.answer.break_off(refused);
        self.reset(key, code);
        stream.end(true);
        true
    }

    /// Ends a response, maybe with fields after its body.
    fn end(&mut self, key: StreamKey, trailers: HeaderMap) {
        if trailers.is_empty() {
            let _ = self.protocol.data_head(key, 0, true, self.out.bytes());
        } else if let Ok(mut writer) = self.protocol.trailers(key, self.out.bytes()) {
            trailers.iter().for_each(|(name, value)| writer.field(name.into(), value.into()));
            writer.finish();
        }
    }

    /// The same of a stream that has left HTTP.
    fn fill_from_tunnel(&mut self, stream: &mut Stream) -> bool {
        let Work::Tunnel(pipe, _) = &stream.work else { return false };
        let key = stream.key;
        pipe.resume();
        self.protocol.release(key, pipe.take_read(), self.out.bytes());
        if !stream.rest.is_empty() {
            return false;
        }
        let data = pipe.take_written();
        if !data.is_empty() {
            self.held += data.len();
            stream.rest = data;
            self.protocol.set_ready(key, true);
        } else if pipe.is_over() && !stream.is_sent {
            self.end(key, HeaderMap::new());
            // The other protocol may still read.
            stream.is_sent = true;
        }
        false
    }

    /// Writes data of the streams whose turn it is. Whether some of them can have more.
    fn produce(&mut self) -> bool {
        let mut has_more = false;
        while self.out.len() < MOST_DATA
            && let Some((key, _)) = self.protocol.next_writable()
        {
            let Some(stream) = self.streams.get_mut(key.slot()).and_then(Option::as_deref_mut)
            else {
                self.protocol.set_ready(key, false);
                continue;
            };
            let is_last = stream.is_last();
            let written = self.protocol.data(key, &stream.rest, is_last, self.out.bytes());
            // The codec has just named it.
            let Ok(count @ 1..) = written else {
                self.protocol.set_ready(key, false);
                continue;
            };
            stream.rest.advance(count);
            stream.has_moved = true;
            self.held -= count;
            if stream.rest.is_empty() {
                // The memory of a frame may be needed for the next one.
                stream.rest = Bytes::new();
                self.protocol.set_ready(key, false);
                if is_last {
                    stream.end(false);
                }
                self.note(key.slot());
                has_more = true;
            }
        }
        // Streams that are noted here have their turn before the task waits.
        (self.held < MOST_HELD && self.feed_starved()) || has_more
    }

    /// Lets streams look again whether they may take more of their bodies; whether there are some.
    fn feed_starved(&mut self) -> bool {
        if !std::mem::take(&mut self.has_starved) {
            return false;
        }
        for (slot, stream) in self.streams.iter_mut().enumerate() {
            if let Some(stream) = stream
                && std::mem::take(&mut stream.is_starved)
            {
                self.due |= 1 << slot;
            }
        }
        true
    }

    /// Resets streams with data, if none of it was written for this long.
    ///
    /// While the connection itself is stuck, no stream can move.
    pub(super) fn end_stalled(&mut self, now: Instant, limit: Duration) {
        let is_stuck = !self.out.is_empty();
        for slot in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[slot] else { continue };
            if matches!(&stream.work, Work::Tunnel(..)) {
                // The rights of one that rests may be over.
                self.due |= 1 << slot;
            }
            let has_moved = std::mem::take(&mut stream.has_moved);
            let since = *stream.since.get_or_insert(now);
            // A protocol has time limits of its own, up to its end.
            if has_moved || stream.rest.is_empty() || is_stuck || stream.is_in_tunnel() {
                stream.since = Some(now);
            } else if now.saturating_duration_since(since) >= limit {
                let key = stream.key;
                self.reset(key, ErrorCode::CANCEL);
                self.remove(key);
            }
        }
    }
}

/// Returns the code that tells a client why the body of its response has ended: that of the server,
/// unless it is about the connection to the server.
fn reset_code(error: &io::Error) -> ErrorCode {
    let reset = error.get_ref().and_then(|cause| cause.downcast_ref());
    reset.map_or(ErrorCode::INTERNAL_ERROR, |&reset| code_of(reset))
}

fn code_of(StreamReset(code): StreamReset) -> ErrorCode {
    match ErrorCode(code) {
        code @ (ErrorCode::CANCEL
        | ErrorCode::REFUSED_STREAM
        | ErrorCode::ENHANCE_YOUR_CALM
        | ErrorCode::INADEQUATE_SECURITY) => code,
        _ => ErrorCode::INTERNAL_ERROR,
    }
}

/// Returns the length of a request's head in the usual spelling of HTTP/1.1, with one space after
/// each colon.
fn usual_bytes(head: &RequestHead<'_>) -> usize {
    let scheme = head.scheme.map_or(0, |scheme| scheme.len() + "://".len());
    let target = scheme + head.host.as_str().len() + head.target.as_str().len();
    let line = head.method.as_str().len() + " HTTP/1.1\r\n".len() + 1 + target;
    let field = |field: superpoll_http1::Field<'_>| {
        field.name.as_bytes().len() + ": \r\n".len() + field.value.as_bytes().len()
    };
    line + head.fields.iter().map(field).sum::<usize>() + "\r\n".len()
}
