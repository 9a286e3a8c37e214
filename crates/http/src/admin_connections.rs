//! The connections of the admin listener: few, and never all out of an operator's reach.
//!
//! A connection costs a client nothing, so clients that are silent, or without a password, could
//! have all of them. Therefore a new connection is refused only if requests are under way on all
//! that there are. Otherwise it replaces the connection on which nothing has happened for the
//! longest time: of its own client, if that has its share, or else of any.
//!
//! A request is under way once it is admitted, so one that is refused, or waits for its password to
//! be verified, keeps no connection.
//!
//! The order of events is counted, which needs no clock and never has two at the same time.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::connection_limits::{LimitReached, client};

/// The most connections.
pub(crate) const MOST: usize = 64;

/// The most connections of one client, except in the Unix domain, where clients have no address.
pub(crate) const SHARE: usize = MOST / 2;

/// The connections of the admin listener on all engines of a server.
#[derive(Debug, Default)]
pub struct AdminConnections(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// [`MOST`] at most.
    connections: Vec<Connection>,
    /// The number of the last event, which is also the id of a connection that has begun with it.
    events: u64,
}

#[derive(Debug)]
struct Connection {
    id: u64,
    client: Option<IpAddr>,
    /// Admitted requests that are under way.
    requests: u32,
    /// The number of its last event.
    last: u64,
    /// The task that has the connection.
    task: Waker,
}

impl Held {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    fn get(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    /// Returns the index of the connection that has been idle longest, among those that are chosen.
    fn idle_longest(&self, is_chosen: impl Fn(&Connection) -> bool) -> Option<usize> {
        let all = self.connections.iter().enumerate();
        let idle = all.filter(|(_, connection)| connection.requests == 0 && is_chosen(connection));
        idle.min_by_key(|(_, connection)| connection.last).map(|(index, _)| index)
    }
}

/// The permit to have a connection, given back on drop.
#[derive(Debug)]
pub struct AdminPermit {
    connections: Arc<AdminConnections>,
    id: u64,
}

/// An admitted request, or a page that is shown, until it is dropped.
#[derive(Debug)]
pub struct AdmittedRequest {
    connections: Arc<AdminConnections>,
    id: u64,
}

impl AdminConnections {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many connections there are.
    pub fn in_use(&self) -> usize {
        self.held().connections.len()
    }

    /// Returns a permit for a connection of a client, and the limit for which another connection is
    /// closed in its place. The address is unknown in the Unix domain.
    ///
    /// # Errors
    ///
    /// The limit, if requests are under way on all connections that it is about.
    pub fn acquire(
        self: &Arc<AdminConnections>,
        address: Option<IpAddr>,
    ) -> Result<(AdminPermit, Option<LimitReached>), LimitReached> {
        let address = address.map(client);
        let mut held = self.held();
        let is_own = |connection: &Connection| connection.client == address;
        let own = held.connections.iter().filter(|connection| is_own(connection)).count();
        let full = match () {
            () if address.is_some() && own >= SHARE => Some(LimitReached::Client),
            () if held.connections.len() >= MOST => Some(LimitReached::Total),
            () => None,
        };
        let replaced = match full {
            Some(LimitReached::Client) => Some(held.idle_longest(is_own)),
            Some(LimitReached::Total) => Some(held.idle_longest(|_| true)),
            None => None,
        };
        let replaced = match (replaced, full) {
            (Some(None), Some(full)) => return Err(full),
            (Some(Some(index)), _) => Some(held.connections.swap_remove(index)),
            _ => None,
        };
        let id = held.event();
        let task = Waker::noop().clone();
        held.connections.push(Connection { id, client: address, requests: 0, last: id, task });
        drop(held);
        if let Some(replaced) = replaced {
            replaced.task.wake();
        }
        Ok((AdminPermit { connections: self.clone(), id }, full))
    }

    /// Ready when another connection has replaced this one, which is then to be closed.
    fn poll_replaced(&self, id: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut held = self.held();
        let Some(connection) = held.get(id) else { return Poll::Ready(()) };
        if !connection.task.will_wake(cx.waker()) {
            connection.task = cx.waker().clone();
        }
        Poll::Pending
    }
}

impl AdminPermit {
    /// Waits until another connection replaces this one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub fn replaced(&self) -> impl Future<Output = ()> + use<> {
        let (connections, id) = (self.connections.clone(), self.id);
        poll_fn(move |cx| connections.poll_replaced(id, cx))
    }

    /// Begins a request that was admitted.
    pub(crate) fn begin_request(&self) -> AdmittedRequest {
        if let Some(connection) = self.connections.held().get(self.id) {
            connection.requests += 1;
        }
        AdmittedRequest { connections: self.connections.clone(), id: self.id }
    }
}

