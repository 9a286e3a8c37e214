//! The copies of a channel's messages for another server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use superpoll_rt::time;

use super::Hub;
use crate::channel::form::Form;
use crate::succession::records::RecordStore;

/// How long a publisher waits at most for a keeper that is behind, and the time between two
/// checks.
const SAFE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(1);

impl Hub {
    /// Returns the offset behind a message in a form, if it is known.
    pub(in crate::channel) fn offset(&self, id: u64, form: Form) -> Option<u64> {
        self.state().history.offset(id, form)
    }

    /// Returns the number of the last message of another server, as long as its subscribers are
    /// still to come.
    pub(in crate::channel) fn inherited(&self) -> Option<u64> {
        self.state().history.inherited()
    }

    /// Records messages in a space of the record store from now on, and the existing ones at once.
    pub(crate) fn record_in(&self, records: Arc<dyn RecordStore>, space: u64) {
        self.state().history.record_in(records, space);
    }

    /// The same for existing messages that come from that space.
    pub(crate) fn continue_in(&self, records: Arc<dyn RecordStore>, space: u64) {
        self.state().history.continue_in(records, space);
    }

    /// Records no messages any more, and returns the space.
    pub(crate) fn stop_recording(&self) -> Option<u64> {
        self.state().history.stop_recording()
    }

    /// Waits until the published messages are available to a successor, at most for a moment.
    pub(in crate::channel) async fn wait_until_recorded(&self) {
        let Some(records) = self.state().history.records() else { return };
        let end = Instant::now() + SAFE;
        while !records.has_room() && Instant::now() < end {
            time::sleep(NAP).await;
        }
    }

    /// Returns the number of the space in which the channel is recorded.
    pub(crate) fn space(&self) -> Option<u64> {
        self.state().history.space()
    }
}
