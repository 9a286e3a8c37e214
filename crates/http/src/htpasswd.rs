//! Files of users and passwords, as `htpasswd` writes them: a line `USER:HASH` for each user. Empty
//! lines and lines that begin with `#` count for nothing.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use superpoll_config::{PasswordHash, PasswordHashError, UserNameError, bounded_file, check_user};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// The most mistakes that are told of one file.
const MOST_MISTAKES: usize = 10;

/// The reason for which a file of users cannot be used.
#[derive(Debug)]
pub struct UsersError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub kind: UsersErrorKind,
}

/// The kind of a [`UsersError`].
#[derive(Debug)]
pub enum UsersErrorKind {
    /// The file cannot be read, or is too large.
    Read(io::Error),
    /// The byte at this place is not UTF-8.
    NotUtf8(usize),
    /// Lines have mistakes; the first ones, with the numbers of the lines.
    Lines(Vec<(usize, LineError)>),
    /// There is no user.
    NoUsers,
}

/// The mistake in a line of a file of users.
#[derive(thiserror::Error, Debug)]
pub enum LineError {
    /// It has no colon.
    #[error("no colon in the line, expected USER:HASH")]
    NoColon,
    /// Its name is none.
    #[error("{0}")]
    Name(#[from] UserNameError),
    /// Its hash cannot be used.
    #[error("{0}")]
    Hash(#[from] PasswordHashError),
    /// Its user is in a line before as well.
    #[error("the user {0:?} is there twice, expected each once")]
    Twice(String),
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.display();
        match &self.kind {
            UsersErrorKind::Read(error) => write!(f, "cannot read the users of {name}: {error}"),
            UsersErrorKind::NotUtf8(at) => {
                write!(f, "cannot read the users of {name}: byte {at} is not UTF-8")
            }
            UsersErrorKind::Lines(lines) => {
                for (index, (line, what)) in lines.iter().enumerate() {
                    let before = if index == 0 { "" } else { "; " };
                    write!(f, "{before}{name}:{line}: {what}")?;
                }
                Ok(())
            }
            UsersErrorKind::NoUsers => {
                write!(f, "{name} has no users, expected lines as USER:HASH")
            }
        }
    }
}

impl Error for UsersError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            UsersErrorKind::Read(error) => Some(error),
            UsersErrorKind::Lines(lines) => lines.first().map(|(_, error)| error as _),
            UsersErrorKind::NotUtf8(_) | UsersErrorKind::NoUsers => None,
        }
    }
}

/// Reads a file.
///
/// # Errors
///
/// The file cannot be read, or has mistakes.
pub fn read(path: &Path) -> Result<BTreeMap<String, PasswordHash>, UsersError> {
    let wrong = |kind| UsersError { path: path.to_path_buf(), kind };
    let text =
        bounded_file::read(path, LARGEST).map_err(|error| wrong(UsersErrorKind::Read(error)))?;
    let text = String::from_utf8(text)
        .map_err(|error| wrong(UsersErrorKind::NotUtf8(error.utf8_error().valid_up_to())))?;
    let (users, mut mistakes) = parse(&text);
    mistakes.truncate(MOST_MISTAKES);
    match (mistakes.is_empty(), users.is_empty()) {
        (false, _) => Err(wrong(UsersErrorKind::Lines(mistakes))),
        (true, true) => Err(wrong(UsersErrorKind::NoUsers)),
        (true, false) => Ok(users),
    }
}

/// Reads a text, and returns its mistakes with their lines.
fn parse(text: &str) -> (BTreeMap<String, PasswordHash>, Vec<(usize, LineError)>) {
    let (mut users, mut mistakes) = (BTreeMap::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((user, hash)) = line.split_once(':') else {
            mistakes.push((number, LineError::NoColon));
            continue;
        };
        // Anything behind a second colon is a note.
        let hash = hash.split(':').next().unwrap_or(hash);
        let hash =
            check_user(user).map_err(LineError::from).and_then(|()| Ok(PasswordHash::parse(hash)?));
        match hash {
            Err(error) => mistakes.push((number, error)),
            Ok(_) if users.contains_key(user) => {
                mistakes.push((number, LineError::Twice(user.to_owned())));
            }
            Ok(hash) => drop(users.insert(user.to_owned(), hash)),
        }
    }
    (users, mistakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_users() {
        let hash = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
        let (users, mistakes) = parse(&format!("# users\n\njoe:{hash}\r\n  ann:{hash}:a note\n"));
        assert_eq!(users.keys().collect::<Vec<_>>(), ["ann", "joe"]);
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let (_, mistakes) = parse(&format!("joe:{hash}\nx\njoe:{hash}\n:{hash}\nann:secret\n"));
        let places: Vec<usize> = mistakes.iter().map(|(line, _)| *line).collect();
        assert_eq!(places, [2, 3, 4, 5]);
        let texts: Vec<String> = mistakes.iter().map(|(_, error)| error.to_string()).collect();
        assert!(texts.iter().all(|text| text.contains("expected")), "{texts:?}");
        assert!(!texts[3].contains("secret"));
    }

    #[test]
    fn a_file_without_users_is_a_mistake() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# nobody\n").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("has no users"));
        std::fs::write(file.path(), "joe:x\nann\n").unwrap();
        let error = read(file.path()).unwrap_err();
        assert!(matches!(&error.kind, UsersErrorKind::Lines(lines) if lines[1].0 == 2));
        let error = error.to_string();
        let name = file.path().display();
        assert!(
            error.contains(&format!("{name}:1: ")) && error.contains(&format!("{name}:2: ")),
            "{error}"
        );
        let error = read(Path::new("/nowhere/users")).unwrap_err();
        assert!(matches!(error.kind, UsersErrorKind::Read(_)), "{error}");
        assert!(error.to_string().contains("cannot read"), "{error}");
    }
}
