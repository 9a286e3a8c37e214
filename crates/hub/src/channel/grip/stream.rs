//! A stream that an application holds, while it has a task.
//!
//! The content of an item is a part of the body. Between items comes the content for silence, and,
//! if the application has named a link, the next part of the body from there: when an item is
//! missing, when nothing came for long, or at once if nothing else may come.
//!
//! ```text
//!            content                 an item is missing; the link is due
//!   OPEN --+--------+    OPEN -------------------------------------------> ASKING
//!     ^    |        |      |  the end                                     |    |  not answered
//!     |    +--------+      +-------> OVER <--- no hold and no link -------+    +--> waits 1, 2, 4,
//!     +------------------------------------ a hold ------------------------+        8, 16 s
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use superpoll_http::exchange::LocalFuture;
use superpoll_http::held::{HeldFor, HeldRecord, KeepAlive};
use superpoll_rt::time::{self, Sleep, sleep_until};

use super::filters;
use super::hold::{HeldFrom, last_items};
use super::instruct::{self, Hold, Instructions};
use super::item::{Item, StreamFormat};
use super::route::collect;
use crate::channel::local_subscribers::{LocalSubscribers, Subscription};
use crate::channel::message::Message;
use crate::channel::moment::Moment;
use crate::channel::reader::HeldTimes;

/// The seconds before each further attempt to get the next part.
const RETRIES: [u64; 5] = [1, 2, 4, 8, 16];

/// By how much what is due may come early.
const EARLY: Duration = Duration::from_secs(1);

/// The time between two looks whether the connections of a server before are all here.
const GATHERING: Duration = Duration::from_millis(20);

/// The next part of a stream.
struct Part {
    content: Bytes,
    instructions: Instructions,
    /// The last item in the log when it was asked for.
    asked_at: u64,
}

/// The reason for which there is no next part.
enum NoPart {
    /// The application may answer later.
    Later(String),
    /// It has answered with something else.
    Never(String),
}

/// A stream that an application holds.
pub(in crate::channel) struct HeldStream {
    record: HeldRecord,
    /// The positions in the log behind which items are news, if a part has come meanwhile.
    floors: Vec<u64>,
    /// The request for the next part.
    asking: Option<LocalFuture<Result<Part, NoPart>>>,
    /// The next part is wanted, after this time and so many attempts.
    wanted: Option<(Option<Pin<Box<Sleep>>>, usize)>,
    is_over: bool,
    is_end_noted: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

/// An action that is due after a silence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::channel) enum Due {
    /// The content for silence.
    KeepAlive,
    /// The next part of a stream, or a call of the application of a WebSocket.
    Call,
}

/// Returns how much longer a connection may be silent, and what is due then; `None`: for ever.
pub(in crate::channel) fn due(record: &HeldRecord, times: HeldTimes) -> Option<(Duration, Due)> {
    let now = time::now();
    // The parking lot is late by a second or two.
    let time = |seconds: u32| {
        let time = Duration::from_secs(seconds.into());
        time - EARLY.min(time / 2)
    };
    let silence = record.keep_alive.as_deref().map(|keep_alive: &KeepAlive| {
        let since = if keep_alive.is_interval { times.kept } else { times.sent };
        (since.left(time(keep_alive.seconds), now), Due::KeepAlive)
    });
    let seconds = match &record.purpose {
        HeldFor::Stream { next: Some(next), .. } => Some(next.seconds),
        HeldFor::Socket { socket, .. } if !socket.is_detached => socket.call_seconds,
        _ => None,
    };
    let left = |seconds: u32| times.news.left(time(seconds), now);
    silence.into_iter().chain(seconds.map(|seconds| (left(seconds), Due::Call))).min()
}

impl HeldStream {
    /// Continues with a stream.
    pub(in crate::channel) fn new(record: &HeldRecord) -> HeldStream {
        let is_open = matches!(record.purpose, HeldFor::Stream { is_open: true, .. });
        HeldStream {
            record: record.clone(),
            floors: Vec::new(),
            asking: None,
            wanted: (!is_open).then_some((None, 0)),
            is_over: false,
            is_end_noted: false,
            timer: None,
        }
    }

