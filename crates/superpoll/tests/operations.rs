//! Operations that may be under way across waits, on the back-end that has them. Each test of one
//! is left out where there is no io_uring.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use superpoll::operation::{Gain, Operation, Progress};
use superpoll::{BackendKind, Error, Events, Interest, Key, Poller};

mod alone;
// Other tests use the rest of it.
#[allow(dead_code)]
mod sys;

use alone::alone;
use sys::{flags, in_a_child, replace};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn poller() -> Option<Poller> {
    if !BackendKind::Uring.is_available() {
        eprintln!("skipped: uring is not available here");
        return None;
    }
    Some(Poller::builder().backend(BackendKind::Uring).build().unwrap())
}

/// The progress of one wait, which may block.
fn wait(poller: &mut Poller) -> Vec<Progress> {
    let mut events = Events::with_limit(16);
    poller.wait(&mut events, None).unwrap();
    events.progress().collect()
}

fn look(poller: &mut Poller) -> Vec<Progress> {
    let mut events = Events::with_limit(16);
    poller.wait(&mut events, NOW).unwrap();
    events.progress().collect()
}

/// The only progress there is, which is the last.
fn only(list: Vec<Progress>) -> Progress {
    assert_eq!(list.len(), 1, "{list:?}");
    let progress = list.into_iter().next().unwrap();
    assert!(progress.last, "{progress:?}");
    progress
}

fn count(progress: &Progress) -> usize {
    match progress.outcome {
        Ok(Gain::Count(count)) => count,
        _ => panic!("{progress:?}"),
    }
}

fn error(progress: &Progress) -> i32 {
    progress.outcome.as_ref().unwrap_err().raw_os_error().unwrap()
}

fn pair(poller: &mut Poller) -> (UnixStream, UnixStream, Key) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    let key = sys::register(poller, &one);
    (one, other, key)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn send(text: &[u8]) -> Operation {
    Operation::Send { bytes: text.to_vec(), from: 0 }
}

#[test]
fn back_ends_without_operations_refuse_them_and_return_their_memory() {
    for kind in BackendKind::available().into_iter().filter(|&kind| kind != BackendKind::Uring) {
        let mut poller = Poller::builder().backend(kind).build().unwrap();
        let (_one, _other, key) = pair(&mut poller);
        let (error, operation) = poller.start(key, send(b"hello"), 1).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(operation.into_memory().unwrap(), b"hello");
    }
}

#[test]
fn a_receive_waits_and_brings_its_memory_back() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    for (token, text) in [(1, &b"hello"[..]), (2, b"again"), (3, b"")] {
        poller.start(key, Operation::Receive(Vec::with_capacity(16)), token).unwrap();
        assert!(look(&mut poller).is_empty());
        match text.is_empty() {
            true => other.shutdown(std::net::Shutdown::Write).unwrap(),
            false => other.write_all(text).unwrap(),
        }
        let progress = only(wait(&mut poller));
        assert_eq!((progress.token, count(&progress)), (token, text.len()));
        assert_eq!(progress.memory.unwrap(), text);
    }
    poller.deregister(key).unwrap();
}

#[test]
fn pipes_are_read_and_written() {
    let Some(mut poller) = poller() else { return };
    let (reader, writer) = io::pipe().unwrap();
    let from = sys::register(&mut poller, &reader);
    let to = sys::register(&mut poller, &writer);
    poller.start(from, Operation::Read(Vec::with_capacity(3)), 1).unwrap();
    assert!(look(&mut poller).is_empty());
    poller.start(to, Operation::Write { bytes: b"abcde".to_vec(), from: 1 }, 2).unwrap();
    let mut done = HashMap::new();
    while done.len() < 2 {
        done.extend(wait(&mut poller).into_iter().map(|progress| (progress.token, progress)));
    }
    assert_eq!((count(&done[&1]), count(&done[&2])), (3, 4));
    assert_eq!(done[&1].memory.as_deref(), Some(&b"bcd"[..]));
    assert_eq!(done[&2].memory.as_deref(), Some(&b"abcde"[..]));
    drop(reader);
    poller.deregister(from).unwrap();
    poller.start(to, Operation::Write { bytes: b"x".to_vec(), from: 0 }, 3).unwrap();
    assert_eq!(error(&only(wait(&mut poller))), libc::EPIPE);
    poller.deregister(to).unwrap();
}

