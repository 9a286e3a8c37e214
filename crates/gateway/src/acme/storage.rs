//! The folder with keys and certificates.
//!
//! A file is replaced as a whole: the new text is written to a file next to it, reaches the disk,
//! and takes the name. So a crash at any moment leaves the old text or the new. Keys are in the
//! same file as their certificates, which therefore always go together.
//!
//! Only the user of the server may have access: folders get the mode 0700 and files 0600. A file or
//! folder of another user, one that others can write or read, a link, and a file that is no text of
//! ours are errors. Such files are neither used nor replaced.
//!
//! Processes that share the folder exclude each other by locks, which end with their process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use crate::automatic_error::{AutomaticError, Damage, StorageError, StorageErrorKind};

/// How often a lock is tried that another process has.
pub(super) const LOCK_PAUSE: Duration = Duration::from_secs(1);

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

impl StorageError {
    /// Creates the error of a file whose text makes no sense.
    pub(super) fn damaged(path: &Path, damage: Damage) -> StorageError {
        StorageError { path: path.to_path_buf(), kind: StorageErrorKind::Damaged(damage) }
    }

    /// Creates the error of a file that is not what it should be. The text of the file, which has a
    /// key in it, is not shown.
    pub(super) fn no_json(
        path: &Path,
        expected: &'static str,
        error: &serde_json::Error,
    ) -> StorageError {
        let (line, column) = (error.line(), error.column());
        StorageError::damaged(path, Damage::Json { expected, line, column })
    }

    fn at_path(path: &Path) -> impl Fn(io::Error) -> StorageError {
        move |error| StorageError { path: path.to_path_buf(), kind: StorageErrorKind::Io(error) }
    }
}

/// A folder of the server's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Storage {
    folder: PathBuf,
}

/// A lock, which ends when it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Returns the folder for state if the configuration names none: that of the service manager, else
/// that of the user.
pub(crate) fn default_folder() -> Result<PathBuf, AutomaticError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folders) = variable("STATE_DIRECTORY") {
        // A service may have several folders, separated by colons.
        let first = folders.to_string_lossy().split(':').next().unwrap_or("").to_owned();
        return Ok(first.into());
    }
    if let Some(folder) = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute())
    {
        return Ok(folder.join("superpoll"));
    }
    match variable("HOME") {
        Some(home) => Ok(Path::new(&home).join(".local/state/superpoll")),
        None => Err(AutomaticError::NoFolder),
    }
}

