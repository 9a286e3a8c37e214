//! Signals, raised in this process. `SIGUSR1`, `SIGUSR2` and `SIGHUP` each belong to one test.

use std::io::{self, ErrorKind};

use futures_lite::future::{poll_once, zip};
use superpoll_rt::signal::{SignalKind, ctrl_c, signal};
use superpoll_rt::{BackendKind, Runtime, spawn, yield_now};

mod sys {
    /// Sends a signal to this process.
    pub fn kill(signal: i32) {
        // SAFETY: kill takes two numbers; the signals that the tests send are caught.
        assert_eq!(unsafe { libc::kill(libc::getpid(), signal) }, 0);
    }
}

#[test]
fn a_storm_is_delivered_at_least_once_and_ends() {
    for backend in BackendKind::ALL {
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
                // The kernel may have handed out the last ones since.
                let mut rest = 0;
                for _ in 0..100 {
                    rest += usize::from(poll_once(one.recv()).await.is_some());
                    yield_now().await;
                }
                assert!(rest < 100, "many signals are one report");
                // One that comes now is another.
                let waiting = spawn(async move { one.recv().await });
                yield_now().await;
                sys::kill(libc::SIGUSR1);
                waiting.await.unwrap()?;
                io::Result::Ok(())
            })
            .unwrap()
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
        .unwrap()
        .unwrap();
}

#[test]
fn after_the_last_is_dropped_the_signal_does_nothing() {
    let runtime = Runtime::new().unwrap();
    let hangup = || signal(SignalKind::hangup());
    runtime
        .block_on(async {
            drop(hangup()?);
            sys::kill(libc::SIGHUP);
            let mut again = hangup()?;
            assert!(poll_once(again.recv()).await.is_none());
            sys::kill(libc::SIGHUP);
            again.recv().await
        })
        .unwrap()
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
        .unwrap()
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
