//! Subscribers whose channel begins again: another hub is in the place of theirs.
//!
//! A parked subscriber whose form has a way to say that messages are missing continues with the new
//! hub, and is told so. A long-poll over HTTP/1 is answered by the new hub, which says the same.
//! All other subscribers are ended so that they come again: a plain WebSocket counts its frames and
//! cannot be told, and a subscriber with a task has a position in the old hub.

use std::rc::Rc;

use superpoll_http::parking_lot::{ParkedConnection, ResumeReason, WaitingRequest};

use super::form::Form;
use super::local_subscribers::{LocalSubscribers, SubscriberState};
use super::mailbox::{EndReason, Mailbox};
use super::parked::Backlog;

impl LocalSubscribers {
    /// Moves all subscribers to the hub that is in the place of theirs.
    pub(super) fn move_on(self: &Rc<LocalSubscribers>) {
        let parked = self.end_tasks(EndReason::Replaced);
        let next = self.successor();
        for (index, key, form) in parked {
            let Some(parked) = self.parking_lot.take(key) else { continue };
            if let Some(reader) = self.reader(index)
                && let (Some(held), None) = (reader.held(), form)
            {
                self.remove(index);
                // The application knows what has come.
                match self.route_of(held) {
                    Some(route) => route.ask_again(held, WaitingRequest { parked }, 0),
                    None => self.end_held_poll(held, parked, ResumeReason::TimedOut),
                }
                continue;
            }
            match (&next, form) {
                (Some(next), None) => {
                    let last = self.last_given(index);
                    self.remove(index);
                    let since = next.hub.since(Some(self.cursor(last)));
                    next.answer_waiting(WaitingRequest { parked }, next.respond_since(&since));
                }
                (Some(next), Some(form @ (Form::Events | Form::Json))) => {
                    self.pass_on(index, parked, form, next);
                }
                (None, None) => {
                    let last = self.last_given(index);
                    self.remove(index);
                    self.end_poll(parked, last, ResumeReason::TimedOut);
                }
                (_, Some(form)) => {
                    self.end_subscriber(index, parked, form, EndReason::Replaced);
                }
            }
        }
    }

    /// Makes a parked subscriber one of another hub.
    fn pass_on(
        &self,
        index: usize,
        parked: ParkedConnection,
        form: Form,
        next: &Rc<LocalSubscribers>,
    ) {
        let (grant, place) = (self.grant(index), self.cursor(self.last_given(index)));
        let entry = self.entries.borrow_mut().remove(&index);
        self.remove(index);
        let since = next.hub.join(next.queue_id, Some(place));
        let start = since.messages.first().map_or(since.last, |message| message.id - 1);
        let (missed, last) = (since.missed, since.last);
        let mailbox = Rc::new(Mailbox::new(since, &next.hub.options()));
        let subscription = next.add(last, grant, SubscriberState::Task(mailbox.clone()));
        let index = subscription.index;
        subscription.detach();
        next.keep_entry(index, entry);
        let source = next.hub.source();
        let rest = if missed { form.missed(start, source).into() } else { bytes::Bytes::new() };
        next.continue_in_task(index, parked, form, Backlog { rest, mailbox });
    }
}
