//! A stream of events that has more to write than its socket takes.
//!
//! The session writes the head of the response, the messages that wait, and the end of the body.
//! As soon as everything is written, it parks the stream and is gone. A client that reads nothing
//! makes it hold one piece of text, and the messages that its mailbox holds within the limits of
//! the channel.
//!
//! Bytes that the client sends are read and dropped meanwhile, since the end of its side can only
//! be seen after them. A parked stream leaves them in the socket.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use superpoll_http::parked_stream::ParkedStream;
use superpoll_http::parking_lot::ParkedConnection;
use superpoll_http::peer::Peer;
use superpoll_http::transport::Transport;
use superpoll_rt::spawn;
use superpoll_rt::time::{self, Sleep, sleep, timeout};

use super::event_text;
use super::events::EventWriter;
use super::form::Form;
use super::joined::{JoinedChannel, JoinedChannels};
use super::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use super::mailbox::EndReason;
use super::parked::{Backlog, CLOSE, MOMENT, Next, ROUNDS, linger};
use super::send_queue::SendQueue;

impl LocalSubscribers {
    /// Continues a parked stream in a task.
    pub(super) fn continue_events(
        self: &Rc<LocalSubscribers>,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        backlog: Backlog,
    ) {
        self.set(index, SubscriberState::Task(backlog.mailbox.clone()));
        let subscription = Subscription::new(self, index);
        EventsSession::new(subscription, parked.peer, form, backlog).spawn(parked.stream);
    }
}

/// A stream of events with a task.
pub(super) struct EventsSession {
    writer: EventWriter,
    peer: Rc<Peer>,
    /// The text that is being written.
    output: Bytes,
    /// The bytes of the output that belong to the head of the response.
    head: usize,
    /// The end of the body is in the output.
    is_last: bool,
    /// The time at which the silence is too long.
    quiet_until: Instant,
    /// The timer limits the end of the connection.
    ends: bool,
    /// The bytes that waited in the socket when they were last looked at.
    sends: Option<SendQueue>,
    /// A record had come in part at the end of the last silence.
    had_part: bool,
}

impl EventsSession {
    pub(super) fn new(
        subscription: Subscription,
        peer: Rc<Peer>,
        form: Form,
        backlog: Backlog,
    ) -> EventsSession {
        let channels = JoinedChannels::one(subscription, backlog.mailbox);
        EventsSession {
            writer: EventWriter::new(channels, form, true),
            peer,
            output: backlog.rest,
            head: 0,
            is_last: false,
            quiet_until: time::now(),
            ends: false,
            sends: None,
            had_part: false,
        }
    }

    fn channel(&self) -> &JoinedChannel {
        self.writer.channels.first()
    }

    /// Makes items up to these positions in the log no news, by channel.
    pub(super) fn begin_after(mut self, floors: Vec<u64>) -> EventsSession {
        self.writer.begin_after(floors);
        self
    }

    /// Writes the head of the response first.
    pub(super) fn with_head(mut self, head: Vec<u8>) -> EventsSession {
        self.head = head.len();
        self.output = [&head[..], &self.output].concat().into();
        self
    }

    /// Writes as much as the socket takes at once, which is everything as a rule.
    pub(super) fn start(mut self, stream: ParkedStream) {
        if stream.is_encrypted() {
            return self.spawn(stream);
        }
        for _ in 0..ROUNDS {
            self.fill(None);
            match stream.write_raw(&self.output) {
                // The subscriber is removed.
                Err(_) => return,
                Ok(0) => break,
                Ok(count) => self.wrote(count),
            }
            if self.is_idle() {
                return self.park(stream);
            }
            if self.is_last {
                break;
            }
        }
        self.spawn(stream);
    }

    /// Gives the stream a task.
    fn spawn(self, stream: ParkedStream) {
        let Ok(transport) = stream.resume() else { return };
        let counted = self.channel().subscribers().parking_lot.task();
        let goes_on = async move {
            self.run(transport).await;
            drop(counted);
        };
        spawn(goes_on).detach();
    }

    async fn run(mut self, mut transport: Transport) {
        let silence = self.channel().hub().silence();
        self.quiet_until = time::now() + silence;
        let mut timer = pin!(sleep(self.writer.channels.limit(silence)));
        // What has made an encrypted stream readable is still to be read.
        let mut reads = !matches!(transport, Transport::Plain(_));
        loop {
            let next = poll_fn(|cx| {
                if std::mem::take(&mut reads) && self.drop_input(cx, &mut transport).is_err() {
                    return Poll::Ready(Next::Gone);
                }
                self.poll(cx, &mut transport, timer.as_mut(), silence)
            });
            let next = next.await;
            match next {
                Next::Idle => match transport.park() {
                    Ok(stream) => return self.park(stream),
                    Err(busy) => transport = busy,
                },
                Next::Over => {
                    // From here on it is not a subscriber.
                    drop(self);
                    let _ = timeout(CLOSE, linger(transport)).await;
                    return;
                }
                Next::Gone => return,
            }
        }
    }

