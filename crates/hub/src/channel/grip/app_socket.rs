//! A WebSocket whose application is called by requests of HTTP (WebSocket-over-HTTP).
//!
//! What the client sends becomes events, and the application answers with events of its own: for
//! the client, or, if it has asked for that in its first answer, for the gateway (`control`). One
//! request is under way at a time, and the events meanwhile go into the next. While nothing is
//! under way the WebSocket is parked, with the handshake, which each request repeats.
//!
//! Pings are answered here, and no application hears of them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, SEC_WEBSOCKET_EXTENSIONS};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use superpoll_http::exchange::LocalFuture;
use superpoll_http::held::{FrameKind, HeldFor, HeldRecord, HeldRequest, HeldSocket};
use superpoll_http::peer::Peer;
use superpoll_rt::time::{self, Sleep, sleep_until};

use super::content::frame;
use super::control::{self, Control};
use super::events::{self, Event, MEDIA_TYPE};
use super::filters;
use super::instruct::{self};
use super::item::{Item, LONGEST_CONTROL, SocketFormat, close_code, shortened};
use super::route::{HeldRoute, Unasked, Way, collect, fields_of};
use super::stream::{Due, due};
use crate::channel::local_subscribers::{LocalSubscribers, Subscription};
use crate::channel::message::Message;
use crate::channel::moment::Moment;

/// The seconds before each further attempt to call an application that is away.
const RETRIES: [u64; 5] = [1, 2, 4, 8, 16];

/// The bytes of events that wait for the application before no more are read.
const MOST_EVENTS: usize = 256 << 10;

/// The shortest time between calls in silence, in seconds.
const SHORTEST_CALL: u32 = 20;

/// The time between two looks whether the connections of a server before are all here.
const GATHERING: Duration = Duration::from_millis(20);

/// The most messages that are sent later, and the longest time.
const MOST_DELAYED: usize = 32;
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

pub(super) const CONNECTION_ID: HeaderName = HeaderName::from_static("connection-id");
pub(super) const INTERVAL: HeaderName = HeaderName::from_static("keep-alive-interval");

/// What a WebSocket is to do after its application has answered.
pub(in crate::channel) enum Step {
    /// These bytes are frames for the client.
    Send(Vec<u8>),
    /// It ends with this code and reason.
    Close(u16, String),
    /// It ends without a word.
    Abort,
}

/// An application's answer.
pub(super) struct Answered {
    pub fields: HeaderMap,
    pub events: Vec<Event>,
}

/// The reason for which there is no answer.
enum NoAnswer {
    /// No server got the events.
    NotSent,
    Failed(String),
}

/// The application's side of a WebSocket.
pub(in crate::channel) struct AppSocket {
    pub(super) record: HeldRecord,
    peer: Rc<Peer>,
    events: VecDeque<Event>,
    cost: usize,
    /// The request that is under way, with the body that it has.
    calling: Option<LocalFuture<Result<Answered, NoAnswer>>>,
    body: Bytes,
    /// The time before it is sent again, and how often it was.
    pause: Option<Pin<Box<Sleep>>>,
    attempts: usize,
    delayed: Vec<(Instant, Vec<u8>)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The application has been told of the end, or has ended it itself.
    is_told: bool,
}

/// The state of a WebSocket in a record.
fn state(record: &HeldRecord) -> Option<(&HeldRequest, &HeldSocket)> {
    match &record.purpose {
        HeldFor::Socket { request, socket } => Some((request, socket)),
        _ => None,
    }
}

impl AppSocket {
    /// Continues with a WebSocket.
    pub(in crate::channel) fn new(record: &HeldRecord, peer: &Rc<Peer>) -> AppSocket {
        AppSocket {
            record: record.clone(),
            peer: peer.clone(),
            events: VecDeque::new(),
            cost: 0,
            calling: None,
            body: Bytes::new(),
            pause: None,
            attempts: 0,
            delayed: Vec::new(),
            timer: None,
            is_told: false,
        }
    }

    fn socket(&self) -> Option<&HeldSocket> {
        state(&self.record).map(|(_, socket)| socket)
    }

