//! From the path of a request to the script that answers it.
//!
//! A path leads to a script only if the script's file is there, so that a server never gets a name
//! that a client has made up: php-fpm by itself walks up a path until it finds a file, and would
//! run a picture with PHP in it.
//!
//! ```text
//!   /shop/cart.php/items    the first part that ends with .php and is a file: /shop/cart.php,
//!                           and the rest is for the script (PATH_INFO); no such file: 404
//!   /shop/                  the index of a folder; without its slash it is redirected there
//!   /anything/else          the index of the root, which reads the path by itself
//! ```
//!
//! The path is decoded once, and its empty parts are left out. Parts that are dots are refused
//! before, as for all servers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use superpoll_config::FastCgi;
use superpoll_rt::blocking::unblock;

use crate::files::{Folder, Kind, clock};
use crate::upstream::Script;

/// The time for which a script that was there is taken to be there.
const KNOWN: Duration = Duration::from_secs(1);

/// The most scripts of a route that are known so.
const MOST_KNOWN: usize = 1024;

/// The scripts of a route on one engine.
#[derive(Debug)]
pub struct Scripts {
    rule: Arc<Rule>,
    /// The files of scripts, and when they were seen last.
    known: RefCell<HashMap<String, Duration>>,
}

/// The rule by which scripts are found.
#[derive(Debug)]
struct Rule {
    /// `None`: one program answers for all paths.
    folder: Option<Folder>,
    index: String,
    split: String,
    /// The part of the route's path that is taken off before a file is looked for.
    prefix: String,
}

/// The answer for a path.
#[derive(PartialEq, Eq, Debug)]
pub enum Found {
    /// A script answers. Its target and user are still to be filled in.
    Script(Box<Script>),
    /// It is a folder without its slash.
    Folder,
    /// There is nothing to run.
    Nothing(StatusCode),
}

impl Scripts {
    /// Creates those of a route. `prefix` is the part of its path that is taken off.
    #[must_use]
    pub fn new(folder: Option<Folder>, config: &FastCgi, prefix: &str) -> Scripts {
        let rule = Rule {
            folder,
            index: config.index.clone(),
            split: config.split.clone(),
            prefix: prefix.trim_end_matches('/').to_owned(),
        };
        Scripts { rule: Arc::new(rule), known: RefCell::default() }
    }

    /// Whether a path has the name of a script in it, in any case of letters: such a file is never
    /// sent as it is.
    #[must_use]
    pub fn names_script(&self, path: &str) -> bool {
        let split = self.rule.split.as_bytes();
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        decoded.windows(split.len()).enumerate().any(|(at, part)| {
            let after = decoded.get(at + split.len());
            part.eq_ignore_ascii_case(split) && matches!(after, None | Some(b'/'))
        })
    }

    /// Finds the script for a path below the route, if that needs no waiting for a disk.
    #[must_use]
    pub fn find_now(&self, path: &str) -> Option<Found> {
        let Some(folder) = &self.rule.folder else { return Some(self.rule.program(path)) };
        let (known, now) = (&mut *self.known.borrow_mut(), clock());
        self.rule.find_by(path, |name| {
            if known.get(name).is_some_and(|seen| now.saturating_sub(*seen) < KNOWN) {
                return Some(Ok(Kind::File));
            }
            let kind = folder.kind_now(name)?;
            if matches!(kind, Ok(Kind::File)) && name.ends_with(&*self.rule.split) {
                if known.len() >= MOST_KNOWN {
                    known.clear();
                }
                known.insert(name.to_owned(), now);
            }
            Some(kind)
        })
    }

    /// Finds the script for a path below the route.
    pub async fn find(&self, path: &str) -> Found {
        if let Some(found) = self.find_now(path) {
            return found;
        }
        let (rule, path) = (self.rule.clone(), path.to_owned());
        let found = unblock(move || {
            let folder = rule.folder.as_ref()?;
            rule.find_by(&path, |name| Some(folder.kind(name)))
        });
        let failed = || Found::Nothing(StatusCode::INTERNAL_SERVER_ERROR);
        found.await.ok().flatten().unwrap_or_else(failed)
    }
}

impl Rule {
    /// Returns the call of a program that answers for all paths.
    fn program(&self, path: &str) -> Found {
        match decoded(path) {
            Some(path_info) => Found::Script(self.script("", path_info)),
            None => Found::Nothing(StatusCode::BAD_REQUEST),
        }
    }

    fn script(&self, file: &str, path_info: String) -> Box<Script> {
        Box::new(Script {
            name: format!("{}{file}", self.prefix),
            path_info,
            file: (!file.is_empty()).then(|| file.to_owned()),
            user: None,
            target: String::new(),
        })
    }

    /// Finds the script by a function that tells what a name below the folder stands for; `None`
    /// if it cannot tell.
    fn find_by(
        &self,
        path: &str,
        mut look: impl FnMut(&str) -> Option<io::Result<Kind>>,
    ) -> Option<Found> {
        let Some(path) = decoded(path) else {
            return Some(Found::Nothing(StatusCode::BAD_REQUEST));
        };
        let path = joined(&path);
        let mut is_script = false;
        for (at, _) in path.match_indices(&*self.split) {
            let end = at + self.split.len();
            let file = &path[..end];
            if !matches!(path.as_bytes().get(end), None | Some(b'/')) || file.ends_with('/') {
                continue;
            }
            is_script = true;
            if is_hidden(file) {
                break;
            }
            match look(&file[1..])? {
                Ok(Kind::File) => {
                    return Some(Found::Script(self.script(file, path[end..].to_owned())));
                }
                Ok(_) => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Some(Found::Nothing(status_of(&error))),
            }
        }
        if is_script {
            return Some(Found::Nothing(StatusCode::NOT_FOUND));
        }
        let has_slash = path.ends_with('/');
        let folder = path.trim_end_matches('/');
        let is_inside = !folder.is_empty() && !is_hidden(folder);
        if (is_inside && (has_slash || matches!(look(&folder[1..])?, Ok(Kind::Folder))))
            || path.is_empty()
        {
            let index = format!("{folder}/{}", self.index);
            if matches!(look(&index[1..])?, Ok(Kind::File)) {
                return Some(match has_slash {
                    true => Found::Script(self.script(&index, String::new())),
                    false => Found::Folder,
                });
            }
        }
        Some(match look(&self.index)? {
            Ok(Kind::File) => {
                Found::Script(self.script(&format!("/{}", self.index), String::new()))
            }
            Ok(_) => Found::Nothing(StatusCode::NOT_FOUND),
            Err(error) => Found::Nothing(status_of(&error)),
        })
    }
}

