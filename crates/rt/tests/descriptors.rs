//! Descriptors: when they are registered, and which system calls are made and which are not.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::rc::Rc;

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{AsyncFd, BackendKind, Direction, NotReady, Runtime, pipe, spawn, yield_now};

mod refused;
mod watches;

mod sys {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

    /// A descriptor's number, in the hands of code that does not own the descriptor.
    pub struct Number(pub RawFd);

    impl AsFd for Number {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // SAFETY: it may be closed, which is the case that is tested: the kernel refuses it
            // then. No memory depends on it.
            unsafe { BorrowedFd::borrow_raw(self.0) }
        }
    }

    /// Duplicates a descriptor to a number that no other test gets: other tests get the lowest.
    pub fn duplicate(fd: impl AsFd, least: RawFd) -> OwnedFd {
        // SAFETY: F_DUPFD_CLOEXEC takes a number and makes a descriptor that no other code has.
        unsafe {
            let fd = libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, least);
            assert!(fd >= least);
            OwnedFd::from_raw_fd(fd)
        }
    }

    /// Closes a descriptor without the knowledge of the code that has its number.
    pub fn close(number: RawFd) {
        // SAFETY: its owner has given it up.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

fn each(test: impl AsyncFn(&Runtime)) {
    for kind in BackendKind::available() {
        eprintln!("back-end {kind}");
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        runtime.block_on(test(&runtime)).unwrap();
    }
}

/// A pipe whose ends do not know of each other.
fn strangers() -> (pipe::PipeReader, pipe::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (pipe::reader_from(reader).unwrap(), pipe::writer_from(writer).unwrap())
}

#[test]
fn nothing_is_registered_before_it_blocks() {
    each(async |runtime| {
        let (mut reader, mut writer) = strangers();
        writer.write_all(b"abc").await.unwrap();
        let mut byte = [0];
        for expected in b"abc" {
            reader.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte[0], *expected);
        }
        yield_now().await;
        let stats = &runtime.stats()[0];
        assert_eq!((stats.sources, stats.poller.calls.epoll_ctl_mod), (0, 0));
        assert!(poll_once(reader.read(&mut byte)).await.is_none());
        assert_eq!(runtime.stats()[0].sources, 1);
        drop(reader);
        assert_eq!(runtime.stats()[0].sources, 0);
    });
}

