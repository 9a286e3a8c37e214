//! Child processes, awaited.
//!
//! A child is watched through a descriptor of its own (`pidfd_open(2)`, Linux 5.3), like any other
//! descriptor: no `SIGCHLD` handler, no thread, and no other child is disturbed.
//!
//! A process that has ended stays in the table (a zombie) until its parent takes the result. If its
//! [`Child`] is dropped before that, the result is taken at once if the process has ended. If not,
//! the process runs on, and a thread of this process (`superpoll-reaper`) takes its result when it
//! ends. That thread exists only while there are such children, and watches all of them with one
//! poller. It belongs to no runtime, so a child that runs for long neither delays a shutdown nor is
//! lost by it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;

use superpoll::{BackendKind, Events, Interest, Key, Poller, Registrar};

use crate::async_fd::AsyncFd;
use crate::blocking::unblock;
use crate::error;
use crate::pipe::{self, PipeReader, PipeWriter};
use crate::sources::Direction;
use crate::sys;

/// A child process.
///
/// Dropping it leaves the process running, unless [`kill_on_drop`](Child::kill_on_drop) says
/// otherwise; it never becomes a zombie for longer than this process needs to notice.
pub struct Child {
    /// Writes to the child's standard input, if that was [`Stdio::piped`].
    pub stdin: Option<PipeWriter>,
    /// Reads the child's standard output, if that was [`Stdio::piped`].
    pub stdout: Option<PipeReader>,
    /// Reads the child's standard error, if that was [`Stdio::piped`].
    pub stderr: Option<PipeReader>,
    process: Option<Process>,
    id: u32,
    status: Option<ExitStatus>,
    kill_on_drop: bool,
}

/// A process whose result has not been taken.
struct Process {
    // The engine forgets the descriptor before it is closed, and it is closed before the number is
    // free.
    pidfd: AsyncFd<OwnedFd>,
    child: std::process::Child,
}

/// Starts a process.
///
/// It needs no runtime yet.
///
/// # Errors
///
/// Any error of starting it, such as `NotFound` if there is no such program. If the child cannot be
/// watched (`EMFILE`, or `ENOSYS` before Linux 5.3), it is killed again.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut child =
        command.spawn().map_err(|error| error::limit("starting a child process", error))?;
    let id = child.id();
    match attach(&mut child) {
        Ok((pidfd, stdin, stdout, stderr)) => Ok(Child {
            stdin,
            stdout,
            stderr,
            process: Some(Process { pidfd: AsyncFd::nonblocking(pidfd), child }),
            id,
            status: None,
            kill_on_drop: false,
        }),
        Err(error) => {
            // It has just been started, and ends as soon as it is killed.
            let _ = child.kill();
            let _ = child.wait();
            let text = format!("watching child process {id}: {error}; it was killed");
            Err(io::Error::new(error.kind(), text))
        }
    }
}

type Attached = (OwnedFd, Option<PipeWriter>, Option<PipeReader>, Option<PipeReader>);

fn attach(child: &mut std::process::Child) -> io::Result<Attached> {
    let pidfd = sys::process::open(child.id())
        .map_err(|error| error::limit("opening a descriptor for it", error))?;
    let stdin = child.stdin.take().map(pipe::writer_from).transpose()?;
    let stdout = child.stdout.take().map(pipe::reader_from).transpose()?;
    let stderr = child.stderr.take().map(pipe::reader_from).transpose()?;
    Ok((pidfd, stdin, stdout, stderr))
}

/// Starts a process with its standard output and error captured, and waits for it. Its standard
/// input is the one that the command sets.
///
/// Cancel safety: dropped before it is ready, it leaves the process running and loses the bytes
/// that were read; a write of the process to its output then fails.
///
/// # Errors
///
/// The same errors as [`spawn`] and [`Child::wait_with_output`].
pub async fn output(command: &mut Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output().await
}

impl Child {
    /// Returns the process's number. Once the result has been taken, another process may have the
    /// number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sets whether dropping this kills the process (`SIGKILL`).
    pub fn kill_on_drop(&mut self, kill: bool) -> &mut Child {
        self.kill_on_drop = kill;
        self
    }

    /// Kills the process (`SIGKILL`). You still have to wait for the process, or drop it. A process
    /// that has ended is left as it is.
    ///
    /// # Errors
    ///
    /// Any error of `kill(2)`, such as `PermissionDenied` for a process that now belongs to another
    /// user.
    pub fn kill(&mut self) -> io::Result<()> {
        match &mut self.process {
            Some(process) => process.child.kill(),
            None => Ok(()),
        }
    }

