//! When a descriptor is registered, with which engine, and how many calls that takes.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::{AsyncFd, BackendKind, Direction, Runtime, pipe, spawn, yield_now};

use super::{each, unrelated_ends};
use crate::epoll_watches;

#[test]
fn nothing_is_registered_before_it_blocks() {
    each(async |runtime| {
        let (mut reader, mut writer) = unrelated_ends();
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
            runtime.block_on(test);
        }
    }
}

#[test]
fn in_steady_state_a_byte_costs_one_wait_and_no_change() {
    each(async |runtime| {
        let (mut there, mut out) = unrelated_ends();
        let (mut back, mut answer) = unrelated_ends();
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
fn paired_ends_need_no_wait() {
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
fn a_pair_that_wakes_its_peer_endlessly_does_not_starve_other_tasks() {
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
fn a_descriptor_moves_to_the_engine_that_awaits_it() {
    let runtime =
        Runtime::builder().workers(std::num::NonZeroUsize::new(2).unwrap()).build().unwrap();
    let handle = runtime.handle();
    runtime.block_on(async {
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
    });
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
fn a_returned_descriptor_is_no_longer_watched() {
    use std::os::unix::fs::MetadataExt;
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build().unwrap();
    runtime.block_on(async {
        let (reader, mut writer) = unrelated_ends();
        let inode = |fd: std::os::fd::BorrowedFd<'_>| {
            let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
            file.metadata().unwrap().ino()
        };
        let inode = inode(reader.as_fd());
        assert!(poll_once((&reader).read(&mut [0])).await.is_none());
        yield_now().await;
        assert_eq!(epoll_watches::count(inode), (0, 1));
        // It stays open here.
        let given_back = reader.into_inner();
        yield_now().await;
        assert_eq!(epoll_watches::count(inode), (0, 0));
        assert_eq!(runtime.stats()[0].sources, 0);
        writer.write_all(b"x").await.unwrap();
        yield_now().await;
        let mut again = AsyncFd::new(given_back).unwrap();
        again.read_exact(&mut [0]).await.unwrap();
        assert!(poll_once(again.read(&mut [0])).await.is_none());
    });
}
