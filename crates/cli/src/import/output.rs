//! The configuration that is written: tables of TOML with comments.
//!
//! Each key and each table says which lines it comes from, and each comment says which directive it
//! is about. So a reader can compare both files line by line. For a directive that no line names,
//! [`Output::add_vanished`] writes a comment at the end.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write};

pub(super) use serde_json::{Value, json};
use superpoll_gateway::config::{Config, ConfigError};

use super::directive::{Directive, Outcome, Place};
use crate::quantity::count;

/// The largest text, in bytes: that of the configurations of the server.
const LARGEST: usize = 16 << 20;

/// How often values are taken out that the server would refuse.
const MOST_ROUNDS: usize = 20;

/// The keys of a route that answer.
const ACTIONS: [&str; 5] = ["files", "proxy", "fastcgi", "redirect", "respond"];

/// The keys that tables are nothing without, or something else.
const NEEDED: [&str; 9] =
    ["address", "names", "listeners", "path", "match", "servers", "tls", "relay", "respond"];

/// The keys that keep clients out.
const CLIENT_RULES: [&str; 4] = ["allow", "deny", "basic_auth", "auth_request"];

/// A `deny` of all clients.
pub(super) const ALL_CLIENTS: [&str; 3] = ["0.0.0.0/0", "::/0", "unix"];

/// The action of a route, as a key with its value, or the reason why there is none.
pub(super) type Action = Result<(&'static str, Value), String>;

/// The header of a relay that chooses by server names, which comes after that of its listener.
pub(super) const RELAY_HEADER: &str = "[listeners.relay]";

/// The character of a value that stands for the `$` of a variable of the environment, as a dollar
/// sign itself is escaped. No file has it: [`Sources`](super::source::Sources) refuses it.
pub(super) const VARIABLE_SIGN: char = '\0';

/// Adds a value to a list, which is made if it is not there.
pub(super) fn push(list: &mut Value, one: impl Into<Value>) {
    match list {
        Value::Array(list) => list.push(one.into()),
        other => *other = Value::Array(vec![one.into()]),
    }
}

/// Adds certificates with their keys to the `tls` of a listener, each once; `false` without any.
pub(super) fn add_certificates(tls: &mut Value, pairs: Vec<(Value, Value)>) -> bool {
    let mut known: Vec<Value> = Vec::new();
    for (certificate, key) in pairs {
        if known.contains(&certificate) {
            continue;
        }
        known.push(certificate.clone());
        let pair = json!({ "certificate": certificate, "key": key });
        match (pair, known.len()) {
            (Value::Object(pair), 1) => pair.into_iter().for_each(|(key, one)| tls[key] = one),
            (pair, _) => push(&mut tls["certificates"], pair),
        }
    }
    !known.is_empty()
}

/// Returns a text of a Caddyfile, in which `{$NAME:TEXT}` stands for a variable of the environment.
pub(super) fn caddy_text(word: &str) -> Value {
    let mut parts = word.split("{$");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (variable, behind) = part.split_once('}').unwrap_or((part, ""));
        let (name, default) = variable.split_once(':').unwrap_or((variable, ""));
        all.push_str(&format!("{VARIABLE_SIGN}{{{name}:-{default}}}{behind}"));
    }
    all.into()
}

/// Returns a text as TOML: in single quotes if that saves backslashes.
fn quoted(text: &str) -> String {
    match text.contains('\\') && !text.contains(|one: char| one == '\'' || one.is_control()) {
        true => format!("'{text}'"),
        // A string of JSON is one of TOML, except for DEL.
        false => Value::from(text).to_string().replace('\u{7f}', "\\u007F"),
    }
}

/// Returns a key as TOML, with quotes if it needs them.
fn bare(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// Returns a value as TOML; keys without a value are left out.
fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(&text.replace("${", "$${").replace(VARIABLE_SIGN, "$")),
        Value::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(pairs) => {
            let pairs = pairs.iter().filter(|(_, value)| !value.is_null());
            let pairs = pairs.map(|(key, value)| format!("{} = {}", bare(key), toml(value)));
            let pairs: Vec<String> = pairs.collect();
            if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
        }
        other => other.to_string(),
    }
}

