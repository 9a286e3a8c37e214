//! What an application is told of the channels of a route (`callbacks`): users who come and go,
//! messages that are published.
//!
//! ```text
//! message of a channel --> queue, record --> batch by POST, signed --> 2xx: off the queue
//!                             |                      ^
//!                             | full: counted        | else: again, later and later
//! ```
//!
//! An event follows from a message of a channel, and has an id that does not depend on how often it
//! is told. Of several servers, the one that has caused the message tells of it. The queue of a
//! route is bounded; events beyond it are counted, and the application is told how many it lacks,
//! before the next ones. Each event has a record until a server of the application has taken it, so
//! a successor tells what is left. After a crash it also tells of the last message of each channel
//! again: the server may have ended before that had its record.
//!
//! One task tells, whichever engine has it: events are told in their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ring::hmac;
use serde_json::{Value, json};
use superpoll_config::{CallbackEvent, CallbackRule, Proxy, Timeouts};
use superpoll_http::log::{Event, Level, RateLimited, Report, others};
use superpoll_http::unix_time::{seconds_now, unix_time};
use superpoll_http::upstream::{Forwarder, Group};
use superpoll_rt::time::{sleep, timeout};

use super::json_frame::Source;
use super::message::Message;
use crate::succession::records::{CALLBACKS, CallbackRecord, RecordStore};

/// The most events that wait, and their bytes.
const MOST: usize = 10_000;
const MOST_BYTES: usize = 8 << 20;

/// The most events of a request, and their bytes, but at least one.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 256 << 10;

/// The wait before an event is told again, which doubles.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long a task waits for events before it looks whether there still is a way.
const LOOK: Duration = Duration::from_secs(1);

/// The field with the time and the signature of a request.
const SIGNATURE: HeaderName = HeaderName::from_static("superpoll-signature");

/// The number of the next record. Those of all routes are in one space.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An event that waits.
struct Waiting {
    /// The number of its record.
    record: u64,
    json: Bytes,
}

#[derive(Default)]
struct State {
    events: VecDeque<Waiting>,
    bytes: usize,
    /// Events for which there was no room.
    lost: u64,
    records: Option<Arc<dyn RecordStore>>,
    wakers: Vec<Waker>,
    /// A task tells.
    is_taken: bool,
}

/// The events of a route that its application is to be told.
pub(super) struct Callbacks {
    /// The name of the route.
    route: String,
    state: Mutex<State>,
}

/// The first events of a queue, as they are sent.
struct Batch {
    body: Vec<u8>,
    count: usize,
    lost: u64,
}

/// The right to tell, of one task.
struct Turn(Arc<Callbacks>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().is_taken = false;
        self.0.wake();
    }
}

/// Returns the events of users that a message tells of.
fn of_users(change: &str, users: Option<u64>) -> Vec<CallbackEvent> {
    match (change, users) {
        ("join", Some(1)) => vec![CallbackEvent::Joined, CallbackEvent::Occupied],
        ("join", _) => vec![CallbackEvent::Joined],
        (_, Some(0)) => vec![CallbackEvent::Left, CallbackEvent::Empty],
        _ => vec![CallbackEvent::Left],
    }
}

fn name(event: CallbackEvent) -> &'static str {
    match event {
        CallbackEvent::Joined => "joined",
        CallbackEvent::Left => "left",
        CallbackEvent::Occupied => "occupied",
        CallbackEvent::Empty => "empty",
        CallbackEvent::Published => "published",
    }
}

