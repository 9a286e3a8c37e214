//! One version of a file as it was found on the disk.

use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::folder::Folder;

/// The mark that distinguishes one version of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn from_metadata(data: &Metadata) -> Stamp {
        Stamp {
            device: data.dev(),
            inode: data.ino(),
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns a strong validator, made of size, time of change and inode, like those of other
    /// servers.
    pub(super) fn tag(&self) -> String {
        let (seconds, nanoseconds) = self.modified;
        format!("{:x}-{seconds:x}.{nanoseconds:x}-{:x}", self.length, self.inode)
    }

    /// Returns the time of change; `None` before 1970.
    pub(super) fn modified(&self) -> Option<SystemTime> {
        let after = u64::try_from(self.modified.0).ok().map(Duration::from_secs)?;
        SystemTime::UNIX_EPOCH.checked_add(after)
    }

    /// Whether the file may change once more without another stamp: the clock of some file systems
    /// ticks seconds only.
    pub(super) fn is_young(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.changed.0.saturating_add(2) > now
    }
}

/// A regular file that is open.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    pub(super) stamp: Stamp,
}

impl Opened {
    /// Returns `None` if it is no regular file.
    pub(super) fn new(file: File) -> io::Result<Option<Opened>> {
        let data = file.metadata()?;
        let opened = || Opened { file: Arc::new(file), stamp: Stamp::from_metadata(&data) };
        Ok(data.is_file().then(opened))
    }

    /// The same file as it is now.
    pub(super) fn again(&self) -> io::Result<Opened> {
        let stamp = Stamp::from_metadata(&self.file.metadata()?);
        Ok(Opened { file: Arc::clone(&self.file), stamp })
    }
}

/// A file that is too large to be kept in memory. The requests that read it at a time share its
/// descriptor, and it is closed after the last of them, so that a deleted file gives its place on
/// the disk back.
#[derive(Debug)]
pub(super) struct OnDisk {
    folder: Arc<Folder>,
    path: String,
    stamp: Stamp,
    open: RefCell<Weak<File>>,
}

impl OnDisk {
    pub(super) fn new(folder: &Arc<Folder>, path: String, opened: &Opened) -> OnDisk {
        let open = RefCell::new(Arc::downgrade(&opened.file));
        OnDisk { folder: Arc::clone(folder), path, stamp: opened.stamp, open }
    }

    pub(super) fn length(&self) -> u64 {
        self.stamp.length
    }

    /// Takes a descriptor of the same version for its own.
    pub(super) fn adopt(&self, opened: &Opened) {
        if opened.stamp == self.stamp && self.open.borrow().strong_count() == 0 {
            *self.open.borrow_mut() = Arc::downgrade(&opened.file);
        }
    }

    /// Returns the file; `None` if another file, or none, is now in its place.
    pub(super) async fn open(&self) -> Option<Arc<File>> {
        if let Some(file) = self.open.borrow().upgrade() {
            return Some(file);
        }
        let opened = Opened::new(self.folder.open_file(&self.path).await.ok()?).ok()??;
        if opened.stamp != self.stamp {
            return None;
        }
        *self.open.borrow_mut() = Arc::downgrade(&opened.file);
        Some(opened.file)
    }
}
