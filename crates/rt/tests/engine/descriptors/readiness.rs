//! Readiness: how long it lasts, which tasks it wakes, and which operations are tried.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::{AsyncFd, Direction, NotReady, Runtime, pipe, spawn, yield_now};

use super::{each, unrelated_ends, would_block};

#[test]
fn a_full_pipe_goes_on_when_it_is_read() {
    each(async |_| {
        for known in [false, true] {
            let (mut reader, mut writer) =
                if known { pipe::pipe().unwrap() } else { unrelated_ends() };
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
fn the_end_of_the_stream_and_a_lost_reader_are_reported() {
    each(async |_| {
        for known in [false, true] {
            let (mut reader, mut writer) =
                if known { pipe::pipe().unwrap() } else { unrelated_ends() };
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

            let (reader, mut writer) = if known { pipe::pipe().unwrap() } else { unrelated_ends() };
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
fn all_waiters_of_a_direction_are_woken() {
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
fn a_descriptor_whose_event_no_task_handles_is_named() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        reader.readable().await.unwrap().clear();
        assert!(poll_once(reader.readable()).await.is_none());
        writer.write_all(b"x").unwrap();
        for _ in 0..900 {
            let _ = reader.readable().await.unwrap();
        }
        assert!(runtime.stats()[0].spinning.is_empty());
        for _ in 0..200 {
            let _ = reader.readable().await.unwrap();
        }
        assert_eq!(runtime.stats()[0].spinning, [reader.as_raw_fd()]);
    });
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
fn a_direction_that_would_block_is_not_tried_before_a_report() {
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
fn a_descriptor_that_a_task_uses_is_not_named() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = AsyncFd::new(reader).unwrap();
        reader.readable().await.unwrap().clear();
        assert!(poll_once(reader.readable()).await.is_none());
        writer.write_all(&[0; 2000]).unwrap();
        for _ in 0..2000 {
            let guard = reader.readable().await.unwrap();
            assert_eq!(guard.try_io(|mut pipe| pipe.read(&mut [0])).unwrap().unwrap(), 1);
        }
        assert!(runtime.stats()[0].spinning.is_empty());
    });
}

/// Tasks that poll by hand cannot be told apart by a name.
#[test]
fn tasks_that_poll_by_hand_are_all_woken() {
    each(async |_| {
        let (reader, mut writer) = unrelated_ends();
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
fn cancelled_waits_leave_nothing_behind() {
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
