//! A stub resolver: the addresses of a name and the servers of a service, with the time for which
//! they hold.
//!
//! `getaddrinfo` tells neither the time to live of an address nor the servers of a service (SRV
//! records, RFC 2782), and occupies a thread for as long as a resolver is silent. So names of
//! upstream servers are looked up here, with sockets of the runtime. The format of messages is that
//! of a library (`message`); the rules for names, retries and answers are these:
//!
//! - Without servers of its own, a `Resolver` does as the C library: `/etc/hosts` comes first,
//!   and `/etc/resolv.conf` says the servers, the search list and the limits. Both files are read
//!   again for each look-up, so a change needs no reload. A name that the servers of
//!   `/etc/resolv.conf` do not know is looked up by `getaddrinfo` as well, which knows more
//!   sources: multicast DNS, names of containers, directories.
//! - A question goes to one server after another, from a new port and with a new random number each
//!   time. An answer counts only if it comes from that server, with that number and that question;
//!   any other datagram is passed over, and does not end the wait.
//! - A truncated answer is asked for again by TCP.
//! - Only records of the name itself count, or of the name at the end of its chain of aliases.
//! - A server that fails, refuses or is silent says nothing about the name
//!   (`LookupError::Failed`). Only an answer says that a name is not there
//!   (`LookupError::Absent`).
//!
//! | bound | value |
//! |---|---|
//! | addresses of a name, servers of a service | 64 each, the first ones in order |
//! | aliases in a chain | 16 |
//! | an answer by UDP; by TCP | 4 KiB; 64 KiB |
//! | `/etc/hosts`, `/etc/resolv.conf` | 1 MiB each |
//! | servers, suffixes in the search list | 3, 32 |

mod message;
#[cfg(any(test, fuzzing))]
mod oracle;
mod system;
#[cfg(test)]
mod tests;
mod transport;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use superpoll_rt::net::lookup_host;

pub(crate) use self::message::Service;
#[cfg(fuzzing)]
pub(crate) use self::oracle::check_answer;
use superpoll_config::Family;

use self::message::{Kind, Record, Reply};
use self::system::{Settings, SystemFiles};

/// The most addresses of a name that are used, and the most servers of a service.
pub(crate) const MOST_ADDRESSES: usize = 64;

/// How long addresses from a source without a time to live hold: `/etc/hosts` and `getaddrinfo`.
const WITHOUT_TTL: Duration = Duration::from_secs(10);

/// How long the absence of a name holds if its answer does not say.
const ABSENT: Duration = Duration::from_secs(10);

/// The outcome of a look-up, and the time for which it holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found<T> {
    pub records: T,
    pub ttl: Duration,
    /// The reason for which a part could not be looked up: a family of addresses. The records
    /// contain the known ones of that part, and the time to live is that of the rest.
    pub failed: Option<String>,
}

impl<T> Found<T> {
    /// Returns an outcome without a part that has failed.
    fn whole(records: T, ttl: Duration) -> Found<T> {
        Found { records, ttl, failed: None }
    }
}

/// The reason for which there are no records.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
pub(crate) enum LookupError {
    /// There is no such name, or it has no such records. That holds for a time.
    #[error("there is no such name, or it has no address")]
    Absent(Duration),
    /// No server has answered.
    #[error("{0}")]
    Failed(String),
}

type Outcome<T> = Result<Found<T>, LookupError>;

/// Looks names up.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// The servers, if they are not those of the system.
    servers: Option<Vec<SocketAddr>>,
    /// How long each server has for an answer, if the system does not say that.
    limit: Option<Duration>,
    family: Family,
    files: SystemFiles,
}

impl Resolver {
    /// Creates a resolver that asks these servers, or those of the system.
    pub(crate) fn new(
        servers: Option<Vec<SocketAddr>>,
        limit: Option<Duration>,
        family: Family,
    ) -> Resolver {
        Resolver { servers, limit, family, files: SystemFiles::default() }
    }

    async fn settings(&self) -> Settings {
        let mut settings = match &self.servers {
            Some(servers) => Settings::of(servers.clone()),
            None => system::read(&self.files).await,
        };
        if let Some(limit) = self.limit {
            settings.limit = limit;
        }
        settings
    }

