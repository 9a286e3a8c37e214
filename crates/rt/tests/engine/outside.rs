//! Streams that are polled on threads without an engine: in another executor, or by a library that
//! hands them to `tokio::spawn`.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, or, poll_fn, poll_once};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::net::{StreamSocket, TcpListener, TcpStream};
use superpoll_rt::{AsyncFd, BackendKind, Direction, Runtime, pipe, time};
use superpoll_test_support::{Waiter, alone};

/// Long enough that a wait has begun; nothing depends on it but the worth of a test.
const PAUSE: Duration = Duration::from_millis(20);

fn connected() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (TcpStream::from_std(listener.accept().unwrap().0).unwrap(), client)
}

/// Counts its wakes.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counted {
    fn wait_for(&self, wakes: usize) {
        let begun = Instant::now();
        while self.0.load(Ordering::SeqCst) < wakes {
            assert!(begun.elapsed() < Duration::from_secs(30), "no wake");
            thread::yield_now();
        }
    }
}

#[test]
fn reads_and_writes_that_have_to_wait_do_so_without_a_runtime() {
    let (mut stream, mut client) = connected();
    let waiter = Waiter::this_thread();
    let peer = thread::spawn(move || {
        waiter.until_it_sleeps();
        client.write_all(b"question").unwrap();
        waiter.until_it_sleeps();
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all.len()
    });
    let sent = block_on(async {
        let mut question = [0; 8];
        stream.read_exact(&mut question).await.unwrap();
        assert_eq!(&question, b"question");
        // More than the kernel's buffers hold.
        let answer = vec![7; 16 << 20];
        stream.write_all(&answer).await.unwrap();
        answer.len()
    });
    drop(stream);
    assert_eq!(peer.join().unwrap(), sent);
}

#[test]
fn listeners_pipes_and_other_descriptors_wait_too() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut reader = pipe::reader_from(reader).unwrap();
    let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    let descriptor = AsyncFd::new(one).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let (sender, refused) = mpsc::channel();
    let waiter = Waiter::this_thread();
    let peer = thread::spawn(move || {
        waiter.until_it_sleeps();
        writer.write_all(b"p").unwrap();
        refused.recv().unwrap();
        waiter.until_it_sleeps();
        other.write_all(b"d").unwrap();
        waiter.until_it_sleeps();
        std::net::TcpStream::connect(address).unwrap()
    });
    block_on(async {
        let mut byte = [0];
        reader.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"p");
        // Ready until an operation would block, as on an engine.
        let mut waits = 0;
        loop {
            let ready = descriptor.readable().await.unwrap();
            match ready.try_io(|mut fd| fd.read(&mut byte)) {
                Ok(outcome) => break assert_eq!((outcome.unwrap(), &byte), (1, b"d")),
                Err(_) => {
                    waits += 1;
                    let _ = sender.send(());
                }
            }
        }
        assert_eq!(waits, 1, "readiness is reported once and not guessed again");
        listener.accept().await.unwrap();
    });
    peer.join().unwrap();
}

#[test]
fn the_end_of_a_stream_and_a_reset_wake_a_waiter() {
    for resets in [false, true] {
        let (stream, client) = connected();
        if resets {
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        }
        let waiter = Waiter::this_thread();
        let peer = thread::spawn(move || {
            waiter.until_it_sleeps();
            drop(client);
        });
        let read = block_on(poll_fn(|cx| stream.poll_read(cx, &mut [0])));
        assert_eq!(read.is_err(), resets, "{read:?}");
        peer.join().unwrap();
    }
}

#[test]
fn a_descriptor_that_cannot_be_watched_is_refused_with_a_reason() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (first, second) = (AsyncFd::new(&one).unwrap(), AsyncFd::new(&one).unwrap());
    let blocked =
        |_: &&std::os::unix::net::UnixStream| Err::<(), _>(std::io::ErrorKind::WouldBlock.into());
    assert!(block_on(poll_once(first.perform(Direction::Read, blocked))).is_none());
    let error = block_on(second.perform(Direction::Read, blocked)).unwrap_err();
    assert!(error.to_string().contains("registered"), "{error}");
}

