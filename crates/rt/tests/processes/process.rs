//! Child processes, on every back-end.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use futures_lite::future::{poll_once, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use superpoll_rt::process::{output, spawn};
use superpoll_rt::{BackendKind, Runtime};
use superpoll_test_support::until;

fn each<F: Future<Output = io::Result<()>>>(test: impl Fn() -> F) {
    for backend in BackendKind::available() {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        runtime.block_on(test()).unwrap_or_else(|error| panic!("{backend}: {error}"));
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

/// Waits until a process is gone from the table, zombies included.
fn wait_until_gone(id: u32) {
    let path = format!("/proc/{id}");
    until("the process is gone", || !std::path::Path::new(&path).exists());
}

#[test]
fn exit_codes_and_signals_are_reported() {
    each(|| async {
        for code in [0, 1, 42, 255] {
            let mut child = spawn(&mut shell(&format!("exit {code}")))?;
            assert_eq!(child.wait().await?.code(), Some(code));
            // Again, and without a wait.
            assert_eq!(child.wait().await?.code(), Some(code));
            assert_eq!(child.try_wait()?.and_then(|status| status.code()), Some(code));
            child.kill()?;
        }
        let mut child = spawn(&mut shell("exec sleep 1000"))?;
        assert_eq!(child.try_wait()?, None);
        assert!(poll_once(child.wait()).await.is_none());
        child.kill()?;
        assert_eq!(child.wait().await?.signal(), Some(9));
        Ok(())
    });
}

#[test]
fn a_cancelled_wait_can_be_repeated() {
    each(|| async {
        let mut child = spawn(shell("read line; exit 7").stdin(Stdio::piped()))?;
        let mut stdin = child.stdin.take().unwrap();
        for _ in 0..3 {
            assert!(poll_once(child.wait()).await.is_none());
        }
        stdin.write_all(b"go\n").await?;
        assert_eq!(child.wait().await?.code(), Some(7));
        Ok(())
    });
}

#[test]
fn pipes_carry_the_input_and_output_of_a_child() {
    each(|| async {
        let mut child = spawn(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        assert!(child.stderr.is_none());
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let sent: Vec<u8> = (0..600_000u32).map(|at| (at % 251) as u8).collect();
        let mut received = Vec::new();
        let send = async {
            stdin.write_all(&sent).await?;
            drop(stdin);
            io::Result::Ok(())
        };
        let (sending, receiving) = zip(send, stdout.read_to_end(&mut received)).await;
        sending?;
        receiving?;
        assert!(received == sent);
        assert!(child.wait().await?.success());
        Ok(())
    });
}

#[test]
fn waiting_closes_the_standard_input() {
    each(|| async {
        let mut child = spawn(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()))?;
        assert!(child.wait().await?.success());
        assert!(child.stdin.is_none());
        Ok(())
    });
}

#[test]
fn output_collects_both_streams() {
    each(|| async {
        let script = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
        let output = output(&mut shell(script)).await?;
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));
        Ok(())
    });
}

#[test]
fn fifty_children_at_once() {
    each(|| async {
        let mut children = (0..50)
            .map(|number| {
                let script = format!("read line; exit {number}");
                spawn(shell(&script).stdin(Stdio::piped()))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut stdins: Vec<_> = children.iter_mut().map(|child| child.stdin.take()).collect();
        let mut waits: Vec<_> = children
            .iter_mut()
            .map(|child| Box::pin(async { child.wait().await.map(|status| status.code()) }))
            .collect();
        for wait in &mut waits {
            assert!(poll_once(wait).await.is_none());
        }
        // They end in another order than they are waited for.
        for stdin in stdins.iter_mut().rev() {
            drop(stdin.take());
        }
        for (number, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.await?, Some(number as i32));
        }
        Ok(())
    });
}

#[test]
fn a_dropped_child_runs_on_and_leaves_no_zombie() {
    each(|| async {
        let mut ids = Vec::new();
        let mut stdins = Vec::new();
        for _ in 0..5 {
            let mut child = spawn(shell("read line").stdin(Stdio::piped()))?;
            ids.push(child.id());
            stdins.push(child.stdin.take());
            assert!(poll_once(child.wait()).await.is_none());
        }
        for id in &ids {
            let state = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
            assert!(!state.contains(") Z "), "{state}");
        }
        drop(stdins);
        ids.into_iter().for_each(wait_until_gone);
        Ok(())
    });
}

#[test]
fn a_dropped_child_is_killed_if_that_is_wanted() {
    each(|| async {
        let mut child = spawn(&mut shell("exec sleep 1000"))?;
        child.kill_on_drop(true);
        let id = child.id();
        drop(child);
        wait_until_gone(id);
        Ok(())
    });
}

#[test]
fn a_dropped_child_that_has_ended_is_taken() {
    each(|| async {
        let mut child = spawn(shell("echo x").stdout(Stdio::piped()))?;
        let id = child.id();
        child.stdout.take().unwrap().read_to_end(&mut Vec::new()).await?;
        drop(child);
        wait_until_gone(id);
        Ok(())
    });
}

/// The runtime may end before the child.
#[test]
fn a_child_outlives_its_runtime() {
    let runtime = Runtime::new().unwrap();
    let (stdin, id) = runtime
        .block_on(async {
            let mut child = spawn(shell("read line").stdin(Stdio::piped()))?;
            let (stdin, id) = (child.stdin.take(), child.id());
            superpoll_rt::spawn(async move { child.wait().await }).detach();
            superpoll_rt::yield_now().await;
            io::Result::Ok((stdin, id))
        })
        .unwrap();
    drop(runtime);
    drop(stdin);
    wait_until_gone(id);
}

#[test]
fn a_missing_program_says_so() {
    let error = spawn(&mut Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