impl Storage {
    /// Opens a folder, which is created if it is not there. It may be a link, as a service manager
    /// makes them.
    pub(crate) fn open(folder: impl Into<PathBuf>) -> Result<Storage, StorageError> {
        let folder = folder.into();
        let is_link = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_symlink());
        let folder = match is_link {
            true => fs::canonicalize(&folder).map_err(StorageError::at_path(&folder))?,
            false => folder,
        };
        Storage::open_in_place(folder)
    }

    /// Opens a folder that is no link.
    fn open_in_place(folder: PathBuf) -> Result<Storage, StorageError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(StorageError::at_path(&folder))?;
        let found = fs::symlink_metadata(&folder).map_err(StorageError::at_path(&folder))?;
        let refused = |kind| Err(StorageError { path: folder.clone(), kind });
        if !found.is_dir() {
            return refused(StorageErrorKind::NotAFolder);
        }
        if found.uid() != geteuid().as_raw() {
            return refused(StorageErrorKind::Foreign(found.uid()));
        }
        if found.mode() & 0o022 != 0 {
            return refused(StorageErrorKind::OpenFolder);
        }
        Ok(Storage { folder })
    }

    /// Opens a folder in this one.
    pub(crate) fn within(&self, name: &str) -> Result<Storage, StorageError> {
        Storage::open_in_place(self.folder.join(name))
    }

    /// Returns the path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>, StorageError> {
        let path = self.path(name);
        let refused = |kind| Err(StorageError { path: path.clone(), kind });
        let mut options = OpenOptions::new();
        // A pipe or a device must not stop the server.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StorageError::at_path(&path)(error)),
        };
        let found = file.metadata().map_err(StorageError::at_path(&path))?;
        if !found.is_file() {
            return refused(StorageErrorKind::NotAFile);
        }
        if found.uid() != geteuid().as_raw() {
            return refused(StorageErrorKind::Foreign(found.uid()));
        }
        if found.mode() & 0o077 != 0 {
            return refused(StorageErrorKind::OpenFile);
        }
        let mut text = String::new();
        let read = file.take(LARGEST + 1).read_to_string(&mut text);
        read.map_err(|error| StorageError::damaged(&path, Damage::NotText(error)))?;
        if text.len() as u64 > LARGEST {
            return Err(StorageError::damaged(&path, Damage::TooLarge));
        }
        Ok(Some(text))
    }

    /// Replaces a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), StorageError> {
        let path = self.path(name);
        let failed = StorageError::at_path(&path);
        let new = self.path(&format!(".{name}.{}", std::process::id()));
        // A process with the same number may have ended in the middle.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let written = || {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        written().map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(error)
        })
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StorageError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StorageError::at_path(&path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Tries to get a lock; `None` while another process or task has it.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<Lock>, StorageError> {
        let path = self.path(&format!("{name}.lock"));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = options.open(&path).map_err(StorageError::at_path(&path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(StorageError::at_path(&path)(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_private_and_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a/b")).unwrap();
        assert_eq!(mode(&storage.folder), 0o700);
        assert_eq!(storage.read("x").unwrap(), None);
        storage.write("x", "one").unwrap();
        // The rest of a process that ended while it wrote.
        fs::write(storage.path(&format!(".x.{}", std::process::id())), "half").unwrap();
        storage.write("x", "two").unwrap();
        assert_eq!(storage.read("x").unwrap().as_deref(), Some("two"));
        assert_eq!(mode(&storage.path("x")), 0o600);
        let names = fs::read_dir(&storage.folder).unwrap().count();
        assert_eq!(names, 1, "nothing but the file is left");
        storage.remove("x").unwrap();
        storage.remove("x").unwrap();
        assert_eq!(storage.read("x").unwrap(), None);
    }

    #[test]
    fn what_others_can_read_or_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a")).unwrap();
        storage.write("x", "secret").unwrap();
        fs::set_permissions(storage.path("x"), PermissionsExt::from_mode(0o644)).unwrap();
        let error = storage.read("x").unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        symlink(storage.path("x"), storage.path("link")).unwrap();
        storage.read("link").unwrap_err();
        fs::create_dir(storage.path("folder")).unwrap();
        let error = storage.read("folder").unwrap_err().to_string();
        assert!(error.ends_with("it is no file"), "{error}");
        fs::write(storage.path("y"), [0xff]).unwrap();
        fs::set_permissions(storage.path("y"), PermissionsExt::from_mode(0o600)).unwrap();
        let error = storage.read("y").unwrap_err().to_string();
        assert!(error.contains("left as it is"), "{error}");
        fs::set_permissions(&storage.folder, PermissionsExt::from_mode(0o770)).unwrap();
        let error = Storage::open(&storage.folder).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        fs::set_permissions(&storage.folder, PermissionsExt::from_mode(0o700)).unwrap();
        // The folder itself may be a link, and no folder in it.
        symlink(&storage.folder, folder.path().join("to")).unwrap();
        let through = Storage::open(folder.path().join("to")).unwrap();
        symlink(folder.path(), through.path("elsewhere")).unwrap();
        let error = through.within("elsewhere").unwrap_err().to_string();
        assert!(error.contains("a link"), "{error}");
        if geteuid().is_root() {
            std::os::unix::fs::chown(storage.path("y"), Some(65_534), None).unwrap();
            let error = storage.read("y").unwrap_err().to_string();
            assert!(error.contains("belongs to the user 65534"), "{error}");
        }
    }

    #[test]
    fn a_lock_excludes_others_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path().join("a")).unwrap();
        let lock = storage.try_lock("x").unwrap().unwrap();
        assert!(storage.try_lock("x").unwrap().is_none());
        let _other = storage.try_lock("y").unwrap().unwrap();
        drop(lock);
        storage.try_lock("x").unwrap().unwrap();
    }
}