#[test]
fn a_long_send_is_done_to_its_end_and_then_the_direction_ends() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    let expected = bytes.clone();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        all
    });
    let half = bytes.len() / 2;
    poller.start(key, Operation::SendAll { bytes: bytes[..half].to_vec(), from: 0 }, 1).unwrap();
    let progress = only(wait(&mut poller));
    assert_eq!(count(&progress), half);
    assert_eq!(progress.memory.unwrap().len(), half);
    poller.start(key, Operation::SendAllAndShutdown { bytes, from: half }, 2).unwrap();
    assert_eq!(count(&only(wait(&mut poller))), half);
    assert_eq!(reader.join().unwrap(), expected);
    poller.start(key, send(b"more"), 3).unwrap();
    assert_eq!(error(&only(wait(&mut poller))), libc::EPIPE);
    poller.deregister(key).unwrap();
}

#[test]
fn a_send_that_fails_does_not_end_the_direction() {
    let Some(mut poller) = poller() else { return };
    let (_one, other, key) = pair(&mut poller);
    drop(other);
    poller.start(key, Operation::SendAllAndShutdown { bytes: b"x".to_vec(), from: 0 }, 1).unwrap();
    let progress = only(wait(&mut poller));
    assert_eq!((error(&progress), progress.memory.unwrap()), (libc::EPIPE, b"x".to_vec()));
    poller.deregister(key).unwrap();
}

#[test]
fn connections_are_accepted_once_and_again_and_connected() {
    let Some(mut poller) = poller() else { return };
    for blocking in [false, true] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(!blocking).unwrap();
        let address = listener.local_addr().unwrap();
        let key = sys::register(&mut poller, &listener);
        poller.start(key, Operation::Accept, 1).unwrap();
        assert!(look(&mut poller).is_empty());
        let mut client = TcpStream::connect(address).unwrap();
        let progress = only(wait(&mut poller));
        let Ok(Gain::Socket(socket, Some(peer))) = progress.outcome else { panic!("{progress:?}") };
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(flags(&socket), (true, true));
        client.write_all(b"x").unwrap();

        let ticket = poller.start(key, Operation::AcceptMany, 2).unwrap();
        assert!(look(&mut poller).is_empty());
        let mut accepted = Vec::new();
        let clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        while accepted.len() < clients.len() {
            for progress in wait(&mut poller) {
                assert!(progress.token == 2 && !progress.last);
                let Ok(Gain::Socket(socket, None)) = progress.outcome else {
                    panic!("{progress:?}")
                };
                accepted.push(TcpStream::from(socket).peer_addr().unwrap());
            }
        }
        let mut expected: Vec<SocketAddr> =
            clients.iter().map(|client| client.local_addr().unwrap()).collect();
        // The last packet of a handshake may be handled later than the first of the next.
        accepted.sort();
        expected.sort();
        assert_eq!(accepted, expected);
        assert_eq!(error(&only(poller.cancel_now(ticket).unwrap())), libc::ECANCELED);

        let socket = sys::socket();
        let connecting = sys::register(&mut poller, &socket);
        poller.start(connecting, Operation::Connect(address), 3).unwrap();
        let progress = only(wait(&mut poller));
        assert!(matches!(progress.outcome, Ok(Gain::Nothing)), "{progress:?}");
        poller.deregister(connecting).unwrap();
        assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), address);
        poller.deregister(key).unwrap();
    }
}

