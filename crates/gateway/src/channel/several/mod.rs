//! Several channels on one connection: `GET /rooms/1?also=/rooms/2&also=/news`.
//!
//! Such a connection is a subscriber of each of its channels, with a mailbox for each. One task
//! takes the messages from the mailboxes in turn and writes them, as events ([`events`]) or as
//! frames of `superpoll.v1` ([`socket`]). Each message names its channel, so both have the same
//! JSON. The messages of a channel are in order; there is no order between channels.
//!
//! The position of such a reader is that of each channel, in the order of the URL ([`position`]).
//! Each event has the whole position as its id, so that a browser that connects again by the same
//! URL goes on in every channel. A client of `superpoll.v1` puts it together from the last frame of
//! each channel.
//!
//! The rights are checked for each channel before any of them is joined, and the first refusal is
//! the answer. The connection ends as soon as one of its channels ends it, or one of the grants: a
//! client has all of its channels or none. It is never parked, and it goes on with no other server:
//! its bytes depend on the order in which the messages of several channels were written.

mod events;
mod position;
mod request;
mod socket;

use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::counters;
use super::history::Since;
use super::hub::Hub;
use super::local_subscribers::{Delivery, LocalSubscribers, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::message::Message;
use super::rights::Grant;
use crate::config::Slow;
use crate::exchange::Exchange;
pub(crate) use request::Also;

use position::Positions;

/// The most channels of a connection.
pub(crate) const MOST_CHANNELS: usize = 100;

/// A channel that a client may join, and the position to begin after.
struct Invitation {
    subscribers: Rc<LocalSubscribers>,
    grant: Grant,
    /// The subject of the client's token, if subscribers are told of it.
    sub: Option<Box<str>>,
    start: Start,
}

/// Limits the bytes that a connection's socket holds and has not sent, to the smallest limit of its
/// channels.
fn limit_unsent(exchange: &Exchange, invitations: &[Invitation]) {
    let limits = invitations.iter().map(|one| one.subscribers.hub.options().unsent_bytes);
    if let Some(bytes) = limits.min() {
        exchange.limit_unsent(bytes);
    }
}

/// The position at which a reader begins in a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Start {
    /// The message before the first.
    id: u64,
    /// Messages that were asked for are not kept any more.
    missed: bool,
}

impl Start {
    /// Returns the position before the first of some messages.
    fn of(since: &Since) -> Start {
        let id = since.messages.first().map_or(since.last, |message| message.id - 1);
        Start { id, missed: since.missed }
    }
}

/// A channel of a connection.
struct JoinedChannel {
    subscription: Subscription,
    mailbox: Rc<Mailbox>,
    grant: Grant,
    /// The last message that was written, or the place before the first.
    last: u64,
}

impl JoinedChannel {
    /// Enters a subscriber.
    fn join(invitation: Invitation) -> JoinedChannel {
        let Invitation { subscribers, grant, sub, start } = invitation;
        let (hub, options) = (&subscribers.hub, subscribers.hub.options());
        let (since, present) = subscribers.enter(Some(subscribers.cursor(start.id)), sub);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &options));
        let subscription = subscribers.add(last, grant, Delivery::Task(mailbox.clone()));
        subscription.is_told(present);
        if missed {
            // The history has moved on since the position was chosen.
            mailbox.note_gap();
            if options.slow == Slow::Disconnect {
                counters::count(&hub.counters().disconnected, 1);
                mailbox.end(EndReason::Slow);
            }
        }
        if subscribers.is_retired() {
            mailbox.end(EndReason::Retired);
        }
        JoinedChannel { subscription, mailbox, grant, last: start.id }
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.subscription.local_subscribers.hub
    }
}

/// The channels of a connection.
struct Several {
    members: Vec<JoinedChannel>,
    /// The one whose turn it is.
    next: usize,
}

impl Several {
    /// Joins all channels.
    fn join(invitations: Vec<Invitation>) -> Several {
        Several { members: invitations.into_iter().map(JoinedChannel::join).collect(), next: 0 }
    }

    /// Remembers the task, to be woken by a message of any channel, or by the end of one.
    fn remember(&self, cx: &Context<'_>) {
        self.members.iter().for_each(|member| member.mailbox.remember(cx));
    }

    /// Takes a message from the channel whose turn it is, or else from the next one that has some.
    fn take(&mut self) -> Option<(usize, Taken)> {
        let count = self.members.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let member = &mut self.members[index];
            let hub = &member.subscription.local_subscribers.hub;
            if let Some(taken) = member.mailbox.take(hub) {
                // What is written for it until then belongs before it.
                member.last = taken.message.id - 1;
                self.next = (index + 1) % count;
                return Some((index, taken));
            }
        }
        None
    }

    /// Notes that the message that was taken last is written.
    fn wrote(&mut self, index: usize, message: &Message) {
        self.members[index].last = message.id;
    }

    /// Returns the reason for which the connection ends, if one of its channels ends it. The
    /// messages of a channel that has ended are taken before that.
    fn ended(&self) -> Option<EndReason> {
        let ended = self.members.iter().filter_map(|member| {
            let why = member.mailbox.ended()?;
            member.mailbox.is_empty().then_some(why)
        });
        // A right that has ended counts more than the end of the server.
        ended.max_by_key(|why| *why != EndReason::Retired)
    }

    /// Ends the connection if one of its grants is over.
    fn check_grants(&self) {
        for member in self.members.iter().filter(|member| member.grant.is_over()) {
            member.mailbox.end(EndReason::Expired);
        }
    }

    /// Returns the shortest time that a channel allows to be silent.
    fn silence(&self) -> Duration {
        let times = self.members.iter().map(|member| member.hub().silence());
        times.min().unwrap_or(Duration::MAX)
    }

    /// Returns the time until the first grant ends, at most this long.
    fn limit(&self, longest: Duration) -> Duration {
        self.members.iter().fold(longest, |limit, member| member.grant.limit(limit))
    }

    /// Returns the position of the reader.
    fn position(&self) -> Positions<'_> {
        Positions(&self.members)
    }
}

#[cfg(test)]
mod tests;