    /// Whether it takes no items now, as their bytes may be its own: a successor that has an older
    /// state of it would take them for those of all.
    pub(in crate::channel) fn waits(&self, by: &LocalSubscribers) -> bool {
        by.hub.is_gathering() && filters::have_own(&self.record)
    }

    /// Makes items up to these positions in the log no news, by channel.
    pub(in crate::channel) fn begin_after(&mut self, floors: Vec<u64>) {
        self.floors = floors;
    }

    /// Whether it takes no items now.
    pub(in crate::channel) fn is_stopped(&self) -> bool {
        self.is_over || self.wanted.is_some() || self.asking.is_some()
    }

    /// Whether nothing follows.
    pub(in crate::channel) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the state of a stream that is over, once.
    pub(in crate::channel) fn ended(&mut self) -> Option<HeldRecord> {
        (self.is_over && !std::mem::replace(&mut self.is_end_noted, true))
            .then(|| self.record.clone())
    }

    /// Returns the state of the connection.
    pub(in crate::channel) fn record(&self) -> &HeldRecord {
        &self.record
    }

    /// Returns the content of a message that is for it, if there is any.
    pub(in crate::channel) fn take(&mut self, message: &Message) -> Option<Bytes> {
        let item = Item::of(message)?;
        if !filters::let_through(&self.record, &item) {
            return None;
        }
        let place = self.record.channels.iter().position(|one| one.name == item.channel)?;
        if self.floors.get(place).is_some_and(|floor| message.id <= *floor) {
            return None;
        }
        let channel = &mut self.record.channels[place];
        if let Some(known) = &channel.previous {
            if item.previous.as_ref().is_some_and(|previous| previous != known) {
                self.want_part();
                return None;
            }
            if let Some(id) = &item.id {
                channel.previous = Some(id.clone());
            }
        }
        match &item.stream {
            Some(StreamFormat::Content(content)) => filters::filled(&self.record, &item, content),
            Some(StreamFormat::Close) => {
                self.end();
                None
            }
            Some(StreamFormat::Hint) => {
                self.want_part();
                None
            }
            None => None,
        }
    }

    pub(in crate::channel) fn want_part(&mut self) {
        match &self.record.purpose {
            HeldFor::Stream { next: Some(_), .. } => self.wanted = Some((None, 0)),
            // Nothing else could bring what is missing.
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        self.is_over = true;
        // The application knows.
        if let HeldFor::Stream { gone, .. } = &mut self.record.purpose {
            *gone = None;
        }
    }

    /// Continues with what is under way; ready with content, or when something has changed.
    pub(in crate::channel) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        at: &Subscription,
    ) -> Poll<Option<Bytes>> {
        if self.is_over {
            return Poll::Pending;
        }
        if at.local_subscribers.hub.is_gathering() {
            // A successor takes the bytes for items, see `parked.rs`.
            return self.poll_timer(cx, GATHERING).map(|()| None);
        }
        if let Some(asking) = &mut self.asking {
            let Poll::Ready(outcome) = asking.as_mut().poll(cx) else { return Poll::Pending };
            self.asking = None;
            return Poll::Ready(self.answered(outcome, at));
        }
        if let Some((pause, attempts)) = &mut self.wanted {
            if let Some(pause) = pause
                && pause.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            let attempts = *attempts;
            self.wanted = Some((None, attempts));
            return match self.ask(at) {
                Some(asking) => {
                    self.asking = Some(asking);
                    Poll::Ready(None)
                }
                None => {
                    self.end();
                    Poll::Ready(None)
                }
            };
        }
        let by = &at.local_subscribers;
        let Some((left, what)) = due(&self.record, by.held_times(at.index)) else {
            return Poll::Pending;
        };
        if left.is_zero() && what == Due::Call {
            self.want_part();
            return Poll::Ready(None);
        }
        if left.is_zero() {
            let now = Moment::now();
            by.note_held(at.index, |times| (times.kept, times.sent) = (now, now));
            let content = self.record.keep_alive.as_ref().map(|one| one.content.clone());
            return Poll::Ready(content);
        }
        self.poll_timer(cx, left).map(|()| None)
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, left: Duration) -> Poll<()> {
        let until = time::now() + left;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        timer.as_mut().get_mut().reset(until);
        timer.as_mut().poll(cx)
    }

