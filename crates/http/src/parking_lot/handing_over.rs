//! Connections that continue with another server, and those that another server has left.

use std::rc::Rc;
use std::time::Duration;

use superpoll::backend::KeeperStatus;
use superpoll::{Events, Interest, Key};

use super::{BATCH, ConnectionOwner, ParkedConnection, ParkingLot, ResumeReason};
use crate::connection_state::ConnectionRecord;
use crate::log::BrokenBy;

impl ParkingLot {
    /// Parks a connection of another server, with the state that this server has left it with,
    /// until it is [taken](ParkingLot::take). The owner gets it if it hangs up before.
    ///
    /// # Errors
    ///
    /// The connection cannot be watched, or keys stay in this server.
    pub fn hold(
        &self,
        parked: ParkedConnection,
        owner: Rc<dyn ConnectionOwner>,
        record: &ConnectionRecord,
    ) -> Option<Key> {
        if record.keys.is_some() && !self.leaves_keys {
            return None;
        }
        let record = |_: &mut ParkedConnection| Some(record.clone());
        self.enter(parked, owner, Interest::READ_CLOSED, None, record).ok()
    }

    /// Makes the keeper take every connection that it can, including those that came a moment
    /// ago.
    pub fn move_all_to_keeper(&self) {
        self.poller.borrow_mut().move_all_to_keeper();
    }

    /// Leaves all connections to another server, and takes no new ones. Connections that cannot be
    /// left are given back. From here on the lot does nothing with the connections that it has
    /// left. [`drop_handed_over`](ParkingLot::drop_handed_over) closes them, and must not come
    /// before the keeper has been told that they belong to another server.
    pub fn hand_over(&self) {
        self.draining.set(true);
        self.move_all_to_keeper();
        let handed_over = self.entries.take().into_iter().flatten().collect();
        self.count(0);
        self.handed_over.replace(handed_over);
        self.resume_refused(Vec::new());
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
            // A request that waits for an answer is told that there is none; another may have
            // arrived with a new one.
            let why =
                if entry.pending.is_some() { ResumeReason::Draining } else { ResumeReason::Ready };
            entry.owner.clone().resume(entry.into_parked(), why);
        }
    }

    /// Closes the connections that were left, except those that the keeper has given back
    /// since. Returns how many were closed.
    pub fn drop_handed_over(&self) -> usize {
        // This wait reports each connection that became ready before the keeper heard that the
        // connections belong to another server.
        let _ = self.poller.borrow_mut().wait(&mut Events::with_limit(BATCH), Some(Duration::ZERO));
        // Without its keeper the poller has all of them back, and another server may have them,
        // too.
        let is_lost = matches!(self.poller.borrow().keeper_status(), KeeperStatus::Lost(_));
        if !is_lost {
            self.reclaim_rest();
        }
        let handed_over = self.handed_over.take();
        let count = handed_over.len();
        for entry in handed_over {
            let note = entry.pending.as_ref().and_then(|pending| pending.note.as_ref());
            if let Some(line) = note.and_then(|note| note.entry.as_ref()) {
                line.note(|record| record.broken_by(BrokenBy::Server));
            }
            // Cannot fail: the key belongs to a place.
            let _ = self.poller.borrow_mut().deregister(entry.key);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use superpoll::backend::{Profile, Topology};
    use superpoll_keeper::{KeeperLink, Notice, Request, Sums};
    use superpoll_rt::Runtime;

    use super::*;
    use crate::connection_state::Activity;
    use crate::parking_lot::WakeOn;
    use crate::transport::Socket;

    #[derive(Default)]
    struct Owner(Cell<usize>);

    impl ConnectionOwner for Owner {
        fn resume(self: Rc<Self>, _: ParkedConnection, _: ResumeReason) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Takes what a server leaves, and answers its questions, until it is told to end.
    fn keep(link: &KeeperLink, ends: &AtomicBool) {
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        while !ends.load(Ordering::Relaxed) {
            let soon = Instant::now() + Duration::from_millis(5);
            if link.wait(false, soon).unwrap() {
                link.receive(&mut packet, &mut descriptors).unwrap();
                if let Ok(Request::Sync(number)) = Request::decode(&packet) {
                    link.send(&Notice::Synced(number, Sums::default()).encode(), &[]).unwrap();
                }
            }
        }
    }

    /// When a server has said that it yields, another one may have its connections: it does not
    /// take them back, even if the keeper has gone.
    #[test]
    fn connections_that_were_left_are_not_taken_back_when_the_keeper_is_lost() {
        let (ours, theirs) = KeeperLink::pair().unwrap();
        let ends: Arc<AtomicBool> = Arc::default();
        let told = ends.clone();
        let keeper = thread::spawn(move || keep(&ours, &told));
        Runtime::new().unwrap().block_on(async move {
            let tuning = Profile::Chat.into();
            let prepared = ParkingLot::prepare(Topology::Process(theirs, tuning), false).unwrap();
            let lot = ParkingLot::open(prepared, Arc::default(), Arc::new(|_| {}));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let server = listener.accept().unwrap().0;
            server.set_nonblocking(true).unwrap();
            let (stream, peer) = (Socket::Tcp(server).into(), Rc::default());
            let parked = ParkedConnection { stream, peer, token: 0, pending: None };
            let owner: Rc<Owner> = Rc::default();
            let activity = || Some(Activity::Idle { requests: 1 });
            assert!(lot.park(parked, owner.clone(), WakeOn::Readable, None, activity).is_ok());
            lot.hand_over();
            ends.store(true, Ordering::Relaxed);
            keeper.join().unwrap();
            assert_eq!(lot.drop_handed_over(), 1);
            assert_eq!(owner.0.get(), 0);
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        });
    }
}
