//! Nonblocking operations, on the back-end that has them: a few are carried out by calls of their
//! own, many by the call of the wait. Each test is left out where there is no io_uring.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use superpoll::operation::{Gain, Operation, Progress};
use superpoll::{BackendKind, Error, Events, Interest, Key, Poller};

// Other tests use the rest of it.
#[allow(dead_code)]
mod sys;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// How many operations one wait carries out: by calls, together, and in several turns of the ring.
const COUNTS: [usize; 3] = [1, 5, 600];

/// Keeps tests apart that open many descriptors, or that need small ones for `select`.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    superpoll::limits::raise_descriptors().unwrap();
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn poller() -> Option<Poller> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Poller::builder().backend(BackendKind::Uring).build().unwrap())
}

/// The progress of one wait, which has nothing to wait for.
fn progress(poller: &mut Poller) -> Vec<Progress> {
    let mut events = Events::with_limit(4);
    poller.wait(&mut events, None).unwrap();
    events.progress().inspect(|progress| assert!(progress.last)).collect()
}

fn error(progress: &Progress) -> i32 {
    progress.outcome.as_ref().unwrap_err().raw_os_error().unwrap()
}

fn pair(poller: &mut Poller) -> (UnixStream, UnixStream, Key) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    let key = sys::register(poller, &one);
    (one, other, key)
}

fn receive(room: usize) -> Operation {
    Operation::Receive(Vec::with_capacity(room))
}

#[test]
fn each_is_done_or_would_block_in_the_next_wait() {
    let _alone = alone();
    for count in COUNTS {
        let Some(mut poller) = poller() else { return };
        let mut pairs: Vec<_> = (0..count).map(|_| pair(&mut poller)).collect();
        let start = |poller: &mut Poller, pairs: &[(UnixStream, UnixStream, Key)]| {
            for (token, (_, _, key)) in (0..).zip(pairs) {
                poller.start_nonblocking(*key, receive(16), token).unwrap();
            }
        };
        start(&mut poller, &pairs);
        for (token, done) in (0..).zip(progress(&mut poller)) {
            assert_eq!((done.token, error(&done)), (token, libc::EAGAIN));
            let memory = done.memory.unwrap();
            assert_eq!((memory.len(), memory.capacity()), (0, 16));
        }
        for (token, (_, other, _)) in (0u64..).zip(&mut pairs) {
            other.write_all(&token.to_ne_bytes()).unwrap();
        }
        start(&mut poller, &pairs);
        let done = progress(&mut poller);
        assert_eq!(done.len(), count);
        for (token, done) in (0u64..).zip(done) {
            assert!(done.token == token && matches!(done.outcome, Ok(Gain::Count(8))));
            assert_eq!(done.memory.unwrap(), token.to_ne_bytes());
        }
        pairs.iter().for_each(|(_, other, _)| other.shutdown(std::net::Shutdown::Both).unwrap());
        start(&mut poller, &pairs);
        let ends = progress(&mut poller);
        assert_eq!(ends.len(), count);
        assert!(ends.iter().all(|end| matches!(end.outcome, Ok(Gain::Count(0)))));
    }
}

#[test]
fn bytes_are_sent_from_an_offset_and_received_up_to_a_length() {
    // A socket has room for this many messages.
    for count in [1, 5, 100] {
        let Some(mut poller) = poller() else { return };
        let (_one, mut other, key) = pair(&mut poller);
        for _ in 0..count {
            let send = Operation::Send { bytes: b"abcdef".to_vec(), from: 2 };
            poller.start_nonblocking(key, send, 1).unwrap();
            let beyond = Operation::Send { bytes: b"abcdef".to_vec(), from: 7 };
            poller.start_nonblocking(key, beyond, 2).unwrap();
        }
        for done in progress(&mut poller) {
            let sent = if done.token == 1 { 4 } else { 0 };
            assert!(matches!(done.outcome, Ok(Gain::Count(count)) if count == sent), "{done:?}");
            assert_eq!(done.memory.unwrap(), b"abcdef");
        }
        let mut got = vec![0; 4 * count];
        other.read_exact(&mut got).unwrap();
        assert_eq!(got, b"cdef".repeat(count));
        other.write_all(&b"xyz".repeat(count)).unwrap();
        for _ in 0..count {
            let bytes = Vec::with_capacity(64);
            let receive = Operation::ReceiveAtMost { bytes, most: 3 };
            poller.start_nonblocking(key, receive, 3).unwrap();
        }
        for done in progress(&mut poller) {
            assert_eq!(done.memory.unwrap(), b"xyz");
        }
        // One that may block has the same limit.
        other.write_all(b"xyz").unwrap();
        let bytes = Vec::with_capacity(64);
        poller.start(key, Operation::ReceiveAtMost { bytes, most: 2 }, 4).unwrap();
        assert_eq!(progress(&mut poller)[0].memory.as_deref(), Some(&b"xy"[..]));
    }
}