#[test]
fn without_speculation_each_direction_is_watched_before_its_first_use() {
    for kind in BackendKind::available() {
        for speculative in [true, false] {
            let runtime =
                Runtime::builder().backend(kind).speculative(speculative).build().unwrap();
            let test = async {
                let (own, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
                other.write_all(b"ab").unwrap();
                let mut own = AsyncFd::new(own).unwrap();
                let mut byte = [0];
                // Bytes that are known to be there are not looked for.
                let at_once = poll_once(own.read(&mut byte)).await;
                assert_eq!(at_once.is_some(), speculative, "{kind}");
                if at_once.is_none() {
                    assert_eq!(own.read(&mut byte).await.unwrap(), 1);
                }
                let at_once = poll_once(own.write(b"c")).await;
                assert_eq!(at_once.is_some(), speculative, "{kind}");
                if at_once.is_none() {
                    assert_eq!(own.write(b"c").await.unwrap(), 1);
                }
                // It is known by now that there is more of both.
                assert!(poll_once(own.read(&mut byte)).await.is_some(), "{kind}");
                assert!(poll_once(own.write(b"d")).await.is_some(), "{kind}");
                assert_eq!(runtime.stats()[0].sources, usize::from(!speculative), "{kind}");
                let mut both = [0; 2];
                other.read_exact(&mut both).unwrap();
                assert_eq!((byte[0], &both), (b'b', b"cd"), "{kind}");
            };
            runtime.block_on(test).unwrap();
        }
    }
}

#[test]
fn in_steady_state_a_byte_costs_one_wait_and_no_change() {
    each(async |runtime| {
        let (mut there, mut out) = strangers();
        let (mut back, mut answer) = strangers();
        let echo = spawn(async move {
            let mut buffer = [0; 16];
            loop {
                let count = there.read(&mut buffer).await.unwrap();
                if count == 0 {
                    return;
                }
                answer.write_all(&buffer[..count]).await.unwrap();
            }
        });
        let mut buffer = [0; 16];
        let mut round = async |rounds: u64| {
            let before = runtime.stats().swap_remove(0);
            for _ in 0..rounds {
                out.write_all(b"x").await.unwrap();
                assert_eq!(back.read(&mut buffer).await.unwrap(), 1);
            }
            let after = runtime.stats().swap_remove(0);
            (after.turns - before.turns, after.poller.calls.since(&before.poller.calls))
        };
        round(1000).await;
        let (turns, calls) = round(1000).await;
        // Two hops a round, and a turn for each.
        assert!(turns <= 2010, "{turns} turns, {calls}");
        match runtime.backend() {
            "epoll" => assert!(calls.epoll_wait <= 2010 && calls.epoll_ctl() == 0, "{calls}"),
            "poll" => assert!(calls.poll <= 2010, "{calls}"),
            // It asks poll for facts that select cannot report.
            "select" => assert!(calls.select <= 2010, "{calls}"),
            _ => assert!(calls.waits() <= 4020, "{calls}"),
        }
        drop(out);
        echo.await.unwrap();
    });
}

#[test]
fn ends_that_know_of_each_other_need_no_wait() {
    each(async |runtime| {
        let (mut there, mut out) = pipe::pipe().unwrap();
        let (mut back, mut answer) = pipe::pipe().unwrap();
        let echo = spawn(async move {
            let mut buffer = [0; 16];
            while there.read(&mut buffer).await.unwrap() > 0 {
                answer.write_all(b"y").await.unwrap();
            }
        });
        let mut buffer = [0; 16];
        yield_now().await;
        let before = runtime.stats()[0].clone();
        for _ in 0..1000 {
            out.write_all(b"x").await.unwrap();
            assert_eq!(back.read(&mut buffer).await.unwrap(), 1);
        }
        let after = &runtime.stats()[0];
        let peer_wakes = after.peer_wakes - before.peer_wakes;
        assert!(peer_wakes >= 1990, "{peer_wakes}");
        drop(out);
        echo.await.unwrap();
    });
}

#[test]
fn a_pair_that_hands_over_for_ever_does_not_keep_others_waiting() {
    each(async |runtime| {
        let (mut there, mut out) = pipe::pipe().unwrap();
        let (mut back, mut answer) = pipe::pipe().unwrap();
        let hops = Rc::new(std::cell::Cell::new(0u64));
        let counted = hops.clone();
        let mut first = spawn(async move {
            loop {
                out.write_all(b"x").await.unwrap();
                back.read_exact(&mut [0]).await.unwrap();
                counted.set(counted.get() + 2);
            }
        });
        let mut second = spawn(async move {
            loop {
                there.read_exact(&mut [0]).await.unwrap();
                answer.write_all(b"y").await.unwrap();
            }
        });
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        let mut waiting = spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..20 {
                reader.perform(Direction::Read, |mut io| io.read(&mut [0])).await.unwrap();
                seen.push(hops.get());
            }
            seen
        });
        let mut last = 0;
        for _ in 0..20 {
            yield_now().await;
            writer.write_all(b"z").unwrap();
            for _ in 0..60 {
                yield_now().await;
            }
            last += 1;
        }
        assert_eq!(last, 20);
        // 60 turns of this task are far more than tasks may delay the poller.
        assert!((&mut waiting).await.unwrap().len() == 20);
        assert!(runtime.stats()[0].peer_wakes > 1000);
        first.abort();
        second.abort();
        waiting.abort();
    });
}

#[test]
fn a_full_pipe_goes_on_when_it_is_read() {
    each(async |_| {
        for known in [false, true] {
            let (mut reader, mut writer) = if known { pipe::pipe().unwrap() } else { strangers() };
            let data: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
            let sent = data.clone();
            let writing = spawn(async move {
                writer.write_all(&sent).await.unwrap();
            });
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            writing.await.unwrap();
            assert!(received == data);
        }
    });
}

