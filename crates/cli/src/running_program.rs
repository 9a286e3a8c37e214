//! The program that runs here.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The running program, also if its file was replaced or removed.
const RUNNING: &str = "/proc/self/exe";

/// Returns the path of the program that runs here, to start processes of the same version.
pub(crate) fn running_program() -> PathBuf {
    let path = std::env::current_exe().unwrap_or_default();
    let file = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    // By its own path it has its own name in lists of processes.
    if file(&path).is_some_and(|found| file(Path::new(RUNNING)) == Some(found)) {
        return path;
    }
    PathBuf::from(RUNNING)
}