impl Drop for AdminPermit {
    fn drop(&mut self) {
        let mut held = self.connections.held();
        let index = held.connections.iter().position(|connection| connection.id == self.id);
        let connection = index.map(|index| held.connections.swap_remove(index));
        drop(held);
        // The waker may be the last owner of its task.
        drop(connection);
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        let mut held = self.connections.held();
        let event = held.event();
        if let Some(connection) = held.get(self.id) {
            connection.requests -= 1;
            connection.last = event;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn client_of(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, number]))
    }

    fn is_replaced(permit: &AdminPermit) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        pin!(permit.replaced()).poll(&mut cx).is_ready()
    }

    fn acquire(all: &Arc<AdminConnections>, number: u8) -> (AdminPermit, Option<LimitReached>) {
        all.acquire(client_of(number)).unwrap()
    }

    #[test]
    fn a_client_with_its_share_replaces_its_own_connections() {
        let all: Arc<AdminConnections> = Arc::default();
        let (other, _) = acquire(&all, 2);
        let mut held: Vec<_> = (0..SHARE).map(|_| acquire(&all, 1).0).collect();
        let (next, full) = acquire(&all, 1);
        assert_eq!(full, Some(LimitReached::Client));
        assert_eq!(all.in_use(), SHARE + 1);
        assert!(is_replaced(&held[0]) && !is_replaced(&held[1]));
        assert!(!is_replaced(&other) && !is_replaced(&next));
        // A permit that was replaced gives nothing back.
        drop(held.remove(0));
        assert_eq!(all.in_use(), SHARE + 1);
        held.clear();
        assert_eq!(all.in_use(), 2);
    }

    #[test]
    fn a_full_listener_replaces_what_was_idle_longest_of_any_client() {
        let all: Arc<AdminConnections> = Arc::default();
        let held: Vec<_> = (0..MOST).map(|number| acquire(&all, number as u8).0).collect();
        let (busy, served) = (held[0].begin_request(), held[1].begin_request());
        drop(served);
        let (_next, full) = acquire(&all, 200);
        assert_eq!(full, Some(LimitReached::Total));
        // The first has a request, and the second had one after the third had its last event.
        let replaced = held.iter().position(is_replaced);
        assert_eq!(replaced, Some(2));
        drop(busy);
        let _all: Vec<_> = (0..MOST - 3).map(|number| acquire(&all, 100 + number as u8)).collect();
        assert!(!is_replaced(&held[0]) && !is_replaced(&held[1]));
        let _further = acquire(&all, 99);
        assert!(!is_replaced(&held[0]) && is_replaced(&held[1]));
        assert_eq!(all.in_use(), MOST);
    }

    #[test]
    fn requests_under_way_are_not_replaced() {
        let all: Arc<AdminConnections> = Arc::default();
        let own: Vec<_> = (0..SHARE).map(|_| acquire(&all, 1).0).collect();
        let requests: Vec<_> = own.iter().map(AdminPermit::begin_request).collect();
        assert_eq!(all.acquire(client_of(1)).unwrap_err(), LimitReached::Client);
        let local: Vec<_> = (SHARE..MOST).map(|_| all.acquire(None).unwrap().0).collect();
        let others: Vec<_> = local.iter().map(AdminPermit::begin_request).collect();
        assert_eq!(all.acquire(None).unwrap_err(), LimitReached::Total);
        assert_eq!(all.acquire(client_of(2)).unwrap_err(), LimitReached::Total);
        assert!(own.iter().chain(&local).all(|permit| !is_replaced(permit)));
        drop((requests, others));
        assert_eq!(acquire(&all, 2).1, Some(LimitReached::Total));
        assert!(is_replaced(&own[0]));
    }

    #[test]
    fn clients_of_the_unix_domain_have_no_share() {
        let all: Arc<AdminConnections> = Arc::default();
        let held: Vec<_> = (0..MOST).map(|_| all.acquire(None).unwrap()).collect();
        assert!(held.iter().all(|(_, full)| full.is_none()));
        assert_eq!(all.acquire(None).unwrap().1, Some(LimitReached::Total));
    }

    #[test]
    fn a_task_is_woken_when_its_connection_is_replaced() {
        let all: Arc<AdminConnections> = Arc::default();
        let (first, _) = acquire(&all, 1);
        let (sender, woken) = std::sync::mpsc::channel();
        struct Tell(std::sync::mpsc::Sender<()>);
        impl std::task::Wake for Tell {
            fn wake(self: Arc<Tell>) {
                let _ = self.0.send(());
            }
        }
        let waker = Waker::from(Arc::new(Tell(sender)));
        let mut replaced = pin!(first.replaced());
        assert!(replaced.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let _rest: Vec<_> = (1..SHARE).map(|_| acquire(&all, 1)).collect();
        assert!(woken.try_recv().is_err());
        let _next = acquire(&all, 1);
        assert!(woken.try_recv().is_ok());
        assert!(replaced.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
}
