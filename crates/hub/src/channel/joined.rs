//! The channels of a connection that has a task: one as a rule, several if its URL names further
//! ones (`several`).
//!
//! The connection is a subscriber of each, with a mailbox for each. Its task takes messages from
//! the mailboxes in turn. The messages of a channel are in order; there is no order between
//! channels.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use superpoll_config::Slow;
use superpoll_http::exchange::Exchange;
use superpoll_http::grant::Grant;
use superpoll_http::log::Entry;
use superpoll_http::peer::Peer;

use super::counters;
use super::history::Since;
use super::hub::Hub;
use super::local_subscribers::{LocalSubscribers, SubscriberState, Subscription};
use super::mailbox::{EndReason, Mailbox, Taken};
use super::presence::User;
use super::publish_target::PublishTarget;

/// Between the positions of several channels.
pub(super) const SEPARATOR: char = '.';

/// The position at which a reader begins in a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    /// The message before the first.
    pub id: u64,
    /// Messages that were asked for are not kept any more.
    pub missed: bool,
}

impl Start {
    /// Returns the position before the first of some messages.
    pub(super) fn before(since: &Since) -> Start {
        let id = since.messages.first().map_or(since.last, |message| message.id - 1);
        Start { id, missed: since.missed }
    }
}

/// A channel that a client may join, and the position to begin after.
pub(super) struct Invitation {
    pub subscribers: Rc<LocalSubscribers>,
    pub grant: Grant,
    /// The client's user, if it has a name.
    pub user: Option<User>,
    pub start: Start,
}

/// Limits the bytes that a connection's socket holds and has not sent, to the smallest limit of its
/// channels.
pub(super) fn limit_unsent(exchange: &Exchange, invitations: &[Invitation]) {
    let limits = invitations.iter().map(|one| one.subscribers.hub.options().unsent_bytes);
    if let Some(bytes) = limits.min() {
        exchange.limit_unsent(bytes);
    }
}

/// A channel of a connection.
pub(super) struct JoinedChannel {
    pub subscription: Subscription,
    pub mailbox: Rc<Mailbox>,
    pub grant: Grant,
    /// The last message that was written, or the place before the first.
    last: u64,
}

impl JoinedChannel {
    /// Enters a subscriber.
    fn join(invitation: Invitation) -> JoinedChannel {
        let Invitation { subscribers, grant, user, start } = invitation;
        let (hub, options) = (&subscribers.hub, subscribers.hub.options());
        let (since, name) = subscribers.enter(Some(subscribers.cursor(start.id)), user);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &options));
        let subscription = subscribers.add(last, grant, SubscriberState::Task(mailbox.clone()));
        subscription.is_of(name);
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

    pub(super) fn subscribers(&self) -> &Rc<LocalSubscribers> {
        &self.subscription.local_subscribers
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.subscribers().hub
    }

    /// Whether something is due by what an application has said.
    pub(super) fn is_due(&self) -> bool {
        let due = self.subscribers().held_due(self.subscription.index);
        due.is_some_and(|due| due.is_zero())
    }

    /// Notes something in the connection's line of the access log, if there is a log.
    pub(super) fn note(&self, note: impl FnOnce(&Entry)) {
        self.subscribers().note(self.subscription.index, note);
    }
}

/// The channels of a connection.
pub(super) struct JoinedChannels {
    members: Vec<JoinedChannel>,
    /// The index of the channel whose turn it is.
    next: usize,
}

impl JoinedChannels {
    /// Joins all channels. There is at least one.
    pub(super) fn join(invitations: Vec<Invitation>) -> JoinedChannels {
        let members = invitations.into_iter().map(JoinedChannel::join).collect();
        JoinedChannels { members, next: 0 }
    }

    /// Continues with the channel that a subscriber has.
    pub(super) fn one(subscription: Subscription, mailbox: Rc<Mailbox>) -> JoinedChannels {
        let grant = subscription.local_subscribers.grant(subscription.index);
        let member = JoinedChannel { subscription, mailbox, grant, last: 0 };
        JoinedChannels { members: vec![member], next: 0 }
    }

