//! The settings of the system: `/etc/resolv.conf` (`resolv.conf(5)`) and `/etc/hosts` (`hosts(5)`).
//!
//! As in the C library, a line or an option that is not understood is passed over. A file that
//! cannot be read is an empty one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use superpoll_config::{DNS_PORT, bounded_file};
use superpoll_rt::blocking;

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;

/// The most servers, as in the C library.
const MOST_SERVERS: usize = 3;

/// The most suffixes of the search list.
const MOST_SUFFIXES: usize = 32;

/// The files of the system.
#[derive(Clone, Debug)]
pub(super) struct SystemFiles {
    pub resolv_conf: PathBuf,
    pub hosts: PathBuf,
}

impl Default for SystemFiles {
    fn default() -> SystemFiles {
        SystemFiles { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

/// The settings of look-ups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub servers: Vec<SocketAddr>,
    /// How long a server has for an answer.
    pub limit: Duration,
    /// How often all servers are asked.
    pub attempts: u32,
    /// Whether questions go by TCP only.
    pub only_tcp: bool,
    /// The suffixes that are tried behind a name that is not full.
    search: Vec<String>,
    /// The number of dots that make a name full at first.
    ndots: usize,
    /// The text of the file with addresses.
    hosts: String,
}

/// Reads the settings of the system.
pub(super) async fn read(files: &SystemFiles) -> Settings {
    let text = |path: PathBuf| {
        let bytes = bounded_file::read(&path, LARGEST).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let own = files.clone();
    let texts = blocking::unblock(move || (text(own.resolv_conf), text(own.hosts))).await;
    // Without a thread this one reads them: they are short, and no name has an address without
    // them.
    let (resolv_conf, hosts) =
        texts.unwrap_or_else(|_| (text(files.resolv_conf.clone()), text(files.hosts.clone())));
    Settings { hosts, ..Settings::parse(&resolv_conf) }
}

impl Settings {
    /// Returns the settings for these servers: names are full, and only servers know them.
    pub(super) fn of(servers: Vec<SocketAddr>) -> Settings {
        Settings {
            servers,
            limit: Duration::from_secs(5),
            attempts: 2,
            only_tcp: false,
            search: Vec::new(),
            ndots: 1,
            hosts: String::new(),
        }
    }

    /// Reads the text of `/etc/resolv.conf`.
    pub(super) fn parse(text: &str) -> Settings {
        let mut settings = Settings::of(Vec::new());
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if settings.servers.len() < MOST_SERVERS => {
                    settings.servers.extend(words.next().and_then(server));
                }
                // The last of these lines counts.
                Some("search" | "domain") => {
                    let suffixes = words.map(|suffix| suffix.trim_end_matches('.').to_owned());
                    let suffixes = suffixes.filter(|suffix| !suffix.is_empty());
                    settings.search = suffixes.take(MOST_SUFFIXES).collect();
                }
                Some("options") => words.for_each(|option| settings.option(option)),
                _ => {}
            }
        }
        if settings.servers.is_empty() {
            settings.servers.push((Ipv4Addr::LOCALHOST, DNS_PORT).into());
        }
        settings
    }

    fn option(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        let number = value.parse::<u32>().ok();
        match (name, number) {
            ("ndots", Some(number)) => self.ndots = number.min(15) as usize,
            ("timeout", Some(number)) => {
                self.limit = Duration::from_secs(number.clamp(1, 30).into());
            }
            ("attempts", Some(number)) => self.attempts = number.clamp(1, 5),
            ("use-vc", None) => self.only_tcp = true,
            _ => {}
        }
    }

    /// Returns the full names that a name may stand for, in the order in which they are tried.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(full) = name.strip_suffix('.') {
            return vec![full.to_owned()];
        }
        let mut all: Vec<_> = self.search.iter().map(|suffix| format!("{name}.{suffix}")).collect();
        let has_dots = name.bytes().filter(|byte| *byte == b'.').count() >= self.ndots;
        let at = if has_dots { 0 } else { all.len() };
        all.insert(at, name.to_owned());
        all
    }

    /// Returns the addresses of a name in `/etc/hosts`.
    pub(super) fn hosts(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.');
        let address = |line: &str| {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|known| known.eq_ignore_ascii_case(name)).then_some(address)
        };
        self.hosts.lines().filter_map(address).collect()
    }
}

/// Reads the address of a server. The zone of a link-local one has to be a number.
fn server(text: &str) -> Option<SocketAddr> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some((address, DNS_PORT).into()),
        Err(_) => format!("[{text}]:{DNS_PORT}").parse().ok(),
    }
}