#[test]
fn a_refused_connection_is_reported() {
    let Some(mut poller) = poller() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let socket = sys::socket();
    let key = sys::register(&mut poller, &socket);
    poller.start(key, Operation::Connect(address), 1).unwrap();
    assert_eq!(error(&only(wait(&mut poller))), libc::ECONNREFUSED);
}

#[test]
fn many_receives_bring_all_bytes_and_the_end() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    poller.start(key, Operation::ReceiveMany, 5).unwrap();
    assert!(look(&mut poller).is_empty());
    let bytes: Vec<u8> = (0..2_000_000u32).map(|n| (n / 5) as u8).collect();
    let expected = bytes.clone();
    let writer = std::thread::spawn(move || other.write_all(&bytes).unwrap());
    let mut got = Vec::new();
    'all: loop {
        for progress in wait(&mut poller) {
            match progress.outcome {
                Ok(Gain::Bytes(bytes)) if !progress.last => got.extend_from_slice(&bytes),
                Ok(Gain::Nothing) if progress.last => break 'all,
                _ => panic!("{progress:?}"),
            }
        }
    }
    writer.join().unwrap();
    assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
    poller.deregister(key).unwrap();
}

#[test]
fn receives_stop_while_all_buffers_are_kept_and_resume_when_they_return() {
    let Some(mut poller) = poller() else { return };
    const ALL: usize = 1024;
    const MORE: usize = 40;
    superpoll::limits::raise_descriptors().unwrap();
    let mut pairs: Vec<_> = (0..ALL + MORE).map(|_| pair(&mut poller)).collect();
    for (token, (_, other, key)) in pairs.iter_mut().enumerate() {
        poller.start(*key, Operation::ReceiveMany, token as u64).unwrap();
        other.write_all(&(token as u32).to_ne_bytes()).unwrap();
    }
    let mut kept = HashMap::new();
    let mut take = |poller: &mut Poller, until: usize| {
        // Progress that has not come after this many waits does not come.
        for _ in 0..100 {
            for progress in look(poller) {
                let Ok(Gain::Bytes(bytes)) = progress.outcome else { panic!("{progress:?}") };
                assert!(!progress.last);
                assert_eq!(*bytes, (progress.token as u32).to_ne_bytes());
                assert!(kept.insert(progress.token, bytes).is_none());
            }
        }
        assert_eq!(kept.len(), until);
        std::mem::take(&mut kept)
    };
    let bytes = take(&mut poller, ALL);
    let starved: Vec<u64> = (0..(ALL + MORE) as u64).filter(|n| !bytes.contains_key(n)).collect();
    drop(bytes);
    let rest = take(&mut poller, MORE);
    assert!(starved.iter().all(|token| rest.contains_key(token)));
    // They are used again and again.
    for _ in 0..20 {
        for (token, (_, other, _)) in pairs.iter_mut().enumerate().take(200) {
            other.write_all(&(token as u32).to_ne_bytes()).unwrap();
        }
        drop(take(&mut poller, 200));
    }
    drop(poller);
    assert_eq!(rest[&starved[0]].len(), 4, "taken bytes outlive the poller");
}

