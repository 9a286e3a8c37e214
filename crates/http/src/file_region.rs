//! Bytes in memory that the kernel can send without copying them, because they are those of a file.
//!
//! Most of the cost of a large response is the copy from the program into the socket. `sendfile(2)`
//! has none, but it takes the bytes that the file has at that moment, which may differ from those
//! that the head of the response has promised; and bodies are bytes. A file region is both: the
//! contents of a file as they were read, and the file. To a body it is `Bytes` like any other, and
//! whatever is done with them is right. If such bytes reach the transport unchanged, the
//! transport recognises them by their address. If the file is still the same, as its size and its
//! times tell, the kernel sends that part of the file instead. If it is not, the bytes are sent: a
//! response continues with the version that it began with. A file that changes between that look
//! and the call is seen after the call; then bytes of two versions may have been sent, and the
//! connection ends before the response does.
//!
//! A sealed object in memory (`memfd_create(2)`) would need no such check, but sends a third
//! slower: the kernel takes it page by page.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use rustix::fs::{Stat, fstat};

/// From this many bytes on a region pays: below, the further system calls cost more than the copy.
const LEAST: usize = 32 * 1024;

/// The most regions at a time, as each costs a descriptor.
const MOST: usize = 1024;

/// All regions, by where they begin.
static ALL: RwLock<BTreeMap<usize, Arc<FileRegion>>> = RwLock::new(BTreeMap::new());

/// A file, and the stamp that tells whether it is still the same.
#[derive(Debug)]
pub(crate) struct FileRegion {
    length: usize,
    file: File,
    stamp: Stamp,
}

/// The attributes that change with the contents. From Linux 6.13 on times are fine-grained once
/// they have been read.
type Stamp = (i64, i64, u64, i64, u64);

fn stamp(stat: &Stat) -> Stamp {
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
}

/// The owner of the bytes.
struct Contents(Vec<u8>);

impl AsRef<[u8]> for Contents {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        let start = self.0.as_ptr().addr();
        ALL.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

/// Registers bytes that were read from a file, all of it, as its contents. If that would not pay,
/// or there is no descriptor left, they are just bytes.
pub(crate) fn bytes(contents: Vec<u8>, file: &File) -> Bytes {
    let length = contents.len();
    if length < LEAST {
        return contents.into();
    }
    let (Ok(stat), Ok(file)) = (fstat(file), file.try_clone()) else { return contents.into() };
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= MOST || stat.st_size as usize != length {
        return contents.into();
    }
    let region = FileRegion { length, file, stamp: stamp(&stat) };
    all.insert(contents.as_ptr().addr(), Arc::new(region));
    drop(all);
    Bytes::from_owner(Contents(contents))
}

/// Returns the region that a slice is a part of, and the position in it; `None` also if the file
/// has changed.
pub(crate) fn find(slice: &[u8]) -> Option<(Arc<FileRegion>, u64)> {
    if slice.len() < LEAST {
        return None;
    }
    let start = slice.as_ptr().addr();
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    let (begin, region) = all.range(..=start).next_back()?;
    let offset = start - begin;
    if offset + slice.len() > region.length {
        return None;
    }
    let region = region.clone();
    drop(all);
    region.is_same().then_some((region, offset as u64))
}

impl FileRegion {
    /// Whether the file is still the one that was read.
    fn is_same(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| stamp(&stat) == self.stamp)
    }

    /// Whether the file still has the contents that were read. A file that gets another name, or
    /// other rights, has them.
    pub(crate) fn has_same_contents(&self) -> bool {
        let (size, seconds, nanoseconds, ..) = self.stamp;
        fstat(&self.file).is_ok_and(|stat| {
            (stat.st_size, stat.st_mtime, stat.st_mtime_nsec) == (size, seconds, nanoseconds)
        })
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_slice_of_a_file_is_found_as_long_as_the_file_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let contents: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let region = bytes(contents.clone(), &file);
        assert_eq!(region, contents);
        let part = region.slice(1000..90_000);
        drop(region);
        let (found, offset) = find(&part).unwrap();
        let mut read = vec![0; part.len()];
        found.file().read_exact_at(&mut read, offset).unwrap();
        assert_eq!(read, part);
        assert!(find(&part[..LEAST - 1]).is_none());
        assert!(find(&contents).is_none());
        // Another length shows at once, however coarse the times are.
        file.set_len(100_000).unwrap();
        assert!(find(&part).is_none());
        assert_eq!(part, contents[1000..90_000]);
        let start = part.as_ptr().addr() - 1000;
        drop((part, found));
        assert!(!ALL.read().unwrap().contains_key(&start));
    }

    #[test]
    fn small_contents_have_no_region() {
        let file = tempfile::tempfile().unwrap();
        let small = bytes(vec![1; LEAST - 1], &file);
        assert!(find(&small).is_none());
        assert_eq!(small.len(), LEAST - 1);
    }
}