    fn park(self, stream: ParkedStream) {
        let form = self.writer.form;
        let (subscription, peer) = (self.writer.into_subscription(), self.peer);
        let local_subscribers = subscription.local_subscribers.clone();
        let index = subscription.index;
        subscription.detach();
        let parked = ParkedConnection { stream, peer, token: 0, pending: None };
        local_subscribers.park_subscriber(index, parked, form, None);
    }

    fn is_idle(&self) -> bool {
        let mailbox = &self.channel().mailbox;
        self.output.is_empty()
            && mailbox.is_empty()
            && mailbox.ended().is_none()
            && self.writer.is_quiet()
    }

    /// Makes the next piece of text when the last one is written.
    fn fill(&mut self, cx: Option<&mut Context<'_>>) {
        if !self.output.is_empty() || self.is_last {
            return;
        }
        let mut text = Vec::new();
        match cx {
            None => self.writer.fill(&mut text),
            Some(cx) => self.writer.poll_fill(cx, &mut text),
        }
        if text.is_empty() && self.writer.is_over() {
            text.extend_from_slice(event_text::LAST_CHUNK);
            self.is_last = true;
        }
        self.output = text.into();
    }

    /// Removes bytes that were written from the output.
    fn wrote(&mut self, count: usize) {
        self.output.advance(count);
        if self.output.is_empty() {
            // The memory is not needed while the socket has no room.
            self.output = Bytes::new();
            if self.is_last {
                self.channel().note(|entry| entry.note(|record| record.is_whole = true));
            }
        }
        if let Some(sends) = &mut self.sends {
            sends.wrote(count);
        }
        let head = count.min(self.head);
        self.head -= head;
        let (channel, form) = (self.channel(), self.writer.form);
        channel.subscribers().wrote(channel.subscription.index, form, count - head);
        channel.subscribers().parking_lot.note_active(&self.peer);
    }

    fn write(&mut self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut has_written = false;
        while !self.output.is_empty() {
            match Pin::new(&mut *transport).poll_write(cx, &self.output) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.wrote(count);
                    has_written = true;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        // Encrypted bytes may still wait for room; they are written when there is some.
        if let Poll::Ready(outcome) = Pin::new(transport).poll_flush(cx) {
            outcome?;
        }
        Ok(has_written)
    }

    /// Drops bytes that the client has sent; `false` if there are none. An error says that the
    /// client has gone.
    fn drop_input(&self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut room = self.channel().subscribers().engine.read_buffer.borrow_mut();
        match Pin::new(transport).poll_read(cx, &mut room) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(outcome) => outcome.map(|_| true),
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        mut timer: Pin<&mut Sleep>,
        silence: Duration,
    ) -> Poll<Next> {
        self.channel().mailbox.remember(cx);
        for round in 0.. {
            self.writer.channels.check_grants();
            self.fill(Some(cx));
            let Ok(has_written) = self.write(cx, transport) else { return Poll::Ready(Next::Gone) };
            if self.is_idle() && transport.is_quiet() {
                return Poll::Ready(Next::Idle);
            }
            if self.is_last && self.output.is_empty() {
                return Poll::Ready(Next::Over);
            }
            let Ok(came) = self.drop_input(cx, transport) else { return Poll::Ready(Next::Gone) };
            if !has_written && !came {
                break;
            }
            if round == ROUNDS {
                cx.waker().wake_by_ref();
                break;
            }
        }
        let ended = self.channel().mailbox.ended();
        if ended.is_some_and(|why| why != EndReason::Slow) && !self.ends {
            self.ends = true;
            timer.as_mut().get_mut().reset(time::now() + CLOSE);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = time::now();
            if !self.ends && now < self.quiet_until {
                // It is due for the end of the grant, which the next round notices.
                let rest = self.writer.channels.limit(self.quiet_until - now).max(MOMENT);
                timer.as_mut().get_mut().reset(now + rest);
                cx.waker().wake_by_ref();
                continue;
            }
            let Some(plain) = transport.plain() else { return Poll::Ready(Next::Gone) };
            if self.ends || self.sends.is_some_and(|sends| sends.is_stuck(plain)) {
                return Poll::Ready(Next::Gone);
            }
            // Nothing else would end it, or tell the client that it lives.
            if self.is_idle() && transport.has_part() && std::mem::replace(&mut self.had_part, true)
            {
                return Poll::Ready(Next::Gone);
            }
            self.sends = Some(SendQueue::measure(plain));
            self.quiet_until = now + silence;
            timer.as_mut().get_mut().reset(now + self.writer.channels.limit(silence));
        }
        Poll::Pending
    }
}