    /// Asks for the next part.
    fn ask(&self, at: &Subscription) -> Option<LocalFuture<Result<Part, NoPart>>> {
        let HeldFor::Stream { next: Some(next), host, .. } = &self.record.purpose else {
            return None;
        };
        let route = at.local_subscribers.route_of(&self.record)?;
        let (target, host) = (next.target.clone(), host.clone());
        let last = last_items(&self.record.channels);
        let asked_at = at.local_subscribers.hub.last();
        Some(Box::pin(async move {
            let later = NoPart::Later;
            let response = route.follow_link(&target, &host, last).await;
            let mut response =
                response.map_err(|_| later("the next link is unreachable".into()))?;
            if !response.status().is_success() {
                let status = response.status().as_u16();
                return Err(later(format!("the next link has the status {status}")));
            }
            let is_document = instruct::is_document(response.headers());
            let instructions = Instructions::take(&mut response, &target).map_err(NoPart::Never)?;
            let content = collect(response.into_body()).await.map_err(later)?;
            if !is_document {
                return Ok(Part { content, instructions, asked_at });
            }
            let (document, said) = Instructions::read(&content).map_err(NoPart::Never)?;
            let (next, gone) = (instructions.next, instructions.gone);
            let instructions = Instructions { next, gone, ..document };
            Ok(Part { content: said.into_body(), instructions, asked_at })
        }))
    }

    /// Continues with the next part, or without it.
    fn answered(&mut self, outcome: Result<Part, NoPart>, at: &Subscription) -> Option<Bytes> {
        let by = &at.local_subscribers;
        let route = by.route_of(&self.record);
        let report = |what: &str| route.iter().for_each(|route| route.report(what));
        let Part { content, instructions, asked_at } = match outcome {
            Ok(part) if part.instructions.hold == Some(Hold::Response) => {
                report("the next link has a response hold");
                self.end();
                return None;
            }
            Ok(part) => part,
            Err(NoPart::Later(what)) => {
                let attempts = self.wanted.take().map_or(0, |(_, attempts)| attempts);
                match RETRIES.get(attempts) {
                    Some(seconds) => {
                        // Not all streams at once.
                        let more = u64::from(at.index as u32 % 1000);
                        let pause = Duration::from_millis(seconds * 1000 + more);
                        let pause = Box::pin(sleep_until(time::now() + pause));
                        self.wanted = Some((Some(pause), attempts + 1));
                    }
                    None => {
                        report(&what);
                        self.end();
                    }
                }
                return None;
            }
            Err(NoPart::Never(what)) => {
                report(&what);
                self.end();
                return None;
            }
        };
        self.wanted = None;
        let is_open = instructions.hold.is_some();
        // If items are missing once more, the items that came meanwhile show it.
        self.floors = HeldFrom::of(&instructions.channels, &by.hub, asked_at, 0).floors;
        self.record.channels = instructions.channels.into_iter().collect();
        if is_open {
            self.record.keep_alive = instructions.keep_alive.map(Arc::new);
        }
        for (name, value) in instructions.meta {
            // It was checked in the instructions.
            let _ = instruct::set_value(&mut self.record.meta, &name, &value);
        }
        if let HeldFor::Stream { is_open: open, next, gone, .. } = &mut self.record.purpose {
            (*open, *next) = (is_open, instructions.next.map(Box::new));
            *gone = instructions.gone.or(gone.take());
            match (is_open, next) {
                (true, _) => {}
                (false, Some(_)) => self.wanted = Some((None, 0)),
                (false, None) => self.end(),
            }
        }
        by.note_held(at.index, |times| *times = HeldTimes::now());
        by.read_as(at.index, self.record.clone(), false);
        Some(content).filter(|content| !content.is_empty())
    }
}
