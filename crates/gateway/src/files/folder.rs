//! A folder out of which no path leads.
//!
//! The kernel keeps the promise where it can: `openat2` with `RESOLVE_BENEATH` follows symbolic links inside the folder
//! and refuses those that leave it, without a moment in which somebody can exchange a component. A kernel without
//! `openat2`, or a sandbox that forbids it, gets the stricter walk: component by component, no symbolic link at all.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Opening must not wait for a writer where a name is that of a FIFO.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A folder opened once, so that it stays the same though its name may come to stand for another.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
    walks: AtomicBool,
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
        Ok(Folder { root, walks: AtomicBool::new(false) })
    }

    /// Opens components one by one even where the kernel has `openat2`. Symbolic links are then refused.
    #[must_use]
    pub fn without_openat2(self) -> Folder {
        self.walks.store(true, Ordering::Relaxed);
        self
    }

    /// Opens what is below the folder under a relative path; the empty path is the folder itself.
    ///
    /// # Errors
    ///
    /// There is nothing, it may not be read, or the way there leaves the folder.
    pub(super) fn open_below(&self, path: &str) -> io::Result<File> {
        let path = if path.is_empty() { "." } else { path };
        if path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0')
        {
            return Err(Errno::XDEV.into());
        }
        if !self.walks.load(Ordering::Relaxed) {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let mut tries = 0;
            loop {
                match openat2(&self.root, path, READ, Mode::empty(), resolve) {
                    // Somebody renames folders meanwhile, and the kernel could not tell where `..` of a link leads.
                    Err(Errno::AGAIN) if tries < 8 => tries += 1,
                    Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => break,
                    other => return Ok(other?.into()),
                }
            }
            // EPERM may be a sandbox's answer or that of this one file: the walk finds out, once for the former.
            if matches!(
                openat2(&self.root, ".", READ, Mode::empty(), resolve),
                Err(Errno::NOSYS | Errno::PERM)
            ) {
                self.walks.store(true, Ordering::Relaxed);
            }
        }
        Ok(walk(self.root.as_fd(), path)?.into())
    }
}

fn walk(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let mut at = openat(root, ".", READ | OFlags::DIRECTORY, Mode::empty())?;
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    while let Some(part) = parts.next() {
        let folder = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = openat(&at, part, READ | OFlags::NOFOLLOW | folder, Mode::empty())?;
    }
    Ok(at)
}
