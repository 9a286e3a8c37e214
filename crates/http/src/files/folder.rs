//! A folder that no path leads out of.
//!
//! The kernel keeps the promise where it can: `openat2` with `RESOLVE_BENEATH` follows symbolic
//! links inside the folder and refuses those that leave it, without a moment in which another
//! process can exchange a component. A kernel without `openat2`, or a sandbox that forbids it, gets
//! the stricter walk: component by component, no symbolic link at all.
//!
//! Opening may wait for a disk or for a file server, and the engine must not. So it asks only for
//! names that the kernel has in memory (`RESOLVE_CACHED`) and leaves the others to a thread that
//! may block. A kernel before 5.12 does not support that question, nor does the walk: there the
//! engine opens files itself, as nearly all names are in memory anyway.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use superpoll_rt::blocking::unblock;

/// Opening must not wait for a writer if a name is that of a FIFO.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Looking needs no right to read.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

const BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// What a path stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Folder,
    Other,
}

fn kind_of(opened: OwnedFd) -> Result<Kind, Errno> {
    let kind = FileType::from_raw_mode(fstat(opened)?.st_mode);
    Ok(match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        _ => Kind::Other,
    })
}

/// A folder that is opened once, so that it stays the same even if its name comes to stand for
/// another folder.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    walks: AtomicBool,
    waits: AtomicBool,
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// There is no such folder, or it may not be read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let root = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Folder { root, walks: AtomicBool::new(false), waits: AtomicBool::new(false) })
    }

    /// Opens components one by one even where the kernel has `openat2`. Symbolic links are then
    /// refused.
    #[must_use]
    pub fn without_openat2(self) -> Folder {
        self.walks.store(true, Ordering::Relaxed);
        self
    }

    /// Opens files on the thread that asks for them, even if the kernel could say that opening
    /// would block.
    #[must_use]
    pub fn without_threads(self) -> Folder {
        self.waits.store(true, Ordering::Relaxed);
        self
    }

    /// Opens a file below the folder, without making the engine wait if the kernel can tell.
    pub(super) async fn open_file(self: &Arc<Folder>, path: &str) -> io::Result<File> {
        let is_asked = !self.walks.load(Ordering::Relaxed) && !self.waits.load(Ordering::Relaxed);
        if is_asked && is_below(path) {
            let name = if path.is_empty() { "." } else { path };
            match openat2(&self.root, name, READ, Mode::empty(), BELOW | ResolveFlags::CACHED) {
                Err(Errno::AGAIN) => {
                    let (folder, path) = (Arc::clone(self), path.to_owned());
                    return unblock(move || folder.open_below(&path)).await?;
                }
                Err(Errno::INVAL) => self.waits.store(true, Ordering::Relaxed),
                Err(Errno::NOSYS | Errno::PERM) => {}
                other => return Ok(other?.into()),
            }
        }
        self.open_below(path)
    }

    /// Returns what a path stands for, if the kernel knows that without waiting. Nothing is opened
    /// for reading: it may be for others to read.
    pub(crate) fn kind_now(&self, path: &str) -> Option<io::Result<Kind>> {
        let is_asked = !self.walks.load(Ordering::Relaxed) && !self.waits.load(Ordering::Relaxed);
        if !is_asked || !is_below(path) {
            return Some(self.kind(path));
        }
        let name = if path.is_empty() { "." } else { path };
        let look = BELOW | ResolveFlags::CACHED;
        match openat2(&self.root, name, LOOK, Mode::empty(), look) {
            Err(Errno::AGAIN) => None,
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => Some(self.kind(path)),
            found => Some(found.and_then(kind_of).map_err(io::Error::from)),
        }
    }

    /// Returns what a path stands for.
    ///
    /// # Errors
    ///
    /// There is nothing, or the way there leaves the folder.
    pub(crate) fn kind(&self, path: &str) -> io::Result<Kind> {
        if !is_below(path) {
            return Err(Errno::XDEV.into());
        }
        let name = if path.is_empty() { "." } else { path };
        if !self.walks.load(Ordering::Relaxed) {
            match openat2(&self.root, name, LOOK, Mode::empty(), BELOW) {
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::AGAIN) => {}
                found => return Ok(found.and_then(kind_of)?),
            }
        }
        Ok(kind_of(walk(self.root.as_fd(), name, LOOK)?)?)
    }

    /// Whether the kernel knows, without waiting, that a path leads nowhere.
    pub(super) fn lacks(&self, path: &str) -> bool {
        let is_asked = !self.walks.load(Ordering::Relaxed) && !self.waits.load(Ordering::Relaxed);
        if !is_below(path) || path.is_empty() {
            return false;
        }
        if is_asked {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let look = BELOW | ResolveFlags::CACHED;
            let found = openat2(&self.root, path, flags, Mode::empty(), look);
            return matches!(found, Err(Errno::NOENT | Errno::NOTDIR));
        }
        // The engine opens files itself.
        let error = self.open_below(path).err();
        let error = error.and_then(|error| Errno::from_io_error(&error));
        matches!(error, Some(Errno::NOENT | Errno::NOTDIR))
    }

    /// Opens a file below the folder by a relative path; the empty path is the folder itself.
    ///
    /// # Errors
    ///
    /// There is no such file, it may not be read, or the way there leaves the folder.
    pub(super) fn open_below(&self, path: &str) -> io::Result<File> {
        if !is_below(path) {
            return Err(Errno::XDEV.into());
        }
        let path = if path.is_empty() { "." } else { path };
        if !self.walks.load(Ordering::Relaxed) {
            let mut tries = 0;
            loop {
                match openat2(&self.root, path, READ, Mode::empty(), BELOW) {
                    // Folders are being renamed meanwhile, and the kernel could not tell where `..`
                    // of a link leads.
                    Err(Errno::AGAIN) if tries < 8 => tries += 1,
                    Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => break,
                    other => return Ok(other?.into()),
                }
            }
            // EPERM may come from a sandbox or from this one file: the walk finds out, once for the
            // former.
            if matches!(
                openat2(&self.root, ".", READ, Mode::empty(), BELOW),
                Err(Errno::NOSYS | Errno::PERM)
            ) {
                self.walks.store(true, Ordering::Relaxed);
            }
        }
        Ok(walk(self.root.as_fd(), path, READ)?.into())
    }
}

/// Whether a path can lead below a folder at all, before the kernel is asked.
fn is_below(path: &str) -> bool {
    !path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

/// Opens components one by one, the last one with these flags.
fn walk(root: BorrowedFd<'_>, path: &str, last: OFlags) -> Result<OwnedFd, Errno> {
    let mut at = openat(root, ".", READ | OFlags::DIRECTORY, Mode::empty())?;
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { READ | OFlags::DIRECTORY } else { last };
        at = openat(&at, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(at)
}