#[test]
fn the_end_of_the_stream_and_a_lost_reader_are_told() {
    each(async |_| {
        for known in [false, true] {
            let (mut reader, mut writer) = if known { pipe::pipe().unwrap() } else { strangers() };
            let waiting = spawn(async move {
                let mut buffer = [0; 8];
                let first = reader.read(&mut buffer).await.unwrap();
                let second = reader.read(&mut buffer).await.unwrap();
                let third = reader.read(&mut buffer).await.unwrap();
                (first, second, third)
            });
            yield_now().await;
            writer.write_all(b"abc").await.unwrap();
            drop(writer);
            assert_eq!(waiting.await.unwrap(), (3, 0, 0));

            let (reader, mut writer) = if known { pipe::pipe().unwrap() } else { strangers() };
            let writing = spawn(async move {
                loop {
                    if let Err(error) = writer.write(&[0; 4096]).await {
                        return error.kind();
                    }
                }
            });
            yield_now().await;
            drop(reader);
            assert_eq!(writing.await.unwrap(), std::io::ErrorKind::BrokenPipe);
        }
    });
}

#[test]
fn all_who_wait_for_a_direction_are_woken() {
    each(async |_| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Rc::new(AsyncFd::new(reader).unwrap());
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let reader = reader.clone();
                spawn(async move {
                    reader.perform(Direction::Read, |mut io| io.read(&mut [0])).await.unwrap()
                })
            })
            .collect();
        yield_now().await;
        yield_now().await;
        writer.write_all(b"12345").unwrap();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 1);
        }
    });
}

#[test]
fn a_clear_does_not_lose_a_report_that_came_since() {
    each(async |_| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        reader.readable().await.unwrap().try_io(|mut io| io.read(&mut [0])).unwrap_err();
        // Registered and waiting; then a report, and a guard from that moment.
        assert!(poll_once(reader.readable()).await.is_none());
        writer.write_all(b"1").unwrap();
        let guard = reader.readable().await.unwrap();
        (&*reader).read_exact(&mut [0]).unwrap();
        // A new arrival is reported before the old guard is cleared.
        let waiting =
            async { reader.perform(Direction::Read, |mut io| io.read(&mut [0])).await.unwrap() };
        writer.write_all(b"2").unwrap();
        for _ in 0..5 {
            yield_now().await;
        }
        guard.clear();
        assert_eq!(waiting.await, 1);
    });
}

#[test]
fn a_descriptor_moves_to_the_engine_that_awaits_it() {
    let runtime =
        Runtime::builder().workers(std::num::NonZeroUsize::new(2).unwrap()).build().unwrap();
    let handle = runtime.handle();
    runtime
        .block_on(async {
            let (mut reader, mut writer) = pipe::pipe().unwrap();
            for round in 0..20u8 {
                // Registered here first, or there, in turn.
                assert!(poll_once(reader.read(&mut [0])).await.is_none());
                let theirs = handle.spawn_on(usize::from(round % 2), async move {
                    let mut byte = [0];
                    reader.read_exact(&mut byte).await.unwrap();
                    (reader, byte[0])
                });
                yield_now().await;
                writer.write_all(&[round]).await.unwrap();
                let (back, byte) = theirs.unwrap().await.unwrap();
                reader = back;
                assert_eq!(byte, round);
            }
            drop(reader);
            // Another engine gives up its old registration in that engine's next turn.
            yield_now().await;
            let sources: usize = runtime.stats().iter().map(|stats| stats.sources).sum();
            assert_eq!(sources, 0, "the writer never had to wait");
        })
        .unwrap();
}

#[test]
fn the_same_number_twice_is_refused_and_the_first_goes_on() {
    each(async |_| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let first = AsyncFd::new(reader.as_fd()).unwrap();
        let second = AsyncFd::new(reader.as_fd()).unwrap();
        assert!(poll_once(first.perform(Direction::Read, read_one)).await.is_none());
        let error = second.perform(Direction::Read, read_one).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        writer.write_all(b"x").unwrap();
        assert_eq!(first.perform(Direction::Read, read_one).await.unwrap(), 1);
    });
}

