//! The configuration of the gateway: TOML with nothing left unchecked.
//!
//! An operator who made three mistakes wants to hear of three. serde stops at the first, so a
//! mistake is taken out of the parsed text, which leaves the default in its place, and the rest is
//! read again. Then the rules that types cannot express are checked: names that must be known,
//! addresses that must differ. A table that a mistake was taken out of is a hole: the absence of a
//! part that was just called wrong is not reported.
//!
//! Each mistake is one line, `FILE:LINE:COLUMN: what is wrong, what is expected`, in the order of
//! the file; editors and terminals turn this form into a link. Lines and columns count from 1,
//! columns in characters.

mod acme;
mod admin;
mod broker;
mod certified;
mod channel;
mod check;
mod disk;
mod dns;
mod ejection;
mod encryption;
mod include;
mod logs;
mod mercure;
mod model;
mod origins;
mod overlap;
mod place;
mod processes;
mod rate;
mod raw;
mod raw_rules;
mod relay;
mod rights;
mod rules;
mod scalar;
mod sticky;
mod suggestion;
#[cfg(test)]
mod tests;
mod tracing;
mod variables;
mod workers;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::acme::{Acme, Automatic, ChallengeKind, ExternalAccount, Internal, is_local};
pub use self::admin::Admin;
pub use self::broker::Broker;
pub use self::channel::{Channel, HubOptions, Slow};
use self::check::{Check, LocatedMistake};
pub use self::dns::{Dns, Family, ServerAddress};
pub use self::ejection::{Ejection, Percentage};
pub use self::encryption::{CertificateFiles, ClientCertificates, Https, Tls, TlsVersion};
pub use self::logs::{AccessLog, Log, LogFormat, MessageFormat, Metrics};
pub use self::model::{
    Action, Balance, Config, Files, Health, HealthKind, Host, Keeper, KeeperKind, Limits, Listener,
    Process, Proxy, Redirect, Route, Server, Timeouts, Upstream, UpstreamTls,
};
pub use self::origins::Origins;
pub use self::processes::parse_processes;
pub use self::rate::Rate;
pub use self::relay::{Relay, RelayEnd, RelayRoute};
pub(crate) use self::rights::is_private;
pub use self::rights::{AuthorizeRule, KeySource, Right, TokenRule};
pub(crate) use self::rules::LARGEST_PAGE;
pub use self::rules::{
    Access, BasicAuth, ClientRange, ErrorKind, ErrorPages, HeaderChanges, RateKey, RequestRate,
    Rules,
};
pub use self::sticky::{SameSite, Sticky};
pub use self::tracing::{RequestIds, Traces, Tracing};
use self::variables::Expanded;
pub use self::workers::Workers;
use crate::address::Address;
use crate::bounded_file;
pub use crate::broker::BrokerUrl;
pub use crate::password::PasswordHash;
pub use crate::proxy_protocol::ProxyVersion;

/// The most mistakes of one file that are reported, as each costs another reading of the whole.
const MOST_MISTAKES: usize = 100;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;

/// A mistake in a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// The file, or the name that stands for it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The mistake and the expected value, in one line.
    pub what: String,
}

/// The reason for which a configuration cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The text has mistakes.
    Wrong {
        /// The mistakes, in the order of the text; at least one.
        mistakes: Vec<Mistake>,
    },
}

