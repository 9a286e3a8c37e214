//! Reading the files of a configuration, with bounds for all of them together.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use superpoll_gateway::config::bounded_file;

use super::directive::{Directive, Place};
use super::output::VARIABLE_SIGN;

/// The most bytes of all files together.
const MOST_BYTES: u64 = 4 << 20;

/// The most directives of all files together.
const MOST_DIRECTIVES: usize = 20_000;

/// The deepest nesting of blocks.
const DEEPEST_BLOCK: usize = 32;

/// The deepest nesting of included files.
const DEEPEST_INCLUDE: usize = 16;

/// A mistake in a configuration, with its place.
#[derive(thiserror::Error, Debug)]
#[error("{place}: {what}")]
pub(super) struct SyntaxError {
    place: Place,
    what: String,
}

impl SyntaxError {
    pub(super) fn new(place: &Place, what: impl Into<String>) -> SyntaxError {
        SyntaxError { place: place.clone(), what: what.into() }
    }
}

/// The files that are being read.
#[derive(Debug)]
pub(super) struct Sources {
    /// The folder that paths in includes are relative to.
    folder: PathBuf,
    bytes_left: u64,
    directives_left: usize,
    blocks: usize,
    /// The files that include one another, the outermost first.
    open: Vec<PathBuf>,
}

/// The text of a file.
pub(super) struct Text {
    /// The file, as comments and errors name it.
    pub(super) name: Rc<str>,
    pub(super) text: String,
}

impl Sources {
    pub(super) fn new(folder: &Path) -> Sources {
        Sources {
            folder: folder.to_path_buf(),
            bytes_left: MOST_BYTES,
            directives_left: MOST_DIRECTIVES,
            blocks: 0,
            open: Vec::new(),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the file that is imported.
    pub(super) fn open_first(&mut self, path: &Path) -> Result<Text, Box<dyn Error>> {
        let name = path
            .file_name()
            .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let read = self.read(path, name)?;
        read.map_err(|error| format!("cannot read {}: {error}", path.display()).into())
    }

    /// Reads the files that an include stands for, by a function; `None` if none can be read.
    pub(super) fn include(
        &mut self,
        from: &Directive,
        read: impl Fn(&Text, &mut Sources) -> Result<Vec<Directive>, SyntaxError>,
    ) -> Result<Option<Vec<Directive>>, SyntaxError> {
        let mut all = None;
        for path in self.matching(from.first()) {
            if let Some(text) = self.open(&path, &from.place)? {
                all.get_or_insert_with(Vec::new).extend(read(&text, self)?);
                self.open.pop();
            }
        }
        Ok(all)
    }

    /// Reads a file that another one includes at a place; `None` if it cannot be read.
    fn open(&mut self, path: &Path, from: &Place) -> Result<Option<Text>, SyntaxError> {
        if self.open.iter().any(|open| open == path) {
            let what = format!("{} includes itself", path.display());
            return Err(SyntaxError::new(from, what));
        }
        if self.open.len() >= DEEPEST_INCLUDE {
            let what = format!("files include one another more than {DEEPEST_INCLUDE} deep");
            return Err(SyntaxError::new(from, what));
        }
        let name = path.strip_prefix(&self.folder).unwrap_or(path).display().to_string();
        match self.read(path, name.clone())? {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(SyntaxError::new(&Place { file: name.into(), line: 1 }, error.to_string()))
            }
            read => Ok(read.ok()),
        }
    }

    /// Reads a file, and notes that it is open. A text that is not UTF-8 is a mistake, or one with
    /// a NUL, which the output takes for a sign of its own.
    fn read(&mut self, path: &Path, name: String) -> Result<io::Result<Text>, SyntaxError> {
        let bytes = match bounded_file::read(path, self.bytes_left) {
            Ok(bytes) => bytes,
            // The bound is that of all files, so a small file may be one too many.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let what = format!("the configuration has more than {} MiB", MOST_BYTES >> 20);
                return Ok(Err(io::Error::new(error.kind(), what)));
            }
            Err(error) => return Ok(Err(error)),
        };
        self.bytes_left -= bytes.len() as u64;
        self.open.push(path.to_path_buf());
        let text = str::from_utf8(&bytes).map_err(|error| error.valid_up_to());
        match text.and_then(|text| text.find(VARIABLE_SIGN).map_or(Ok(text), Err)) {
            Ok(text) => Ok(Ok(Text { name: name.into(), text: text.to_owned() })),
            Err(end) => {
                let line = 1 + bytes[..end].iter().filter(|byte| **byte == b'\n').count();
                let place = Place { file: name.into(), line };
                Err(SyntaxError::new(&place, "the text is not UTF-8 without NUL"))
            }
        }
    }

    /// Counts a directive.
    pub(super) fn count(&mut self, place: &Place) -> Result<(), SyntaxError> {
        self.directives_left = self.directives_left.checked_sub(1).ok_or_else(|| {
            SyntaxError::new(place, format!("more than {MOST_DIRECTIVES} directives"))
        })?;
        Ok(())
    }

    /// Counts the beginning of a block.
    pub(super) fn enter(&mut self, place: &Place) -> Result<(), SyntaxError> {
        self.blocks += 1;
        match self.blocks > DEEPEST_BLOCK {
            true => {
                Err(SyntaxError::new(place, format!("blocks are more than {DEEPEST_BLOCK} deep")))
            }
            false => Ok(()),
        }
    }

    /// Counts the end of a block.
    pub(super) fn leave(&mut self) {
        self.blocks -= 1;
    }

    /// Returns the files that the pattern of an include stands for, in the order of their names;
    /// the last part of the path may have `*` and `?`.
    fn matching(&self, pattern: &str) -> Vec<PathBuf> {
        let path = self.folder.join(pattern);
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Vec::new();
        };
        let name = name.to_string_lossy();
        if !name.contains(['*', '?']) {
            return vec![path];
        }
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|entry| {
                let entry = entry.file_name();
                let entry = entry.to_string_lossy();
                !entry.starts_with('.') && pattern_fits(name.as_bytes(), entry.as_bytes())
            })
            .map(|entry| path.with_file_name(entry.file_name()))
            .collect();
        found.sort();
        found
    }
}

/// Whether a character has a meaning in an expression.
pub(super) fn is_special(one: char) -> bool {
    ".+*?()|[]{}^$\\".contains(one)
}

/// Returns a text as an expression for it alone.
pub(super) fn escaped(text: &str) -> String {
    text.chars().flat_map(|one| is_special(one).then_some('\\').into_iter().chain([one])).collect()
}

/// Whether a name fits one of the patterns in a text.
pub(super) fn is_among(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| pattern_fits(known.as_bytes(), name.as_bytes()))
}

/// Whether a name fits a pattern with `*` and `?`, in time that grows with their product.
fn pattern_fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut rest) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while rest < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, rest));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[rest] => (at, rest) = (at + 1, rest + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (at, rest) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("*", "a", true),
            ("a?c*", "abcd", true),
            ("a?c", "ac", false),
            ("*a*b*", "xaxbx", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(
                pattern_fits(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