fn read_one(fd: &std::os::fd::BorrowedFd<'_>) -> std::io::Result<usize> {
    let mut file = std::fs::File::from(fd.try_clone_to_owned()?);
    file.read(&mut [0])
}

#[test]
fn who_waits_for_what_it_does_not_handle_is_named() {
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let reader = AsyncFd::new(reader).unwrap();
            reader.readable().await.unwrap().clear();
            assert!(poll_once(reader.readable()).await.is_none());
            writer.write_all(b"x").unwrap();
            for _ in 0..900 {
                let _ = reader.readable().await.unwrap();
            }
            assert_eq!(runtime.stats()[0].spinning, []);
            for _ in 0..200 {
                let _ = reader.readable().await.unwrap();
            }
            assert_eq!(runtime.stats()[0].spinning, [reader.as_raw_fd()]);
        })
        .unwrap();
}

#[test]
fn readiness_is_granted_for_as_long_as_it_lasts() {
    each(async |_| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        reader.readable().await.unwrap().clear();
        // The first call registers it.
        for _ in 0..3 {
            assert!(poll_once(reader.readable()).await.is_none());
        }
        writer.write_all(b"x").unwrap();
        let read = |mut pipe: &std::io::PipeReader| pipe.read(&mut [0]);
        assert_eq!(reader.readable().await.unwrap().try_io(read).unwrap().unwrap(), 1);
        assert_eq!(reader.readable().await.unwrap().try_io(read).unwrap_err(), NotReady);
        assert!(poll_once(reader.readable()).await.is_none());
    });
}

#[test]
fn an_interrupted_operation_is_repeated_and_a_failed_one_leaves_the_readiness() {
    use std::io::ErrorKind;
    each(async |_| {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        for _ in 0..2 {
            let mut calls = 0;
            let mut second = |_: &std::io::PipeReader| {
                calls += 1;
                if calls % 2 == 0 { Ok(calls) } else { Err(ErrorKind::Interrupted.into()) }
            };
            assert_eq!(reader.try_perform(Direction::Read, &mut second).unwrap(), 2);
            assert_eq!(reader.perform(Direction::Read, &mut second).await.unwrap(), 4);
            let failing =
                |_: &std::io::PipeReader| Err::<(), _>(std::io::Error::from(ErrorKind::Other));
            let error = reader.try_perform(Direction::Read, failing).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Other);
            let error = reader.perform(Direction::Read, failing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Other);
            let again = poll_once(reader.readable()).await;
            // It is registered then, and made ready again.
            again.unwrap().unwrap().clear();
            assert!(poll_once(reader.readable()).await.is_none());
            assert!(reader.try_perform(Direction::Read, would_block).is_err());
            (&writer).write_all(b"x").unwrap();
            let _ = reader.readable().await.unwrap();
        }
    });
}

#[test]
fn what_was_refused_is_not_tried_again_before_a_report() {
    each(async |_| {
        // However often it was refused before it is registered; else the first wait tries.
        for (refusals, tries) in [(0, 1), (1, 0), (2, 0)] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let reader = AsyncFd::new(reader).unwrap();
            for _ in 0..refusals {
                assert!(reader.try_perform(Direction::Read, would_block).is_err());
            }
            let calls = std::cell::Cell::new(0);
            let mut reading = Box::pin(reader.perform(Direction::Read, |mut pipe| {
                calls.set(calls.get() + 1);
                pipe.read(&mut [0])
            }));
            for _ in 0..3 {
                assert!(poll_once(&mut reading).await.is_none());
            }
            assert_eq!(calls.get(), tries);
            writer.write_all(b"x").unwrap();
            assert_eq!(reading.await.unwrap(), 1);
            assert_eq!(calls.get(), tries + 1);
        }
    });
}

