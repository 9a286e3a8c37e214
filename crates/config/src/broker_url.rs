//! Where a log is, as operators write it.
//!
//! `redis://` and `rediss://` are the schemes that IANA has registered for Redis, without and with
//! TLS; `redis+unix://` and `redis+sentinel://` are those that its clients share.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::address::Address;

/// The engine that keeps the messages of several servers, as a URL names it.
///
/// `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, or `rediss://` for TLS;
/// `redis+unix://[USER[:PASSWORD]@]/PATH[?db=DATABASE]`;
/// `redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT]/NAME[/DATABASE]`, or
/// `rediss+sentinel://`. A password alone is written `:PASSWORD@`. Special characters are
/// percent-encoded.
///
/// ```
/// use superpoll_config::BrokerUrl;
///
/// let url: BrokerUrl = "redis://:secret@10.0.0.7/2".parse()?;
/// // The password is not shown.
/// assert_eq!(url.to_string(), "redis://10.0.0.7:6379/2");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerUrl {
    /// The server that the URL names.
    pub target: BrokerTarget,
    /// Whether connections have TLS.
    pub is_encrypted: bool,
    /// The user. Default: the one without a name.
    pub user: Option<String>,
    /// The password. Default: none.
    pub password: Option<String>,
    /// The number of the database. Default: 0.
    pub database: u32,
}

/// The server that a URL names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BrokerTarget {
    /// A server.
    Server(Address),
    /// The server that sentinels call the master of this name.
    Sentinels(Vec<Address>, String),
}

fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| format!("{text:?} is not UTF-8"))
}

fn address(text: &str, port: u16) -> Result<Address, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, _)| {
        !host.contains(':') || (host.starts_with('[') && host.ends_with(']'))
    });
    let text = if has_port { text.to_owned() } else { format!("{text}:{port}") };
    let address: Address = text.parse().map_err(|error| format!("{error}"))?;
    match address {
        Address::Tcp { host: Some(_), .. } => Ok(address),
        _ => Err(format!("{text:?} has no host")),
    }
}

fn database(text: &str) -> Result<u32, String> {
    match text {
        "" => Ok(0),
        _ => text.parse().map_err(|_| format!("{text:?} is no number of a database")),
    }
}

impl std::str::FromStr for BrokerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<BrokerUrl, String> {
        let expected = "expected redis://HOST:PORT, rediss://, redis+unix:// or redis+sentinel://";
        let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("no URL, {expected}"))?;
        // The path of a socket may have an @, so only what is before the path counts.
        let (before, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (login, place) = before.rsplit_once('@').unwrap_or(("", before));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        if user.is_some() && password.is_none() {
            return Err("a user without a password, expected USER:PASSWORD@".to_owned());
        }
        let is_encrypted = scheme.starts_with("rediss");
        let below = path.strip_prefix('/').unwrap_or(path);
        let (target, number) = match scheme {
            "redis" | "rediss" => (BrokerTarget::Server(address(place, 6379)?), database(below)?),
            "redis+unix" => {
                if !place.is_empty() {
                    return Err("a host before the path of a socket".to_owned());
                }
                let (path, query) = path.split_once('?').unwrap_or((path, ""));
                let path = decoded(path)?;
                let address = format!("unix:{path}").parse();
                let address = address.map_err(|error| format!("{error}"))?;
                let number = match query.strip_prefix("db=") {
                    Some(number) => database(number)?,
                    None if query.is_empty() => 0,
                    None => return Err(format!("{query:?} behind the path, expected ?db=NUMBER")),
                };
                (BrokerTarget::Server(address), number)
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let sentinels: Result<Vec<_>, _> =
                    place.split(',').map(|one| address(one, 26379)).collect();
                let (name, number) = below.split_once('/').unwrap_or((below, ""));
                if name.is_empty() {
                    return Err(
                        "no name of a master, expected /NAME behind the sentinels".to_owned()
                    );
                }
                (BrokerTarget::Sentinels(sentinels?, decoded(name)?), database(number)?)
            }
            _ => return Err(format!("the scheme {scheme:?}, {expected}")),
        };
        Ok(BrokerUrl { target, is_encrypted, user, password, database: number })
    }
}

impl fmt::Display for BrokerUrl {
    /// Writes the URL without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.is_encrypted { "s" } else { "" };
        match &self.target {
            BrokerTarget::Server(Address::Unix(path)) => {
                write!(f, "redis+unix://{}", path.display())?
            }
            BrokerTarget::Server(address) => write!(f, "redis{s}://{address}")?,
            BrokerTarget::Sentinels(sentinels, name) => {
                write!(f, "redis{s}+sentinel://")?;
                for (index, sentinel) in sentinels.iter().enumerate() {
                    write!(f, "{}{sentinel}", if index == 0 { "" } else { "," })?;
                }
                write!(f, "/{name}")?;
            }
        }
        match (&self.target, self.database) {
            (_, 0) => Ok(()),
            (BrokerTarget::Server(Address::Unix(_)), number) => write!(f, "?db={number}"),
            (_, number) => write!(f, "/{number}"),
        }
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BrokerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_the_login() {
        for (text, shown, user, password) in [
            ("redis://a", "redis://a:6379", None, None),
            ("redis://a:1/3", "redis://a:1/3", None, None),
            ("redis://[::1]", "redis://[::1]:6379", None, None),
            ("rediss://:p%40w@a:1", "rediss://a:1", None, Some("p@w")),
            ("redis://u:p:w@a:1", "redis://a:1", Some("u"), Some("p:w")),
            ("redis+unix:///run/r.sock?db=2", "redis+unix:///run/r.sock?db=2", None, None),
            ("redis+unix://:x@/run/@.sock", "redis+unix:///run/@.sock", None, Some("x")),
            (
                "redis+sentinel://:x@a,b:2/main/1",
                "redis+sentinel://a:26379,b:2/main/1",
                None,
                Some("x"),
            ),
        ] {
            let url: BrokerUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(url.to_string(), shown);
            assert_eq!((url.user.as_deref(), url.password.as_deref()), (user, password), "{text}");
            assert!(!format!("{url:?}").contains("p@w"));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("10.0.0.1:6379", "no URL"),
            ("http://a", "scheme \"http\""),
            ("redis://", "no host"),
            ("redis://a:x", "port"),
            ("redis://a/x", "number of a database"),
            ("redis://u@a", "USER:PASSWORD"),
            ("redis+unix://a/b", "host"),
            ("redis+unix:///a?x=1", "?db="),
            ("redis+sentinel://a", "/NAME"),
        ] {
            let error = text.parse::<BrokerUrl>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
