//! The system calls that relays make, by name.
//!
//! The runtime counts the calls of its poller; this module counts the calls on the sockets
//! themselves, where they are made. Each thread counts for itself, so that counting is an addition
//! and needs no synchronization.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

superpoll::counted_calls! {
    /// System calls that the relays of this process have made on their sockets, by name. The
    /// waits and the registrations are the runtime's:
    /// [`Stats::poller`](superpoll_rt::Stats::poller).
    pub struct Calls, pub(super) enum Call {
        /// `accept4(2)`, including calls that found no client.
        accept4 Accept,
        /// `socket(2)`.
        socket Socket,
        /// `connect(2)`.
        connect Connect,
        /// `read(2)`.
        read Read,
        /// `send(2)`.
        sendto Send,
        /// `poll(2)`, for the sockets that are not watched yet.
        poll Poll,
        /// `splice(2)`.
        splice Splice,
        /// `shutdown(2)`.
        shutdown Shutdown,
        /// `close(2)`.
        close Close,
        /// `close_range(2)`.
        close_range CloseRange,
        /// `setsockopt(2)`.
        setsockopt SetOption,
        /// `getsockopt(2)`.
        getsockopt GetOption,
        /// `getpeername(2)`.
        getpeername GetPeer,
        /// `pipe2(2)`.
        pipe2 Pipe,
        /// `fcntl(2)`.
        fcntl Control,
        /// `ioctl(2)`, for urgent bytes.
        ioctl AskMark,
    }
}

type Thread = [AtomicU64; Call::COUNT];

static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

thread_local! {
    static HERE: OnceCell<Arc<Thread>> = const { OnceCell::new() };
}

/// Counts one call.
#[inline]
pub(super) fn count(call: Call) {
    // While the thread ends there is no counter left.
    let _ = HERE.try_with(|here| {
        let count = &here.get_or_init(enter)[call as usize];
        // Only this thread writes.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
}

#[cold]
fn enter() -> Arc<Thread> {
    let thread = Arc::new(Thread::default());
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(thread.clone());
    thread
}

/// Returns the calls of all relays of this process so far.
pub fn calls() -> Calls {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    Calls::read(|call| {
        threads.iter().map(|thread| thread[call as usize].load(Ordering::Relaxed)).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_counts_and_all_are_summed_by_name() {
        // No other test of this crate sets options of sockets by name.
        let before = calls();
        let threads: Vec<_> = (0..3)
            .map(|_| std::thread::spawn(|| (0..100).for_each(|_| count(Call::GetPeer))))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let after = calls();
        assert!(after.getpeername - before.getpeername >= 300);
        assert!(after.total() >= after.getpeername);
        assert!(after.by_name().any(|(name, _)| name == "getpeername"));
    }
}
