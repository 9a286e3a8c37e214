//! A client and its upstream: both directions in one task.
//!
//! The upstream is taken for connected until it says otherwise (see `stream.rs`). If it is not, nothing of what
//! the client has sent is lost, and the next address of the upstream is tried with it.
//!
//! The end of one direction is passed on when all before it was written, and the pair ends with the second one.
//! If both end at the same time, closing says it. Whatever breaks on one side resets the other: a peer that
//! was sent a clean end would take what it has got for all there is.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use superpoll_rt::time::{Sleep, sleep, sleep_until};

use super::flow::{Broken, Flow, Moved};
use super::shared::{Member, Options};
use super::stream::Stream;

/// A direction and how far its end is.
struct Half {
    flow: Flow,
    ended: bool,
    /// Its target has been told.
    told: bool,
}

impl Half {
    fn new(inherits: bool) -> Half {
        Half { flow: Flow::new(inherits), ended: false, told: false }
    }
}

/// The future of a relayed pair.
pub(super) struct Pair {
    client: Stream,
    upstream: Stream,
    up: Half,
    down: Half,
    /// Whether the upstream has yet to show that it is connected.
    connecting: bool,
    /// Addresses to try if it does not.
    others: std::vec::IntoIter<SocketAddr>,
    timer: Option<Sleep>,
    active: Instant,
    member: Member,
}

/// How a pair goes on.
enum Step {
    On,
    Over,
}

impl Pair {
    /// Relays between a client and an upstream that is on its way, or connected.
    pub fn new(
        client: Stream,
        upstream: Stream,
        others: std::vec::IntoIter<SocketAddr>,
        member: Member,
    ) -> Pair {
        let mut pair = Pair {
            connecting: matches!(upstream, Stream::Tcp(_)),
            client,
            upstream,
            up: Half::new(false),
            // The listener has TCP_NODELAY, and what it accepts inherits it.
            down: Half::new(true),
            others,
            timer: None,
            active: Instant::now(),
            member,
        };
        if pair.connecting {
            // A connection on which nobody speaks shows only when it is looked for.
            let Options { connect_timeout, idle_timeout, .. } = pair.member.shared.options;
            pair.timer = Some(sleep(idle_timeout.unwrap_or(connect_timeout).min(connect_timeout)));
        } else {
            pair.watch_idleness();
        }
        pair
    }

    fn watch_idleness(&mut self) {
        self.timer = self.member.shared.options.idle_timeout.map(sleep);
    }

    fn connected(&mut self) {
        if self.connecting {
            self.connecting = false;
            let idle = self.member.shared.options.idle_timeout;
            self.timer = idle.map(|limit| sleep_until(self.active + limit));
        }
    }

    /// The upstream could not be reached: tries its next address, or gives up.
    fn not_connected(&mut self, error: io::Error) -> Step {
        let mut last = error;
        for address in self.others.by_ref() {
            match Stream::begin(address) {
                Ok(upstream) => {
                    self.upstream = upstream;
                    self.active = Instant::now();
                    self.timer = Some(sleep(self.member.shared.options.connect_timeout));
                    return Step::On;
                }
                Err(error) => last = error,
            }
        }
        self.member.shared.not_connected(last);
        Step::Over
    }

    fn broken(&mut self, broken: Broken, of_upstream: bool) -> Step {
        let (Broken::Source(error) | Broken::Target(error)) = broken;
        if of_upstream && self.connecting {
            return self.not_connected(error);
        }
        self.client.reset_on_close();
        self.upstream.reset_on_close();
        self.member.shared.totals.broken.fetch_add(1, Ordering::Relaxed);
        Step::Over
    }

    /// Moves what there is, in both directions.
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
            if moved[0].written > 0 {
                self.connected();
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
            if moved[1].read > 0 || self.down.ended {
                self.connected();
            }
        }
        if self.up.ended && self.down.ended {
            return Poll::Ready(Step::Over);
        }
        if self.up.ended && !self.up.told {
            if self.connecting {
                // To end a direction of a socket that is on its way would be to give it up.
                match self.upstream.poll_connected(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(self.not_connected(error)),
                    Poll::Ready(Ok(())) => self.connected(),
                }
            }
            self.up.told = true;
            self.upstream.end_writing();
        }
        if self.down.ended && !self.down.told {
            self.down.told = true;
            self.client.end_writing();
        }
        Poll::Pending
    }

    /// Looks whether the pair has waited too long.
    fn watch_time(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        if Pin::new(timer).poll(cx).is_pending() {
            return Poll::Pending;
        }
        if self.connecting {
            if !self.upstream.is_connected() {
                let due = self.active + self.member.shared.options.connect_timeout;
                if Instant::now() < due {
                    self.timer = Some(sleep_until(due));
                    return Poll::Ready(Step::On);
                }
                let seconds = self.member.shared.options.connect_timeout.as_secs_f64();
                let text = format!("no answer within {seconds} s");
                let error = io::Error::new(io::ErrorKind::TimedOut, text);
                return Poll::Ready(self.not_connected(error));
            }
            self.connected();
            return Poll::Ready(Step::On);
        }
        let Some(limit) = self.member.shared.options.idle_timeout else {
            self.timer = None;
            return Poll::Pending;
        };
        let due = self.active + limit;
        if Instant::now() >= due {
            self.member.shared.totals.timed_out.fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(Step::Over);
        }
        self.timer = Some(sleep_until(due));
        Poll::Ready(Step::On)
    }
}

impl Future for Pair {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let pair = &mut *self;
        loop {
            let mut moved = <[Moved; 2]>::default();
            let mut step = pair.relay(cx, &mut moved);
            let [up, down] = &moved;
            pair.member.shared.totals.moved(up, down);
            if (up.read | up.written | down.read | down.written) > 0
                && pair.member.shared.options.idle_timeout.is_some()
            {
                pair.active = Instant::now();
            }
            if step.is_pending() {
                step = pair.watch_time(cx);
            }
            match step {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Step::Over) => return Poll::Ready(()),
                Poll::Ready(Step::On) => {}
            }
        }
    }
}