#[test]
fn a_cancelled_operation_gives_its_memory_back() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    let receive = || Operation::Receive(Vec::with_capacity(16));
    // Before the kernel knows of it, while it waits, and when it is done.
    let ticket = poller.start(key, receive(), 1).unwrap();
    poller.cancel(ticket).unwrap();
    let progress = only(wait(&mut poller));
    assert_eq!((progress.token, error(&progress)), (1, libc::ECANCELED));
    assert_eq!(progress.memory.map(|memory| memory.capacity()), Some(16));

    let ticket = poller.start(key, receive(), 2).unwrap();
    assert!(look(&mut poller).is_empty());
    poller.cancel(ticket).unwrap();
    let progress = only(wait(&mut poller));
    assert_eq!((progress.token, error(&progress)), (2, libc::ECANCELED));

    let ticket = poller.start(key, receive(), 3).unwrap();
    assert!(look(&mut poller).is_empty());
    let progress = only(poller.cancel_now(ticket).unwrap());
    assert_eq!((progress.token, error(&progress)), (3, libc::ECANCELED));
    assert!(poller.cancel_now(ticket).unwrap().is_empty());

    let ticket = poller.start(key, receive(), 4).unwrap();
    assert!(look(&mut poller).is_empty());
    other.write_all(b"late").unwrap();
    let list = poller.cancel_now(ticket).unwrap();
    let progress = only(list);
    // Either it was faster, or the bytes are still there.
    let mut got = progress.memory.unwrap();
    if progress.outcome.is_err() {
        poller.start(key, receive(), 5).unwrap();
        got = only(wait(&mut poller)).memory.unwrap();
    }
    assert_eq!(got, b"late");
    poller.cancel(ticket).unwrap();
    assert!(look(&mut poller).is_empty(), "a ticket names one operation only");
    poller.deregister(key).unwrap();
}

#[test]
fn the_end_of_a_registration_cancels_and_lets_go_of_the_file() {
    let Some(mut poller) = poller() else { return };
    for told in [false, true] {
        let (one, mut other, key) = pair(&mut poller);
        poller.start(key, Operation::Receive(Vec::with_capacity(16)), 1).unwrap();
        poller.start(key, Operation::ReceiveMany, 2).unwrap();
        if told {
            assert!(look(&mut poller).is_empty());
        }
        poller.deregister(key).unwrap();
        drop(one);
        // The peer learns of it without another wait.
        assert_eq!(other.read(&mut [0; 4]).unwrap(), 0);
        let mut tokens = Vec::new();
        for progress in wait(&mut poller) {
            assert!(progress.last && error(&progress) == libc::ECANCELED);
            tokens.push(progress.token);
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [1, 2]);
    }
}

#[test]
fn a_nonblocking_operation_is_not_carried_out_on_a_successor() {
    let Some(mut poller) = poller() else { return };
    let (one, other, key) = pair(&mut poller);
    let number = one.as_raw_fd();
    poller.start_nonblocking(key, Operation::Receive(Vec::with_capacity(8)), 1).unwrap();
    poller.deregister(key).unwrap();
    let (next, mut peer) = UnixStream::pair().unwrap();
    peer.write_all(b"mine").unwrap();
    replace(&next, number);
    let ended = only(look(&mut poller));
    assert_eq!((ended.last, ended.token, error(&ended)), (true, 1, libc::ECANCELED));
    assert_eq!(ended.memory.unwrap().capacity(), 8);
    let mut text = [0; 4];
    (&next).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"mine");
    drop((one, other));
}