/// A line of a table.
#[derive(Clone, PartialEq, Debug)]
enum Line {
    Comment(String),
    Key { key: String, value: Value, from: Vec<Place> },
}

/// A table of the output, with its header, as `[[hosts.routes]]`; comments at the top have none.
#[derive(Clone, Default, Debug)]
pub(super) struct Table {
    header: String,
    from: Vec<Place>,
    lines: Vec<Line>,
    /// The comments among the lines.
    comments: HashSet<String>,
    /// The places of values that are still to be set.
    cited: BTreeMap<String, Vec<Place>>,
    /// Whether the table is a comment, as the server would refuse it.
    is_refused: bool,
}

impl Table {
    pub(super) fn new(header: &str) -> Table {
        Table { header: header.to_owned(), ..Table::default() }
    }

    /// Returns a table of a group, as `[upstreams.NAME]`.
    pub(super) fn named(group: &str, name: &str) -> Table {
        Table::new(&format!("[{group}.{}]", bare(name)))
    }

    /// Returns the header without its brackets.
    fn path(&self) -> &str {
        self.header.trim_matches(['[', ']'])
    }

    /// Says that the table comes from a directive.
    pub(super) fn comes_from(&mut self, directive: &Directive) {
        directive.note(Outcome::Imported);
        self.from.push(directive.place.clone());
    }

    /// Sets a key that comes from some directives; the places of an earlier value stay.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>, from: &[&Directive]) {
        let mut places = self.cited.remove(key).unwrap_or_default();
        if let Some(at) = self.position(key)
            && let Line::Key { from, .. } = self.lines.remove(at)
        {
            places.splice(0..0, from);
        }
        places.extend(noted(from));
        self.lines.push(Line::Key { key: key.to_owned(), value: value.into(), from: places });
    }

    /// Says that the value of a key, which is set later, comes from some directives as well.
    pub(super) fn cite(&mut self, key: &str, from: &[&Directive]) {
        self.cited.entry(key.to_owned()).or_default().extend(noted(from));
    }

    fn position(&self, wanted: &str) -> Option<usize> {
        self.lines.iter().position(|line| matches!(line, Line::Key { key, .. } if key == wanted))
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        match self.lines.get(self.position(key)?) {
            Some(Line::Key { value, .. }) => Some(value),
            _ => None,
        }
    }

    /// Whether it has neither keys nor comments.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Writes some keys before all other lines.
    pub(super) fn lead_with(&mut self, keys: &[&str]) {
        let is_first = |line: &Line| match line {
            Line::Key { key, .. } => keys.contains(&&**key),
            Line::Comment(_) => false,
        };
        self.lines.sort_by_key(|line| !is_first(line));
    }

    /// Makes a key a comment, after another one.
    fn comment_out(&mut self, key: &str, comment: String) {
        let Some(at) = self.position(key) else { return };
        if let Line::Key { value, from, .. } = &self.lines[at] {
            let mut text = format!("# {} = {}", bare(key), toml(value));
            write_places(&mut text, from);
            self.lines.splice(at..=at, [Line::Comment(comment), Line::Comment(text)]);
        }
    }

    /// Moves a key of this table to the end of another.
    pub(super) fn move_key(&mut self, key: &str, to: &mut Table) {
        let Some(at) = self.position(key) else { return };
        let line = self.lines.remove(at);
        match (to.position(key).and_then(|at| to.lines.get_mut(at)), line) {
            (Some(Line::Key { from, .. }), Line::Key { from: more, .. }) => from.extend(more),
            (_, line) => to.lines.push(line),
        }
    }

    /// Writes a comment about no directive.
    pub(super) fn comment(&mut self, text: &str) {
        let text = format!("# {}", one_line(text));
        if self.comments.insert(text.clone()) {
            self.lines.push(Line::Comment(text));
        }
    }

    /// Says how the meaning of a directive changes that is imported.
    pub(super) fn remark(&mut self, directive: &Directive, what: &str) {
        directive.note(Outcome::Imported);
        self.comment(&format!("{}: \"{}\": {what}", directive.place, directive.head()));
    }

    /// Says that a directive has nothing to set, with all directives in it.
    pub(super) fn not_needed(&mut self, directive: &Directive, why: &str) {
        directive.note_all(Outcome::NotNeeded);
        self.comment(&format!("{}: \"{}\": not needed: {why}", directive.place, directive.text()));
    }

    /// Says that a directive cannot be expressed, with all directives in it.
    pub(super) fn not_imported(&mut self, directive: &Directive, why: &str) {
        directive.note_all(Outcome::NotImported);
        self.comment(&format!("{}: NOT IMPORTED \"{}\": {why}", directive.place, directive.text()));
    }

    /// Sets the action of a route that a directive asks for. Without one it answers with 501.
    pub(super) fn act(&mut self, directive: &Directive, action: Action) {
        match action {
            Ok((key, value)) => self.set(key, value, &[directive]),
            Err(why) => {
                self.not_imported(directive, &why);
                self.set("respond", json!({ "status": 501 }), &[]);
            }
        }
    }

    /// Refuses all clients, as a directive that refuses some cannot be expressed.
    pub(super) fn close(&mut self, directive: &Directive, why: &str) {
        self.not_imported(directive, why);
        self.comment("So no client is served here:");
        self.set("deny", ALL_CLIENTS.to_vec(), &[]);
    }
}

