//! Checks of the files that a configuration names: folders, and the place of a log.

use std::io;
use std::path::Path;

use super::rules::LARGEST_PAGE;
use crate::bounded_file;

/// Checks a folder; the error says why it is wrong.
pub(super) fn folder(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot read the folder {}: {error}", path.display());
    std::fs::read_dir(path).map(drop).map_err(wrong)
}

/// Checks that a log can be written; it need not exist yet.
pub(super) fn log(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot write the log {}: {error}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(wrong(io::ErrorKind::IsADirectory.into())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            std::fs::metadata(folder.unwrap_or(Path::new("."))).map(drop).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Checks a page for errors.
pub(super) fn page(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot read the page for errors {}: {error}", path.display());
    bounded_file::read(path, LARGEST_PAGE).map(drop).map_err(wrong)
}
