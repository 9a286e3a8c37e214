//! Bodies that are read to their end before a server gets them.
//!
//! A server of FastCGI has to know the length of a body before the body, and the length of one in
//! chunks is known at its end. A slow client would also keep one of few servers busy. So such a
//! body is kept: in memory while it is short, else in a file without a name, which is gone with the
//! request, whatever happens to the process.
//!
//! Of one body no more is in memory than [`CHUNK`] and a piece of what its client sends. The files
//! of all bodies of a process have a bound (`limits.spool_bytes`); a request for which there is no
//! room is answered with 503.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use superpoll_rt::blocking::unblock;

/// The bytes that are written to a file at a time.
const CHUNK: usize = 128 << 10;

/// The bytes in the files of this process, and the most that there may be.
static IN_FILES: AtomicU64 = AtomicU64::new(0);
static MOST_IN_FILES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the bytes of bodies that this process keeps in files.
pub fn limit_spooled_bytes(most: u64) {
    MOST_IN_FILES.store(most, Ordering::Relaxed);
}

/// A file without a name, and its bytes among those of the process.
#[derive(Debug)]
pub(super) struct SpoolFile {
    pub file: Arc<File>,
    bytes: u64,
}

impl SpoolFile {
    /// Creates one in the folder for temporary files.
    fn create() -> io::Result<SpoolFile> {
        let folder = folder();
        let file = nameless(&folder).map_err(|error| {
            let what = format!("creating a file in {}: {error}", folder.display());
            io::Error::new(error.kind(), what)
        })?;
        Ok(SpoolFile { file: Arc::new(file), bytes: 0 })
    }

    /// Makes sure that so many bytes more may be kept.
    fn reserve(&mut self, count: u64) -> io::Result<()> {
        let most = MOST_IN_FILES.load(Ordering::Relaxed);
        let more = |before: u64| before.checked_add(count).filter(|after| *after <= most);
        match IN_FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                self.bytes += count;
                Ok(())
            }
            Err(_) => Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("all bodies that are kept in files have {most} bytes (limits.spool_bytes)"),
            )),
        }
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        IN_FILES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the folder for files that may be large: the usual one may be in memory.
fn folder() -> PathBuf {
    let usual = || match PathBuf::from("/var/tmp") {
        large if large.is_dir() => large,
        _ => std::env::temp_dir(),
    };
    std::env::var_os("TMPDIR").map_or_else(usual, PathBuf::from)
}

/// Creates a file without a name. Where the file system cannot do that, the file has one for a
/// moment.
fn nameless(folder: &Path) -> io::Result<File> {
    let (mode, flags) = (Mode::RUSR | Mode::WUSR, OFlags::RDWR | OFlags::CLOEXEC);
    match rustix::fs::open(folder, OFlags::TMPFILE | flags, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        file => return Ok(file?.into()),
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".superpoll-{}-{number}", std::process::id()));
    let file = rustix::fs::open(&path, OFlags::CREATE | OFlags::EXCL | flags, mode)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

/// A body that is being read.
#[derive(Default)]
pub(super) struct Spool {
    memory: Vec<u8>,
    file: Option<SpoolFile>,
    /// The bytes in the file.
    written: u64,
}

/// A body that was read.
pub(super) enum Spooled {
    Memory(Vec<u8>),
    File(SpoolFile),
}

impl Spool {
    /// Returns how many bytes have come.
    pub(super) fn length(&self) -> u64 {
        self.written + self.memory.len() as u64
    }

    /// Takes some bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or there is no room for it.
    pub(super) async fn push(&mut self, data: &[u8]) -> io::Result<()> {
        self.memory.extend_from_slice(data);
        if self.memory.len() < CHUNK {
            return Ok(());
        }
        self.write().await
    }

    async fn write(&mut self) -> io::Result<()> {
        let spool = match &mut self.file {
            Some(spool) => spool,
            None => self.file.insert(unblock(SpoolFile::create).await??),
        };
        spool.reserve(self.memory.len() as u64)?;
        let (file, memory, at) =
            (spool.file.clone(), std::mem::take(&mut self.memory), self.written);
        self.memory = unblock(move || {
            file.write_all_at(&memory, at)?;
            io::Result::Ok(memory)
        })
        .await??;
        self.written += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Returns the body, of which no more comes.
    ///
    /// # Errors
    ///
    /// Those of [`push`](Spool::push).
    pub(super) async fn finish(mut self) -> io::Result<Spooled> {
        if self.file.is_some() && !self.memory.is_empty() {
            self.write().await?;
        }
        Ok(self.file.map_or(Spooled::Memory(self.memory), Spooled::File))
    }
}