    /// Returns the addresses of a name in order. If only one family of addresses cannot be looked
    /// up, those of them that are `known` are kept, and the outcome says so.
    ///
    /// # Errors
    ///
    /// The name has no addresses, or no server answers.
    pub(crate) async fn addresses(&self, name: &str, known: &[IpAddr]) -> Outcome<Vec<IpAddr>> {
        let settings = self.settings().await;
        self.addresses_by(&settings, name, known).await
    }

    async fn addresses_by(
        &self,
        settings: &Settings,
        name: &str,
        known: &[IpAddr],
    ) -> Outcome<Vec<IpAddr>> {
        if let Some(listed) = self.of_family(settings.hosts(name)) {
            return Ok(Found::whole(listed, WITHOUT_TTL));
        }
        let (mut absent, mut failed) = (ABSENT, None);
        for candidate in settings.candidates(name) {
            match self.addresses_of(settings, &candidate, known).await {
                Err(LookupError::Absent(ttl)) => absent = absent.min(ttl),
                // A domain of the search list may have no server that answers for it.
                Err(LookupError::Failed(why)) => failed = failed.or(Some(why)),
                found => return found,
            }
        }
        if self.servers.is_none()
            && let Ok(found) = lookup_host((name, 0)).await
            && let Some(listed) = self.of_family(found.iter().map(SocketAddr::ip).collect())
        {
            return Ok(Found::whole(listed, WITHOUT_TTL));
        }
        Err(failed.map_or(LookupError::Absent(absent), LookupError::Failed))
    }

    /// Returns those of the addresses that are used, if there are any.
    fn of_family(&self, mut addresses: Vec<IpAddr>) -> Option<Vec<IpAddr>> {
        let has_v4 = addresses.iter().any(IpAddr::is_ipv4);
        addresses.retain(|address| match self.family {
            Family::Auto => address.is_ipv4() == has_v4,
            Family::Ipv4 => address.is_ipv4(),
            Family::Ipv6 => address.is_ipv6(),
            Family::Both => true,
        });
        (!addresses.is_empty()).then(|| bounded(addresses))
    }

    /// Looks up the addresses of a full name.
    async fn addresses_of(
        &self,
        settings: &Settings,
        name: &str,
        known: &[IpAddr],
    ) -> Outcome<Vec<IpAddr>> {
        let of = |kind| async move {
            let found = records(settings, name, kind).await?;
            let addresses = found.records.into_iter().filter_map(|record| match record {
                Record::Address(address) => Some(address),
                Record::Service(_) => None,
            });
            Ok(Found::whole(bounded(addresses.collect()), found.ttl))
        };
        match self.family {
            Family::Ipv4 => of(Kind::V4).await,
            Family::Ipv6 => of(Kind::V6).await,
            Family::Auto => match of(Kind::V4).await {
                Err(LookupError::Absent(ttl)) => {
                    let found = of(Kind::V6).await;
                    found.map_err(|error| match error {
                        LookupError::Absent(other) => LookupError::Absent(ttl.min(other)),
                        failed => failed,
                    })
                }
                outcome => outcome,
            },
            Family::Both => {
                let (v4, v6) = (of(Kind::V4).await, of(Kind::V6).await);
                both(v4, v6, known)
            }
        }
    }

    /// Returns the servers of a service in the order of their priorities.
    ///
    /// # Errors
    ///
    /// There is no such service, or no server answers.
    pub(crate) async fn services(&self, name: &str) -> Outcome<Vec<Service>> {
        services_by(&self.settings().await, name).await
    }

