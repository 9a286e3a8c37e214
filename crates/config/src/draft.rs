//! A configuration between its text and the server.
//!
//! serde stops at the first mistake, so a mistake is taken out of the parsed text, which leaves the
//! default in its place, and the rest is read again. Then the rules that types cannot express are
//! checked: names that must be known, addresses that must differ. A table that a mistake was taken
//! out of is a hole: the absence of a part that was just called wrong is not reported.
//!
//! A text names things outside of it: files, folders, names of this machine. Nothing here opens
//! them. [`Draft::take_resources`] lists them with their places, the server looks at them, and
//! its mistakes join those of the text.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::{Check, ROOT};
use crate::include;
use crate::mistake::{ConfigError, LocatedMistake, MOST_MISTAKES, Mistake, message_of};
use crate::model::Config;
use crate::raw;
use crate::resource::{Place, Resource};
use crate::variables::Expanded;

/// A configuration whose text was read and checked. The resources that it names are not looked at
/// yet.
#[derive(Debug)]
pub struct Draft {
    name: String,
    text: String,
    /// `None` if the text has a mistake that leaves nothing to check.
    config: Option<Config>,
    resources: Vec<(Place, Resource)>,
    mistakes: Vec<LocatedMistake>,
    warnings: Vec<LocatedMistake>,
    /// Where the hosts begin, and their routes.
    places: Vec<(usize, Vec<usize>)>,
}

/// The places of a host and of its routes, each as `FILE:LINE`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HostPlaces {
    /// The place of the host.
    pub host: String,
    /// The places of the routes, in their order.
    pub routes: Vec<String>,
}

impl Draft {
    /// Reads a configuration from a file.
    ///
    /// Relative paths in it are relative to the folder of the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Draft, ConfigError> {
        let path = path.as_ref();
        Ok(Draft::parse_file(path, &Config::read_text(path)?))
    }

    /// As [`read`](Draft::read), with the text that the file had.
    #[must_use]
    pub fn parse_file(path: impl AsRef<Path>, text: &str) -> Draft {
        let path = path.as_ref();
        let base = path.parent().unwrap_or(Path::new(""));
        Draft::parse(&path.display().to_string(), text, Some(base))
    }

    /// Reads a text. `base` is the folder that relative paths are relative to; without it, paths
    /// stay as they are written and the draft has no resources.
    fn parse(name: &str, text: &str, base: Option<&Path>) -> Draft {
        let mut draft = Draft {
            name: name.to_owned(),
            text: text.to_owned(),
            config: None,
            resources: Vec::new(),
            mistakes: Vec::new(),
            warnings: Vec::new(),
            places: Vec::new(),
        };
        draft.check(base);
        draft
    }

    fn check(&mut self, base: Option<&Path>) {
        let parts = include::parts(&self.name, &self.text);
        let (mut tree, errors) = DeTable::parse_recoverable(parts[0].text());
        let mistakes = &mut self.mistakes;
        if !errors.is_empty() {
            let errors = errors.iter().take(MOST_MISTAKES);
            let located = |error| (toml::de::Error::span(error).unwrap_or(0..0), message_of(error));
            return mistakes.extend(errors.map(located));
        }
        include::join(tree.get_mut(), &parts, base, mistakes);
        if !mistakes.is_empty() {
            return;
        }
        let expanded = Expanded::of(tree.get_ref(), mistakes);
        if !mistakes.is_empty() {
            return;
        }
        expanded.put_into(tree.get_mut());
        let upstreams = match tree.get_ref().get("upstreams").map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => {
                table.keys().map(|name| name.get_ref().to_string()).collect()
            }
            _ => BTreeSet::new(),
        };
        let mut holes = BTreeSet::new();
        let raw = loop {
            match raw::Config::deserialize(toml::Deserializer::from(tree.clone())) {
                Ok(raw) => break raw,
                Err(error) => {
                    let place = error.span().unwrap_or(0..0);
                    if expanded.read_as_scalar(tree.get_mut(), &place) {
                        continue;
                    }
                    mistakes.push((place.clone(), message_of(&error)));
                    let hole = take_out(tree.get_mut(), &place, ROOT);
                    match hole {
                        Some(hole) if mistakes.len() < MOST_MISTAKES => holes.insert(hole),
                        _ => return,
                    };
                }
            }
        };
        let mut check =
            Check::new(tree.get_ref(), &upstreams, &holes, base, std::mem::take(mistakes));
        self.config = Some(check.config(raw));
        self.mistakes = check.found;
        self.warnings = check.warnings;
        self.resources = check.resources;
        self.places = check.places;
    }

    /// Returns the resources that the text names. The draft has none afterwards, and none if its
    /// text did not come from a file.
    #[must_use]
    pub fn take_resources(&mut self) -> Vec<(Place, Resource)> {
        std::mem::take(&mut self.resources)
    }

    /// Returns the places of all hosts and routes, in their order.
    #[must_use]
    pub fn host_places(&self) -> Vec<HostPlaces> {
        let parts = include::parts(&self.name, &self.text);
        let place = |start: &usize| {
            let Mistake { file, line, .. } = locate(&parts, *start..*start, String::new());
            format!("{file}:{line}")
        };
        let of = |(host, routes): &(usize, Vec<usize>)| HostPlaces {
            host: place(host),
            routes: routes.iter().map(place).collect(),
        };
        self.places.iter().map(of).collect()
    }

    /// Adds a mistake, with the expected value.
    pub fn wrong(&mut self, place: Place, what: &str) {
        self.mistakes.push((place.0, what.replace(['\n', '\r'], " ")));
    }

    /// Adds a warning of a setting that is valid and probably not meant.
    pub fn warn(&mut self, place: Place, what: impl Into<String>) {
        self.warnings.push((place.0, what.into()));
    }

    /// Returns the configuration, with the warnings in the order of the text.
    ///
    /// # Errors
    ///
    /// All mistakes, in the order of the text.
    pub fn finish(self) -> Result<Config, ConfigError> {
        let parts = include::parts(&self.name, &self.text);
        let located = |mut found: Vec<LocatedMistake>| -> Vec<Mistake> {
            found.sort_by_key(|(place, _)| place.start);
            found.dedup();
            found.into_iter().map(|(place, what)| locate(&parts, place, what)).collect()
        };
        match self.config {
            Some(mut config) if self.mistakes.is_empty() => {
                let warnings = located(self.warnings);
                config.warnings = warnings.iter().map(Mistake::to_string).collect();
                Ok(config)
            }
            _ => Err(ConfigError::Wrong { mistakes: located(self.mistakes) }),
        }
    }
}

