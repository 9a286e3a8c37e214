//! The placement policy of a runtime, next to the back-end that its environment names.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use superpoll::backend::policy::{PolicyKind, Thresholds};
use superpoll_rt::{AsyncFd, Direction, Runtime, next_turn, spawn};
use superpoll_test_support::Alone;

fn with_backend<F: FnOnce()>(name: &str, test: F) {
    Alone::default().env("SUPERPOLL_BACKEND", name).run(test);
}

#[test]
fn a_policy_and_a_back_end_that_has_none_are_an_error_that_names_the_variable() {
    with_backend("epoll", || {
        let error = Runtime::builder()
            .policy(PolicyKind::Ratio(Thresholds::IDLE_SERVER))
            .build()
            .unwrap_err();
        let told = error.to_string();
        for part in ["epoll", "a placement policy", "SUPERPOLL_BACKEND"] {
            assert!(told.contains(part), "{part} in {told}");
        }
        // Without the policy it is no error.
        assert_eq!(Runtime::new().unwrap().backend(), "epoll");
    });
}

#[test]
fn auto_is_adaptive_where_there_is_a_policy() {
    with_backend("auto", || {
        let runtime =
            Runtime::builder().policy(PolicyKind::Ratio(Thresholds::MEDIA_SERVER)).build().unwrap();
        assert_eq!(runtime.backend(), "adaptive");
    });
}

#[test]
fn the_policy_decides_where_busy_descriptors_are() {
    const ALL: usize = 20;
    with_backend("", || {
        // In each of 100 passes all are active. The second preset waits for more of these.
        for (thresholds, moves) in
            [(Thresholds::MEDIA_SERVER, true), (Thresholds::IDLE_SERVER, false)]
        {
            let runtime = Runtime::builder().policy(PolicyKind::Ratio(thresholds)).build().unwrap();
            runtime.block_on(async {
                let read = Rc::new(Cell::new(0));
                let writers: Vec<UnixStream> = (0..ALL).map(|_| reader(read.clone())).collect();
                for pass in 1..=100 {
                    writers.iter().for_each(|mut writer| writer.write_all(b"x").unwrap());
                    while read.get() < pass * ALL {
                        next_turn().await;
                    }
                }
            });
            let moved = runtime.stats()[0].poller.moves_to_hot;
            assert_eq!(moved >= ALL as u64, moves, "{thresholds:?}: {moved}");
            assert_eq!(moved == 0, !moves);
        }
    });
}

/// Starts a task that counts the bytes it reads; returns the other end.
fn reader(count: Rc<Cell<usize>>) -> UnixStream {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    let one = AsyncFd::new(one).unwrap();
    let read = async move {
        while one.perform(Direction::Read, |mut one| one.read(&mut [0])).await.is_ok() {
            count.set(count.get() + 1);
        }
    };
    spawn(read).detach();
    other
}
