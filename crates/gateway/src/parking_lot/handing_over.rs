//! Connections that go on with another server, and those that another server has left.

use std::rc::Rc;
use std::time::Duration;

use superpoll::backend::KeeperStatus;
use superpoll::{Events, Interest, Key};

use super::{BATCH, ConnectionOwner, ParkedConnection, ParkingLot, ResumeReason};
use crate::succession::state::ConnectionRecord;

impl ParkingLot {
    /// Parks a connection of another server, with the state that this server has left it with, until
    /// it is [taken](ParkingLot::take). The owner gets it if it hangs up before.
    ///
    /// # Errors
    ///
    /// The connection cannot be watched, or keys stay in this server.
    pub(crate) fn hold(
        &self,
        parked: ParkedConnection,
        owner: Rc<dyn ConnectionOwner>,
        record: &ConnectionRecord,
    ) -> Option<Key> {
        if !self.leaves_keys {
            return None;
        }
        let record = |_: &mut ParkedConnection| Some(record.clone());
        self.enter(parked, owner, Interest::READ_CLOSED, None, record).ok()
    }

    /// Makes the keeper take every connection that it can, including those that came a moment
    /// ago.
    pub(crate) fn move_all_to_keeper(&self) {
        self.poller.borrow_mut().move_all_to_keeper();
    }

    /// Leaves all connections to another server, and takes no new ones. Connections that cannot be
    /// left are given back. From here on the lot does nothing with the connections that it has
    /// left. [`drop_handed_over`](ParkingLot::drop_handed_over) closes them, and must not come
    /// before the keeper has been told that they belong to another server.
    pub(crate) fn hand_over(&self) {
        self.draining.set(true);
        self.move_all_to_keeper();
        let handed_over = self.entries.take().into_iter().flatten().collect();
        self.count(0);
        self.handed_over.replace(handed_over);
        self.reclaim_rest();
    }

    /// Gives back connections that could not be left; most of them are readable or hung up.
    fn reclaim_rest(&self) {
        let poller = self.poller.borrow();
        let all = self.handed_over.take();
        let (handed_over, stays): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|entry| poller.is_away(entry.key));
        drop(poller);
        self.handed_over.replace(handed_over);
        for entry in stays {
            // Cannot fail: the key belongs to a place.
            let _ = self.poller.borrow_mut().deregister(entry.key);
            // A request that waits for an answer is told that there is none; another may have come
            // with a new one.
            let why =
                if entry.pending.is_some() { ResumeReason::Draining } else { ResumeReason::Ready };
            entry.owner.clone().resume(entry.into_parked(), why);
        }
    }

    /// Closes the connections that were left, except those that the keeper has given back
    /// since. Returns how many were closed.
    pub(crate) fn drop_handed_over(&self) -> usize {
        // This wait reports each connection that became ready before the keeper heard that the
        // connections belong to another server.
        let _ = self.poller.borrow_mut().wait(&mut Events::with_limit(BATCH), Some(Duration::ZERO));
        // Without its keeper the poller has all of them back, and another server may have them, too.
        let is_lost = matches!(self.poller.borrow().keeper_status(), KeeperStatus::Lost(_));
        if !is_lost {
            self.reclaim_rest();
        }
        let handed_over = self.handed_over.take();
        let count = handed_over.len();
        for entry in handed_over {
            // Cannot fail: the key belongs to a place.
            let _ = self.poller.borrow_mut().deregister(entry.key);
        }
        count
    }
}