/// Decodes a path once; `None` if it is no path, or stands for bytes that no name has.
fn decoded(path: &str) -> Option<String> {
    let mut after_percent = path.split('%').skip(1);
    let is_escape =
        |text: &str| text.len() >= 2 && text.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !after_percent.all(is_escape) {
        return None;
    }
    let text = percent_decode_str(path).decode_utf8().ok()?;
    let has_dots = text.split('/').any(|part| matches!(part, "." | ".."));
    let is_path = text.is_empty() || text.starts_with('/');
    (is_path && !has_dots && !text.contains('\0')).then(|| text.into_owned())
}

/// Returns a path without its empty parts; its last slash stays.
fn joined(path: &str) -> String {
    let mut joined = String::with_capacity(path.len());
    for part in path.chars() {
        if part != '/' || !joined.ends_with('/') {
            joined.push(part);
        }
    }
    joined
}

/// Whether a part of a path begins with a dot, except `.well-known`.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.') && part != ".well-known")
}

fn is_missing(error: &io::Error) -> bool {
    status_of(error) == StatusCode::NOT_FOUND
}

fn status_of(error: &io::Error) -> StatusCode {
    crate::files::status_of(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(prefix: &str) -> Rule {
        Rule {
            folder: None,
            index: "index.php".to_owned(),
            split: ".php".to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    /// Finds the script of a path in a folder with some files.
    fn found(path: &str) -> Found {
        let files =
            ["index.php", "info.php", "sub/index.php", "sp ace.php", "img.jpg", "a.php/b.php"];
        let look = |name: &str| {
            let is_folder = files.iter().any(|file| file.starts_with(&format!("{name}/")));
            let missing = || io::Error::from_raw_os_error(libc::ENOENT);
            Some(match files.contains(&name) {
                true => Ok(Kind::File),
                false if is_folder => Ok(Kind::Folder),
                false => Err(missing()),
            })
        };
        rule("").find_by(path, look).unwrap()
    }

    fn script(path: &str) -> (String, String) {
        match found(path) {
            Found::Script(script) => (script.name, script.path_info),
            other => panic!("{path}: {other:?}"),
        }
    }

    /// nginx with php-fpm, except that a path with dots is refused.
    #[test]
    fn a_path_leads_to_a_script_that_is_there() {
        for (path, name, info) in [
            ("/info.php", "/info.php", ""),
            ("/info.php/extra/path", "/info.php", "/extra/path"),
            ("/info.php/a%2Fb/c%20d/%C3%A9", "/info.php", "/a/b/c d/é"),
            ("/sub/", "/sub/index.php", ""),
            ("/", "/index.php", ""),
            ("/sp%20ace.php/p", "/sp ace.php", "/p"),
            ("//info.php//y//", "/info.php", "/y/"),
            ("/info.php%2Fenc", "/info.php", "/enc"),
            ("/pretty/url/42", "/index.php", ""),
            ("/INFO.PHP", "/index.php", ""),
            ("/info.php;v=1", "/index.php", ""),
            ("/info.php/x.php/y", "/info.php", "/x.php/y"),
            ("/a.php/b.php/c", "/a.php/b.php", "/c"),
            ("/img.jpg", "/index.php", ""),
            ("/nothing/", "/index.php", ""),
        ] {
            assert_eq!(script(path), (name.to_owned(), info.to_owned()), "{path}");
        }
        for (path, status) in [
            ("/nope.php", 404),
            ("/nope.php/x", 404),
            ("/img.jpg/x.php", 404),
            ("/.hidden.php", 404),
            ("/.git/x.php", 404),
            ("/img.jpg%00.php", 400),
            ("/a/%2e%2e/info.php", 400),
            ("/%zz", 400),
            ("/%ff.php", 400),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(found(path), Found::Nothing(status), "{path}");
        }
        assert_eq!(found("/sub"), Found::Folder);
    }

    #[test]
    fn a_program_answers_for_all_paths() {
        let of = |path: &str| rule("/app").program(path);
        let Found::Script(script) = of("/a%20b//c.php") else { panic!() };
        assert_eq!((&*script.name, &*script.path_info, script.file), ("/app", "/a b//c.php", None));
        assert_eq!(of("/%00"), Found::Nothing(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn no_script_is_sent_as_a_file() {
        let scripts = Scripts { rule: Arc::new(rule("")), known: RefCell::default() };
        let names = |path| scripts.names_script(path);
        for path in ["/a.php", "/a.PHP", "/a.php/b", "/a%2ephp", "/a.%70hp"] {
            assert!(names(path), "{path}");
        }
        for path in ["/a.phps", "/a.css", "/php", "/a.php5", "/"] {
            assert!(!names(path), "{path}");
        }
    }
}
