//! A client and its upstream: both directions in one task.
//!
//! The upstream is taken for connected until an operation on it fails (see `stream.rs`). If it is
//! not connected, the bytes that the client has sent are kept, and the next address or server of
//! the upstream is tried with them.
//!
//! The end of one direction is passed on once all bytes before it were written, and the pair ends
//! with the second end. If both ends come at the same time, closing passes them on. A side that
//! breaks makes the relay reset the other side: a peer that was sent a clean end would take the
//! bytes that it got for the whole stream.
//!
//! Most pairs of most servers are idle. So a pair borrows the parts that it needs only at times
//! (buffers, pipes), or makes them when it needs them: it has a timer only while it waits with a
//! limit.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use superpoll_http::log::BrokenBy;
use superpoll_rt::Direction;
use superpoll_rt::time::{self, Sleep, sleep_until};

use super::deferral::After;
use super::deferred::{DeferredEntry, Outcome};
use super::destination::Target;
use super::flow::{Broken, Flow, Moved};
use super::pool::{BUFFER, Buffer};
use super::servers::Servers;
use super::shared::ActivePair;
use super::stream::{Reading, Stream};

/// The most bytes ahead of those of the client that leave enough room in a buffer to read the
/// client.
const MOST_AHEAD: usize = BUFFER / 2;

/// A direction, and how far its end has got.
struct Half {
    flow: Flow,
    ended: bool,
    /// The end has been passed on to the target.
    end_reported: bool,
}

impl Half {
    fn new(inherits: bool) -> Half {
        Half { flow: Flow::new(inherits), ended: false, end_reported: false }
    }
}

/// The time limit of a pair that waits.
struct Clock {
    sleep: Sleep,
    /// When bytes were last moved, or the wait began.
    active: Instant,
}

/// A relayed pair.
pub(super) struct Pair {
    client: Stream,
    upstream: Stream,
    up: Half,
    down: Half,
    /// Whether the upstream has yet to show that it is connected.
    connecting: bool,
    /// The upstreams that the pair has, or can have.
    to: Candidates,
    /// The pair's entry on the list of those that are not watched yet, if it is on the list.
    deferred: Option<DeferredEntry>,
    /// How often it was looked at there.
    looks: u8,
    clock: Option<Box<Clock>>,
    active: ActivePair,
}

/// How a pair continues.
enum Step {
    On,
    Over,
}

/// The upstreams that a pair can have.
pub(super) enum Candidates {
    /// The addresses of the settings; so many of them have been tried.
    Addresses(u32),
    /// The servers of a group.
    Servers(Box<Servers>),
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates::Addresses(0)
    }
}

impl Candidates {
    /// Begins to connect to the first one, or to the next one after one that has failed. `None` if
    /// none is left, which has been reported.
    fn begin(
        &mut self,
        mut failed: Option<io::Error>,
        sends: bool,
        active: &ActivePair,
    ) -> Option<Stream> {
        loop {
            let begun = match self {
                Candidates::Addresses(tried) => {
                    let addresses = match &active.settings().target {
                        Target::Tcp(addresses) => &addresses[..],
                        Target::Other => &[],
                    };
                    let Some(&address) = addresses.get(*tried as usize) else {
                        let none = || io::ErrorKind::AddrNotAvailable.into();
                        active.not_connected(failed.unwrap_or_else(none));
                        return None;
                    };
                    *tried += 1;
                    active.note(|record| {
                        let number = u64::from(*tried);
                        record.upstream(None).tries(number, &address.to_string().into());
                    });
                    Stream::begin(address, sends)
                }
                Candidates::Servers(servers) => {
                    if let Some(error) = failed.take()
                        && !servers.failed(error, active)
                    {
                        return None;
                    }
                    servers.begin(sends)
                }
            };
            match begun {
                Ok(upstream) => {
                    if !active.options().speculative {
                        upstream.doubt(Direction::Write);
                    }
                    return Some(upstream);
                }
                Err(error) => failed = Some(error),
            }
        }
    }
}

