//! Tests whether io_uring here supports the operations for watching: a poll that stays after it has
//! reported, its removal, and a cancellation by name.
//!
//! A kernel may have rings and lack an operation, and a sandbox may refuse one. A poll that is
//! refused is answered like a poll that could not stay, which is armed again; with none allowed a
//! wait would arm it again indefinitely. So before the first ring of a process is used, a small one
//! watches a counter.
//!
//! A worker of the kernel ends a ring a moment after its last descriptor, and sends each thread
//! that has used it a notice (`io_tctx_exit_cb` in `io_uring/tctx.c`). If the thread then waits in
//! a call with a limit, such as `recv(2)` on a socket with `SO_RCVTIMEO`, the call fails with
//! `EINTR`, as if there had been a signal. A ring on trial therefore has a thread of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::stats::Calls;
use crate::sys::call;
use crate::sys::eventfd::EventFd;
use crate::sys::uring::{ENTER_EXT_ARG, ENTER_GETEVENTS};
use crate::sys::wait_call::RingArgument;

/// Entries of the ring on trial.
const SIZE: u32 = 8;

/// How long an answer that comes at once may take before there will be none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The names of the operations.
const POLL: u64 = 1;
const CANCEL: u64 = 2;
const REMOVE: u64 = 3;

/// Holds the trial, until one has been decided in this process.
///
/// # Errors
///
/// The error of a system call, and the trial is not decided; or `Unsupported`, with the operation.
pub(super) fn pass() -> io::Result<()> {
    static OUTCOME: OnceLock<Result<(), String>> = OnceLock::new();
    if OUTCOME.get().is_none() {
        let outcome = match apart(hold) {
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            outcome => outcome.map_err(|error| error.to_string()),
        };
        let _ = OUTCOME.set(outcome);
    }
    match OUTCOME.get() {
        Some(Err(refusal)) => Err(io::Error::new(io::ErrorKind::Unsupported, refusal.as_str())),
        _ => Ok(()),
    }
}

/// Runs what uses a ring for a moment in a thread of its own; in this one if there can be no other.
pub(crate) fn apart<T: Send>(run: impl Fn() -> T + Sync) -> T {
    std::thread::scope(|scope| {
        match std::thread::Builder::new().name("ring trial".into()).spawn_scoped(scope, &run) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => run(),
        }
    })
}

/// Whether a call can wait for many completions, and after some time for one
/// (`IORING_FEAT_MIN_TIMEOUT`, Linux 6.12). Older kernels refuse the argument. Finds out once; a
/// failure that may pass, such as a shortage of descriptors, decides nothing.
pub(crate) fn has_min_wait() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    match ANSWER.get() {
        Some(answer) => *answer,
        None => match min_wait(apart(|| IoUring::new(SIZE).and_then(|ring| ask_min_wait(&ring)))) {
            Some(answer) => *ANSWER.get_or_init(|| answer),
            None => false,
        },
    }
}

/// Waits for nothing with the argument.
fn ask_min_wait(ring: &IoUring) -> io::Result<usize> {
    let argument = RingArgument { min_wait: 1, ..RingArgument::default() };
    let flags = (ENTER_GETEVENTS | ENTER_EXT_ARG) as usize;
    let address = &raw const argument as usize;
    let arguments = [ring.as_raw_fd() as usize, 0, 0, flags, address, size_of::<RingArgument>()];
    // SAFETY: the call submits and waits for nothing; the argument outlives it.
    call::result(unsafe { call::call(libc::SYS_io_uring_enter, arguments) })
}

