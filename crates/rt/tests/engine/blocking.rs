//! Calls on the blocking pool.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use futures_lite::future::poll_once;
use superpoll_rt::blocking::unblock;
use superpoll_rt::{JoinError, Runtime, spawn};
use superpoll_test_support::{Alone, alone, until};

mod sys {
    /// Lets this process have so many bytes of memory, stacks of threads included.
    pub(crate) fn limit_memory(bytes: u64) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads one rlimit structure, which outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    }
}

/// Runs a test in a process of its own, where the pool may have so many threads.
fn limited<F: FnOnce()>(threads: &str, test: F) {
    Alone::default().env("BLOCKING_MAX_THREADS", threads).run(test);
}

/// Returns the names of the pool's threads.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    // The first thread has the name of this program, which is like theirs.
    let main = std::process::id().to_string();
    let others = tasks.filter(|task| task.file_name() != *main);
    // A thread may have ended since.
    let names = others.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("blocking-")).collect()
}

/// Leaves no room for the stack of another thread.
fn refuse_threads() {
    let pages: u64 =
        fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    // Less than the stack of a thread, and enough for what else is allocated.
    sys::limit_memory(pages * 4096 + (1 << 20));
    // The C library keeps stacks of threads that have ended; these threads use them up.
    let hold = || {
        loop {
            thread::park();
        }
    };
    while thread::Builder::new().name("holds a stack".to_owned()).spawn(hold).is_ok() {}
}

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
fn a_call_that_no_thread_can_be_started_for_ends_with_an_error() {
    alone(|| {
        let runtime = Runtime::new().unwrap();
        refuse_threads();
        let captured = Arc::new(());
        for _ in 0..3 {
            let held = captured.clone();
            let mut call = unblock(move || drop(held));
            assert_eq!(Arc::strong_count(&captured), 1);
            let error = runtime.block_on(&mut call).unwrap_err();
            assert!(matches!(error, JoinError::NoThread(_)), "{error}");
            assert!(error.to_string().starts_with("no thread could be started"), "{error}");
            let error = runtime.block_on(call).unwrap_err();
            assert!(matches!(error, JoinError::Cancelled), "{error}");
            unblock(|| panic!("it is not run")).detach();
        }
        sys::limit_memory(libc::RLIM_INFINITY);
        assert_eq!(runtime.block_on(unblock(|| 7)).unwrap(), 7);
    });
}

#[test]
fn calls_wait_for_the_threads_there_are_if_no_more_can_be_started() {
    alone(|| {
        let runtime = Runtime::new().unwrap();
        let (sender, receiver) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let first = unblock(move || {
            began.send(()).unwrap();
            receiver.recv().unwrap()
        });
        begins.recv().unwrap();
        refuse_threads();
        let calls: Vec<_> = (0..100).map(|number| unblock(move || number)).collect();
        assert_eq!(threads().len(), 1);
        sender.send(7).unwrap();
        assert_eq!(runtime.block_on(first).unwrap(), 7);
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(runtime.block_on(call).unwrap(), number);
        }
    });
}

#[test]
fn idle_threads_end_but_one() {
    alone(|| {
        let runtime = Runtime::new().unwrap();
        for _ in 0..2 {
            let all = Arc::new(Barrier::new(20));
            let calls = [(); 20].map(|()| all.clone()).map(|all| unblock(move || all.wait()));
            for call in calls {
                runtime.block_on(call).unwrap();
            }
            until("one thread is left", || threads().len() == 1);
        }
    });
}

#[test]
fn there_are_as_many_threads_as_the_environment_allows() {
    limited("3", || {
        let runtime = Runtime::new().unwrap();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Three meet, so there are three; no fourth call is ever beside them.
        let meeting = Arc::new(Barrier::new(3));
        let calls: Vec<_> = (0..99)
            .map(|_| {
                let (now, most, meeting) = (now.clone(), most.clone(), meeting.clone());
                unblock(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    meeting.wait();
                    now.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        for call in calls {
            runtime.block_on(call).unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_call_that_is_dropped_before_it_begins_is_not_run() {
    limited("1", || {
        let runtime = Runtime::new().unwrap();
        let (sender, receiver) = mpsc::channel();
        let first = unblock(move || receiver.recv().unwrap());
        let captured = Arc::new(());
        let held = captured.clone();
        drop(unblock(move || panic!("{held:?} is run")));
        let last = unblock(|| 9);
        sender.send(8).unwrap();
        assert_eq!(runtime.block_on(first).unwrap(), 8);
        assert_eq!(runtime.block_on(last).unwrap(), 9);
        assert_eq!(Arc::strong_count(&captured), 1);
    });
}
