//! Signals, raised in this process. `SIGUSR1`, `SIGUSR2`, `SIGWINCH` and each real-time signal
//! belong to one test. They interrupt system calls of any thread, so other tests are elsewhere.

use std::io::{self, ErrorKind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::blocking::unblock;
use superpoll_rt::net::{TcpListener, TcpStream};
use superpoll_rt::signal::{Signal, SignalKind, ctrl_c, signal};
use superpoll_rt::time::{sleep, timeout};
use superpoll_rt::{BackendKind, Runtime, process, spawn, yield_now};

#[path = "../without_io_uring/mod.rs"]
mod without_io_uring;

mod sys {
    /// Sends a signal to this process.
    pub(crate) fn kill(signal: i32) {
        // SAFETY: kill takes two numbers; the signals that the tests send are caught.
        assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
    }

    /// Returns the number of this thread.
    pub(crate) fn thread() -> i32 {
        // SAFETY: gettid takes nothing.
        unsafe { libc::gettid() }
    }

    /// Sends a signal to a thread of this process.
    pub(crate) fn interrupt(thread: i32, signal: i32) {
        // SAFETY: tgkill takes numbers; the signals that the tests send are caught.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
        assert_eq!(sent, 0);
    }
}

#[test]
fn a_storm_is_delivered_at_least_once_and_ends() {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime
            .block_on(async {
                let mut one = signal(SignalKind::user_defined1())?;
                let mut other = signal(SignalKind::user_defined1())?;
                for _ in 0..10_000 {
                    sys::kill(libc::SIGUSR1);
                }
                one.recv().await?;
                other.recv().await?;
                // The kernel may have handed out the last arrivals since.
                let mut rest = 0;
                for _ in 0..100 {
                    rest += usize::from(poll_once(one.recv()).await.is_some());
                    yield_now().await;
                }
                assert!(rest < 100, "many signals are one report");
                // An arrival that comes now is a new arrival.
                let waiting = spawn(async move { one.recv().await });
                yield_now().await;
                sys::kill(libc::SIGUSR1);
                waiting.await.unwrap()?;
                io::Result::Ok(())
            })
            .unwrap();
    }
}

#[test]
fn a_cancelled_wait_loses_nothing() {
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let mut signal = signal(SignalKind::from_raw(libc::SIGUSR2))?;
            assert_eq!(signal.kind(), SignalKind::user_defined2());
            for _ in 0..10 {
                assert!(poll_once(signal.recv()).await.is_none());
                sys::kill(libc::SIGUSR2);
                signal.recv().await?;
            }
            io::Result::Ok(())
        })
        .unwrap();
}

/// Sends a signal to this thread, which has it before the call returns. Another thread might have
/// it only when the next `Signal` is there.
fn raise(signal: i32) {
    sys::interrupt(sys::thread(), signal);
}

/// Waits for an arrival that must come.
async fn receive(arrivals: &mut Signal) -> io::Result<()> {
    timeout(Duration::from_secs(30), arrivals.recv()).await.expect("the signal arrives")
}

/// Each test below has a signal of its own, so that no other test's `Signal` catches it.
fn real_time(place: i32) -> (i32, SignalKind) {
    let number = libc::SIGRTMIN() + place;
    (number, SignalKind::from_raw(number))
}

#[test]
fn an_arrival_after_the_last_is_dropped_is_for_the_next() {
    let (number, kind) = real_time(0);
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            assert!(poll_once(signal(kind)?.recv()).await.is_none());
            for arrivals in [1, 3] {
                for _ in 0..arrivals {
                    raise(number);
                }
                let mut next = signal(kind)?;
                receive(&mut next).await?;
                assert!(poll_once(next.recv()).await.is_none(), "many are reported as one");
                drop(next);
                assert!(poll_once(signal(kind)?.recv()).await.is_none(), "and only once");
            }
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn an_arrival_that_the_last_was_dropped_with_is_for_the_next() {
    let (number, kind) = real_time(1);
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let (mut one, unread) = (signal(kind)?, signal(kind)?);
            raise(number);
            drop(unread);
            let mut later = signal(kind)?;
            assert!(poll_once(later.recv()).await.is_none(), "one that lives has it");
            receive(&mut one).await?;
            raise(number);
            drop((one, later));
            receive(&mut signal(kind)?).await?;
            assert!(poll_once(signal(kind)?.recv()).await.is_none());
            io::Result::Ok(())
        })
        .unwrap();
}

