//! Files of users and passwords, as `htpasswd` writes them: a line `USER:HASH` for each user. Empty
//! lines and lines that begin with `#` count for nothing.

use std::collections::BTreeMap;
use std::path::Path;

use superpoll_config::{PasswordHash, bounded_file, check_user};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// The most mistakes that are told of one file.
const MOST_MISTAKES: usize = 10;

/// Reads a file.
///
/// # Errors
///
/// The file cannot be read, or has mistakes: each with the file and its line, joined by `; `.
pub fn read(path: &Path) -> Result<BTreeMap<String, PasswordHash>, String> {
    let name = path.display();
    let cannot = |error| format!("cannot read the users of {name}: {error}");
    let text = bounded_file::read(path, LARGEST).map_err(cannot)?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("cannot read the users of {name}: byte {at} is not UTF-8")
    })?;
    let (users, mistakes) = parse(&text);
    let told: Vec<String> = mistakes
        .into_iter()
        .take(MOST_MISTAKES)
        .map(|(line, what)| format!("{name}:{line}: {what}"))
        .collect();
    match (told.is_empty(), users.is_empty()) {
        (false, _) => Err(told.join("; ")),
        (true, true) => Err(format!("{name} has no users, expected lines as USER:HASH")),
        (true, false) => Ok(users),
    }
}

/// Reads a text, and returns its mistakes with their lines.
fn parse(text: &str) -> (BTreeMap<String, PasswordHash>, Vec<(usize, String)>) {
    let (mut users, mut mistakes) = (BTreeMap::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((user, hash)) = line.split_once(':') else {
            mistakes.push((number, "no colon in the line, expected USER:HASH".to_owned()));
            continue;
        };
        // Anything behind a second colon is a note.
        let hash = hash.split(':').next().unwrap_or(hash);
        match check_user(user).and_then(|()| PasswordHash::parse(hash)) {
            Err(what) => mistakes.push((number, what)),
            Ok(_) if users.contains_key(user) => {
                let what = format!("the user {user:?} is there twice, expected each once");
                mistakes.push((number, what));
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
        assert_eq!(mistakes, []);
        let (_, mistakes) = parse(&format!("joe:{hash}\nx\njoe:{hash}\n:{hash}\nann:secret\n"));
        let places: Vec<usize> = mistakes.iter().map(|(line, _)| *line).collect();
        assert_eq!(places, [2, 3, 4, 5]);
        assert!(mistakes.iter().all(|(_, what)| what.contains("expected")), "{mistakes:?}");
        assert!(!mistakes[3].1.contains("secret"));
    }

    #[test]
    fn a_file_without_users_is_a_mistake() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# nobody\n").unwrap();
        assert!(read(file.path()).unwrap_err().contains("has no users"));
        std::fs::write(file.path(), "joe:x\nann\n").unwrap();
        let error = read(file.path()).unwrap_err();
        let name = file.path().display();
        assert!(
            error.contains(&format!("{name}:1: ")) && error.contains(&format!("{name}:2: ")),
            "{error}"
        );
        assert!(read(Path::new("/nowhere/users")).unwrap_err().contains("cannot read"));
    }
}
