//! The files that a configuration includes.
//!
//! What is read is one text: that of the main file, and after it each included file, with its path
//! before it. So a supervisor hands all files on as they were when it checked them, and a place in
//! the text tells the file as well. The parts begin with a NUL, which TOML does not allow, so no
//! file can pretend to be several.
//!
//! Lists of an included file (`listeners`, `hosts`) follow those of the files before it;
//! `upstreams` are joined by their names; each other table may be in one of the files only. An
//! included file must not include another one.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::{LocatedMistake, MOST_MISTAKES, message_of};
use super::{bounded_file, variables};

/// The largest text that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// The most files that are included.
const MOST_FILES: usize = 1000;

/// A file of a configuration.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// The file; of the main file, the name that stands for it.
    pub(super) name: &'a str,
    /// The text of the file, or the reason why it could not be read.
    content: Result<&'a str, &'a str>,
    /// Where that begins in the whole text.
    pub(super) start: usize,
}

impl Part<'_> {
    pub(super) fn text(&self) -> &str {
        self.content.unwrap_or_default()
    }
}

/// Returns the files in a text; the main file is the first.
pub(super) fn parts<'a>(name: &'a str, whole: &'a str) -> Vec<Part<'a>> {
    let mut pieces = whole.split('\0');
    let main = match pieces.clone().count() % 3 {
        1 => pieces.next().unwrap_or_default(),
        // A text that was not made here; TOML refuses it.
        _ => return vec![Part { name, content: Ok(whole), start: 0 }],
    };
    let mut parts = vec![Part { name, content: Ok(main), start: 0 }];
    let mut at = main.len();
    while let (Some(name), Some(kind), Some(content)) =
        (pieces.next(), pieces.next(), pieces.next())
    {
        let start = at + 3 + name.len() + kind.len();
        at = start + content.len();
        let content = if kind == ERROR { Err(content) } else { Ok(content) };
        parts.push(Part { name, content, start });
    }
    parts
}

const TEXT: &str = "text";
const ERROR: &str = "error";

/// Reads a file and those that it includes.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut whole = read_text(path)?;
    if whole.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has a NUL, which is not TOML"));
    }
    let base = path.parent().unwrap_or(Path::new(""));
    // A main file that is no TOML is refused when it is parsed.
    let patterns: Vec<String> = match DeTable::parse(&whole) {
        Ok(tree) => patterns(tree.get_ref()).map(|(_, pattern)| pattern).collect(),
        Err(_) => Vec::new(),
    };
    let mut all = Vec::new();
    for pattern in &patterns {
        match files(base, pattern) {
            Ok(found) => all.extend(found),
            Err(what) => whole.extend(["\0", &pattern.replace('\0', ""), "\0", ERROR, "\0", &what]),
        }
    }
    for file in all {
        let name = file.display().to_string().replace('\0', "");
        let room = LARGEST.saturating_sub(whole.len() as u64);
        let (kind, content) = match read_text(&file) {
            Ok(text) if text.contains('\0') => {
                (ERROR, "it has a NUL, which is not TOML".to_owned())
            }
            Ok(text) if text.len() as u64 > room => {
                (ERROR, format!("all files have more than {} MiB", LARGEST >> 20))
            }
            Ok(text) => (TEXT, text),
            Err(error) => (ERROR, error.to_string()),
        };
        whole.extend(["\0", &name, "\0", kind, "\0", &content]);
    }
    Ok(whole)
}

fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(bounded_file::read(path, LARGEST)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} is not UTF-8"))
    })
}

/// Returns the elements of `include` with their places; one that is no text is refused later.
fn patterns(tree: &DeTable<'_>) -> impl Iterator<Item = (Range<usize>, String)> {
    let list = match tree.get("include").map(Spanned::get_ref) {
        Some(DeValue::Array(list)) => list.as_ref(),
        _ => &[],
    };
    list.iter().filter_map(|element| match element.get_ref() {
        DeValue::String(text) => {
            // A variable that cannot be replaced is refused later, too.
            Some((element.span(), variables::of_environment(text).ok()?))
        }
        _ => None,
    })
}

