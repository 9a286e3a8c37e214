//! Sealed memory, mapped.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The contents of an object in memory that nobody can change any more.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: what it points to is neither changed nor unmapped while it lives, whichever thread reads it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the whole of a file that is sealed against writing and shrinking (`memfd_create(2)`), which makes reading
    /// it as safe as reading a slice.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is empty or not sealed; what `mmap(2)` says.
    pub(crate) fn of_sealed(file: &File) -> io::Result<Map> {
        let seals = fcntl_get_seals(file)?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK) || length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses where, so that nothing that is there is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), length, prot, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Map { start, length })
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped there until this is dropped, and the seals, which cannot be taken off, keep
        // everybody from changing or shortening them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and what was borrowed of it has ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
