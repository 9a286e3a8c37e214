//! Locations of a server, and which of them answers a path.

use superpoll_gateway::config::PathRegex;

use super::super::directive::Directive;
use super::scope::Scope;

/// The requests that a location is for.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `= /path`.
    Exact,
    /// `/path`, and with `^~` before expressions.
    Prefix { is_first: bool },
    /// `~` or `~*`, below a path for one in another location.
    Expression(PathRegex),
    /// `@name`.
    Named,
}

/// A location.
#[derive(Clone, Debug)]
pub(super) struct Location<'a> {
    pub(super) kind: Kind,
    /// The path of a location that has one, that of the location around an expression, or a name.
    pub(super) path: String,
    /// `None`: it stands for paths that no location has.
    pub(super) directive: Option<&'a Directive>,
    pub(super) scope: Scope<'a>,
}

impl Location<'_> {
    /// Whether it has only requests from within, as `error_page`.
    pub(super) fn is_internal(&self) -> bool {
        self.scope.own_first("internal").is_some()
    }
}

/// The locations of a server.
#[derive(Default)]
pub(super) struct Locations<'a> {
    pub(super) all: Vec<Location<'a>>,
    /// Those that cannot be expressed, with the reason.
    pub(super) refused: Vec<(&'a Directive, String)>,
}

impl<'a> Locations<'a> {
    /// Reads the locations in a scope, nested locations included.
    pub(super) fn read(level: &'a [Directive], scope: &Scope<'a>) -> Locations<'a> {
        let mut locations = Locations::default();
        locations.add(level, scope, "/");
        locations
    }

    fn add(&mut self, level: &'a [Directive], scope: &Scope<'a>, around: &str) {
        for directive in level.iter().filter(|one| one.name == "location") {
            let scope = scope.below(directive.children());
            match read(directive, around) {
                Ok((kind, path)) => {
                    let below = path.clone();
                    self.all.push(Location {
                        kind,
                        path,
                        directive: Some(directive),
                        scope: scope.clone(),
                    });
                    self.add(directive.children(), &scope, &below);
                }
                Err(why) => self.refused.push((directive, why)),
            }
        }
    }

    /// Returns the location that nginx has for a path, and the path below no other.
    pub(super) fn find(&self, path: &str) -> Option<&Location<'a>> {
        let named = |kind: fn(&Kind) -> bool| self.all.iter().filter(move |one| kind(&one.kind));
        let exact = named(|kind| matches!(kind, Kind::Exact)).find(|one| one.path == path);
        if exact.is_some() {
            return exact;
        }
        let longest = named(|kind| matches!(kind, Kind::Prefix { .. }))
            .filter(|one| path.starts_with(&one.path))
            .max_by_key(|one| one.path.len());
        if longest.is_some_and(|one| matches!(one.kind, Kind::Prefix { is_first: true })) {
            return longest;
        }
        let by_expression = self.all.iter().find(|one| {
            matches!(&one.kind, Kind::Expression(expression) if expression.is_match(path))
                && path.starts_with(&one.path)
        });
        by_expression.or(longest)
    }

    /// Returns the location of a name, as `@app`.
    pub(super) fn named(&self, name: &str) -> Option<&Location<'a>> {
        self.all.iter().find(|one| matches!(one.kind, Kind::Named) && one.path == name)
    }
}

fn read(directive: &Directive, around: &str) -> Result<(Kind, String), String> {
    let [first, rest @ ..] = &directive.words[..] else {
        return Err("a location without a path".to_owned());
    };
    let second = rest.first();
    let (kind, path) = match (first.as_str(), second) {
        ("=", Some(path)) => (Kind::Exact, path),
        ("^~", Some(path)) => (Kind::Prefix { is_first: true }, path),
        (sign @ ("~" | "~*"), Some(text)) => {
            let flag = if sign == "~*" { "(?i)" } else { "" };
            let expression = PathRegex::parse(&format!("{flag}{text}"))?;
            return Ok((Kind::Expression(expression), around.to_owned()));
        }
        (name, None) if name.starts_with('@') => (Kind::Named, first),
        // Both may be one word.
        (text, None) => match text.split_at_checked(1) {
            Some(("=", path)) => return checked(Kind::Exact, path),
            Some(("~", text)) => {
                let expression = PathRegex::parse(text)?;
                return Ok((Kind::Expression(expression), around.to_owned()));
            }
            _ => (Kind::Prefix { is_first: false }, first),
        },
        _ => return Err("it is no location of nginx".to_owned()),
    };
    match kind {
        Kind::Named => Ok((kind, path.clone())),
        kind => checked(kind, path),
    }
}

fn checked(kind: Kind, path: &str) -> Result<(Kind, String), String> {
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || path.contains(['?', '#', '{', '}', '$']) {
        return Err("it is no path of a URL, percent-encoded".to_owned());
    }
    Ok((kind, path.to_owned()))
}
