//! Linux's own asynchronous I/O; only its poll is used: `io_setup`, `io_submit` with
//! `IOCB_CMD_POLL`, `io_getevents`.

use std::io;
use std::os::fd::RawFd;

use nix::errno::Errno;

const IOCB_CMD_POLL: u16 = 5;

/// A request, as the kernel lays it out. `key` and `rw_flags` are both zero, so their order does
/// not matter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    events: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// A finished request, as the kernel lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    /// The number of the request.
    pub data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// Requests to poll one descriptor each, once.
#[derive(Debug)]
pub(crate) struct Polls {
    context: libc::c_ulong,
    requests: Vec<Request>,
    /// Addresses of the requests to submit next; the kernel wants an array of them.
    due: Vec<*mut Request>,
    calls: u64,
}

impl Polls {
    /// Creates a request for each descriptor, none submitted yet.
    pub(crate) fn new(fds: &[RawFd]) -> io::Result<Polls> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number, which outlives the call.
        Errno::result(unsafe {
            libc::syscall(libc::SYS_io_setup, fds.len().max(1), &raw mut context)
        })?;
        let requests = fds.iter().enumerate().map(|(data, &fd)| Request {
            data: data as u64,
            opcode: IOCB_CMD_POLL,
            fd: fd as u32,
            events: libc::POLLIN as u64,
            ..Request::default()
        });
        let requests: Vec<Request> = requests.collect();
        Ok(Polls { context, due: Vec::with_capacity(requests.len()), requests, calls: 0 })
    }

    /// Prepares the request of this number for the next [`submit`](Polls::submit). It must not be
    /// under way.
    #[inline(always)]
    pub(crate) fn arm(&mut self, number: usize) {
        self.due.push(&raw mut self.requests[number]);
    }

    /// Submits all that were armed.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.due.len() {
            self.calls += 1;
            let rest = &mut self.due[done..];
            // SAFETY: the addresses are those of elements of `requests`, which is never resized;
            // the kernel copies each request within the call.
            done += Errno::result(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_mut_ptr())
            })? as usize;
        }
        self.due.clear();
        Ok(())
    }

    /// Waits indefinitely and returns how many events were written.
    #[inline(always)]
    pub(crate) fn wait(&mut self, events: &mut [Event]) -> io::Result<usize> {
        loop {
            self.calls += 1;
            // SAFETY: the kernel writes at most as many events as the slice has; no timeout is
            // given.
            let count = Errno::result(unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    1,
                    events.len(),
                    events.as_mut_ptr(),
                    std::ptr::null_mut::<libc::timespec>(),
                )
            });
            match count {
                Err(Errno::EINTR) => {}
                other => return Ok(other? as usize),
            }
        }
    }

    /// Returns the number of system calls to submit and to wait, so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        // SAFETY: the context is ours and used no more; the call returns when no request is under
        // way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
