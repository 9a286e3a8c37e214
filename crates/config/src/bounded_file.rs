//! Reading files that may be too large.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a file of at most so many bytes.
///
/// # Errors
///
/// The file cannot be read, or is larger.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {} MiB", most >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}