    /// Returns the result, if the process has ended.
    ///
    /// # Errors
    ///
    /// Any error of `waitpid(2)`, such as `ECHILD` if other code has taken the result.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(process) = &mut self.process else { return Ok(self.status) };
        let status = process.child.try_wait()?;
        if status.is_some() {
            self.status = status;
            self.process = None;
        }
        Ok(status)
    }

    /// Waits until the process ends. Closes its standard input first, if it is still here, so that
    /// a process that reads to the end does end.
    ///
    /// Cancel safe: it can be called again, also after it is ready.
    ///
    /// # Errors
    ///
    /// The same errors as [`try_wait`](Child::try_wait), or an error without a runtime on this
    /// thread.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.ended().await
    }

    async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Some(Process { pidfd, child }) = &mut self.process {
            let status = pidfd
                .perform(Direction::Read, |_| {
                    child.try_wait()?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
                })
                .await?;
            self.status = Some(status);
            self.process = None;
        }
        Ok(self.status.expect("a process whose handle is gone has a status"))
    }

    /// Waits until the process ends and meanwhile reads its standard output and error to their
    /// ends, as far as they are piped and still here.
    ///
    /// Cancel safety: dropped before it is ready, it drops the child and the bytes that were read.
    ///
    /// # Errors
    ///
    /// The same errors as [`wait`](Child::wait), or any error of reading.
    pub async fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let mut stdout = pin!(read_to_end(stdout));
        let mut stderr = pin!(read_to_end(stderr));
        let mut ended = pin!(self.ended());
        let (mut out, mut err, mut status) = (None, None, None);
        poll_fn(|cx| {
            if out.is_none()
                && let Poll::Ready(read) = stdout.as_mut().poll(cx)
            {
                out = Some(read?);
            }
            if err.is_none()
                && let Poll::Ready(read) = stderr.as_mut().poll(cx)
            {
                err = Some(read?);
            }
            if status.is_none()
                && let Poll::Ready(ended) = ended.as_mut().poll(cx)
            {
                status = Some(ended?);
            }
            match (status, out.is_some() && err.is_some()) {
                (Some(status), true) => Poll::Ready(Ok(Output {
                    status,
                    stdout: out.take().unwrap_or_default(),
                    stderr: err.take().unwrap_or_default(),
                })),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

async fn read_to_end(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    const STEP: usize = 8 << 10;
    let mut bytes = Vec::new();
    let Some(pipe) = pipe else { return Ok(bytes) };
    loop {
        let filled = bytes.len();
        bytes.resize(filled + STEP.max(filled / 2), 0);
        let done = poll_fn(|cx| pipe.poll_read(cx, &mut bytes[filled..])).await?;
        bytes.truncate(filled + done);
        if done == 0 {
            return Ok(bytes);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(Process { pidfd, mut child }) = self.process.take() {
            if self.kill_on_drop {
                // A process that now belongs to another user runs on.
                let _ = child.kill();
            }
            // An `ECHILD` because other code took the result means that there is nothing left to
            // take.
            if let Ok(None) = child.try_wait() {
                hand_to_reaper(pidfd.into_inner(), child);
            }
        }
    }
}

superpoll::debug_fields!(Child, it => id: it.id, status: it.status);

/// The children that were left, and the thread that waits for them.
struct Reaper {
    /// The children that the thread has not yet taken over.
    orphans: Vec<(OwnedFd, std::process::Child)>,
    /// Wakes the thread, if it runs.
    thread: Option<Registrar>,
}

static REAPER: Mutex<Reaper> = Mutex::new(Reaper { orphans: Vec::new(), thread: None });

fn reaper() -> MutexGuard<'static, Reaper> {
    // The list and the registrar are whole, wherever a panic happened.
    REAPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves a child to the reaper.
fn hand_to_reaper(pidfd: OwnedFd, child: std::process::Child) {
    let mut reaper = reaper();
    reaper.orphans.push((pidfd, child));
    match &reaper.thread {
        // It cannot fail on an open eventfd.
        Some(registrar) => drop(registrar.wake()),
        None => reaper.thread = start(),
    }
    if reaper.thread.is_none() {
        // Without a thread, or descriptors for it, only children that have ended meanwhile are
        // taken; the other children wait for the next child that is left.
        reaper.orphans.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    }
}

fn start() -> Option<Registrar> {
    let mut poller = Poller::builder().backend(BackendKind::Epoll).build().ok()?;
    let registrar = poller.registrar().ok()?;
    let thread = thread::Builder::new().name("superpoll-reaper".to_owned());
    thread.spawn(move || reap(poller)).ok()?;
    Some(registrar)
}

/// Waits for a child that cannot be watched.
fn block_for(mut child: std::process::Child) {
    unblock(move || drop(child.wait())).detach();
}

/// Takes the results of all children that are left, and ends when there are none.
fn reap(mut poller: Poller) {
    let mut events = Events::with_limit(64);
    let mut children: HashMap<Key, (OwnedFd, std::process::Child)> = HashMap::new();
    loop {
        let mut reaper = reaper();
        for (pidfd, child) in reaper.orphans.drain(..) {
            match poller.register(&pidfd, Interest::READABLE) {
                Ok(key) => drop(children.insert(key, (pidfd, child))),
                Err(_) => block_for(child),
            }
        }
        if children.is_empty() {
            reaper.thread = None;
            return;
        }
        drop(reaper);
        if poller.wait(&mut events, None).is_err() {
            // The next child that is left starts another thread.
            let mut reaper = self::reaper();
            reaper.thread = None;
            reaper.orphans.extend(children.into_values());
            return;
        }
        for (key, _) in events.take_refusals() {
            if let Some((_, child)) = children.remove(&key) {
                block_for(child);
            }
        }
        for event in &events {
            let key = event.key();
            let ended = children
                .get_mut(&key)
                .is_some_and(|(_, child)| !matches!(child.try_wait(), Ok(None)));
            if ended {
                // A stale key has been forgotten already.
                let _ = poller.deregister_for_close(key);
                children.remove(&key);
            }
        }
    }
}
