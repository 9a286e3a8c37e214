//! The supervisor's side: it answers the requests of the workers, all on one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use superpoll_http::ipc;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time::timeout;

use super::store::Store;
use super::{Found, Request};
use crate::broker::log::{BLOCK, Position};

/// The logs, and the connections that wait for them.
pub struct LogService {
    store: RefCell<Store>,
    /// The connections that wait for entries of a log, by their names.
    waiting: RefCell<HashMap<Arc<str>, HashMap<i64, Waker>>>,
    /// The reads that wait, and whether they are to end.
    reads: RefCell<HashMap<i64, Read>>,
    next_name: Cell<i64>,
}

#[derive(Default)]
struct Read {
    is_interrupted: bool,
    waker: Option<Waker>,
}

impl LogService {
    /// Serves a store.
    pub fn new(store: Store) -> LogService {
        LogService {
            store: RefCell::new(store),
            waiting: RefCell::default(),
            reads: RefCell::default(),
            next_name: Cell::new(1),
        }
    }

    /// Lets something use the store.
    pub fn with_store<R>(&self, by: impl FnOnce(&mut Store) -> R) -> R {
        by(&mut self.store.borrow_mut())
    }

    /// Answers the requests of a connection until its other side ends.
    ///
    /// # Errors
    ///
    /// The errors of the connection.
    pub async fn serve(self: Rc<LogService>, stream: UnixStream) -> io::Result<()> {
        let name = self.next_name.replace(self.next_name.get() + 1);
        ipc::send(&stream, &name).await?;
        while let Some(request) = ipc::receive(&stream).await? {
            match request {
                Request::Append(messages) => {
                    let appended: Vec<_> = {
                        let mut store = self.store.borrow_mut();
                        messages.iter().map(|message| store.append(message)).collect()
                    };
                    messages.iter().for_each(|message| self.wake(&message.log.key));
                    ipc::send(&stream, &appended).await?;
                }
                Request::Look(looks) => {
                    let looked: Vec<_> = {
                        let mut store = self.store.borrow_mut();
                        looks.iter().map(|look| store.look(look)).collect()
                    };
                    looks.iter().for_each(|look| self.wake(&look.log.key));
                    ipc::send(&stream, &looked).await?;
                }
                Request::Attend(all) => {
                    let attended: Vec<_> = {
                        let mut store = self.store.borrow_mut();
                        all.iter().map(|attend| store.attend(attend)).collect()
                    };
                    all.iter().for_each(|attend| self.wake(&attend.log.key));
                    ipc::send(&stream, &attended).await?;
                }
                Request::Members(asked) => {
                    let members = self.store.borrow().members(&asked);
                    ipc::send(&stream, &members).await?;
                }
                Request::Read { places, count } => {
                    let found = self.read(name, &places, count).await;
                    ipc::send(&stream, &found).await?;
                }
                Request::Interrupt(other) => {
                    if let Some(read) = self.reads.borrow_mut().get_mut(&other) {
                        read.is_interrupted = true;
                        read.waker.take().into_iter().for_each(Waker::wake);
                    }
                    ipc::send(&stream, &()).await?;
                }
            }
        }
        Ok(())
    }

    fn wake(&self, key: &str) {
        let waiting = self.waiting.borrow_mut().remove(key);
        waiting.into_iter().flatten().for_each(|(_, waker)| waker.wake());
    }

    /// Returns the entries after some places, or none if none comes in time.
    async fn read(&self, name: i64, places: &[(Arc<str>, Position)], count: usize) -> Found {
        self.reads.borrow_mut().insert(name, Read::default());
        let waits = poll_fn(|cx| self.poll_read(name, places, count, cx));
        let found = timeout(BLOCK, waits).await.unwrap_or_default();
        self.reads.borrow_mut().remove(&name);
        let mut waiting = self.waiting.borrow_mut();
        for (key, _) in places {
            if let Some(wakers) = waiting.get_mut(key) {
                wakers.remove(&name);
                if wakers.is_empty() {
                    waiting.remove(key);
                }
            }
        }
        found
    }

    fn poll_read(
        &self,
        name: i64,
        places: &[(Arc<str>, Position)],
        count: usize,
        cx: &Context<'_>,
    ) -> Poll<Found> {
        let mut found = Vec::new();
        let mut store = self.store.borrow_mut();
        for (index, (key, behind)) in places.iter().enumerate() {
            let entries = store.read(key, *behind, count);
            if !entries.is_empty() {
                found.push((index, entries));
            }
        }
        let mut reads = self.reads.borrow_mut();
        let read = reads.entry(name).or_default();
        if !found.is_empty() || read.is_interrupted {
            return Poll::Ready(found);
        }
        read.waker = Some(cx.waker().clone());
        let mut waiting = self.waiting.borrow_mut();
        for (key, _) in places {
            waiting.entry(key.clone()).or_default().insert(name, cx.waker().clone());
        }
        Poll::Pending
    }
}