    fn is_detached(&self) -> bool {
        self.socket().is_none_or(|socket| socket.is_detached)
    }

    /// Whether nothing is under way.
    pub(in crate::channel) fn is_idle(&self) -> bool {
        self.events.is_empty()
            && self.calling.is_none()
            && self.pause.is_none()
            && self.delayed.is_empty()
    }

    /// Whether so many events wait that no more are read.
    pub(in crate::channel) fn is_full(&self) -> bool {
        self.cost >= MOST_EVENTS
    }

    fn push(&mut self, event: Event) {
        if !self.is_detached() && !self.is_told {
            self.cost += event.cost();
            self.events.push_back(event);
        }
    }

    /// Whether it takes no items now: their bytes may be its own, and a successor that has an older
    /// state of it would take them for those of all.
    pub(in crate::channel) fn waits(&self, by: &LocalSubscribers) -> bool {
        by.hub.is_gathering() && filters::have_own(&self.record)
    }

    /// Takes a message of the client.
    pub(in crate::channel) fn message(&mut self, kind: FrameKind, content: Bytes) {
        self.push(Event::Message(kind, content));
    }

    /// Notes the end, by the client or by an item: the application is told.
    pub(in crate::channel) fn closed(&mut self, code: Option<(u16, &str)>) {
        let content = code.map_or_else(Vec::new, |(code, reason)| {
            [&code.to_be_bytes(), reason.as_bytes()].concat()
        });
        self.push(Event::Close(content.into()));
        self.is_told = true;
    }

    /// Returns what an item is to the client, if it gets the item.
    pub(in crate::channel) fn take(&mut self, message: &Message) -> Option<Step> {
        let item = Item::of(message)?;
        if !filters::let_through(&self.record, &item) {
            return None;
        }
        match item.socket.as_ref()? {
            SocketFormat::Message { kind, content } => {
                let content = filters::filled(&self.record, &item, content)?;
                let mut bytes = Vec::new();
                frame(*kind, &content, &mut bytes);
                Some(Step::Send(bytes))
            }
            SocketFormat::Close { code, reason } => {
                self.closed(None);
                Some(Step::Close(*code, reason.to_string()))
            }
        }
    }