/// Returns the files that a pattern stands for, sorted by name; the error says what is wrong with
/// it.
fn files(base: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let pattern = Path::new(pattern);
    let folder = base.join(pattern.parent().unwrap_or(Path::new("")));
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.is_empty() || folder.to_string_lossy().contains('*') || name.matches('*').count() > 1 {
        let expected = "expected a file, or all files as in \"sites/*.toml\"";
        return Err(format!("{:?} names no files, {expected}", pattern.display().to_string()));
    }
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![base.join(pattern)]) };
    let wrong = |error| format!("cannot read the folder {}: {error}", folder.display());
    let mut found = Vec::new();
    let open = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
    for entry in std::fs::read_dir(open).map_err(wrong)? {
        let entry = entry.map_err(wrong)?.file_name();
        let Some(name) = entry.to_str() else { continue };
        let fits =
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
        if fits && (!name.starts_with('.') || start.starts_with('.')) {
            found.push(folder.join(name));
        }
    }
    found.sort();
    if found.len() > MOST_FILES {
        return Err(format!("these are {} files, expected at most {MOST_FILES}", found.len()));
    }
    Ok(found)
}

/// Joins the tables of included files with that of the main file. `base` is the folder of that
/// file, if it is one.
pub(super) fn join<'a>(
    tree: &mut DeTable<'a>,
    parts: &[Part<'a>],
    base: Option<&Path>,
    found: &mut Vec<LocatedMistake>,
) {
    if base.is_none() {
        let only = "only a file can include others";
        found.extend(patterns(tree).map(|(place, _)| (place, only.to_owned())));
    }
    let list = tree.get("include").map_or(0..0, Spanned::span);
    for part in parts.iter().skip(1) {
        match part.content {
            Err(error) => {
                found.push((list.clone(), format!("cannot include {}: {error}", part.name)));
            }
            Ok(text) => {
                let (table, errors) = DeTable::parse_recoverable(text);
                for error in errors.iter().take(MOST_MISTAKES) {
                    let place = moved(error.span().unwrap_or(0..0), part.start);
                    found.push((place, message_of(error)));
                }
                add(tree, moved_table(table.into_inner(), part.start), found);
            }
        }
    }
}

fn add<'a>(tree: &mut DeTable<'a>, included: DeTable<'a>, found: &mut Vec<LocatedMistake>) {
    for (key, value) in included {
        if key.get_ref() == "include" {
            found.push((key.span(), "an included file includes no others".to_owned()));
            continue;
        }
        let Some(known) = tree.get_mut(key.get_ref().as_ref()) else {
            tree.insert(key, value);
            continue;
        };
        match (known.get_mut(), value.into_inner()) {
            (DeValue::Array(known), DeValue::Array(more)) => {
                more.into_iter().for_each(|element| known.push(element));
            }
            (DeValue::Table(known), DeValue::Table(more)) if key.get_ref() == "upstreams" => {
                for (name, upstream) in more {
                    if known.contains_key(name.get_ref().as_ref()) {
                        let what =
                            format!("another file has the upstream {:?}, too", name.get_ref());
                        found.push((name.span(), what));
                    } else {
                        known.insert(name, upstream);
                    }
                }
            }
            _ => {
                let key_text = key.get_ref();
                let what =
                    format!("another file has `{key_text}`, too, expected it in one of them");
                found.push((key.span(), what));
            }
        }
    }
}

fn moved(place: Range<usize>, by: usize) -> Range<usize> {
    place.start + by..place.end + by
}

/// Returns a table with the places that it has in the whole text.
fn moved_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let moved_key = |key: Spanned<_>| Spanned::new(moved(key.span(), by), key.into_inner());
    table.into_iter().map(|(key, value)| (moved_key(key), moved_value(value, by))).collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let place = moved(value.span(), by);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        DeValue::Array(array) => {
            DeValue::Array(array.into_iter().map(|element| moved_value(element, by)).collect())
        }
        scalar => scalar,
    };
    Spanned::new(place, value)
}
