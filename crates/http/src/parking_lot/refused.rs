//! Connections that the kernel refuses to watch: the user's watches are used up, or there is no
//! memory.
//!
//! A connection that is refused while it is being parked goes back to the caller of
//! [`ParkingLot::park`]. A later refusal is about a connection that a keeper has given back, and
//! comes with a wait of the poller. Until that wait the connection is still in the table, although
//! the poller has forgotten it and may give its index to another connection. An entry that makes
//! room in this way waits here, because its owner may be the caller that is parking the other
//! connection.

use std::cell::RefCell;
use std::time::Duration;

use superpoll::{Error, Key};

use super::{ParkedEntry, ParkingLot, ResumeReason};
use crate::log::{Event, Level, RateLimited, others};
use crate::parked_stream::ParkedStream;

/// The time between two reports that connections cannot be watched.
const REPORTS: Duration = Duration::from_secs(10);

/// The connections that are to be given back because they are not watched.
pub(super) struct RefusedEntries {
    entries: RefCell<Vec<ParkedEntry>>,
    reports: RateLimited,
}

impl Default for RefusedEntries {
    fn default() -> RefusedEntries {
        RefusedEntries { entries: RefCell::default(), reports: RateLimited::new(REPORTS) }
    }
}

impl RefusedEntries {
    /// Adds an entry whose place is another's now. The poller's next wait reports its refusal, and
    /// the nested descriptor stays readable until then.
    pub(super) fn push(&self, entry: Option<ParkedEntry>) {
        if let Some(entry) = entry {
            self.entries.borrow_mut().push(entry);
        }
    }

    /// Takes an entry out before it is given back.
    pub(super) fn remove(&self, key: Key) -> Option<ParkedEntry> {
        let mut entries = self.entries.borrow_mut();
        let place = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.swap_remove(place))
    }

    /// Looks at the stream of an entry.
    pub(super) fn with_stream<R>(
        &self,
        key: Key,
        at: impl FnOnce(&mut ParkedStream) -> R,
    ) -> Option<R> {
        let mut entries = self.entries.borrow_mut();
        entries.iter_mut().find(|entry| entry.key == key).map(|entry| at(&mut entry.stream))
    }
}

impl ParkingLot {
    /// Gives back the connections that the poller has refused to watch, and all those whose place
    /// is another's already.
    pub(super) fn resume_refused(&self, refusals: Vec<(Key, Error)>) {
        // All leave the table before the first owner acts: it may park further connections.
        let mut all = self.refused.entries.take();
        for (key, error) in refusals {
            self.report_refusal(&error);
            all.extend(self.remove(key));
        }
        for entry in all {
            entry.owner.clone().resume(entry.into_parked(), ResumeReason::Refused);
        }
    }