impl fmt::Display for ConfigError {
    /// Writes a line for each mistake, without a line end after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, error } => {
                write!(f, "cannot read the configuration {}: {error}", path.display())
            }
            ConfigError::Wrong { mistakes } => {
                for (index, mistake) in mistakes.iter().enumerate() {
                    let end = if index == 0 { "" } else { "\n" };
                    write!(f, "{end}{mistake}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistake { file, line, column, what } = self;
        write!(f, "{file}:{line}:{column}: {what}")
    }
}

impl Config {
    /// Reads a configuration from a file.
    ///
    /// Relative paths in it are relative to the folder of the file. Folders, certificates and keys
    /// must be there.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it has mistakes.
    pub fn read(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        Config::parse_file(path, &Config::read_text(path)?)
    }

    /// Reads the text of a configuration from a file, for [`parse_file`](Config::parse_file). The
    /// texts of included files follow, each with a NUL and its path before it.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_text(path: impl AsRef<Path>) -> Result<String, ConfigError> {
        let path = path.as_ref();
        let cannot = |error| ConfigError::Unreadable { path: path.to_path_buf(), error };
        include::read(path).map_err(cannot)
    }

    /// As [`read`](Config::read), with the text that the file had.
    ///
    /// # Errors
    ///
    /// All mistakes in the text.
    pub fn parse_file(path: impl AsRef<Path>, text: &str) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let base = path.parent().unwrap_or(Path::new(""));
        Config::parse_in(&path.display().to_string(), text, Some(base))
    }

    /// Reads a configuration from a text; errors call it `name`. Paths in it stay as they are
    /// written, and need not exist.
    ///
    /// ```
    /// use superpoll_gateway::Config;
    ///
    /// let error = Config::parse("a.toml", "[[listeners]]\naddress = \"here\"\n").unwrap_err();
    /// assert!(error.to_string().starts_with("a.toml:2:11: \"here\" is no address"));
    /// ```
    ///
    /// # Errors
    ///
    /// All mistakes in the text.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        Config::parse_in(name, text, None)
    }

    fn parse_in(name: &str, text: &str, base: Option<&Path>) -> Result<Config, ConfigError> {
        let parts = include::parts(name, text);
        let wrong = |mut found: Vec<LocatedMistake>| {
            found.sort_by_key(|(place, _)| place.start);
            found.dedup();
            let mistakes = found.into_iter().map(|(place, what)| locate(&parts, place, what));
            Err(ConfigError::Wrong { mistakes: mistakes.collect() })
        };
        let (mut tree, errors) = DeTable::parse_recoverable(parts[0].text());
        if !errors.is_empty() {
            let errors = errors.iter().take(MOST_MISTAKES);
            return wrong(
                errors.map(|error| (error.span().unwrap_or(0..0), message_of(error))).collect(),
            );
        }
        let mut found = Vec::new();
        include::join(tree.get_mut(), &parts, base, &mut found);
        if !found.is_empty() {
            return wrong(found);
        }
        let expanded = Expanded::of(tree.get_ref(), &mut found);
        if !found.is_empty() {
            return wrong(found);
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
                    found.push((place.clone(), message_of(&error)));
                    let hole = take_out(tree.get_mut(), &place, check::ROOT);
                    match hole {
                        Some(hole) if found.len() < MOST_MISTAKES => holes.insert(hole),
                        _ => return wrong(found),
                    };
                }
            }
        };
        let mut check = Check::new(tree.get_ref(), &upstreams, &holes, base, found);
        let mut config = check.config(raw);
        if !check.found.is_empty() {
            return wrong(check.found);
        }
        config.warnings = check
            .warnings
            .into_iter()
            .map(|(place, what)| locate(&parts, place, what).to_string())
            .collect();
        Ok(config)
    }

    /// Returns the built-in configuration: the demonstration on port 8080 of the loopback address,
    /// as `localhost` and by IP addresses.
    #[must_use]
    pub fn demo() -> Config {
        let mut config = Config::of(Action::Demo);
        // Whoever tries the demonstration from elsewhere is meant to chat.
        let open = Channel { publish: Some(Right::Anyone), ..Channel::default() };
        let action = Action::Channel(open);
        config.hosts[0].routes.push(Route {
            path: "/demo/chat".to_owned(),
            action,
            rules: Rules::default(),
        });
        config
    }

    /// Returns a configuration that serves a folder on port 8080 of the loopback address, as
    /// `localhost` and by IP addresses.
    #[must_use]
    pub fn folder(folder: impl Into<PathBuf>) -> Config {
        Config::of(Action::Files(Files { root: folder.into(), ..Files::default() }))
    }

    fn of(action: Action) -> Config {
        let address = Address::Tcp { host: Some("127.0.0.1".to_owned()), port: 8080 };
        let route = Route { path: "/".to_owned(), action, rules: Rules::default() };
        // A site whose name is made to resolve to this machine (DNS rebinding) has another name.
        let names = ["localhost", "*.localhost"].map(str::to_owned).into();
        Config {
            server: Process::default(),
            listeners: vec![Listener::plain(address)],
            hosts: vec![Host {
                names,
                default: false,
                addresses: true,
                listeners: Vec::new(),
                https: None,
                headers: HeaderChanges::default(),
                errors: ErrorPages::new(),
                access: Access::default(),
                rate: None,
                basic_auth: None,
                routes: vec![route],
            }],
            upstreams: std::collections::BTreeMap::new(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            log: Log::default(),
            access_log: None,
            metrics: None,
            tracing: Tracing::default(),
            admin: None,
            keeper: None,
            broker: None,
            warnings: Vec::new(),
        }
    }

    /// Makes the first host answer for these names alone, by HTTPS on some addresses with
    /// certificates that the server gets by itself, and redirects clients of the address `http`.
    ///
    /// # Errors
    ///
    /// If a name is none of a host, or the authority cannot certify it; the text says why.
    pub fn with_https(
        mut self,
        names: &[String],
        automatic: Automatic,
        https: &[Address],
        http: Address,
    ) -> Result<Config, String> {
        if let Some(host) = self.hosts.first_mut() {
            host.names.clear();
            host.addresses = matches!(automatic, Automatic::Internal(_));
            // Browsers would insist on HTTPS for a year, also after a first try at the command
            // line.
            host.https = Some(Https { hsts: None });
        }
        for name in names {
            self.also_named(name)?;
        }
        if let Automatic::Acme(acme) = &automatic {
            acme.names(&self.hosts, &http)?;
        }
        let tls = Tls {
            certificates: Vec::new(),
            automatic: Some(automatic),
            min_version: TlsVersion::default(),
            client: None,
            alpn: Vec::new(),
        };
        let https = https.iter().cloned().map(|address| {
            let tls = Some(tls.clone());
            Listener { tls, ..Listener::plain(address) }
        });
        self.listeners = https.chain([Listener::plain(http)]).collect();
        Ok(self)
    }

    /// Makes the first host answer for another name, unless a host already does.
    ///
    /// # Errors
    ///
    /// If it is no host name; the text says why.
    pub fn also_named(&mut self, name: &str) -> Result<(), String> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        check::host_name(&name).map_err(|what| format!("{name:?} is no host name: {what}"))?;
        let is_known = self.hosts.iter().any(|host| host.names.contains(&name));
        if let Some(host) = self.hosts.first_mut().filter(|_| !is_known) {
            host.names.push(name);
        }
        Ok(())
    }

    /// Returns the host that answers for a name, which may have a port: the host with that name,
    /// else the host with the longest wildcard for it, else the default host.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = match name.rfind(':') {
            Some(colon) if !name[colon..].contains(']') => &name[..colon],
            _ => name,
        };
        let name = name.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        let mut best: Option<(usize, &Host)> = None;
        for host in &self.hosts {
            for pattern in &host.names {
                let length = match pattern.strip_prefix('*') {
                    // A name takes precedence over each wildcard that matches it, as the wildcard
                    // is shorter.
                    None if *pattern == name => usize::MAX,
                    Some(rest) if name.len() > rest.len() && name.ends_with(rest) => rest.len(),
                    _ => continue,
                };
                if best.is_none_or(|(most, _)| length > most) {
                    best = Some((length, host));
                }
            }
        }
        let is_address = name.is_empty() || name.parse::<std::net::IpAddr>().is_ok();
        let rest = |host: &&Host| host.default || (host.addresses && is_address);
        best.map(|(_, host)| host).or_else(|| self.hosts.iter().find(rest))
    }
}