/// A stream that gave less than was asked for is not read again before the poller reports it,
/// registered or not.
#[test]
fn a_short_read_is_remembered_before_anything_is_registered() {
    each(async |_| {
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = UnixStream::from_std(one).unwrap();
        for length in [1, 2, 3] {
            other.write_all(&[b'x'; 3][..length]).unwrap();
            assert_eq!(stream.try_read(&mut [0; 9]).unwrap(), length);
        }
        other.write_all(b"last").unwrap();
        let mut text = [0; 9];
        assert!(poll_once(stream.read(&mut text)).await.is_none());
        assert_eq!(stream.read(&mut text).await.unwrap(), 4);
    });
}

#[test]
fn who_makes_use_of_what_is_ready_is_not_named() {
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let (reader, mut writer) = std::io::pipe().unwrap();
            let reader = AsyncFd::new(reader).unwrap();
            reader.readable().await.unwrap().clear();
            assert!(poll_once(reader.readable()).await.is_none());
            writer.write_all(&[0; 2000]).unwrap();
            for _ in 0..2000 {
                let guard = reader.readable().await.unwrap();
                assert_eq!(guard.try_io(|mut pipe| pipe.read(&mut [0])).unwrap().unwrap(), 1);
            }
            assert_eq!(runtime.stats()[0].spinning, []);
        })
        .unwrap();
}

/// Tasks that poll by hand cannot be told apart by a name.
#[test]
fn tasks_that_poll_by_hand_are_all_woken() {
    each(async |_| {
        let (reader, mut writer) = strangers();
        let reader = Rc::new(reader);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let reader = reader.clone();
                spawn(async move { (&*reader).read(&mut [0]).await.unwrap() })
            })
            .collect();
        yield_now().await;
        yield_now().await;
        for task in tasks {
            assert!(!task.is_finished());
            writer.write_all(b"x").await.unwrap();
            assert_eq!(task.await.unwrap(), 1);
        }
    });
}

#[test]
fn tasks_that_give_up_leave_nothing_behind() {
    struct Quiet;
    impl std::task::Wake for Quiet {
        fn wake(self: std::sync::Arc<Self>) {}
    }
    each(async |_| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        let read = |mut io: &std::io::PipeReader| io.read(&mut [0]);
        let mut stays = std::pin::pin!(reader.perform(Direction::Read, read));
        assert!(poll_once(&mut stays).await.is_none());
        let quiet = std::sync::Arc::new(Quiet);
        let waker = std::task::Waker::from(quiet.clone());
        let mut cx = std::task::Context::from_waker(&waker);
        for _ in 0..100 {
            let mut comes = std::pin::pin!(reader.perform(Direction::Read, read));
            assert!(comes.as_mut().poll(&mut cx).is_pending());
            assert_eq!(std::sync::Arc::strong_count(&quiet), 3);
        }
        assert_eq!(std::sync::Arc::strong_count(&quiet), 2);
        // Another wait of the same task gives up; the first one is woken all the same.
        assert!(poll_once(reader.perform(Direction::Read, read)).await.is_none());
        let end = spawn(async move { writer.write_all(b"x").unwrap() });
        assert_eq!(stays.await.unwrap(), 1);
        end.await.unwrap();
    });
}

fn would_block<T>(_: &T) -> std::io::Result<()> {
    Err(std::io::ErrorKind::WouldBlock.into())
}

#[test]
fn a_wait_for_a_closed_descriptor_is_refused() {
    each(async |runtime| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let number = sys::duplicate(reader, 900).into_raw_fd();
        let fd = AsyncFd::new(sys::Number(number)).unwrap();
        sys::close(number);
        assert!(AsyncFd::new(sys::Number(number)).is_err());
        for _ in 0..2 {
            let error = fd.perform(Direction::Read, would_block).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{error}");
        }
        let error = fd
            .readable()
            .await
            .unwrap()
            .try_io(|fd| std::fs::File::from(fd.as_fd().try_clone_to_owned()?).read(&mut [0]));
        assert_eq!(error.unwrap().unwrap_err().raw_os_error(), Some(libc::EBADF));
        drop(fd);
        assert_eq!(runtime.stats()[0].sources, 0);
    });
}