    /// Continues with what is under way; ready with the next steps, or when something has changed.
    pub(in crate::channel) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        at: &Subscription,
    ) -> Poll<Vec<Step>> {
        if let Some(calling) = &mut self.calling {
            if let Poll::Ready(outcome) = calling.as_mut().poll(cx) {
                self.calling = None;
                return Poll::Ready(self.answered(outcome, at));
            }
        } else if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(cx).is_ready() {
                self.pause = None;
                return self.call(at);
            }
        } else if !self.events.is_empty() {
            self.body = self.take_events();
            self.attempts = 0;
            return self.call(at);
        }
        let now = time::now();
        let mut until = None;
        if let Some((next, _)) = self.delayed.iter().min_by_key(|(at, _)| *at) {
            if *next <= now {
                return Poll::Ready(self.due_messages(now));
            }
            until = Some(*next);
        }
        let by = &at.local_subscribers;
        if let Some((left, due)) = due(&self.record, by.held_times(at.index))
            && self.calling.is_none()
            && self.pause.is_none()
        {
            if left.is_zero() && !by.hub.is_gathering() {
                return self.silent(due, at);
            }
            let left = left.max(GATHERING);
            until = until.into_iter().chain([now + left]).min();
        }
        if by.hub.is_gathering() && filters::have_own(&self.record) {
            until = until.into_iter().chain([now + GATHERING]).min();
        }
        let Some(until) = until else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().get_mut().reset(until);
        timer.as_mut().poll(cx).map(|()| Vec::new())
    }

    /// Does what is due after a silence.
    fn silent(&mut self, due: Due, at: &Subscription) -> Poll<Vec<Step>> {
        let (by, now) = (&at.local_subscribers, Moment::now());
        if due == Due::Call {
            by.note_held(at.index, |times| times.news = now);
            (self.body, self.attempts) = (Bytes::new(), 0);
            return self.call(at);
        }
        by.note_held(at.index, |times| (times.kept, times.sent) = (now, now));
        let mut bytes = Vec::new();
        if let Some(keep_alive) = &self.record.keep_alive {
            frame(keep_alive.kind, &keep_alive.content, &mut bytes);
        }
        Poll::Ready(vec![Step::Send(bytes)])
    }

    fn due_messages(&mut self, now: Instant) -> Vec<Step> {
        self.delayed.sort_by_key(|(at, _)| *at);
        let count = self.delayed.partition_point(|(at, _)| *at <= now);
        self.delayed.drain(..count).map(|(_, bytes)| Step::Send(bytes)).collect()
    }

    fn take_events(&mut self) -> Bytes {
        let mut body = Vec::new();
        self.events.drain(..).for_each(|event| event.write(&mut body));
        self.cost = 0;
        body.into()
    }

    /// Calls the application with the body.
    fn call(&mut self, at: &Subscription) -> Poll<Vec<Step>> {
        let Some(route) = at.local_subscribers.route_of(&self.record) else {
            // The configuration has no such route any more.
            self.is_told = true;
            return Poll::Ready(vec![Step::Close(1001, String::new())]);
        };
        let Some((request, socket)) = state(&self.record) else {
            return Poll::Ready(vec![Step::Abort]);
        };
        let call =
            call(route, request, socket.id, &self.record.meta, self.body.clone(), &self.peer);
        self.calling = Some(Box::pin(call));
        at.local_subscribers.note_held(at.index, |times| times.news = Moment::now());
        Poll::Ready(Vec::new())
    }

    /// Continues with an answer, or without one.
    fn answered(&mut self, outcome: Result<Answered, NoAnswer>, at: &Subscription) -> Vec<Step> {
        let what = match outcome {
            Ok(answered) => {
                self.body = Bytes::new();
                let steps = self.follow(answered);
                at.local_subscribers.read_as(at.index, self.record.clone(), false);
                return steps;
            }
            Err(NoAnswer::NotSent) => match RETRIES.get(self.attempts) {
                Some(seconds) => {
                    // Not all WebSockets at once.
                    let more = at.index as u64 % 1000;
                    let until = time::now() + Duration::from_millis(seconds * 1000 + more);
                    self.pause = Some(Box::pin(sleep_until(until)));
                    self.attempts += 1;
                    return Vec::new();
                }
                None => "no server takes the events of a WebSocket".to_owned(),
            },
            Err(NoAnswer::Failed(what)) => what,
        };
        if let Some(route) = at.local_subscribers.route_of(&self.record) {
            route.report(&what);
        }
        self.is_told = true;
        vec![Step::Abort]
    }

    /// Follows the events in a response of the application.
    pub(super) fn follow(&mut self, answered: Answered) -> Vec<Step> {
        self.set_values(&answered.fields);
        let mut steps = Vec::new();
        if self.is_detached() {
            // It is the answer to the end that the application has been told of.
            return steps;
        }
        for event in answered.events {
            match event {
                Event::Open => {}
                Event::Message(kind, content) => self.message_of_app(kind, &content, &mut steps),
                Event::Close(content) => {
                    let code = content
                        .get(..2)
                        .map_or(1000, |code| close_code(u16::from_be_bytes([code[0], code[1]])));
                    let reason = content.get(2..).unwrap_or_default();
                    let reason = String::from_utf8_lossy(reason);
                    if !self.is_told {
                        let told = content.get(..2).map(|_| (code, &*reason));
                        self.closed(told);
                    }
                    steps.push(Step::Close(code, shortened(&reason).to_owned()));
                    break;
                }
                Event::Disconnect => {
                    self.is_told = true;
                    steps.push(Step::Abort);
                    break;
                }
            }
        }
        steps
    }

    fn message_of_app(&mut self, kind: FrameKind, content: &Bytes, steps: &mut Vec<Step>) {
        let is_control = matches!(kind, FrameKind::Ping | FrameKind::Pong);
        if is_control && content.len() > LONGEST_CONTROL {
            return;
        }
        let mut content = content.clone();
        if let Some(prefix) = self.socket().and_then(|socket| socket.prefix.as_deref())
            && !is_control
        {
            if kind == FrameKind::Text
                && let Some(json) = content.strip_prefix(b"c:")
            {
                let json = json.to_vec();
                return self.control(&json, steps);
            }
            match content.strip_prefix(prefix.as_bytes()) {
                Some(rest) => content = content.slice_ref(rest),
                // Not for the client.
                None => return,
            }
        }
        if kind == FrameKind::Text && std::str::from_utf8(&content).is_err() {
            return;
        }
        let mut bytes = Vec::new();
        frame(kind, &content, &mut bytes);
        steps.push(Step::Send(bytes));
    }

    /// Does what a message for the gateway says. One that is not understood does nothing.
    fn control(&mut self, json: &[u8], steps: &mut Vec<Step>) {
        match control::read(json) {
            None => {}
            Some(Control::Subscribe(channel)) => {
                let channels = &mut self.record.channels;
                channels.retain(|known| known.name != channel.name);
                if channels.len() < instruct::MOST_CHANNELS {
                    channels.push(channel);
                }
            }
            Some(Control::Unsubscribe(name)) => {
                self.record.channels.retain(|known| *known.name != *name);
            }
            Some(Control::Detach) => {
                self.push(Event::Close(Bytes::new()));
                // What is there goes out; nothing follows.
                self.is_told = true;
                if let HeldFor::Socket { socket, .. } = &mut self.record.purpose {
                    socket.is_detached = true;
                }
            }
            Some(Control::KeepAlive(keep_alive)) => {
                self.record.keep_alive = keep_alive.map(Arc::new)
            }
            Some(Control::SetMeta(name, value)) => {
                let _ = instruct::set_value(&mut self.record.meta, &name, &value);
            }
            Some(Control::SendDelayed(..)) if self.delayed.len() >= MOST_DELAYED => {}
            Some(Control::SendDelayed(kind, content, delay)) => {
                let mut bytes = Vec::new();
                frame(kind, &content, &mut bytes);
                self.delayed.push((time::now() + delay.min(LONGEST_DELAY), bytes));
            }
            Some(Control::FlushDelayed) => {
                self.delayed.sort_by_key(|(at, _)| *at);
                steps.extend(self.delayed.drain(..).map(|(_, bytes)| Step::Send(bytes)));
            }
        }
    }

    /// Sets the values that an answer has in its fields.
    fn set_values(&mut self, fields: &HeaderMap) {
        for (name, value) in fields {
            let Some(name) = name.as_str().strip_prefix("set-meta-") else { continue };
            let value = instruct::text_of(value);
            let _ = instruct::set_value(&mut self.record.meta, name, value.trim());
        }
        if let Some(seconds) =
            fields.get(INTERVAL).and_then(|value| value.to_str().ok()?.parse().ok())
            && let HeldFor::Socket { socket, .. } = &mut self.record.purpose
        {
            let seconds: u32 = seconds;
            socket.call_seconds = (seconds > 0).then(|| seconds.max(SHORTEST_CALL));
        }
    }

    /// Tells the application of the end, after all events that wait. The connection is gone.
    pub(in crate::channel) fn finish(mut self, at: &Subscription) {
        if !self.is_detached() && !self.is_told {
            self.push(Event::Disconnect);
        }
        // The place that it leaves does not tell of its end again.
        if let HeldFor::Socket { socket, .. } = &mut self.record.purpose {
            socket.is_detached = true;
        }
        at.local_subscribers.read_as(at.index, self.record.clone(), false);
        let has_rest = !self.events.is_empty() || self.calling.is_some() || self.pause.is_some();
        if let Some(route) = at.local_subscribers.route_of(&self.record).filter(|_| has_rest) {
            let rest = self.rest(route.clone());
            route.say_goodbye(Box::pin(rest));
        }
    }

    /// Sends the events that are left.
    async fn rest(mut self, route: Rc<HeldRoute>) {
        let mut is_unsent = self.pause.is_some();
        if let Some(calling) = self.calling.take() {
            match calling.await {
                Ok(_) => {}
                Err(NoAnswer::NotSent) => is_unsent = true,
                Err(NoAnswer::Failed(_)) => return,
            }
        }
        let mut bodies = vec![self.take_events()];
        if is_unsent {
            bodies.insert(0, self.body.clone());
        }
        for body in bodies.into_iter().filter(|body| !body.is_empty()) {
            let Some((request, socket)) = state(&self.record) else { return };
            for seconds in std::iter::once(0).chain(RETRIES) {
                if seconds > 0 {
                    time::sleep(Duration::from_secs(seconds)).await;
                }
                let (meta, body) = (&self.record.meta, body.clone());
                let called = call(route.clone(), request, socket.id, meta, body, &self.peer).await;
                if !matches!(called, Err(NoAnswer::NotSent)) {
                    break;
                }
            }
        }
    }
}