#[test]
fn a_poller_is_dropped_with_everything_under_way() {
    alone("a_poller_is_dropped_with_everything_under_way", || {
        let Some(_) = poller() else { return };
        let one_round = || {
            let mut poller = poller().unwrap();
            let mut kept = Vec::new();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let accepting = sys::register(&mut poller, &listener);
            poller.start(accepting, Operation::AcceptMany, 0).unwrap();
            for token in 0..50 {
                let (one, mut other, key) = pair(&mut poller);
                poller.start(key, Operation::Receive(Vec::with_capacity(100)), token).unwrap();
                poller.start(key, Operation::ReceiveMany, token).unwrap();
                if token % 2 == 0 {
                    other.write_all(&[1; 500]).unwrap();
                }
                kept.push((one, other));
            }
            drop(look(&mut poller));
            // Accepted, and never taken.
            let clients: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
            poller.flush();
            drop(poller);
            for (_, other) in &mut kept {
                other.write_all(&[2; 500]).unwrap();
            }
            drop(listener);
            // Every client learns that the server is gone, whether it was accepted or not.
            for mut client in clients {
                assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            }
        };
        one_round();
        let before = descriptors();
        for _ in 0..10 {
            one_round();
        }
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn on_another_thread_operations_are_cancelled_and_can_be_started_again() {
    let Some(mut poller) = poller() else { return };
    let (one, mut other, key) = pair(&mut poller);
    poller.start(key, Operation::Receive(Vec::with_capacity(16)), 1).unwrap();
    let many = poller.start(key, Operation::ReceiveMany, 2).unwrap();
    assert!(look(&mut poller).is_empty());
    let moved = std::thread::spawn(move || {
        let mut tokens: Vec<_> = wait(&mut poller)
            .into_iter()
            .map(|progress| (progress.last, error(&progress), progress.token))
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [(true, libc::ECANCELED, 1), (true, libc::ECANCELED, 2)]);
        assert!(poller.cancel_now(many).unwrap().is_empty());
        poller.start(key, Operation::ReceiveMany, 3).unwrap();
        other.write_all(b"here").unwrap();
        let list = wait(&mut poller);
        assert!(matches!(&list[0].outcome, Ok(Gain::Bytes(bytes)) if **bytes == *b"here"));
        poller
    });
    let mut poller = moved.join().unwrap();
    let last = only(wait(&mut poller));
    assert_eq!((last.token, error(&last)), (3, libc::ECANCELED));
    drop((one, poller));
}

#[test]
fn a_child_process_has_none_of_its_parents() {
    alone("a_child_process_has_none_of_its_parents", || {
        let Some(mut poller) = poller() else { return };
        let (_one, mut other, key) = pair(&mut poller);
        let ticket = poller.start(key, Operation::ReceiveMany, 1).unwrap();
        let receive = poller.start(key, Operation::Receive(Vec::with_capacity(64)), 2).unwrap();
        assert!(look(&mut poller).is_empty());
        in_a_child(|| {
            assert!(poller.cancel_now(receive).is_err(), "the ring is the parent's");
            poller.after_fork().unwrap();
            let list = wait(&mut poller);
            assert_eq!(list.len(), 2);
            assert!(list.iter().all(|one| one.last && error(one) == libc::ECANCELED));
            let (_here, mut there, key) = pair(&mut poller);
            poller.start(key, Operation::Receive(Vec::with_capacity(16)), 3).unwrap();
            there.write_all(b"child").unwrap();
            assert_eq!(only(wait(&mut poller)).memory.unwrap(), b"child");
        });
        // The parent's go on.
        drop(poller.cancel_now(receive).unwrap());
        other.write_all(b"parent").unwrap();
        let list = wait(&mut poller);
        assert!(matches!(&list[0].outcome, Ok(Gain::Bytes(bytes)) if **bytes == *b"parent"));
        drop(poller.cancel_now(ticket).unwrap());
    });
}

#[test]
fn events_and_operations_of_one_descriptor_go_together() {
    let Some(mut poller) = poller() else { return };
    let (one, mut other, key) = pair(&mut poller);
    poller.modify(key, Interest::READABLE).unwrap();
    let mut events = Events::with_limit(4);
    for round in 0..50u8 {
        poller.start(key, Operation::Receive(Vec::with_capacity(4)), u64::from(round)).unwrap();
        poller.wait(&mut events, NOW).unwrap();
        assert_eq!(events.progress().count(), 0);
        other.write_all(&[round; 8]).unwrap();
        let mut got = Vec::new();
        while got.len() < 8 {
            poller.wait(&mut events, None).unwrap();
            let readable = events.find(key).is_some();
            for progress in events.progress() {
                got.extend_from_slice(progress.memory.as_deref().unwrap());
            }
            if readable && !got.is_empty() {
                let mut rest = [0; 8];
                match (&one).read(&mut rest) {
                    Ok(count) => got.extend_from_slice(&rest[..count]),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
        }
        assert_eq!(got, [round; 8]);
    }
}

#[test]
fn random_cancels_lose_no_byte() {
    let Some(mut poller) = poller() else { return };
    const BYTES: usize = 200_000;
    let (one, mut other, key) = pair(&mut poller);
    let writer = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..BYTES).map(|n| (n * 7 + n / 256) as u8).collect();
        for chunk in bytes.chunks(331) {
            other.write_all(chunk).unwrap();
            if chunk[0] % 4 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut got: Vec<u8> = Vec::new();
    let mut random = 12345u32;
    let mut cancelled = 0;
    while got.len() < BYTES {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let many = random >> 24 & 1 == 0;
        let operation = match many {
            true => Operation::ReceiveMany,
            false => Operation::Receive(Vec::with_capacity((random >> 20) as usize % 700 + 1)),
        };
        let ticket = poller.start(key, operation, 1).unwrap();
        let mut list = Vec::new();
        for _ in 0..random >> 16 & 3 {
            list.extend(look(&mut poller));
        }
        list.extend(poller.cancel_now(ticket).unwrap());
        assert!(list.last().unwrap().last);
        for progress in list {
            match progress.outcome {
                Ok(Gain::Bytes(bytes)) => got.extend_from_slice(&bytes),
                Ok(Gain::Count(count)) => {
                    assert_eq!(progress.memory.as_ref().unwrap().len(), count);
                    got.extend_from_slice(&progress.memory.unwrap());
                }
                Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => cancelled += 1,
                // The last one may find the end.
                Ok(Gain::Nothing) => assert_eq!(got.len(), BYTES),
                outcome => panic!("{outcome:?}"),
            }
        }
    }
    writer.join().unwrap();
    assert!(got.iter().enumerate().all(|(n, &byte)| byte == (n * 7 + n / 256) as u8));
    assert!(cancelled > 0);
    drop(one);
}

#[test]
fn a_nonblocking_operation_comes_back_although_its_ring_was_another_threads() {
    let Some(mut poller) = poller() else { return };
    let (_one, mut other, key) = pair(&mut poller);
    let (_third, _fourth, gone) = pair(&mut poller);
    assert!(look(&mut poller).is_empty());
    other.write_all(b"hello").unwrap();
    poller.start_nonblocking(key, Operation::Receive(Vec::with_capacity(16)), 7).unwrap();
    let thread = std::thread::spawn(move || {
        // The first that the other thread does is not a wait.
        poller.deregister(gone).unwrap();
        let done = only(look(&mut poller));
        assert_eq!((done.last, done.token), (true, 7));
        assert_eq!(done.memory.unwrap().capacity(), 16);
    });
    thread.join().unwrap();
}

#[test]
fn an_outer_loop_is_woken_by_operations_that_end_without_the_kernel() {
    let Some(mut poller) = poller() else { return };
    let (_one, _other, key) = pair(&mut poller);
    let (third, _fourth) = UnixStream::pair().unwrap();
    poller.start(key, Operation::Receive(Vec::with_capacity(16)), 3).unwrap();
    let number = poller.nest().unwrap().as_raw_fd();
    assert!(look(&mut poller).is_empty());
    assert!(!sys::is_readable(number));
    let thread = std::thread::spawn(move || {
        // Its ring is another thread's, where the operation was under way.
        sys::register(&mut poller, &third);
        assert!(sys::is_readable(number), "the outer loop sleeps");
        assert_eq!(error(&only(look(&mut poller))), libc::ECANCELED);
        assert!(!sys::is_readable(number), "the outer loop is kept awake");
    });
    thread.join().unwrap();
}

#[test]
fn operations_cancelled_before_their_submission_leave_nothing_behind() {
    let Some(mut poller) = poller() else { return };
    let (_one, _other, key) = pair(&mut poller);
    let mut memory = Vec::new();
    for _ in 0..2_000 {
        let receive = Operation::Receive(Vec::with_capacity(16));
        let ticket = poller.start(key, receive, 1).unwrap();
        assert_eq!(error(&only(poller.cancel_now(ticket).unwrap())), libc::ECANCELED);
        assert!(look(&mut poller).is_empty());
        memory.push(poller.memory().own);
    }
    assert_eq!(memory[100], memory[1_999]);
}
