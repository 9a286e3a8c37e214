//! Signals, raised in this process. `SIGUSR1`, `SIGUSR2`, `SIGHUP` and `SIGWINCH` each belong to
//! one test.

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
use superpoll_rt::signal::{SignalKind, ctrl_c, signal};
use superpoll_rt::time::sleep;
use superpoll_rt::{BackendKind, Runtime, process, spawn, yield_now};

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
                assert!(poll_once(one.recv()).await.is_none());
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

#[test]
fn after_the_last_is_dropped_the_signal_does_nothing() {
    let runtime = Runtime::new().unwrap();
    let hangup = || signal(SignalKind::hangup());
    runtime
        .block_on(async {
            drop(hangup()?);
            // To this thread, which has it before the call returns; another thread might have it
            // only when it is caught again.
            sys::interrupt(sys::thread(), libc::SIGHUP);
            let mut again = hangup()?;
            assert!(poll_once(again.recv()).await.is_none());
            sys::kill(libc::SIGHUP);
            again.recv().await
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
            zip(ctrl_c(), press).await.0
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
    without_io_uring::run_all();
}
