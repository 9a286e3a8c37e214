//! The system calls that sockets make, by name.
//!
//! The poller counts its own calls, those that wait and watch. This module counts the calls on the
//! sockets, where they are made. An engine has its thread to itself while it runs, so each thread
//! counts with plain additions, and an engine reports the counts of its thread.

use std::cell::Cell;
use std::mem;

superpoll::counted_calls! {
    /// System calls that an engine's thread has made on the TCP sockets and listeners of
    /// [`net`](crate::net), by name, and those that read and write an
    /// [`AsyncFd`](crate::AsyncFd) as a stream. Bytes that the kernel reads or writes for an
    /// engine, and connections that it accepts, are not among them. Nor are the waits and the
    /// registrations: the poller counts these ([`Stats::poller`](crate::Stats::poller)).
    pub struct Calls, pub(crate) enum Call {
        /// `accept4(2)`, including calls that found no connection.
        accept4 Accept,
        /// `socket(2)`.
        socket Socket,
        /// `connect(2)`, including calls that ask for the outcome of an earlier one.
        connect Connect,
        /// `read(2)`.
        read Read,
        /// `readv(2)`.
        readv ReadParts,
        /// `write(2)`.
        write Write,
        /// `writev(2)`.
        writev WriteParts,
        /// `send(2)`.
        sendto Send,
        /// `sendmsg(2)` with the parts of a message.
        sendmsg SendParts,
        /// `shutdown(2)`.
        shutdown Shutdown,
        /// `close(2)` of a stream.
        close Close,
        /// `setsockopt(2)` for `TCP_NODELAY`.
        setsockopt SetOption,
        /// `getsockname(2)`.
        getsockname GetName,
    }
}

thread_local! {
    static HERE: [Cell<u64>; Call::COUNT] = const { [const { Cell::new(0) }; Call::COUNT] };
}

impl Calls {
    /// Returns the counts of this thread so far.
    pub(crate) fn here() -> Calls {
        Calls::read(|call| HERE.with(|calls| calls[call as usize].get()))
    }
}

/// Counts one call.
#[inline(always)]
pub(crate) fn count(call: Call) {
    HERE.with(|calls| {
        let count = &calls[call as usize];
        count.set(count.get() + 1);
    });
}

/// Counts a `close(2)` when it is dropped, as is the socket that follows it in the same type.
#[derive(Debug)]
pub(crate) struct Closing;

impl Closing {
    /// Drops this without counting: the socket continues elsewhere.
    pub(crate) fn keep_open(self) {
        mem::forget(self);
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        count(Call::Close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_counts_for_itself() {
        // On a thread of its own: the test's thread may have run another test.
        let counted = std::thread::spawn(|| {
            for _ in 0..3 {
                count(Call::Send);
            }
            drop(Closing);
            Closing.keep_open();
            std::thread::spawn(|| count(Call::Read)).join().unwrap();
            Calls::here()
        });
        let calls = counted.join().unwrap();
        assert_eq!((calls.sendto, calls.close, calls.total()), (3, 1, 4));
        assert!(calls.by_name().any(|named| named == ("sendto", 3)));
    }
}
