//! Calls on the blocking pool.

use std::io;
use std::sync::mpsc;
use std::thread;

use futures_lite::future::poll_once;
use superpoll_rt::blocking::unblock;
use superpoll_rt::{JoinError, Runtime, spawn};

mod without_io_uring;

#[test]
fn results_come_back_while_the_engine_goes_on() {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (sender, receiver) = mpsc::channel();
        let mut blocked = unblock(move || (thread::current().id(), receiver.recv().unwrap()));
        assert!(poll_once(&mut blocked).await.is_none());
        let task = spawn(async move { sender.send(7).unwrap() });
        let (thread, number) = blocked.await.unwrap();
        assert_eq!(number, 7);
        assert_ne!(thread, thread::current().id());
        task.await.unwrap();
    });
}

#[test]
fn a_panic_is_returned_to_the_caller_that_waits() {
    let runtime = Runtime::new().unwrap();
    let outcome = runtime.block_on(unblock(|| -> u32 { panic!("no {}", "good") }));
    let error = outcome.unwrap_err();
    assert_eq!(error.panic_message(), Some("no good"));
    assert!(matches!(error, JoinError::Panicked(_)));
    let error = io::Error::from(error);
    assert!(error.to_string().contains("no good"), "{error}");
    assert_eq!(runtime.block_on(unblock(|| 1)).unwrap(), 1);
}

#[test]
fn many_calls_wait_for_each_other() {
    let runtime = Runtime::new().unwrap();
    let sum = runtime.block_on(async {
        let calls: Vec<_> = (0..200u64).map(|number| unblock(move || number)).collect();
        let mut sum = 0;
        for call in calls {
            sum += call.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, 199 * 200 / 2);
}

#[test]
fn a_detached_call_runs() {
    let (sender, receiver) = mpsc::channel();
    unblock(move || sender.send(1).unwrap()).detach();
    assert_eq!(receiver.recv(), Ok(1));
}

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    without_io_uring::run_all();
}