/// Reads the bytes that a client has sent already, after the content of the buffer. Returns
/// whether they end the stream.
fn read_first(client: &Stream, buffer: &mut Buffer, active: &ActivePair) -> io::Result<bool> {
    if !active.options().speculative {
        return Ok(false);
    }
    let room = &mut buffer.bytes[buffer.end as usize..];
    let most = room.len();
    // Most clients speak first, and have done so by now.
    match client.try_read(room) {
        Ok(count) => {
            if count < most {
                client.is_drained();
            }
            buffer.end += count as u32;
            Ok(count == 0 && most > 0)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

impl Pair {
    /// Begins to connect a client by TCP; `None` if that failed, which has been reported then.
    /// `ahead` goes ahead of all bytes from the client.
    pub(super) fn connect(
        client: Stream,
        ahead: &[u8],
        mut to: Candidates,
        active: ActivePair,
    ) -> Option<Pair> {
        let mut up = Half::new(false);
        if ahead.len() > MOST_AHEAD {
            up.flow.begin_with_bytes(ahead.to_vec());
        } else if active.options().speculative || !ahead.is_empty() {
            let mut buffer = Buffer::holding(ahead);
            match read_first(&client, &mut buffer, &active) {
                Ok(ended) => up.flow.begin_with(buffer, ended),
                Err(_) => {
                    buffer.give_back();
                    active.broken_by(BrokenBy::Client);
                    active.totals().broken.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
            }
        }
        let upstream = to.begin(None, up.flow.holds(), &active)?;
        let pair = Pair::connected_to(upstream, client, to, active);
        if pair.active.defers() {
            pair.client.set_reading(Reading::Later);
            pair.upstream.set_reading(Reading::Later);
        }
        Some(Pair { connecting: true, up, ..pair })
    }

    /// As [`connect`](Pair::connect), with an upstream that is connected.
    pub(super) fn connected(
        upstream: Stream,
        client: Stream,
        ahead: Vec<u8>,
        to: Candidates,
        active: ActivePair,
    ) -> Pair {
        active.connected();
        let mut pair = Pair::connected_to(upstream, client, to, active);
        pair.up.flow.begin_with_bytes(ahead);
        pair
    }

    fn connected_to(upstream: Stream, client: Stream, to: Candidates, active: ActivePair) -> Pair {
        if !active.options().speculative {
            client.doubt(Direction::Read);
            client.doubt(Direction::Write);
        }
        Pair {
            client,
            upstream,
            up: Half::new(false),
            // The listener has TCP_NODELAY, and the sockets that it accepts inherit it.
            down: Half::new(true),
            connecting: false,
            to,
            deferred: None,
            looks: 0,
            clock: None,
            active,
        }
    }

    /// Before a turn: applies what was seen of sockets that are not watched.
    fn end_deferral(&mut self) {
        let Some((outcome, looks)) = self.deferred.as_ref().and_then(DeferredEntry::outcome) else {
            return;
        };
        (self.deferred, self.looks) = (None, looks);
        match outcome {
            Outcome::Seen([client, upstream]) => {
                self.client.apply(client);
                self.upstream.apply(upstream);
            }
            Outcome::Watch => self.watch(),
        }
    }

    fn watch(&self) {
        self.client.set_reading(Reading::Watched);
        self.upstream.set_reading(Reading::Watched);
    }

    /// After a turn: makes each side that is not watched be looked at in the next turn, or be
    /// watched. Returns whether to continue at once.
    fn defer(&mut self, cx: &Context<'_>, moved: &[Moved; 2], ended: bool) -> bool {
        let is_watched = |stream: &Stream| stream.reading() == Reading::Watched;
        if is_watched(&self.client) && is_watched(&self.upstream) {
            return false;
        }
        if self.deferred.is_some() {
            // It was woken for another reason.
            return false;
        }
        let after = match moved {
            _ if ended => Some(After::End),
            [_, down] if down.written > 0 => Some(After::Down),
            [up, _] if up.written > 0 => Some(After::Up),
            _ => None,
        };
        if let Some(after) = after {
            let sockets = [(&self.client, &self.up), (&self.upstream, &self.down)]
                .map(|(stream, half)| (!half.ended && !is_watched(stream)).then(|| stream.fd()));
            let deferred = self.active.deferred();
            self.deferred = deferred.add(sockets, after, self.looks, cx.waker());
            if self.deferred.is_some() {
                self.client.is_not_read();
                self.upstream.is_not_read();
                return false;
            }
        }
        self.watch();
        true
    }

    /// Returns how many of the pair's directions have ended.
    fn ends(&self) -> u8 {
        u8::from(self.up.ended) + u8::from(self.down.ended)
    }

    fn note_connected(&mut self) {
        self.connecting = false;
        self.active.connected();
        if let Candidates::Servers(servers) = &self.to {
            servers.worked();
        }
    }

    fn is_connected(&mut self) {
        self.note_connected();
        if self.active.options().idle_timeout.is_none() {
            self.clock = None;
        }
    }

    /// The upstream could not be reached: tries its next address, or gives up.
    fn not_connected(&mut self, error: io::Error) -> Step {
        match self.to.begin(Some(error), self.up.flow.holds(), &self.active) {
            Some(upstream) => {
                self.deferred = None;
                self.upstream = upstream;
                self.clock = None;
                Step::On
            }
            None => Step::Over,
        }
    }

    fn broken(&mut self, broken: Broken, of_upstream: bool) -> Step {
        let (Broken::Source(error) | Broken::Target(error)) = broken;
        // The kernel reports these errors only for a connection that was established: a refused
        // connection fails with `ECONNREFUSED`.
        let was_connected =
            matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        if of_upstream && self.connecting && !was_connected {
            return self.not_connected(error);
        }
        if of_upstream && self.connecting {
            self.note_connected();
        }
        self.client.reset_on_close();
        self.upstream.reset_on_close();
        self.active.broken_by(if of_upstream { BrokenBy::Upstream } else { BrokenBy::Client });
        self.active.totals().broken.fetch_add(1, Ordering::Relaxed);
        Step::Over
    }

    /// Moves the bytes that are available, in both directions.
    fn relay(&mut self, cx: &mut Context<'_>, moved: &mut [Moved; 2]) -> Poll<Step> {
        if !self.up.ended {
            match self.up.flow.poll(cx, &self.client, &self.upstream, &mut moved[0]) {
                Poll::Ready(Ok(())) => self.up.ended = true,
                Poll::Ready(Err(broken)) => {
                    let of_upstream = matches!(broken, Broken::Target(_));
                    return Poll::Ready(self.broken(broken, of_upstream));
                }
                Poll::Pending => {}
            }
            if self.connecting && moved[0].written > 0 {
                self.is_connected();
            }
        }
        if !self.down.ended {
            match self.down.flow.poll(cx, &self.upstream, &self.client, &mut moved[1]) {
                Poll::Ready(Ok(())) => self.down.ended = true,
                Poll::Ready(Err(broken)) => {
                    let of_upstream = matches!(broken, Broken::Source(_));
                    return Poll::Ready(self.broken(broken, of_upstream));
                }
                Poll::Pending => {}
            }
            if self.connecting && (moved[1].read > 0 || self.down.ended) {
                self.is_connected();
            }
        }
        if self.up.ended && self.down.ended {
            self.active.note(|record| record.broken_by = None);
            return Poll::Ready(Step::Over);
        }
        if self.up.ended && !self.up.end_reported {
            if self.connecting {
                // Ending a direction of a socket that is still connecting would give the connection
                // up.
                match self.upstream.poll_connected(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(self.broken(Broken::Target(error), true));
                    }
                    Poll::Ready(Ok(())) => self.is_connected(),
                }
            }
            self.up.end_reported = true;
            self.upstream.end_writing();
        }
        if self.down.ended && !self.down.end_reported {
            self.down.end_reported = true;
            self.client.end_writing();
        }
        Poll::Pending
    }

    /// Returns the timeout that applies now, if any.
    fn limit(&self) -> Option<Duration> {
        let options = self.active.options();
        match self.connecting {
            // If neither side speaks, only a check shows that the upstream is connected.
            true => Some(
                options
                    .idle_timeout
                    .map_or(options.connect_timeout, |idle| idle.min(options.connect_timeout)),
            ),
            false => options.idle_timeout,
        }
    }

    /// Checks whether the pair has waited too long.
    fn watch_time(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.clock.is_none() {
            let Some(limit) = self.limit() else { return Poll::Pending };
            let active = time::now();
            self.clock = Some(Box::new(Clock { sleep: sleep_until(active + limit), active }));
        }
        let Some(clock) = &mut self.clock else { return Poll::Pending };
        if Pin::new(&mut clock.sleep).poll(cx).is_pending() {
            return Poll::Pending;
        }
        if self.connecting && self.upstream.is_connected() {
            self.note_connected();
        }
        let options = self.active.options();
        let limit = match self.connecting {
            true => Some(options.connect_timeout),
            false => options.idle_timeout,
        };
        let Some(limit) = limit else {
            self.clock = None;
            return Poll::Pending;
        };
        let Some(clock) = &mut self.clock else { return Poll::Pending };
        let due = clock.active + limit;
        if time::now() < due {
            clock.sleep = sleep_until(due);
            return Poll::Ready(Step::On);
        }
        if self.connecting {
            let text = format!("no answer within {} s", limit.as_secs_f64());
            return Poll::Ready(self.not_connected(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        self.active.broken_by(BrokenBy::Timeout);
        self.active.totals().timed_out.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Step::Over)
    }
}

impl Pair {
    /// Continues until the pair has to wait; ready when the pair is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.end_deferral();
        loop {
            let mut moved = <[Moved; 2]>::default();
            let ends = self.ends();
            let mut step = self.relay(cx, &mut moved);
            let [up, down] = &moved;
            self.active.moved(up, down);
            // What a client sends says nothing about a server that is not connected.
            if (up.read | up.written | down.read | down.written) > 0
                && !self.connecting
                && let Some(clock) = &mut self.clock
            {
                clock.active = time::now();
            }
            let ended = self.ends() > ends;
            if ended || (up.read | up.written | down.read | down.written) > 0 {
                self.active.deferred().note_progress();
            }
            if step.is_pending() {
                if self.defer(cx, &moved, ended) {
                    continue;
                }
                step = self.watch_time(cx);
            }
            match step {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Step::Over) => return Poll::Ready(()),
                Poll::Ready(Step::On) => {}
            }
        }
    }
}

/// The future of a pair.
pub(super) struct Relaying(Option<Pair>);

impl From<Pair> for Relaying {
    fn from(pair: Pair) -> Relaying {
        Relaying(Some(pair))
    }
}

impl Future for Relaying {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pair) = &mut self.0 {
            std::task::ready!(pair.poll(cx));
        }
        if let Some(Pair { client, upstream, .. }) = self.0.take() {
            client.close_both(upstream);
        }
        Poll::Ready(())
    }
}