#[test]
fn a_descriptor_that_is_closed_under_a_wait_harms_no_other() {
    for kind in BackendKind::available() {
        let runtime = Runtime::builder().backend(kind).build().unwrap();
        runtime
            .block_on(async {
                let (reader, writer) = std::io::pipe().unwrap();
                let number = sys::duplicate(reader, 950).into_raw_fd();
                let fd = AsyncFd::new(sys::Number(number)).unwrap();
                let mut waiting = Box::pin(fd.perform(Direction::Read, would_block));
                assert!(poll_once(&mut waiting).await.is_none());
                yield_now().await;
                sys::close(number);
                drop(writer);
                for _ in 0..3 {
                    yield_now().await;
                }
                // An array reports it; epoll silently forgets it.
                let outcome = poll_once(&mut waiting).await;
                match kind {
                    BackendKind::Epoll => assert!(outcome.is_none()),
                    BackendKind::Select | BackendKind::Poll => {
                        let error = outcome.unwrap().unwrap_err();
                        assert_eq!(error.raw_os_error(), Some(libc::EBADF), "{kind}");
                    }
                    _ => assert!(outcome.is_none_or(|outcome| outcome.is_err())),
                }
                drop(waiting);
                drop(fd);
                // The number belongs to another descriptor now.
                let (reader, mut writer) = std::io::pipe().unwrap();
                let next = sys::duplicate(reader, 950);
                assert_eq!(next.as_raw_fd(), number);
                let mut next = pipe::reader_from(next).unwrap();
                let mut byte = [0];
                let mut reading = Box::pin(next.read_exact(&mut byte));
                assert!(poll_once(&mut reading).await.is_none());
                yield_now().await;
                assert!(poll_once(&mut reading).await.is_none(), "{kind}: a stranger's report");
                writer.write_all(b"x").unwrap();
                reading.await.unwrap();
                assert_eq!(&byte, b"x");
            })
            .unwrap();
    }
}

#[test]
fn an_operation_that_panics_leaves_the_descriptor_as_it_was() {
    each(async |runtime| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Rc::new(AsyncFd::new(reader).unwrap());
        let panicking = || {
            let same = reader.clone();
            spawn(async move {
                same.perform(Direction::Read, |_| -> std::io::Result<()> { panic!("operating") })
                    .await
            })
        };
        // Once before it is registered, and once after.
        let error = panicking().await.unwrap_err();
        assert_eq!(error.panic_message(), Some("operating"));
        assert!(poll_once((&*reader).read(&mut [0])).await.is_none());
        let task = panicking();
        writer.write_all(b"x").unwrap();
        assert_eq!(task.await.unwrap_err().panic_message(), Some("operating"));
        assert_eq!((&*reader).read(&mut [0]).await.unwrap(), 1);
        assert_eq!(runtime.stats()[0].panicked, 2);
    });
}

#[test]
fn what_is_given_back_is_watched_no_more() {
    use std::os::unix::fs::MetadataExt;
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
    runtime
        .block_on(async {
            let (reader, mut writer) = strangers();
            let inode = |fd: std::os::fd::BorrowedFd<'_>| {
                let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
                file.metadata().unwrap().ino()
            };
            let inode = inode(reader.as_fd());
            assert!(poll_once((&reader).read(&mut [0])).await.is_none());
            yield_now().await;
            assert_eq!(watches::of(inode), (0, 1));
            // It stays open here.
            let given_back = reader.into_inner();
            yield_now().await;
            assert_eq!(watches::of(inode), (0, 0));
            assert_eq!(runtime.stats()[0].sources, 0);
            writer.write_all(b"x").await.unwrap();
            yield_now().await;
            let mut again = AsyncFd::new(given_back).unwrap();
            again.read_exact(&mut [0]).await.unwrap();
            assert!(poll_once(again.read(&mut [0])).await.is_none());
        })
        .unwrap();
}

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    refused::all_again();
}
