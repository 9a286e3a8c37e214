//! Files that a ring knows by places in a table of its own.
//!
//! Each action on a descriptor looks its file up and counts a use of it, which is a twentieth of a
//! short read. A file in the table has been looked up once. It is open as long as it is there,
//! whatever happens to the descriptor, so its place is given up before the descriptor is given
//! back.

use std::os::fd::RawFd;

use io_uring::IoUring;

use crate::stats::Calls;
use crate::sys::limits;

/// The most files that are kept; the table costs eight bytes for each.
const MOST: u64 = 16_384;

/// The places of the table.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// How many there are; unknown until the first is asked for.
    size: Option<u32>,
    /// Places below this one have been in use.
    used: u32,
    vacant: Vec<u32>,
}

impl Files {
    /// Gives a file a place, if there is one.
    pub(super) fn keep(&mut self, calls: &mut Calls, ring: &IoUring, fd: RawFd) -> Option<u32> {
        let size = *self.size.get_or_insert_with(|| {
            calls.io_uring_register += 1;
            let size = limits::nofile().0.min(MOST) as u32;
            // Without a table everything works as well.
            if ring.submitter().register_files_sparse(size).is_ok() { size } else { 0 }
        });
        let place = match self.vacant.pop() {
            Some(place) => place,
            None if self.used < size => self.used,
            None => return None,
        };
        calls.io_uring_register += 1;
        if ring.submitter().register_files_update(place, &[fd]).is_err() {
            if place < self.used {
                self.vacant.push(place);
            }
            return None;
        }
        self.used = self.used.max(place + 1);
        Some(place)
    }

    /// Gives a place up, and with it the file.
    pub(super) fn forget(&mut self, calls: &mut Calls, ring: &IoUring, place: u32) {
        calls.io_uring_register += 1;
        const NONE: RawFd = -1;
        if ring.submitter().register_files_update(place, &[NONE]).is_ok() {
            self.vacant.push(place);
        }
    }

    /// Gives all of them up, at once and not when the kernel gets round to it.
    pub(super) fn forget_all(&mut self, ring: &IoUring) {
        if self.used > 0 {
            let _ = ring.submitter().unregister_files();
        }
        *self = Files::default();
    }
}