/// Notes that directives are imported, and returns their places.
fn noted(from: &[&Directive]) -> impl Iterator<Item = Place> {
    from.iter().map(|directive| {
        directive.note(Outcome::Imported);
        directive.place.clone()
    })
}

/// Returns a text that stays one comment, and that a terminal shows as it is.
fn one_line(text: &str) -> String {
    crate::printable::printable(&text.replace(['\n', '\r', '\t'], " "))
}

/// Writes places, as `a:1, 2; b:3`.
fn write_places(text: &mut String, places: &[Place]) {
    let mut by_file: Vec<(&str, Vec<usize>)> = Vec::new();
    for place in places {
        let at = by_file.iter().position(|(file, _)| *file == &*place.file).unwrap_or_else(|| {
            by_file.push((&place.file, Vec::new()));
            by_file.len() - 1
        });
        by_file[at].1.push(place.line);
    }
    for (index, (file, lines)) in by_file.iter_mut().enumerate() {
        lines.sort_unstable();
        lines.dedup();
        let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
        let separator = if index > 0 { "; " } else { " # " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{}:{}", one_line(file), lines.join(", "));
    }
}

/// A host with its routes.
#[derive(Clone, Debug)]
pub(super) struct HostTables {
    pub(super) host: Table,
    pub(super) routes: Vec<Table>,
}

/// The keys of rules that a host has for all of its routes.
const RULES: [&str; 6] = ["headers", "errors", "allow", "deny", "rate", "basic_auth"];

impl HostTables {
    pub(super) fn new() -> HostTables {
        HostTables { host: Table::new("[[hosts]]"), routes: Vec::new() }
    }

    /// Moves the rules that all routes have to the host.
    pub(super) fn share_rules(&mut self) {
        let Some((first, others)) = self.routes.split_first() else { return };
        let shared: Vec<&str> = RULES
            .into_iter()
            .filter(|key| self.host.get(key).is_none() && first.get(key).is_some())
            .filter(|key| others.iter().all(|other| other.get(key) == first.get(key)))
            .collect();
        for key in shared {
            self.routes.iter_mut().for_each(|route| route.move_key(key, &mut self.host));
        }
    }
}

/// The numbers of directives by their outcomes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    pub(super) imported: u64,
    pub(super) not_needed: u64,
    pub(super) not_imported: u64,
}