    /// Reports that a connection cannot be watched, with the number of those since the last report.
    fn report_refusal(&self, error: &Error) {
        let Some(left_out) = self.refused.reports.admit() else { return };
        let others = others(left_out);
        let message = format!("closing an idle connection that cannot be watched: {error}{others}");
        let event = Event::new(Level::Warning, "connection-unwatched", message);
        (self.report)(&event.with("left_out", left_out));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use superpoll::backend::{Profile, Topology};
    use superpoll::{BackendKind, Interest, Poller};
    use superpoll_rt::{Runtime, yield_now};

    use super::super::{ConnectionOwner, ParkedConnection, PreparedLot, WakeOn};
    use super::*;
    use crate::sys;
    use crate::telemetry::counters::EngineCounters;
    use crate::transport::Socket;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[derive(Default)]
    struct Owner(Cell<Option<ResumeReason>>);

    impl ConnectionOwner for Owner {
        fn resume(self: Rc<Self>, _: ParkedConnection, why: ResumeReason) {
            assert!(self.0.replace(Some(why)).is_none(), "it is given back once");
        }
    }

    impl Owner {
        async fn gets(&self, why: ResumeReason) {
            let end = Instant::now() + PATIENCE;
            while self.0.get().is_none() {
                assert!(Instant::now() < end, "it is not given back");
                yield_now().await;
            }
            assert_eq!(self.0.get(), Some(why));
        }
    }

    /// A lot, and everything that its connections are counted and reported by.
    struct Stage {
        lot: Rc<ParkingLot>,
        counters: Arc<EngineCounters>,
        reports: Arc<Mutex<Vec<String>>>,
        /// A file that the lot's poller cannot watch, because the file watches the poller
        /// (`ELOOP`).
        unfit: OwnedFd,
        _watches_lot: Poller,
    }

    impl Stage {
        fn new(topology: Topology) -> Stage {
            let prepared = ParkingLot::prepare(topology, false).unwrap();
            let PreparedLot { nested, .. } = &prepared;
            let mut watches_lot = Poller::builder().backend(BackendKind::Epoll).build().unwrap();
            watches_lot.register(nested, Interest::READABLE).unwrap();
            let unfit = watches_lot.nest().unwrap().try_clone_to_owned().unwrap();
            let (counters, reports) = (Arc::<EngineCounters>::default(), Arc::default());
            let lines: Arc<Mutex<Vec<String>>> = Arc::clone(&reports);
            let report = Arc::new(move |event: &Event| {
                lines.lock().unwrap().push(event.to_string());
            });
            let lot = ParkingLot::open(prepared, counters.clone(), report);
            Stage { lot, counters, reports, unfit, _watches_lot: watches_lot }
        }

        fn park(&self, stream: UnixStream, owner: &Rc<Owner>) -> Option<Key> {
            stream.set_nonblocking(true).unwrap();
            let (stream, peer) = (Socket::Unix(stream).into(), Rc::default());
            let parked = ParkedConnection { stream, peer, token: 0, pending: None };
            self.lot.park(parked, owner.clone(), WakeOn::Readable, None, || None).ok()
        }

        /// Parks a connection that the kernel refuses to watch again when the keeper gives it back.
        /// The poller has its refusal, which no wait has reported yet.
        fn park_unfit(&self, owner: &Rc<Owner>) -> Key {
            let (server, mut client) = UnixStream::pair().unwrap();
            // The keeper watches this file, whatever its number means.
            let file = server.try_clone().unwrap();
            let key = self.park(server, owner).unwrap();
            self.lot.move_all_to_keeper();
            let is_away = || self.lot.poller.borrow().is_away(key);
            assert!(is_away());
            let exchanged =
                self.lot.with_stream(key, |stream| sys::exchange(&*stream, &self.unfit));
            exchanged.unwrap().unwrap();
            client.write_all(b"x").unwrap();
            let end = Instant::now() + PATIENCE;
            while is_away() {
                assert!(Instant::now() < end, "the keeper is silent");
                self.lot.poller.borrow_mut().flush();
            }
            self.lot.poller.borrow_mut().flush();
            assert_eq!(self.lot.poller.borrow().len(), 0);
            drop(file);
            key
        }

        /// Parks one that is refused, and another one that gets its place. Returns both keys, and
        /// the client of the second.
        fn park_in_place_of_unfit(&self, owners: &[Rc<Owner>; 2]) -> (Key, Key, UnixStream) {
            let refused = self.park_unfit(&owners[0]);
            let (server, client) = UnixStream::pair().unwrap();
            let other = self.park(server, &owners[1]).unwrap();
            assert_eq!(other.index(), refused.index());
            (refused, other, client)
        }

        /// Waits until a refusal is reported.
        async fn reported(&self) {
            let end = Instant::now() + PATIENCE;
            while self.reports.lock().unwrap().is_empty() {
                assert!(Instant::now() < end, "nothing is reported");
                yield_now().await;
            }
        }

        fn check(&self, parked: usize) {
            assert_eq!(self.lot.parked(), parked);
            assert_eq!(self.counters.parked.get(), parked as u64);
            let reports = self.reports.lock().unwrap();
            let is_told = |line: &String| line.contains("cannot be watched");
            assert!(reports.len() == 1 && reports.iter().all(is_told), "{reports:?}");
        }
    }

    #[test]
    fn a_connection_that_the_kernel_refuses_is_not_parked() {
        Runtime::new().unwrap().block_on(async {
            let stage = Stage::new(Topology::Nested);
            let owner = Rc::<Owner>::default();
            for _ in 0..3 {
                let stream = UnixStream::from(stage.unfit.try_clone().unwrap());
                assert!(stage.park(stream, &owner).is_none());
                assert_eq!(stage.lot.parked(), 0);
            }
            stage.reported().await;
            assert_eq!(owner.0.get(), None);
            stage.check(0);
            let (server, mut client) = UnixStream::pair().unwrap();
            stage.park(server, &owner).unwrap();
            client.write_all(b"x").unwrap();
            owner.gets(ResumeReason::Ready).await;
            stage.check(0);
        });
    }

    #[test]
    fn a_connection_that_the_kernel_refuses_later_is_given_back() {
        Runtime::new().unwrap().block_on(async {
            let stage = Stage::new(Topology::Thread(Profile::Chat.into()));
            let owner = Rc::<Owner>::default();
            stage.park_unfit(&owner);
            owner.gets(ResumeReason::Refused).await;
            stage.check(0);
        });
    }

    /// The poller gives the index of a refused registration to the next connection.
    #[test]
    fn another_connection_in_its_place_does_not_make_a_refused_one_disappear() {
        Runtime::new().unwrap().block_on(async {
            let stage = Stage::new(Topology::Thread(Profile::Chat.into()));
            let owners: [Rc<Owner>; 3] = Default::default();
            let refused = stage.park_unfit(&owners[0]);
            let mut clients = Vec::new();
            let mut keys = Vec::new();
            for owner in &owners[1..] {
                let (server, client) = UnixStream::pair().unwrap();
                keys.push(stage.park(server, owner).unwrap());
                clients.push(client);
            }
            assert_eq!(keys[0].index(), refused.index());
            owners[0].gets(ResumeReason::Refused).await;
            stage.check(2);
            for (client, owner) in clients.iter_mut().zip(&owners[1..]) {
                client.write_all(b"x").unwrap();
                owner.gets(ResumeReason::Ready).await;
            }
            stage.check(0);
        });
    }

    #[test]
    fn a_refused_connection_without_a_place_can_be_seen_and_taken() {
        Runtime::new().unwrap().block_on(async {
            let stage = Stage::new(Topology::Thread(Profile::Chat.into()));
            let owners: [Rc<Owner>; 2] = Default::default();
            let (refused, other, _client) = stage.park_in_place_of_unfit(&owners);
            assert!(stage.lot.with_stream(refused, |_| ()).is_some());
            assert!(stage.lot.take(refused).is_some() && stage.lot.take(refused).is_none());
            assert!(stage.lot.with_stream(refused, |_| ()).is_none());
            stage.reported().await;
            assert_eq!(owners[0].0.get(), None);
            stage.check(1);
            assert!(stage.lot.take(other).is_some());
            stage.check(0);
        });
    }

    #[test]
    fn a_refused_connection_without_a_place_does_not_outlive_the_lot() {
        let ends: [fn(&ParkingLot); 2] = [ParkingLot::drain, ParkingLot::hand_over];
        for end in ends {
            Runtime::new().unwrap().block_on(async {
                let stage = Stage::new(Topology::Thread(Profile::Chat.into()));
                let owners: [Rc<Owner>; 2] = Default::default();
                let (.., _client) = stage.park_in_place_of_unfit(&owners);
                end(&stage.lot);
                assert_eq!(owners[0].0.get(), Some(ResumeReason::Refused));
                assert_eq!(stage.lot.parked(), 0);
            });
        }
    }
}
