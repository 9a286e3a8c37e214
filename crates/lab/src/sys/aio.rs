//! Linux's own asynchronous I/O; only its poll is used: `io_setup`, `io_submit` with
//! `IOCB_CMD_POLL`, `io_getevents`.

use std::io;
use std::os::fd::RawFd;

use nix::errno::Errno;

const IOCB_CMD_POLL: u16 = 5;
const IOCB_FLAG_RESFD: u32 = 1;

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

/// Returns why there is none here, or `None` if there is.
pub(crate) fn missing() -> Option<String> {
    let why = Polls::with_room(1).err()?;
    Some(format!(
        "io_setup: {why}; it needs a kernel with CONFIG_AIO, room in /proc/sys/fs/aio-max-nr, and \
         no filter that refuses the call"
    ))
}

impl Polls {
    /// Creates a request for each descriptor, none submitted yet.
    pub(crate) fn new(fds: &[RawFd]) -> io::Result<Polls> {
        let mut polls = Polls::with_room(fds.len())?;
        for (number, &fd) in fds.iter().enumerate() {
            polls.set(number, (number as u64, fd, libc::POLLIN), None);
        }
        Ok(polls)
    }

    /// Creates as many requests, each to be [set](Polls::set) before it is armed.
    pub(crate) fn with_room(room: usize) -> io::Result<Polls> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number, which outlives the call.
        Errno::result(unsafe { libc::syscall(libc::SYS_io_setup, room.max(1), &raw mut context) })?;
        let requests = vec![Request { opcode: IOCB_CMD_POLL, ..Request::default() }; room];
        Ok(Polls { context, due: Vec::with_capacity(requests.len()), requests, calls: 0 })
    }

    /// Sets what a request polls for, which must not be under way: the number in its event, the
    /// descriptor and the bits of `poll`. Its event is also counted by an event counter, if given.
    pub(crate) fn set(
        &mut self,
        number: usize,
        (data, fd, events): (u64, RawFd, i16),
        counter: Option<RawFd>,
    ) {
        let (flags, event_fd) = counter.map_or((0, 0), |fd| (IOCB_FLAG_RESFD, fd as u32));
        let request = &mut self.requests[number];
        (request.data, request.fd, request.events) = (data, fd as u32, events as u16 as u64);
        (request.flags, request.event_fd) = (flags, event_fd);
    }

    /// Returns how many requests there are.
    pub(crate) fn room(&self) -> usize {
        self.requests.len()
    }

    /// Cancels the request of this number, which is under way. An event with its data may still
    /// come.
    pub(crate) fn cancel(&mut self, number: usize) {
        let (request, mut event) = (&raw mut self.requests[number], Event::default());
        self.calls += 1;
        // SAFETY: the kernel finds the request by its address, which is that of an element of
        // `requests`, and may write one event. A request that has ended is refused.
        unsafe { libc::syscall(libc::SYS_io_cancel, self.context, request, &raw mut event) };
    }

    /// Prepares the request of this number for the next [`submit`](Polls::submit). It must not be
    /// under way.
    #[inline(always)]
    pub(crate) fn arm(&mut self, number: usize) {
        self.due.push(&raw mut self.requests[number]);
    }

    /// Submits all that were armed.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        while !self.due.is_empty() {
            self.submit_some().map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    /// Submits those that were armed, up to the first that the kernel refuses. That one is taken
    /// off, and returned with the kernel's error; a lack of room (`EAGAIN`) takes none off.
    pub(crate) fn submit_some(&mut self) -> std::result::Result<(), (io::Error, Option<usize>)> {
        self.calls += 1;
        // SAFETY: the addresses are those of elements of `requests`, which is never resized; the
        // kernel copies each request within the call.
        let taken = Errno::result(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, self.due.len(), self.due.as_mut_ptr())
        });
        match taken {
            Ok(taken) => drop(self.due.drain(..taken as usize)),
            Err(Errno::EAGAIN) => return Err((Errno::EAGAIN.into(), None)),
            Err(error) => {
                let refused = self.due.remove(0);
                let start = self.requests.as_ptr().addr();
                let number = (refused.addr() - start) / size_of::<Request>();
                return Err((error.into(), Some(number)));
            }
        }
        Ok(())
    }

    /// Whether some that were armed are not submitted yet.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes a request back that was armed and not submitted yet; returns whether it was.
    pub(crate) fn disarm(&mut self, number: usize) -> bool {
        let request = &raw mut self.requests[number];
        let before = self.due.len();
        self.due.retain(|&due| due != request);
        self.due.len() < before
    }

    /// Waits indefinitely and returns how many events were written.
    #[inline(always)]
    pub(crate) fn wait(&mut self, events: &mut [Event]) -> io::Result<usize> {
        self.get_events(events, 1)
    }

    /// Returns how many events were written, which may be none.
    pub(crate) fn fetch(&mut self, events: &mut [Event]) -> io::Result<usize> {
        self.get_events(events, 0)
    }

    #[inline(always)]
    fn get_events(&mut self, events: &mut [Event], least: usize) -> io::Result<usize> {
        loop {
            self.calls += 1;
            // SAFETY: the kernel writes at most as many events as the slice has; no timeout is
            // given.
            let count = Errno::result(unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    least,
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

    /// Returns the bytes of heap that it uses.
    pub(crate) fn memory(&self) -> usize {
        self.requests.capacity() * size_of::<Request>()
            + self.due.capacity() * size_of::<*mut Request>()
    }

    /// Returns the number of system calls to submit and to wait, so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }
}

// SAFETY: the addresses in `due` are those of elements of `requests`, which moves along.
unsafe impl Send for Polls {}

impl Drop for Polls {
    fn drop(&mut self) {
        // SAFETY: the context is ours and used no more; the call returns when no request is under
        // way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