impl Tally {
    /// Counts the outcomes of directives.
    pub(super) fn of(directives: &[Directive]) -> Tally {
        let mut tally = Tally::default();
        for directive in directives {
            let below = Tally::of(directive.children());
            tally.imported += below.imported;
            tally.not_needed += below.not_needed;
            tally.not_imported += below.not_imported;
            match directive.outcome() {
                Outcome::Imported => tally.imported += 1,
                Outcome::NotNeeded => tally.not_needed += 1,
                Outcome::NotImported | Outcome::Unknown => tally.not_imported += 1,
            }
        }
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let imported = count(self.imported, "directive");
        let (not_needed, not_imported) = (self.not_needed, self.not_imported);
        write!(f, "{imported} imported, {not_needed} not needed, {not_imported} not imported")
    }
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// Comments about the whole.
    pub(super) top: Table,
    pub(super) listeners: Vec<Table>,
    pub(super) hosts: Vec<HostTables>,
    pub(super) upstreams: Vec<Table>,
    /// The tables that are there once, by their names.
    single: BTreeMap<&'static str, Table>,
}

impl Output {
    pub(super) fn new() -> Output {
        Output {
            top: Table::new(""),
            listeners: Vec::new(),
            hosts: Vec::new(),
            upstreams: Vec::new(),
            single: BTreeMap::new(),
        }
    }

    /// Returns a table that is there once, as `limits`.
    pub(super) fn single(&mut self, name: &'static str) -> &mut Table {
        self.single.entry(name).or_insert_with(|| Table::new(&format!("[{name}]")))
    }

    /// Moves the largest size of bodies to the limits, if all routes have the same.
    pub(super) fn share_body_size(&mut self) {
        let key = "body_bytes";
        let sizes = || self.hosts.iter().flat_map(|host| &host.routes).map(|route| route.get(key));
        let first = sizes().next().flatten().cloned();
        if first.is_none() || sizes().any(|size| size != first.as_ref()) {
            return;
        }
        let mut limits = Table::new("[limits]");
        for route in self.hosts.iter_mut().flat_map(|host| &mut host.routes) {
            route.move_key(key, &mut limits);
        }
        limits.move_key(key, self.single("limits"));
    }

    /// Whether some route has a key.
    pub(super) fn has_route_with(&self, key: &str) -> bool {
        self.hosts.iter().flat_map(|host| &host.routes).any(|route| route.get(key).is_some())
    }

    /// Writes a comment for each directive that no line is about.
    pub(super) fn add_vanished(&mut self, directives: &[Directive]) {
        for directive in directives {
            match directive.outcome() {
                Outcome::Unknown => {
                    self.top.not_imported(directive, "nothing here has this meaning");
                }
                _ => self.add_vanished(directive.children()),
            }
        }
    }

    /// Returns all tables, in the order in which they are written.
    fn tables(&mut self) -> impl Iterator<Item = &mut Table> {
        let hosts = self.hosts.iter_mut();
        let hosts = hosts.flat_map(|one| [&mut one.host].into_iter().chain(&mut one.routes));
        let first = [&mut self.top].into_iter().chain(&mut self.listeners);
        first.chain(hosts).chain(&mut self.upstreams).chain(self.single.values_mut())
    }

    /// Returns the text, and for each of its lines the table and its line, by their numbers.
    fn render(&mut self) -> (String, Vec<(usize, Option<usize>)>) {
        let (mut text, mut lines) = (String::new(), Vec::new());
        for (number, table) in self.tables().enumerate() {
            if table.is_empty() && table.from.is_empty() && !table.header.starts_with("[[") {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
                lines.push((number, None));
            }
            let sign = if table.is_refused { "# " } else { "" };
            if !table.header.is_empty() {
                text.push_str(sign);
                text.push_str(&table.header);
                write_places(&mut text, &table.from);
                text.push('\n');
                lines.push((number, None));
            }
            for (at, line) in table.lines.iter().enumerate() {
                match line {
                    Line::Comment(comment) => text.push_str(comment),
                    Line::Key { key, value, from } => {
                        // Writing to a string cannot fail.
                        let _ = write!(text, "{sign}{} = {}", bare(key), toml(value));
                        write_places(&mut text, from);
                    }
                }
                text.push('\n');
                lines.push((number, Some(at)));
            }
        }
        (text, lines)
    }