    /// Returns the channel of the connection, or the first of several. The connection's line of the
    /// access log is there.
    pub(super) fn first(&self) -> &JoinedChannel {
        &self.members[0]
    }

    /// Returns the subscription of a connection with one channel.
    pub(super) fn into_subscription(mut self) -> Subscription {
        self.members.swap_remove(0).subscription
    }

    /// Whether there is one channel alone: then each message is written in the form of its own, and
    /// the connection can be parked and left to a successor.
    pub(super) fn is_one(&self) -> bool {
        self.members.len() == 1
    }

    pub(super) fn hub(&self, index: usize) -> &Arc<Hub> {
        self.members[index].hub()
    }

    pub(super) fn hubs(&self) -> impl Iterator<Item = &Arc<Hub>> {
        self.members.iter().map(JoinedChannel::hub)
    }

    /// Returns the channels as those that a client publishes to.
    pub(super) fn targets(&self, peer: &Peer) -> impl Iterator<Item = PublishTarget> {
        let target = |member: &JoinedChannel| member.subscribers().target(member.grant, peer);
        self.members.iter().map(target)
    }

    /// Remembers the task, to be woken by a message of any channel, or by the end of one.
    pub(super) fn remember(&self, cx: &Context<'_>) {
        self.members.iter().for_each(|member| member.mailbox.remember(cx));
    }

    /// Takes a message from the channel whose turn it is, or else from the next one that has some.
    pub(super) fn take(&mut self) -> Option<(usize, Taken)> {
        let count = self.members.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let member = &mut self.members[index];
            if let Some(taken) = member.mailbox.take(member.hub()) {
                // What is written for it until then belongs before it.
                member.last = taken.message.id - 1;
                self.next = (index + 1) % count;
                return Some((index, taken));
            }
        }
        None
    }

    /// Notes that the message of this number, which was taken last, is written.
    pub(super) fn wrote(&mut self, index: usize, id: u64) {
        self.members[index].last = id;
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.members.iter().all(|member| member.mailbox.is_empty())
    }

    /// Returns the reason for which the connection ends, if one of its channels ends it. The
    /// messages of a channel that has ended are taken before that.
    pub(super) fn ended(&self) -> Option<EndReason> {
        let ended = self.members.iter().filter_map(|member| {
            let why = member.mailbox.ended()?;
            member.mailbox.is_empty().then_some(why)
        });
        // A right that has ended counts more than the end of the server.
        ended.max_by_key(|why| *why != EndReason::Retired)
    }

    /// Ends the connection because of one of its channels.
    pub(super) fn end(&self, index: usize, why: EndReason) {
        self.members[index].mailbox.end(why);
    }

    /// Ends the connection if one of its grants is over.
    pub(super) fn check_grants(&self) {
        for member in self.members.iter().filter(|member| member.grant.is_over()) {
            member.mailbox.end(EndReason::Expired);
        }
    }

    /// Returns the shortest time that a channel allows to be silent.
    pub(super) fn silence(&self) -> Duration {
        self.hubs().map(|hub| hub.silence()).min().unwrap_or(Duration::MAX)
    }

    /// Returns the time until the first grant ends, at most this long.
    pub(super) fn limit(&self, longest: Duration) -> Duration {
        self.members.iter().fold(longest, |limit, member| member.grant.limit(limit))
    }

    /// Whether bytes that are no message must not be written: a successor, which may have an older
    /// state of the connection, would count them (see `parked.rs`).
    pub(super) fn is_gathering(&self) -> bool {
        self.is_one() && self.first().hub().is_gathering()
    }

    /// Returns the position of the reader.
    pub(super) fn position(&self) -> Positions<'_> {
        Positions(&self.members)
    }
}

/// The position of a reader: that of each channel, in the order of the URL.
pub(super) struct Positions<'a>(&'a [JoinedChannel]);

impl fmt::Display for Positions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, "{SEPARATOR}")?;
            }
            member.subscribers().cursor(member.last).fmt(f)?;
        }
        Ok(())
    }
}