/// Signals to the process, which any thread may have, at any moment of a change from one `Signal`
/// to the next.
#[test]
fn no_arrival_is_lost_while_signals_are_dropped_and_made() {
    let (number, kind) = real_time(2);
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let mut arrivals = signal(kind)?;
            for round in 0..500 {
                let sender = thread::spawn(move || sys::kill(number));
                for _ in 0..round % 7 {
                    drop(arrivals);
                    arrivals = signal(kind)?;
                }
                let waited = timeout(Duration::from_secs(30), arrivals.recv()).await;
                waited.unwrap_or_else(|_| panic!("lost in round {round}"))?;
                sender.join().unwrap();
            }
            io::Result::Ok(())
        })
        .unwrap();
}

#[test]
fn control_c_is_caught() {
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(async {
            let press = async {
                yield_now().await;
                sys::kill(libc::SIGINT);
            };
            zip(ctrl_c(), press).await.0?;
            raise(libc::SIGINT);
            timeout(Duration::from_secs(30), ctrl_c()).await.expect("the signal arrives")
        })
        .unwrap();
}

#[test]
fn forbidden_signals_are_refused() {
    for (number, text) in [
        (libc::SIGKILL, "no process can catch SIGKILL"),
        (libc::SIGSTOP, "no process can catch SIGKILL or SIGSTOP"),
        (libc::SIGSEGV, "the program is broken"),
        (libc::SIGILL, "the program is broken"),
        (libc::SIGFPE, "the program is broken"),
        (0, "no such signal"),
        (-3, "no such signal"),
        (999, "no such signal"),
    ] {
        let error = signal(SignalKind::from_raw(number)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let message = error.to_string();
        assert!(message.contains(text) && message.contains(&number.to_string()), "{message}");
    }
}

/// Every call of the engine's thread may be interrupted, and no operation shows it.
#[test]
fn a_storm_disturbs_no_task() {
    const SIGNALS: u32 = 5000;
    const ROUNDS: u8 = 50;
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let engine = sys::thread();
        let mut arrivals = signal(SignalKind::window_change()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let storm = thread::spawn(move || {
            let mut sent = 0;
            while sent < SIGNALS || !ended.load(Ordering::Relaxed) {
                sys::interrupt(engine, libc::SIGWINCH);
                sent += 1;
                if sent > SIGNALS {
                    // Without a pause the engine would do little else for minutes.
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        let outcome = runtime.try_block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            let server = spawn(async move {
                for round in 0..ROUNDS {
                    let (mut stream, _) = listener.accept().await?;
                    let mut bytes = vec![0; 300_000];
                    stream.read_exact(&mut bytes).await?;
                    assert!(bytes.iter().all(|&byte| byte == round));
                    stream.write_all(&bytes).await?;
                }
                io::Result::Ok(())
            });
            let sleeper = spawn(async {
                for _ in 0..ROUNDS {
                    let (start, nap) = (Instant::now(), Duration::from_micros(700));
                    sleep(nap).await;
                    assert!(start.elapsed() >= nap, "a sleep ended early");
                }
            });
            let blocked = spawn(async {
                for round in 0..ROUNDS {
                    assert_eq!(unblock(move || round).await.unwrap(), round);
                }
            });
            for round in 0..ROUNDS {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(&vec![round; 300_000]).await?;
                let mut echoed = Vec::new();
                stream.read_to_end(&mut echoed).await?;
                assert!(echoed == vec![round; 300_000]);
            }
            server.await.unwrap()?;
            sleeper.await.unwrap();
            blocked.await.unwrap();
            let mut child = process::spawn(Command::new("cat").stdin(Stdio::piped()))?;
            assert!(child.wait().await?.success());
            arrivals.recv().await
        });
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap();
        outcome.unwrap().unwrap_or_else(|error| panic!("{backend}: {error}"));
        assert_eq!(runtime.stats()[0].panicked, 0);
    }
}

#[test]
fn all_of_this_holds_where_io_uring_is_refused() {
    without_io_uring::run(&[""]);
}
