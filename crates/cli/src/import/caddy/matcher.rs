//! Matchers of Caddyfiles, as paths and `match` of routes.

use super::super::directive::Directive;
use super::super::output::{Value, push};
use super::super::source::escaped;

/// The requests that a directive is for.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Matcher {
    /// The path of the route.
    pub(super) path: String,
    /// Its `match`; empty for all requests below the path.
    pub(super) table: Value,
}

impl Matcher {
    /// Returns that of all requests.
    pub(super) fn all() -> Matcher {
        Matcher { path: "/".to_owned(), table: Value::Null }
    }

    /// Whether it has all requests of another one, as far as paths tell.
    pub(super) fn covers(&self, other: &Matcher) -> bool {
        self == other || (self.table.is_null() && other.path.starts_with(&self.path))
    }
}

/// Returns the matchers of a pattern of paths.
fn path(pattern: &str) -> Result<Matcher, String> {
    let mut matcher = Matcher::all();
    if let Some(extension) = pattern.strip_prefix("*.").filter(|rest| !rest.contains(['*', '/'])) {
        matcher.table["extensions"] = vec![extension.to_ascii_lowercase()].into();
    } else if pattern.contains('{') || !pattern.starts_with(['/', '*']) {
        return Err(format!("{pattern} is no path"));
    } else if pattern == "*" || pattern == "/*" {
    } else if let Some(start) = pattern.strip_suffix('*').filter(|start| !start.contains('*')) {
        matcher.path = start.to_owned();
    } else {
        let parts: Vec<String> = pattern.split('*').map(escaped).collect();
        matcher.table["path_regex"] = format!("^{}$", parts.join("[^/]*")).into();
        if !pattern.contains('*') {
            matcher.path = pattern.to_owned();
        }
    }
    Ok(matcher)
}

/// Sets a value of `match`. Caddy takes any of several, and `match` has one.
fn add(value: &mut Value, one: impl Into<Value>) -> Result<(), String> {
    match value {
        Value::Null => *value = one.into(),
        _ => return Err("match has one value of a kind".to_owned()),
    }
    Ok(())
}

/// Returns the matchers that a word stands for, of those with names; the error says why there are
/// none.
pub(super) fn of_word(word: &str, named: &[&Directive]) -> Result<Vec<Matcher>, String> {
    if !word.starts_with('@') {
        return Ok(vec![path(word)?]);
    }
    let definition = named.iter().find(|one| one.name == word);
    let Some(definition) = definition else { return Err(format!("{word} is not defined")) };
    let mut parts: Vec<(&str, &[String])> = Vec::new();
    if let Some((kind, words)) = definition.words.split_first() {
        parts.push((kind, words));
    }
    parts.extend(definition.children().iter().map(|one| (one.name.as_str(), &one.words[..])));
    let mut paths = Vec::new();
    let mut table = Value::Null;
    for (kind, words) in parts {
        match (kind, words) {
            ("path", words) => {
                for word in words {
                    paths.push(path(word)?);
                }
            }
            ("path_regexp", [text] | [_, text]) => add(&mut table["path_regex"], text.as_str())?,
            ("method", words) => {
                words.iter().for_each(|one| push(&mut table["methods"], one.to_ascii_uppercase()));
            }
            ("header", [name]) => match name.strip_prefix('!') {
                Some(name) => add(&mut table["headers"][name], false)?,
                None => add(&mut table["headers"][name], true)?,
            },
            ("header", [name, value]) if value == "*" => add(&mut table["headers"][name], true)?,
            ("header", [name, value]) if !value.contains(['*', '{']) => {
                add(&mut table["headers"][name], value.as_str())?;
            }
            ("query", words) => {
                for word in words {
                    let (name, value) = word.split_once('=').unwrap_or((word, "*"));
                    let value = if value == "*" { Value::from(true) } else { value.into() };
                    add(&mut table["query"][name], value)?;
                }
            }
            (kind, _) => return Err(format!("match has no {kind} of this kind")),
        }
    }
    if paths.is_empty() {
        paths.push(Matcher::all());
    }
    let Value::Object(common) = table else { return Ok(paths) };
    for matcher in &mut paths {
        for (key, value) in &common {
            if key == "path_regex" && matcher.table.get(key).is_some() {
                return Err("a route has one path_regex".to_owned());
            }
            matcher.table[key] = value.clone();
        }
    }
    Ok(paths)
}

/// Returns the word of a directive that is its matcher, with the words after it.
pub(super) fn split(directive: &Directive) -> (Option<&str>, &[String]) {
    let words = &directive.words[..];
    let Some((first, rest)) = words.split_first() else { return (None, words) };
    let is_matcher = first == "*" || first.starts_with('/') || first.starts_with('@');
    // `root /srv` and `rewrite /x` have no matcher.
    let is_value = matches!(directive.name.as_str(), "root" | "rewrite") && rest.is_empty();
    match is_matcher && !is_value && directive.name != "try_files" && directive.name != "uri"
        || first.starts_with('@')
    {
        true => (Some(first), rest),
        false => (None, words),
    }
}