#[test]
fn each_direction_wakes_its_own_waiter_and_a_wait_that_was_given_up_wakes_nobody() {
    // A full socket of TCP may have room again before its peer reads.
    let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    let stream = UnixStream::from_std(one).unwrap();
    while stream.try_write(&[1; 4096]).is_ok() {}
    let (reads, writes, given_up) =
        (Arc::<Counted>::default(), Arc::<Counted>::default(), Arc::<Counted>::default());
    let wakers = [&reads, &writes, &given_up].map(|counted| Waker::from(counted.clone()));
    assert!(stream.poll_read(&mut Context::from_waker(&wakers[0]), &mut [0]).is_pending());
    assert!(stream.poll_write(&mut Context::from_waker(&wakers[1]), &[1]).is_pending());
    {
        let mut room = [0];
        let mut waiting = pin!(stream.recv_with_fds(&mut room, 1));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&wakers[2])).is_pending());
    }
    other.write_all(b"x").unwrap();
    reads.wait_for(1);
    assert_eq!(writes.0.load(Ordering::SeqCst), 0);
    other.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    while writes.0.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "no wake");
        let _ = other.read(&mut [0; 4096]);
    }
    assert_eq!((reads.0.load(Ordering::SeqCst), given_up.0.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn a_stream_goes_from_engines_to_other_threads_and_back_with_all_its_bytes() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let (mut stream, mut client) = connected();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |bound: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) % bound
        };
        let writer = thread::spawn(move || {
            for number in 0..2_000_u32 {
                client.write_all(&number.to_be_bytes()).unwrap();
                if number % 7 == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let mut all = Vec::new();
        let mut ended = false;
        while !ended {
            let steps = random(4) + 1;
            let gives_up = random(2) == 0;
            let mut take = async || {
                for _ in 0..steps {
                    let mut room = [0; 13];
                    if gives_up {
                        // With io_uring the engine goes on reading for it.
                        let read = poll_fn(|cx| stream.poll_read(cx, &mut room[..5]));
                        if let Some(count) = poll_once(read).await {
                            all.extend_from_slice(&room[..count.unwrap()]);
                        }
                    }
                    let count = stream.read(&mut room).await.unwrap();
                    all.extend_from_slice(&room[..count]);
                    ended |= count == 0;
                }
            };
            match random(2) {
                0 => runtime.block_on(take()),
                _ => block_on(take()),
            }
        }
        writer.join().unwrap();
        let wanted: Vec<u8> = (0..2_000_u32).flat_map(u32::to_be_bytes).collect();
        assert!(all == wanted, "{backend:?}: {} of {} bytes", all.len(), wanted.len());
    }
}

#[test]
fn the_number_of_a_dropped_stream_may_mean_another_file_at_once() {
    for _ in 0..300 {
        let (stream, client) = connected();
        let counted = Arc::<Counted>::default();
        let waker = Waker::from(counted.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(stream.poll_read(&mut cx, &mut [0]).is_pending());
        let number = stream.as_fd().as_raw_fd();
        drop(stream);
        // As a rule it gets the same number.
        let (next, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let is_same = next.as_raw_fd() == number;
        let next = UnixStream::from_std(next).unwrap();
        let own = Arc::<Counted>::default();
        let waker = Waker::from(own.clone());
        assert!(next.poll_read(&mut Context::from_waker(&waker), &mut [0]).is_pending());
        other.write_all(b"x").unwrap();
        own.wait_for(1);
        assert_eq!(counted.0.load(Ordering::SeqCst), 0, "same number: {is_same}");
        drop(client);
    }
}

#[test]
fn many_threads_wait_at_once() {
    let threads: Vec<_> = (0..8)
        .map(|number| {
            thread::spawn(move || {
                for _ in 0..50 {
                    let (mut stream, client) = connected();
                    let mut client = TcpStream::from_std(client).unwrap();
                    let echo = async {
                        let mut byte = [0];
                        loop {
                            stream.read_exact(&mut byte).await.unwrap();
                            stream.write_all(&byte).await.unwrap();
                        }
                    };
                    let ask = async {
                        for _ in 0..10 {
                            client.write_all(&[number]).await.unwrap();
                            let mut byte = [0];
                            client.read_exact(&mut byte).await.unwrap();
                            assert_eq!(byte, [number]);
                        }
                    };
                    block_on(or(echo, ask));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn timers_need_an_engine_and_say_so() {
    let panicked = thread::spawn(|| block_on(time::sleep(PAUSE))).join().unwrap_err();
    let text = panicked.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panicked.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("no runtime runs on this thread"), "{text}");
}

#[test]
fn a_forked_child_waits_with_a_thread_of_its_own() {
    alone(|| {
        let (mut stream, mut client) = connected();
        // The parent has its thread, and this stream waits there.
        assert!(block_on(poll_once(stream.read(&mut [0; 4]))).is_none());
        // SAFETY: this thread is the only one of the test; the child uses the memory of the
        // process, whose allocator glibc prepares for a fork, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let read = block_on(async { stream.read(&mut [0; 4]).await });
            // SAFETY: the call ends the process.
            unsafe { libc::_exit(if read.is_ok_and(|count| count == 1) { 0 } else { 1 }) };
        }
        thread::sleep(PAUSE);
        client.write_all(b"x").unwrap();
        let begun = Instant::now();
        let mut status = -1;
        // SAFETY: the kernel writes one integer.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if begun.elapsed() > Duration::from_secs(30) {
                // SAFETY: the call takes integers; the child is this test's own.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(status, 0, "the child has not read what came");
        // The parent goes on with its own thread.
        client.write_all(b"y").unwrap();
        assert_eq!(block_on(async { stream.read(&mut [0; 4]).await }).unwrap(), 1);
    });
}

#[test]
fn a_thread_is_started_by_the_first_wait_and_not_before() {
    alone(|| {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let (mut stream, mut client) = connected();
        client.write_all(b"x").unwrap();
        block_on(async { assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 1) });
        assert_eq!(threads(), before, "a read that need not wait starts no thread");
        let waker = Waker::noop();
        assert!(matches!(
            stream.poll_read(&mut Context::from_waker(waker), &mut [0]),
            Poll::Pending
        ));
        assert_eq!(threads(), before + 1);
    });
}
