//! A ring that echoes the bytes that it receives.
//!
//! Multishot receives into buffers of a provided ring, on registered files; received bytes are sent
//! from the same buffer, with the call that asks for more, and the buffer goes back when that is
//! done. One call submits all sends of a turn, carries them out, and returns the arrivals of the
//! meantime: the kernel handles 20 arrivals a call, or as many completions as the call waits for.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{cqueue, opcode, squeue};

use super::{Counted, REQUESTS};

/// The most completions that a call waits for, and the arrivals that it then handles.
const TURN: usize = 64;

/// Buffers, a power of two: enough for the arrivals of a turn and of the one before, few enough to
/// stay in a cache. With too few buffers, receives end and are started again, which costs as much
/// as a request.
const BUFFERS: u16 = 256;

/// Their group.
const GROUP: u16 = 0;

/// Marks sends; the low half of the number is the connection's, and the buffer's is above that.
const SEND: u64 = 1 << 63;

/// The ring.
pub(crate) struct Echo {
    // Before the memory that the kernel writes to.
    ring: Counted,
    buffers: Buffers,
    lengths: [u32; BUFFERS as usize],
    /// Sends that are not complete.
    sends: usize,
    open: usize,
    /// Memory for the completions of a call.
    completed: Vec<cqueue::Entry>,
}

impl Echo {
    /// Receives on these sockets, up to `room` bytes at a time.
    pub(crate) fn new(sockets: &[OwnedFd], room: usize) -> io::Result<Echo> {
        let completions = u32::try_from(2 * sockets.len()).unwrap_or(u32::MAX >> 1).max(REQUESTS);
        let ring = Counted::deferring(completions)?;
        let buffers = Buffers::new(room)?;
        // SAFETY: the memory is that of `buffers`, which is dropped after the ring.
        unsafe {
            ring.inner.submitter().register_buf_ring_with_flags(
                buffers.address(),
                BUFFERS,
                GROUP,
                0,
            )?
        };
        let (lengths, open) = ([0; BUFFERS as usize], sockets.len());
        let mut echo = Echo { ring, buffers, lengths, sends: 0, open, completed: Vec::new() };
        for buffer in 0..BUFFERS {
            echo.buffers.give(buffer);
        }
        if !sockets.is_empty() {
            let files: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
            echo.ring.inner.submitter().register_files(&files)?;
        }
        for number in 0..sockets.len() as u32 {
            echo.receive(number)?;
        }
        Ok(echo)
    }

    /// Returns whether a connection is left.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    fn receive(&mut self, number: u32) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(Fixed(number), GROUP).build();
        self.push(&entry.user_data(u64::from(number)))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: a receive writes to provided buffers only; a send reads a buffer that is not
        // given away until the send is complete, and `buffers` is dropped after the ring.
        unsafe { self.ring.push(entry) }
    }

    /// Waits for bytes to arrive, and queues them to be sent back in the next turn.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        // Sends complete within the call, so one more is an arrival.
        match self.ring.inner.submit_and_wait(TURN.min(self.sends + 1)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Completions have to be fetched first.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
        let mut completed = std::mem::take(&mut self.completed);
        completed.extend(self.ring.inner.completion());
        for completion in completed.drain(..) {
            let (name, result) = (completion.user_data(), completion.result());
            if name & SEND != 0 {
                let buffer = ((name & !SEND) >> 32) as u16;
                if u32::try_from(result) != Ok(self.lengths[usize::from(buffer)]) {
                    return Err(failure(result));
                }
                self.buffers.give(buffer);
                self.sends -= 1;
                continue;
            }
            let number = name as u32;
            let goes_on = cqueue::more(completion.flags());
            match (u32::try_from(result), cqueue::buffer_select(completion.flags())) {
                (Ok(length @ 1..), Some(buffer)) => {
                    self.lengths[usize::from(buffer)] = length;
                    let bytes = self.buffers.bytes(buffer);
                    let send = opcode::Send::new(Fixed(number), bytes, length)
                        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL);
                    let name = SEND | u64::from(buffer) << 32 | u64::from(number);
                    self.push(&send.build().user_data(name))?;
                    self.sends += 1;
                    if !goes_on {
                        self.receive(number)?;
                    }
                }
                (Err(_), _) if result == -libc::ENOBUFS => self.receive(number)?,
                // Its peer is gone.
                _ => self.open -= 1,
            }
        }
        self.completed = completed;
        Ok(())
    }
}

fn failure(result: i32) -> io::Error {
    match result {
        0.. => io::ErrorKind::WriteZero.into(),
        code => io::Error::from_raw_os_error(-code),
    }
}

/// The buffers, and the ring in which the kernel finds them.
struct Buffers {
    memory: NonNull<u8>,
    layout: Layout,
    room: usize,
    tail: u16,
}

/// The ring's memory begins on a page.
const PAGE: usize = 4096;

impl Buffers {
    /// Creates the ring's entries, and the buffers after them.
    fn new(room: usize) -> io::Result<Buffers> {
        let size = room.saturating_add(size_of::<BufRingEntry>()).checked_mul(BUFFERS.into());
        let layout = size.and_then(|size| Layout::from_size_align(size, PAGE).ok());
        let layout = layout.ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Ok(Buffers { memory, layout, room, tail: 0 })
    }

    fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn bytes(&self, buffer: u16) -> *const u8 {
        let before = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        self.memory.as_ptr().wrapping_add(before + usize::from(buffer) * self.room)
    }

    /// Gives a buffer to the kernel.
    fn give(&mut self, buffer: u16) {
        let entries: *mut BufRingEntry = self.memory.as_ptr().cast();
        let bytes = self.bytes(buffer) as u64;
        // SAFETY: the entry lies within the memory, which was zeroed; the kernel reads it only
        // after the tail was moved. The tail lies in the first entry, where no entry's address,
        // length or number is, and is aligned for two bytes.
        unsafe {
            let entry = &mut *entries.add(usize::from(self.tail % BUFFERS));
            entry.set_addr(bytes);
            entry.set_len(self.room as u32);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and the ring that used it is gone.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
