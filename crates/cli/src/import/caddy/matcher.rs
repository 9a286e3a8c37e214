//! Matchers of Caddyfiles, as paths and `match` of routes.

use std::rc::Rc;

use superpoll_gateway::config::PathRegex;

use super::super::directive::Directive;
use super::super::output::{Value, push};
use super::super::source::escaped;

/// The requests that a directive is for.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    /// The path of the route.
    pub(super) path: String,
    /// Its `match`; empty for all requests below the path.
    pub(super) table: Value,
    /// The `path_regex` of `match`, unless it is for the path alone.
    expression: Option<Rc<PathRegex>>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        self.path == other.path && self.table == other.table
    }
}

impl Matcher {
    /// Returns that of all requests.
    pub(super) fn all() -> Matcher {
        Matcher { path: "/".to_owned(), table: Value::Null, expression: None }
    }

    /// Whether it has all requests of another one.
    pub(super) fn covers(&self, other: &Matcher) -> bool {
        matches!(self.meet(other), Ok(Some(meet)) if meet == *other)
    }

    /// Whether it is for one path alone.
    fn is_exact(&self) -> bool {
        self.expression.is_none() && self.table.get("path_regex").is_some()
    }

    /// Returns the matcher of the requests that two have in common, or `None` if there are none.
    /// The error is [`Unclear`] if one route cannot tell them.
    pub(super) fn meet(&self, other: &Matcher) -> Result<Option<Matcher>, Unclear> {
        let is_shorter = self.path.len() <= other.path.len();
        let (short, long) = if is_shorter { (self, other) } else { (other, self) };
        let is_other_path = short.is_exact() && short.path != long.path;
        if !long.path.starts_with(&short.path) || is_other_path {
            return Ok(None);
        }
        let (mut one, mut two) = (self.table.clone(), other.table.clone());
        let mut expression = self.expression.clone().or(other.expression.clone());
        for (exact, other, table) in [(self, other, &mut two), (other, self, &mut one)] {
            if let Some(wider) = other.expression.as_ref().filter(|_| exact.is_exact()) {
                if !wider.is_match(&exact.path) {
                    return Ok(None);
                }
                table["path_regex"] = exact.table["path_regex"].clone();
                expression = None;
            }
        }
        let table = both(&one, &two)?;
        Ok(table.map(|table| Matcher { path: long.path.clone(), table, expression }))
    }
}

/// The requests of two matchers cannot be told by one.
pub(super) struct Unclear;

/// Returns the value of `match` for requests that fit both values.
fn both(one: &Value, other: &Value) -> Result<Option<Value>, Unclear> {
    Ok(Some(match (one, other) {
        (Value::Null, any) | (any, Value::Null) => any.clone(),
        (one, other) if one == other => one.clone(),
        (Value::Bool(true), text @ Value::String(_))
        | (text @ Value::String(_), Value::Bool(true)) => text.clone(),
        (Value::Object(one), Value::Object(other)) => {
            let mut all = one.clone();
            for (key, value) in other {
                let known = all.entry(key.as_str()).or_insert(Value::Null);
                let Some(value) = both(known, value)? else { return Ok(None) };
                *known = value;
            }
            Value::Object(all)
        }
        (Value::Array(one), Value::Array(other)) => {
            let common = one.iter().filter(|value| other.contains(value)).cloned();
            let common: Vec<Value> = common.collect();
            match common.is_empty() {
                true => return Ok(None),
                false => common.into(),
            }
        }
        _ => return Err(Unclear),
    }))
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
        let text = format!("^{}$", parts.join("[^/]*"));
        if parts.len() > 1 {
            matcher.expression = Some(Rc::new(PathRegex::parse(&text)?));
        }
        matcher.table["path_regex"] = text.into();
        let (start, rest) = pattern.split_once('*').unwrap_or((pattern, ""));
        let end =
            if rest.is_empty() { start.len() } else { start.rfind('/').map_or(0, |at| at + 1) };
        if end > 0 {
            matcher.path = start[..end].to_owned();
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

/// Returns the parts of a matcher with a name, each with its kind.
fn parts(definition: &Directive) -> impl Iterator<Item = (&str, &[String])> {
    let first = definition.words.split_first().map(|(kind, words)| (kind.as_str(), words));
    let rest = definition.children().iter().map(|one| (one.name.as_str(), &one.words[..]));
    first.into_iter().chain(rest)
}

/// Returns the length of the path that a word stands for, or 0 for none or for several.
pub(super) fn path_length(word: &str, named: &[&Directive]) -> usize {
    let definition = named.iter().find(|one| one.name == word);
    let Some(definition) = definition else { return word.trim_end_matches('*').len() };
    let paths = parts(definition).filter(|(kind, _)| *kind == "path");
    match paths.flat_map(|(_, words)| words).collect::<Vec<_>>()[..] {
        [one] => one.trim_end_matches('*').len(),
        _ => 0,
    }
}

/// Returns the matchers that a word stands for, of those with names; the error says why there are
/// none.
pub(super) fn of_word(word: &str, named: &[&Directive]) -> Result<Vec<Matcher>, String> {
    if !word.starts_with('@') {
        return Ok(vec![path(word)?]);
    }
    let definition = named.iter().find(|one| one.name == word);
    let Some(definition) = definition else { return Err(format!("{word} is not defined")) };
    let (mut paths, mut table, mut expression) = (Vec::new(), Value::Null, None);
    for (kind, words) in parts(definition) {
        match (kind, words) {
            ("path", words) => {
                for word in words {
                    paths.push(path(word)?);
                }
            }
            ("path_regexp", [text] | [_, text]) => {
                add(&mut table["path_regex"], text.as_str())?;
                expression = Some(Rc::new(PathRegex::parse(text)?));
            }
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
        matcher.expression = matcher.expression.take().or_else(|| expression.clone());
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