/// Tells the application of a parked WebSocket that its client has gone.
pub(in crate::channel) fn tell_gone(route: Rc<HeldRoute>, held: &HeldRecord) {
    let Some((request, socket)) = state(held).filter(|(_, socket)| !socket.is_detached) else {
        return;
    };
    let mut body = Vec::new();
    Event::Disconnect.write(&mut body);
    let (request, id, meta) = (request.clone(), socket.id, held.meta.clone());
    let asked = route.clone();
    route.say_goodbye(Box::pin(async move {
        for seconds in std::iter::once(0).chain(RETRIES) {
            time::sleep(Duration::from_secs(seconds)).await;
            let (asked, body) = (asked.clone(), body.clone().into());
            let called = call(asked, &request, id, &meta, body, &Rc::default()).await;
            if !matches!(called, Err(NoAnswer::NotSent)) {
                return;
            }
        }
    }));
}

/// Calls an application with events.
fn call(
    route: Rc<HeldRoute>,
    request: &HeldRequest,
    id: [u8; 16],
    meta: &[(Box<str>, Box<str>)],
    body: Bytes,
    peer: &Rc<Peer>,
) -> impl Future<Output = Result<Answered, NoAnswer>> + use<> {
    let mut fields = fields_of(request);
    for (name, value) in [
        (ACCEPT, MEDIA_TYPE.to_owned()),
        (CONTENT_TYPE, MEDIA_TYPE.to_owned()),
        (CONNECTION_ID, uuid(id)),
        (SEC_WEBSOCKET_EXTENSIONS, "grip".to_owned()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            fields.insert(name, value);
        }
    }
    for (name, value) in meta {
        let name = HeaderName::from_bytes(format!("meta-{name}").as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            fields.insert(name, value);
        }
    }
    let (target, peer) = (request.target.clone(), peer.clone());
    let way = Way { rewritten: request.rewritten.clone(), user: request.user.clone() };
    async move {
        let (to, about) = ((Method::POST, &*target), (&peer, Some(way)));
        let sent = route.send(to, (fields, body), about).await;
        let response = match sent {
            Ok(response) => response,
            Err(Unasked::NotSent) => return Err(NoAnswer::NotSent),
            Err(Unasked::Lost) => {
                let what = "the connection broke before the answer to events of a WebSocket";
                return Err(NoAnswer::Failed(what.to_owned()));
            }
        };
        if response.status() != StatusCode::OK || !has_events(response.headers()) {
            let status = response.status();
            let what = format!("the answer to events of a WebSocket is no events, with {status}");
            return Err(NoAnswer::Failed(what));
        }
        let (head, body) = response.into_parts();
        let body = collect(body).await.map_err(NoAnswer::Failed)?;
        let malformed = || NoAnswer::Failed("its events are malformed".to_owned());
        let events = events::read(&body).ok_or_else(malformed)?;
        Ok(Answered { fields: head.headers, events })
    }
}

pub(super) fn has_events(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    kind.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Returns a number as a UUID (RFC 9562).
pub(super) fn uuid(id: [u8; 16]) -> String {
    let hex = data_encoding::HEXLOWER.encode(&id);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
