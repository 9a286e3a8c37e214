//! Bytes in memory that the kernel can send without copying them.
//!
//! Most of what a large response costs is the copy from the program into the socket. `sendfile(2)` has none, but it
//! wants a file, and a file that others may change at any time is not what was promised in the response's head; and
//! hyper wants bytes. A window is both: an object in memory that is sealed once it is written (`memfd_create(2)`, Linux
//! 3.17) and mapped. To hyper it is `Bytes` like any other, and whatever hyper does with them is right. Where such
//! bytes reach the transport as they were, it recognises them by their address and has the kernel send that part of
//! the object instead.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::sys::map::Map;

/// From where on a window pays: below, the second system call costs more than the copy.
pub(crate) const LEAST: usize = 32 * 1024;

/// All windows, by where they begin: their length, and the object.
static ALL: RwLock<BTreeMap<usize, (usize, Arc<File>)>> = RwLock::new(BTreeMap::new());

/// The owner of the bytes.
struct Window(Map);

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let start = self.0.as_ref().as_ptr().addr();
        ALL.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

fn sealed(bytes: &[u8]) -> io::Result<Bytes> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let object: OwnedFd = memfd_create("superpoll", flags)?;
    let mut file = File::from(object);
    file.write_all(bytes)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    let map = Map::of_sealed(&file)?;
    let start = map.as_ref().as_ptr().addr();
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    all.insert(start, (bytes.len(), Arc::new(file)));
    drop(all);
    Ok(Bytes::from_owner(Window(map)))
}

/// Makes bytes that are to be sent often. Each costs a descriptor; where there is none, they stay what they are.
pub(crate) fn bytes(bytes: Vec<u8>) -> Bytes {
    if bytes.len() < LEAST {
        return bytes.into();
    }
    sealed(&bytes).unwrap_or_else(|_| bytes.into())
}

/// The object that a slice is a part of, and where in it.
pub(crate) fn find(slice: &[u8]) -> Option<(Arc<File>, u64)> {
    if slice.len() < LEAST {
        return None;
    }
    let start = slice.as_ptr().addr();
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    let (begin, (length, file)) = all.range(..=start).next_back()?;
    let offset = start - begin;
    (offset + slice.len() <= *length).then(|| (file.clone(), offset as u64))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_slice_of_a_window_is_found_as_long_as_there_is_one() {
        let content: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let window = bytes(content.clone());
        assert_eq!(window, content);
        let part = window.slice(1000..90_000);
        drop(window);
        let (file, offset) = find(&part).unwrap();
        let mut read = vec![0; part.len()];
        file.read_exact_at(&mut read, offset).unwrap();
        assert_eq!(read, part);
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(10).is_err());
        assert!(find(&part[..LEAST - 1]).is_none());
        assert!(find(&content).is_none());
        let start = part.as_ptr().addr() - 1000;
        drop(part);
        assert!(!ALL.read().unwrap().contains_key(&start));
    }

    #[test]
    fn what_is_small_is_kept_as_it_is() {
        let small = bytes(vec![1; LEAST - 1]);
        assert!(find(&small).is_none());
        assert_eq!(small.len(), LEAST - 1);
    }
}