impl Config {
    /// Reads the text of a configuration from a file, for [`Draft::parse_file`]. The texts of
    /// included files follow, each with a NUL and its path before it.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_text(path: impl AsRef<Path>) -> Result<String, ConfigError> {
        let path = path.as_ref();
        let cannot = |error| ConfigError::Unreadable { path: path.to_path_buf(), error };
        include::read(path).map_err(cannot)
    }

    /// Reads a configuration from a text; errors call it `name`. Paths in it stay as they are
    /// written, and need not exist.
    ///
    /// ```
    /// use superpoll_config::Config;
    ///
    /// let error = Config::parse("a.toml", "[[listeners]]\naddress = \"here\"\n").unwrap_err();
    /// assert!(error.to_string().starts_with("a.toml:2:11: \"here\" is no address"));
    /// ```
    ///
    /// # Errors
    ///
    /// All mistakes in the text.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        Draft::parse(name, text, None).finish()
    }
}

/// Takes the key, value or element at a place out, and returns where the table or array begins that
/// had it.
fn take_out(table: &mut DeTable<'_>, place: &Range<usize>, start: usize) -> Option<usize> {
    for (_, value) in table.iter_mut() {
        if let Some(hole) = take_out_below(value, place) {
            return Some(hole);
        }
    }
    let is_it =
        |key: &Spanned<_>, value: &Spanned<_>| key.span() == *place || value.span() == *place;
    let key = table.iter().find(|(key, value)| is_it(key, value)).map(|(key, _)| key.clone())?;
    table.remove(key.get_ref().as_ref());
    Some(start)
}

fn take_out_below(value: &mut Spanned<DeValue<'_>>, place: &Range<usize>) -> Option<usize> {
    let start = value.span().start;
    match value.get_mut() {
        DeValue::Table(table) => take_out(table, place, start),
        DeValue::Array(array) => {
            let hole = array.as_mut().iter_mut().find_map(|element| take_out_below(element, place));
            if hole.is_some() {
                return hole;
            }
            let before = array.len();
            let rest = array.iter().filter(|element| element.span() != *place).cloned();
            *array = rest.collect();
            (array.len() < before).then_some(start)
        }
        _ => None,
    }
}

/// Returns the file, line and column of a place, which need not be on a boundary of characters.
fn locate(parts: &[include::Part<'_>], place: Range<usize>, what: String) -> Mistake {
    let later = parts.iter().skip(1).rev().find(|part| part.start <= place.start);
    let part = later.unwrap_or(&parts[0]);
    let text = part.text();
    let mut at = (place.start - part.start).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Mistake {
        file: part.name.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        what,
    }
}