    /// Returns the addresses of each of some full names, which are looked up at the same time.
    pub(crate) async fn addresses_of_all(
        self: &Rc<Self>,
        names: Vec<(String, Vec<IpAddr>)>,
    ) -> Vec<(String, Outcome<Vec<IpAddr>>)> {
        let settings = Rc::new(self.settings().await);
        let asked: Vec<_> = names
            .into_iter()
            .map(|(name, known)| {
                let (resolver, settings, asked) = (self.clone(), settings.clone(), name.clone());
                let looks = async move {
                    // Targets of services are full names.
                    let full = format!("{}.", asked.trim_end_matches('.'));
                    resolver.addresses_by(&settings, &full, &known).await
                };
                (name, superpoll_rt::spawn(looks))
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        for (name, outcome) in asked {
            let failed = |_| Err(LookupError::Failed("the look-up has ended early".to_owned()));
            all.push((name, outcome.await.unwrap_or_else(failed)));
        }
        all
    }
}

/// Sorts records, and leaves out repetitions and those that are too many.
fn bounded<T: Ord>(mut records: Vec<T>) -> Vec<T> {
    records.sort_unstable();
    records.dedup();
    records.truncate(MOST_ADDRESSES);
    records
}

/// Joins the addresses of two families. A family that has failed has the addresses that are known
/// of it; the failure is the outcome only if there are no addresses at all.
fn both(
    v4: Outcome<Vec<IpAddr>>,
    v6: Outcome<Vec<IpAddr>>,
    known: &[IpAddr],
) -> Outcome<Vec<IpAddr>> {
    let (mut all, mut has_answer) = (Found::whole(Vec::new(), Duration::MAX), false);
    for (outcome, is_v4) in [(v4, true), (v6, false)] {
        has_answer |= !matches!(outcome, Err(LookupError::Failed(_)));
        match outcome {
            Ok(found) => {
                all.records.extend(found.records);
                all.ttl = all.ttl.min(found.ttl);
            }
            // The family may be there before the addresses of the other one have expired.
            Err(LookupError::Absent(ttl)) => all.ttl = all.ttl.min(ttl),
            Err(LookupError::Failed(why)) => {
                all.records.extend(known.iter().filter(|known| known.is_ipv4() == is_v4));
                all.failed = all.failed.or(Some(why));
            }
        }
    }
    all.records = bounded(all.records);
    let is_found = has_answer && !all.records.is_empty();
    match all.failed {
        failed if is_found => Ok(Found { failed, ..all }),
        Some(why) => Err(LookupError::Failed(why)),
        None => Err(LookupError::Absent(all.ttl)),
    }
}

async fn services_by(settings: &Settings, name: &str) -> Outcome<Vec<Service>> {
    let (mut absent, mut failed) = (ABSENT, None);
    for candidate in settings.candidates(name) {
        match records(settings, &candidate, Kind::Service).await {
            Err(LookupError::Absent(ttl)) => absent = absent.min(ttl),
            Err(LookupError::Failed(why)) => failed = failed.or(Some(why)),
            Ok(found) => {
                let services = found.records.into_iter().filter_map(|record| match record {
                    Record::Service(service) => Some(service),
                    Record::Address(_) => None,
                });
                let services = bounded(services.collect());
                // A service whose only target is the root is decidedly not there (RFC 2782).
                return match services.is_empty() {
                    true => Err(LookupError::Absent(found.ttl)),
                    false => Ok(Found::whole(services, found.ttl)),
                };
            }
        }
    }
    Err(failed.map_or(LookupError::Absent(absent), LookupError::Failed))
}

/// Asks one server after another for the records of a full name.
async fn records(settings: &Settings, name: &str, kind: Kind) -> Outcome<Vec<Record>> {
    let mut why = "/etc/resolv.conf names no server".to_owned();
    for _ in 0..settings.attempts {
        for &server in &settings.servers {
            let asked = transport::ask(server, name, kind, settings).await;
            match asked {
                Ok(Reply::Records(records, ttl)) => {
                    return Ok(Found::whole(records, Duration::from_secs(ttl.into())));
                }
                Ok(Reply::Absent(ttl)) => {
                    let ttl = ttl.map_or(ABSENT, |ttl| Duration::from_secs(ttl.into()));
                    return Err(LookupError::Absent(ttl));
                }
                Ok(Reply::Refused(code)) => why = format!("{server} has answered {code}"),
                Ok(Reply::Truncated | Reply::FormatError) => {
                    why = format!("{server} has not understood the question");
                }
                Err(error) => why = format!("asking {server}: {error}"),
            }
        }
    }
    Err(LookupError::Failed(why))
}