impl Host {
    /// Returns the route with the longest path that `path` is, or is below.
    #[must_use]
    pub fn route(&self, path: &str) -> Option<&Route> {
        let fits = |route: &&Route| {
            let rest = path.strip_prefix(route.path.as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || route.path.ends_with('/')
            })
        };
        self.routes.iter().filter(fits).max_by_key(|route| route.path.len())
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind};

    String::from_utf8(bounded_file::read(path, LARGEST)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("byte {at} is not UTF-8"))
    })
}

/// Keys that had another name in earlier versions: the old name, and the advice for it.
const RENAMED_KEYS: [(&str, &str); 2] = [
    ("babysitter", "is called `keeper` now, and its key `sitting` is called `kind`"),
    ("sitting", "is called `kind` now"),
];

/// Returns the message of an error, in one line and in the words of operators.
fn message_of(error: &toml::de::Error) -> String {
    let message =
        error.message().replace("unknown field", "unknown key").replace(['\n', '\r'], " ");
    let unknown = message.strip_prefix("unknown key `").and_then(|rest| rest.split_once('`'));
    let renamed = unknown.and_then(|(key, _)| RENAMED_KEYS.iter().find(|(old, _)| *old == key));
    match renamed {
        Some((old, advice)) => format!("the key `{old}` {advice}"),
        None => suggestion::suggest(&message),
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