#[test]
fn pipes_are_read_and_written() {
    let _alone = alone();
    for count in COUNTS {
        let Some(mut poller) = poller() else { return };
        let (reader, writer) = io::pipe().unwrap();
        sys::set_nonblocking(&reader);
        sys::set_nonblocking(&writer);
        let (from, to) = (sys::register(&mut poller, &reader), sys::register(&mut poller, &writer));
        for _ in 0..count {
            let write = Operation::Write { bytes: b"abc".to_vec(), from: 1 };
            poller.start_nonblocking(to, write, 1).unwrap();
        }
        let written = progress(&mut poller);
        assert_eq!(written.len(), count);
        assert!(written.iter().all(|done| matches!(done.outcome, Ok(Gain::Count(2)))));
        for _ in 0..=count {
            poller.start_nonblocking(from, Operation::Read(Vec::with_capacity(2)), 2).unwrap();
        }
        let mut read = progress(&mut poller);
        assert_eq!(error(&read.pop().unwrap()), libc::EAGAIN);
        assert!(
            read.len() == count && read.iter().all(|done| done.memory.as_deref() == Some(b"bc"))
        );
    }
}

#[test]
fn an_operation_that_may_block_is_given_back() {
    let _alone = alone();
    let Some(mut poller) = poller() else { return };
    let (_one, _other, key) = pair(&mut poller);
    let all = Operation::SendAll { bytes: b"hello".to_vec(), from: 0 };
    for operation in [all, Operation::Accept, Operation::AcceptMany, Operation::ReceiveMany] {
        let had_memory = matches!(operation, Operation::SendAll { .. });
        let (error, operation) = poller.start_nonblocking(key, operation, 1).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(operation.into_memory().is_some(), had_memory);
    }
    for kind in BackendKind::available().into_iter().filter(|&kind| kind != BackendKind::Uring) {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (_one, _other, key) = pair(&mut poller);
        let (error, _) = poller.start_nonblocking(key, receive(8), 1).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

#[test]
fn cancelling_ends_those_that_the_kernel_has_not_received() {
    for (count, now) in COUNTS.into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let Some(mut poller) = poller() else { return };
        let (_one, mut other, key) = pair(&mut poller);
        other.write_all(b"x").unwrap();
        let mut tickets = Vec::new();
        for token in 0..count as u64 {
            tickets.push(poller.start_nonblocking(key, receive(8), token).unwrap());
        }
        let mut ended = Vec::new();
        for &ticket in &tickets {
            if now {
                ended.extend(poller.cancel_now(ticket).unwrap());
                assert!(poller.cancel_now(ticket).unwrap().is_empty());
            } else {
                poller.cancel(ticket).unwrap();
            }
        }
        if !now {
            ended = progress(&mut poller);
        }
        for (token, ended) in (0..).zip(&ended) {
            assert_eq!((ended.token, error(ended)), (token, libc::ECANCELED));
            assert_eq!(ended.memory.as_ref().unwrap().capacity(), 8);
        }
        assert_eq!(ended.len(), count);
        // Nothing was taken, and a late ticket means no operation of another wait.
        let next = poller.start_nonblocking(key, receive(8), 1).unwrap();
        tickets.iter().for_each(|&ticket| poller.cancel(ticket).unwrap());
        assert_eq!(progress(&mut poller)[0].memory.as_deref(), Some(&b"x"[..]));
        assert!(poller.cancel_now(next).unwrap().is_empty());
    }
}

#[test]
fn an_outer_loop_hears_of_them() {
    let Some(mut poller) = poller() else { return };
    let (one, mut other, key) = pair(&mut poller);
    let number = poller.nest().unwrap().as_raw_fd();
    let mut events = Events::with_limit(4);
    poller.wait(&mut events, NOW).unwrap();
    assert!(!sys::is_readable(number));
    other.write_all(b"x").unwrap();
    for (ends, outcome) in [(false, Ok(())), (true, Err(libc::ECANCELED))] {
        poller.start_nonblocking(key, receive(8), 1).unwrap();
        if ends {
            poller.deregister(key).unwrap();
        }
        assert!(sys::is_readable(number), "the outer loop sleeps");
        let done = progress(&mut poller);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].outcome.is_ok(), outcome.is_ok());
        assert!(!sys::is_readable(number), "the outer loop is kept awake");
    }
    drop(one);
}

#[test]
fn events_come_with_them() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    poller.modify(key, Interest::READABLE).unwrap();
    other.write_all(b"hello").unwrap();
    let mut events = Events::with_limit(4);
    let mut got = Vec::new();
    while got.len() < 5 {
        poller.start_nonblocking(key, receive(3), 1).unwrap();
        poller.wait(&mut events, None).unwrap();
        for done in events.progress() {
            got.extend(done.memory.unwrap());
        }
    }
    assert_eq!(got, b"hello");
}