/// Returns the answer of a kernel; `None` if it has given none.
fn min_wait(asked: io::Result<usize>) -> Option<bool> {
    match asked {
        Ok(_) => Some(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Some(false),
        Err(_) => None,
    }
}

fn hold() -> io::Result<()> {
    watch(&mut IoUring::new(SIZE)?, &EventFd::new(&mut Calls::default())?)
}

/// Watches a counter and stops watching it.
fn watch(ring: &mut IoUring, counter: &EventFd) -> io::Result<()> {
    counter.write()?;
    let fd = Fd(counter.as_fd().as_raw_fd());
    let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build().user_data(POLL);
    let first = answer(ring, &poll, POLL)?;
    refused(first.result(), "IORING_OP_POLL_ADD")?;
    if !cqueue::more(first.flags()) {
        return Err(io::Error::other("its polls end after one report (IORING_POLL_ADD_MULTI)"));
    }
    let cancel = opcode::AsyncCancel::new(POLL).build().user_data(CANCEL);
    refused(answer(ring, &cancel, CANCEL)?.result(), "IORING_OP_ASYNC_CANCEL")?;
    answer(ring, &poll, POLL)?;
    let remove = opcode::PollRemove::new(POLL).build().user_data(REMOVE);
    match -answer(ring, &remove, REMOVE)?.result() {
        // It is about to report, or has been cancelled just now.
        libc::EALREADY | libc::ENOENT => Ok(()),
        result => refused(-result, "IORING_OP_POLL_REMOVE"),
    }
}

fn refused(result: i32, operation: &str) -> io::Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(-result);
    Err(io::Error::other(format!("it does not let this process use {operation}: {error}")))
}

/// Makes the kernel carry out an operation, and returns its completion.
fn answer(ring: &mut IoUring, entry: &squeue::Entry, name: u64) -> io::Result<cqueue::Entry> {
    // SAFETY: polls and their removals refer to no memory.
    unsafe { ring.submission().push(entry) }.map_err(io::Error::other)?;
    let time = Timespec::from(PATIENCE);
    loop {
        let arguments = SubmitArgs::new().timespec(&time);
        match ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                return Err(io::Error::other("it does not answer"));
            }
            outcome => drop(outcome?),
        }
        if let Some(answer) = ring.completion().find(|answer| answer.user_data() == name) {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use io_uring::register::Restriction;

    use super::*;

    /// The trial of a ring that allows these operations only, if there are rings here.
    fn restricted(allowed: &[u8]) -> Option<io::Result<()>> {
        let mut builder = IoUring::builder();
        let mut ring = builder.setup_r_disabled().build(SIZE).ok()?;
        let mut rules: Vec<_> = allowed.iter().map(|&code| Restriction::sqe_op(code)).collect();
        ring.submitter().register_restrictions(&mut rules).unwrap();
        ring.submitter().register_enable_rings().unwrap();
        let counter = EventFd::new(&mut Calls::default()).unwrap();
        Some(watch(&mut ring, &counter))
    }

    #[test]
    fn an_operation_that_is_not_allowed_is_named() {
        let (poll, cancel) = (opcode::PollAdd::CODE, opcode::AsyncCancel::CODE);
        let remove = opcode::PollRemove::CODE;
        let cases = [
            (&[opcode::Nop::CODE][..], Some("IORING_OP_POLL_ADD")),
            (&[poll], Some("IORING_OP_ASYNC_CANCEL")),
            (&[poll, cancel], Some("IORING_OP_POLL_REMOVE")),
            (&[poll, cancel, remove], None),
        ];
        for (allowed, named) in cases {
            let Some(outcome) = restricted(allowed) else {
                eprintln!("skipped: no io_uring here");
                return;
            };
            match named {
                None => outcome.unwrap(),
                Some(named) => {
                    let said = outcome.unwrap_err().to_string();
                    assert!(said.contains(named) && said.contains("denied"), "{said}");
                    assert!(!said.contains('\n'), "{said}");
                }
            }
        }
    }

    #[test]
    fn a_failure_that_may_pass_decides_nothing() {
        let failed = |number| min_wait(Err(io::Error::from_raw_os_error(number)));
        assert_eq!((min_wait(Ok(0)), failed(libc::EINVAL)), (Some(true), Some(false)));
        for number in [libc::EMFILE, libc::ENOMEM, libc::EINTR, libc::EAGAIN] {
            assert_eq!(failed(number), None);
        }
    }

    #[test]
    fn where_there_are_rings_they_pass() {
        match IoUring::new(SIZE) {
            Ok(_) => pass().unwrap(),
            Err(error) => assert_eq!(pass().unwrap_err().raw_os_error(), error.raw_os_error()),
        }
    }

    #[test]
    fn a_trial_interrupts_no_call_of_its_caller() {
        let (mut reader, _writer) = UnixStream::pair().unwrap();
        reader.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        for _ in 0..5 {
            let outcome = apart(hold);
            let error = reader.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "after {outcome:?}");
        }
    }
}