    /// Returns the text, which the server accepts. A value that it would refuse, which few
    /// directives can lead to, becomes a comment with the reason first.
    pub(super) fn settle(&mut self, directives: &[Directive]) -> Result<String, String> {
        for _ in 0..MOST_ROUNDS {
            self.add_least();
            let (text, lines) = self.render();
            if text.len() > LARGEST {
                let most = LARGEST >> 20;
                return Err(format!("the configuration would have more than {most} MiB"));
            }
            let Err(ConfigError::Wrong { mistakes }) = Config::parse("output", &text) else {
                return Ok(text);
            };
            // From the last line on, as comments are added above a line.
            for mistake in mistakes.iter().rev() {
                let Some((table, line)) = lines.get(mistake.line - 1) else { continue };
                let places = self.refuse(*table, *line, &mistake.what);
                note_refused(directives, &places);
            }
        }
        Err("no configuration with its directives is accepted".to_owned())
    }

    /// Adds a listener and a host where there would be none.
    fn add_least(&mut self) {
        let is_there = |table: &Table| !table.is_refused;
        let has_host = self.hosts.iter().any(|host| is_there(&host.host));
        let has_web = self.listeners.iter().enumerate().any(|(at, table)| {
            let below = self.listeners.get(at + 1);
            let has_relay = table.get("relay").is_some()
                || below.is_some_and(|below| below.header == RELAY_HEADER);
            is_there(table) && table.header == "[[listeners]]" && !has_relay
        });
        if has_host && !has_web || !self.listeners.iter().any(is_there) {
            let mut listener = Table::new("[[listeners]]");
            let what = "No listener could be imported. This one is for programs of this machine.";
            listener.comment(what);
            listener.set("address", "127.0.0.1:8080", &[]);
            self.listeners.push(listener);
        } else if has_host || !has_web {
            return;
        }
        if !has_host {
            let mut host = HostTables::new();
            host.host.comment("No host could be imported.");
            let mut route = Table::new("[[hosts.routes]]");
            route.set("respond", json!({ "status": 503 }), &[]);
            host.routes.push(route);
            self.hosts.push(host);
        }
    }

    /// Makes a line, or the table that it is needed in, a comment; returns the places it came from.
    fn refuse(&mut self, number: usize, line: Option<usize>, what: &str) -> Vec<Place> {
        let Some(table) = self.tables().nth(number).filter(|table| !table.is_refused) else {
            return Vec::new();
        };
        let Some(Line::Key { key, from, .. }) =
            line.and_then(|line| table.lines.get(line)).cloned()
        else {
            return self.refuse_table(number, what);
        };
        let comment = format!("# NOT IMPORTED, as the server would refuse it: {}", one_line(what));
        let is_action = ACTIONS.contains(&&*key) || key == "rewrite";
        if !is_action && NEEDED.contains(&&*key) || key == "respond" {
            return self.refuse_table(number, what);
        }
        let Some(table) = self.tables().nth(number) else { return from };
        table.comment_out(&key, comment);
        if is_action {
            for key in ACTIONS.iter().chain(&["rewrite"]) {
                table.comment_out(key, "# With it:".to_owned());
            }
            table.set("respond", json!({ "status": 501 }), &[]);
        } else if CLIENT_RULES.contains(&&*key) {
            table.set("deny", ALL_CLIENTS.to_vec(), &[]);
        }
        from
    }

    fn refuse_table(&mut self, number: usize, what: &str) -> Vec<Place> {
        let mut places = Vec::new();
        let comment = format!("NOT IMPORTED, as the server would refuse it: {what}");
        // A listener without its relay would serve the hosts.
        let is_relay = self.tables().nth(number).is_some_and(|one| one.header == RELAY_HEADER);
        let number = number - usize::from(is_relay);
        let path = self.tables().nth(number).map_or_else(String::new, |one| one.path().to_owned());
        let is_below = |table: &Table| {
            table.path().strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'))
        };
        for (at, table) in self.tables().enumerate().skip(number) {
            if at > number && !is_below(table) {
                break;
            }
            table.is_refused = true;
            table.comment(&comment);
            places.extend(table.from.iter().cloned());
        }
        places
    }
}

/// Notes that the directives at some places are not imported.
fn note_refused(directives: &[Directive], places: &[Place]) {
    for directive in directives {
        if places.contains(&directive.place) {
            directive.note(Outcome::NotImported);
        }
        note_refused(directive.children(), places);
    }
}
