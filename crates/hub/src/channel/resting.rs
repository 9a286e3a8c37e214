//! Subscribers that wait for news on a stream of HTTP/2, without a task of their own.

use std::rc::Rc;
use std::time::Duration;

use superpoll_http::peer::Peer;
use superpoll_rt::time;

use super::form::Form;
use super::local_subscribers::Subscription;
use super::mailbox::Mailbox;
use super::moment::Moment;

/// The last sign of life to a client, or the time from which on it was silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSign {
    pub at: Moment,
    /// It was a ping, and nothing has come from the client since.
    pub is_unanswered: bool,
}

impl LastSign {
    /// Returns a sign that is given now.
    pub(super) fn now(is_unanswered: bool) -> LastSign {
        LastSign { at: Moment::now(), is_unanswered }
    }

    /// Returns how much is left of a silence.
    pub(super) fn left(self, silence: Duration) -> Duration {
        self.at.left(silence, time::now())
    }
}

/// A subscriber that has nothing under way. Its messages come to the mailbox.
pub(super) struct RestingSubscriber {
    pub subscription: Subscription,
    pub mailbox: Rc<Mailbox>,
    pub form: Form,
    pub peer: Rc<Peer>,
    pub sign: LastSign,
}
