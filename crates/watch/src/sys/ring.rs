//! The ring buffer in which programs of the kernel leave records (`BPF_MAP_TYPE_RINGBUF`,
//! `Documentation/bpf/ringbuf.rst`).
//!
//! A page with the consumer's position can be written here. The next one has the producers', and is
//! followed by the data, which are mapped twice so that a record at the end is in one piece. A
//! record has a header of 8 bytes with its length and two bits, and is padded to 8 bytes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{MapKind, map};

/// A producer is still writing this record.
const IS_BUSY: u32 = 1 << 31;
/// The record is void.
const IS_DISCARDED: u32 = 1 << 30;
const HEADER: u64 = 8;

/// The end of the ring at which records are taken out.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    descriptor: OwnedFd,
    consumer: NonNull<AtomicU64>,
    /// The page with the producers' position, and the data.
    producer: NonNull<AtomicU64>,
    page: usize,
    size: usize,
}

// SAFETY: the mappings are this value's own, and are the same from every thread.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// Makes a ring of that many bytes, a power of two and a multiple of a page.
    pub(crate) fn new(size: u32) -> io::Result<RingBuffer> {
        let descriptor = map(MapKind::Ring, 0, 0, size, 0)?;
        // SAFETY: the call only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = size as usize;
        let share =
            |length: usize, protection, offset: usize| {
                let (null, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
                let number = descriptor.as_fd().as_raw_fd();
                // SAFETY: a new mapping, whose place the kernel chooses.
                let start = unsafe {
                    libc::mmap(null, length, protection, shared, number, offset as libc::off_t)
                };
                match start {
                    libc::MAP_FAILED => Err(io::Error::last_os_error()),
                    start => Ok(NonNull::new(start.cast::<AtomicU64>())
                        .expect("the kernel maps nothing at 0")),
                }
            };
        let consumer = share(page, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = match share(page + 2 * size, libc::PROT_READ, page) {
            Ok(producer) => producer,
            Err(error) => {
                // SAFETY: the mapping was just made, and nothing refers to it.
                unsafe { libc::munmap(consumer.as_ptr().cast(), page) };
                return Err(error);
            }
        };
        Ok(RingBuffer { descriptor, consumer, producer, page, size })
    }

    /// The descriptor of the map.
    pub(crate) fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    /// Returns the position behind the last record, for [`drain_to`](RingBuffer::drain_to).
    pub(crate) fn produced(&self) -> u64 {
        // SAFETY: the page is mapped while this value exists, and only atomics touch it.
        unsafe { self.producer.as_ref() }.load(Ordering::Acquire)
    }

    /// Takes out the records up to a position. Those that are still written there are waited for:
    /// the kernel does not sleep meanwhile.
    pub(crate) fn drain_to(&mut self, position: u64, mut each: impl FnMut(&[u8])) {
        // SAFETY: as above.
        while unsafe { self.consumer.as_ref() }.load(Ordering::Relaxed) < position {
            if self.drain(&mut each) == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Takes out the records that are there, those of one ring at most, and returns how many there
    /// were.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        // SAFETY: both pages are mapped while this value exists, and only atomics touch them.
        let (consumer, producer) = unsafe { (self.consumer.as_ref(), self.producer.as_ref()) };
        let mut at = consumer.load(Ordering::Relaxed);
        let end = at + self.size as u64;
        let mut count = 0;
        while at < producer.load(Ordering::Acquire) && at < end {
            let place = self.page + (at as usize & (self.size - 1));
            // SAFETY: the position is below the producers', so a header is there, in the mapping.
            let head = unsafe { self.producer.as_ptr().cast::<u8>().add(place) };
            // SAFETY: as above; a header is aligned, and the kernel changes it as one word.
            let length = unsafe { (*head.cast::<AtomicU32>()).load(Ordering::Acquire) };
            if length & IS_BUSY != 0 {
                break;
            }
            let bytes = (length & !IS_DISCARDED) as usize;
            if length & IS_DISCARDED == 0 {
                // SAFETY: a record that is not busy is whole, is in one piece in the double
                // mapping, and is not written again until the consumer's position is beyond it.
                each(unsafe { std::slice::from_raw_parts(head.add(HEADER as usize), bytes) });
                count += 1;
            }
            at += HEADER + (bytes as u64).next_multiple_of(8);
            consumer.store(at, Ordering::Release);
        }
        count
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: the mappings are this value's own, and no reference into them outlives it.
        unsafe {
            libc::munmap(self.consumer.as_ptr().cast(), self.page);
            libc::munmap(self.producer.as_ptr().cast(), self.page + 2 * self.size);
        }
    }
}
