//! Connections that leave the lot for a moment.
//!
//! A connection that becomes readable is given back, and often parked again as soon as its request
//! was read: a long-poll that waits for the next message. Until its task has to wait for something
//! itself, the lot's poller goes on watching it. So it comes back without a call of the kernel, in
//! place of two.

use std::cell::RefCell;
use std::rc::Rc;

use superpoll::{Key, Poller};

/// The watch of a connection that has left the lot. It ends when this is dropped.
pub struct Loan {
    /// `None` once it was given back.
    poller: Option<Rc<RefCell<Poller>>>,
    key: Key,
}

impl Loan {
    pub(super) fn new(poller: &Rc<RefCell<Poller>>, key: Key) -> Loan {
        Loan { poller: Some(poller.clone()), key }
    }

    pub(super) fn is_of(&self, poller: &Rc<RefCell<Poller>>) -> bool {
        self.poller.as_ref().is_some_and(|own| Rc::ptr_eq(own, poller))
    }

    /// Gives the watch back to the lot.
    pub(super) fn give_back(mut self) -> Key {
        self.poller = None;
        self.key
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(poller) = &self.poller {
            // Fails only if the poller has refused the registration.
            let _ = poller.borrow_mut().deregister(self.key);
        }
    }
}

superpoll::debug_fields!(Loan, it => key: it.key);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use superpoll::backend::Topology;
    use superpoll_rt::{BackendKind, Runtime, yield_now};

    use super::super::{
        ConnectionOwner, ParkedConnection, ParkingLot, Protocol, ResumeReason, WakeOn,
    };
    use super::*;
    use crate::transport::Socket;

    /// An owner that gets a connection, and may park it again at once, twice, while bytes come
    /// between.
    struct Owner {
        lot: Rc<ParkingLot>,
        client: UnixStream,
        parks_at_once: Cell<bool>,
        got: Cell<Option<ParkedConnection>>,
    }

    fn read_all(parked: &ParkedConnection) -> usize {
        match parked.stream.socket() {
            Socket::Unix(stream) => {
                let mut stream = stream;
                stream.read(&mut [0; 16]).unwrap()
            }
            Socket::Tcp(_) => panic!("it is of the Unix domain"),
        }
    }

    impl ConnectionOwner for Owner {
        fn resume(self: Rc<Owner>, parked: ParkedConnection, why: ResumeReason) {
            assert_eq!(why, ResumeReason::Ready);
            if !self.parks_at_once.replace(false) {
                return self.got.set(Some(parked));
            }
            assert_eq!(read_all(&parked), 1);
            let key = self.park(parked, WakeOn::HungUp);
            (&self.client).write_all(b"x").unwrap();
            let parked = self.lot.take(key).unwrap();
            self.park(parked, WakeOn::Readable);
        }

        fn protocol(&self) -> Protocol {
            Protocol::Http1
        }
    }

    impl Owner {
        fn park(self: &Rc<Owner>, parked: ParkedConnection, until: WakeOn) -> Key {
            self.lot.park(parked, self.clone(), until, None, || None).ok().unwrap()
        }

        async fn got(&self) -> ParkedConnection {
            let end = Instant::now() + Duration::from_secs(30);
            loop {
                if let Some(parked) = self.got.take() {
                    return parked;
                }
                assert!(Instant::now() < end, "it is not given back");
                yield_now().await;
            }
        }

        /// Returns the calls that have watched something.
        fn calls(&self) -> u64 {
            let calls = self.lot.poller.borrow().stats().calls;
            let is_control = |(name, _): &(&str, u64)| name.starts_with("epoll_ctl");
            calls.by_name().filter(is_control).map(|(_, count)| count).sum()
        }
    }

    #[test]
    fn a_connection_that_comes_back_is_watched_as_before() {
        // Its poller is told of changes, and does not ask.
        let runtime = Runtime::builder().backend(BackendKind::Epoll).build();
        runtime.unwrap().block_on(async {
            let prepared = ParkingLot::prepare(Topology::Nested, false).unwrap();
            let lot = ParkingLot::open(prepared, Arc::default(), Arc::new(|_| {}));
            let (server, client) = UnixStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let (parks_at_once, got) = (Cell::new(false), Cell::default());
            let owner = Rc::new(Owner { lot, client, parks_at_once, got });
            let parked = ParkedConnection::new(Socket::Unix(server).into(), Rc::default(), 0);
            owner.park(parked, WakeOn::Readable);
            let before = owner.calls();
            for _ in 0..3 {
                (&owner.client).write_all(b"x").unwrap();
                let parked = owner.got().await;
                assert_eq!(read_all(&parked), 1);
                owner.park(parked, WakeOn::Readable);
            }
            assert_eq!(owner.calls(), before);
            // A byte comes before the watch is for bytes again.
            for _ in 0..3 {
                owner.parks_at_once.set(true);
                (&owner.client).write_all(b"x").unwrap();
                let parked = owner.got().await;
                assert_eq!(read_all(&parked), 1);
                owner.park(parked, WakeOn::Readable);
            }
            // One that does not come back is not watched.
            (&owner.client).write_all(b"x").unwrap();
            let ParkedConnection { loan, stream, .. } = owner.got().await;
            assert_eq!(owner.lot.poller.borrow().len(), 1);
            drop(loan);
            assert_eq!(owner.lot.poller.borrow().len(), 0);
            drop(stream);
        });
    }
}