impl Callbacks {
    /// Returns the events of a route, which has none yet.
    pub(super) fn new(route: String) -> Callbacks {
        Callbacks { route, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.state().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notes what a message of a channel stands for. `is_presence` says whether the channel counts
    /// users.
    pub(super) fn note(
        &self,
        rule: &CallbackRule,
        is_presence: bool,
        source: Source<'_>,
        message: &Message,
    ) {
        let change =
            message.event().filter(|event| is_presence && matches!(*event, "join" | "leave"));
        let data: Value = match change {
            Some(_) => serde_json::from_slice(&message.data).unwrap_or_default(),
            None => Value::Null,
        };
        let events = match change {
            Some(change) => of_users(change, data["users"].as_u64()),
            None => vec![CallbackEvent::Published],
        };
        let at = u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX);
        for event in events.into_iter().filter(|event| rule.events.contains(event)) {
            let name = name(event);
            let id = format!("{:x}-{}-{name}", source.epoch, message.id);
            let mut json = json!({ "id": id, "event": name, "channel": source.name, "at": at });
            match event {
                CallbackEvent::Joined | CallbackEvent::Left => {
                    let of_user = data.as_object().into_iter().flatten();
                    of_user.for_each(|(key, value)| json[key] = value.clone());
                }
                CallbackEvent::Occupied | CallbackEvent::Empty => {}
                CallbackEvent::Published => {
                    json["message"] = message.id.into();
                    if let Some(kind) = message.event() {
                        json["type"] = kind.into();
                    }
                    match std::str::from_utf8(&message.data).ok().filter(|_| message.is_text) {
                        Some(text) => json["data"] = text.into(),
                        None => json["base64"] = BASE64.encode(&message.data).into(),
                    }
                }
            }
            self.push(json.to_string().into());
        }
    }

    fn push(&self, json: Bytes) {
        let mut state = self.state();
        if state.events.len() >= MOST || state.bytes + json.len() > MOST_BYTES {
            state.lost += 1;
            return;
        }
        let record = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Some(records) = &state.records {
            let kept = CallbackRecord { route: self.route.clone(), json: json.clone() };
            records.keep(CALLBACKS, record, &kept.encode());
        }
        state.bytes += json.len();
        state.events.push_back(Waiting { record, json });
        drop(state);
        self.wake();
    }

    /// Records events from now on, and those that wait at once.
    pub(super) fn record_in(&self, records: Arc<dyn RecordStore>) {
        let mut state = self.state();
        for Waiting { record, json } in &state.events {
            let kept = CallbackRecord { route: self.route.clone(), json: json.clone() };
            records.keep(CALLBACKS, *record, &kept.encode());
        }
        state.records = Some(records);
    }

    /// Tells and records nothing more: another server continues with the route, and has the
    /// records.
    pub(super) fn hand_over(&self) {
        let mut state = self.state();
        (state.records, state.bytes) = (None, 0);
        state.events.clear();
    }

    /// Takes those events of another server, in their order, that are of this route.
    pub(super) fn restore(&self, all: &[(u64, CallbackRecord)]) {
        let mut state = self.state();
        for (record, CallbackRecord { json, .. }) in
            all.iter().filter(|(_, kept)| kept.route == self.route)
        {
            NEXT.fetch_max(record + 1, Ordering::Relaxed);
            state.bytes += json.len();
            state.events.push_back(Waiting { record: *record, json: json.clone() });
        }
        drop(state);
        self.wake();
    }

    /// Whether records are those of this route.
    pub(super) fn is_of(&self, kept: &CallbackRecord) -> bool {
        kept.route == self.route
    }

    fn poll_turn(self: &Arc<Callbacks>, cx: &Context<'_>) -> Poll<Turn> {
        let mut state = self.state();
        if state.is_taken {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        state.is_taken = true;
        Poll::Ready(Turn(self.clone()))
    }

    fn poll_batch(&self, cx: &Context<'_>) -> Poll<Batch> {
        let mut state = self.state();
        if state.events.is_empty() && state.lost == 0 {
            state.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        let mut body = b"{\"events\":[".to_vec();
        let (mut count, lost) = (0, state.lost);
        // The events that were lost are later than those that wait.
        for Waiting { json, .. } in &state.events {
            if count == BATCH || (count > 0 && body.len() + json.len() > BATCH_BYTES) {
                break;
            }
            if count > 0 {
                body.push(b',');
            }
            body.extend_from_slice(json);
            count += 1;
        }
        let tells_lost = lost > 0 && count == state.events.len();
        if tells_lost {
            let comma = if count > 0 { "," } else { "" };
            let id = format!("lost-{}", NEXT.load(Ordering::Relaxed));
            let lost = json!({ "id": id, "event": "lost", "count": lost });
            body.extend_from_slice(format!("{comma}{lost}").as_bytes());
        }
        body.extend_from_slice(b"]}");
        Poll::Ready(Batch { body, count, lost: if tells_lost { lost } else { 0 } })
    }

    /// Takes the events of a batch off the queue.
    fn were_told(&self, batch: &Batch) {
        let mut state = self.state();
        state.lost = state.lost.saturating_sub(batch.lost);
        for _ in 0..batch.count {
            let Some(Waiting { record, json }) = state.events.pop_front() else { return };
            state.bytes -= json.len();
            if let Some(records) = &state.records {
                records.keep(CALLBACKS, record, &[]);
            }
        }
    }

    /// Returns how many events wait, and how many there was no room for.
    #[cfg(test)]
    fn waiting(&self) -> (usize, u64) {
        let state = self.state();
        (state.events.len(), state.lost)
    }
}

/// The way to the application of a route, on one engine.
pub(super) struct CallbackSender {
    forwarder: Rc<Forwarder>,
    path: String,
    timeout: Duration,
    key: hmac::Key,
}

impl CallbackSender {
    pub(super) fn new(
        group: &Arc<Group>,
        rule: &CallbackRule,
        key: hmac::Key,
        timeouts: &Timeouts,
    ) -> CallbackSender {
        let proxy = Proxy::to(&*rule.upstream);
        let forwarder = Rc::new(Forwarder::new(group, &proxy, &rule.path, timeouts));
        CallbackSender { forwarder, path: rule.path.clone(), timeout: rule.timeout, key }
    }

    /// Tells the application, and returns why it has not taken the events.
    async fn tell(&self, body: &[u8]) -> Result<(), String> {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(SIGNATURE, signature(&self.key, seconds_now(), body));
        let told = self.forwarder.tell(&self.path, fields, body);
        match timeout(self.timeout, told).await {
            Ok(Ok(answer)) if answer.head.status.is_success() => Ok(()),
            Ok(Ok(answer)) => Err(format!("it answers {}", answer.head.status)),
            Ok(Err(StatusCode::LOOP_DETECTED)) => Err("the request came back here".to_owned()),
            Ok(Err(status)) => Err(format!("no server of it answers ({status})")),
            Err(_) => Err(format!("no answer within {:?}", self.timeout)),
        }
    }
}

/// Returns the signature of a body, with its time: of the seconds since 1970, a period, and the
/// body.
fn signature(key: &hmac::Key, seconds: u64, body: &[u8]) -> HeaderValue {
    let mut signed = hmac::Context::with_key(key);
    signed.update(format!("{seconds}.").as_bytes());
    signed.update(body);
    let text = format!("t={seconds},v1={}", HEXLOWER.encode(signed.sign().as_ref()));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// Tells the application of a route what happens, as long as there is a way to it.
pub(super) async fn run(
    sender: impl Fn() -> Option<Rc<CallbackSender>>,
    callbacks: Arc<Callbacks>,
    report: Report,
) {
    static FAILURES: RateLimited = RateLimited::new(Duration::from_secs(10));
    let mut pause = PAUSE;
    let _turn = loop {
        if sender().is_none() {
            return;
        }
        if let Ok(turn) = timeout(LOOK, poll_fn(|cx| callbacks.poll_turn(cx))).await {
            break turn;
        }
    };
    loop {
        let batch = timeout(LOOK, poll_fn(|cx| callbacks.poll_batch(cx))).await;
        // The one of now: the configuration may have changed meanwhile.
        let Some(way) = sender() else { return };
        let Ok(batch) = batch else { continue };
        match way.tell(&batch.body).await {
            Ok(()) => {
                callbacks.were_told(&batch);
                pause = PAUSE;
            }
            Err(what) => {
                if let Some(left_out) = FAILURES.admit() {
                    let of = &callbacks.route;
                    let again = format!("trying again in {} s", pause.as_secs());
                    let text = format!(
                        "the application of {of} does not take its events: {what}; {again}{}",
                        others(left_out)
                    );
                    let event = Event::new(Level::Warning, "callbacks-failed", text);
                    report(&event.with("route", of.as_str()).with("left_out", left_out));
                }
                for _ in 0..pause.as_secs() {
                    sleep(LOOK).await;
                    if sender().is_none() {
                        return;
                    }
                }
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

superpoll::debug_fields!(Callbacks, it => route: it.route);

#[cfg(test)]
mod tests;
