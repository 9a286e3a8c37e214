//! Servers that are found by names: all addresses of a name, or all servers of a service, are
//! servers of the group.
//!
//! One task for each name, on one engine for the whole group, looks it up when its addresses expire
//! (`dns`), and changes the list of servers. The time to live is kept within `min_ttl` and
//! `max_ttl`. As long as resolvers fail, the last known servers stay, and the name is looked up
//! more and more rarely, every 30 s in the end. An answer that the name is not there, or has no
//! address, is believed after `hold` only: such answers are often a mistake that is put right soon,
//! and a server that is gone in fact is found out by its failures.
//!
//! A look-up may fail in part: one family of addresses, or one target of a service. The rest is
//! believed, the failed part keeps the servers that are known of it, and the look-up counts as one
//! that has failed: it is reported, and repeated more and more rarely, but no later than the rest
//! expires.
//!
//! A request that comes before the first look-up waits for it.
//!
//! Priorities of a service become levels, from 0, and the weight of a record multiplies the weight
//! in the configuration; a record of weight 0 counts as 1.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use superpoll_config::{Address, Dns, ServerAddress};
use superpoll_rt::Handle;
use superpoll_rt::time::{self, sleep};

use super::balance::{hash, mix};
use super::group::{Group, ListChange, first_level};
use super::health;
use super::server::Found;
use crate::dns::{LookupError, Resolver, Service};
use crate::log::{Event, Level, others};

/// The longest time between two attempts to look up a name that fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest sleep of a task that has to notice the end of its group.
const NAP: Duration = Duration::from_secs(5);

/// The most servers that a line of the log names.
const MOST_NAMED: usize = 8;

/// Looks a name up again and again until the group ends.
pub(super) async fn keep_found(group: Weak<Group>, number: usize) {
    let mut failures = 0_u32;
    let mut absent_since = None;
    let mut is_first = true;
    loop {
        let pause = {
            let Some(group) = group.upgrade().filter(|group| !group.has_ended()) else { return };
            let dns = group.config().dns.clone();
            let named = &group.named[number];
            let had_none = group.found(named.slot).is_empty();
            let outcome = look_up(&group, named.slot, &dns).await;
            named.lookups.fetch_add(1, Ordering::Relaxed);
            let pause = match outcome {
                Ok(LookedUp { servers, ttl, failed }) => {
                    group.replace(number, servers);
                    let expires = ttl.clamp(dns.min_ttl, dns.max_ttl);
                    if failed.is_none() && (failures > 0 || absent_since.is_some()) {
                        group.report_recovery(number);
                    }
                    absent_since = None;
                    match failed {
                        None => {
                            failures = 0;
                            expires
                        }
                        Some(why) => {
                            let error = LookupError::Failed(why);
                            group.report_missing(number, &error, Stay::InPart);
                            failures = failures.saturating_add(1);
                            named.failures.fetch_add(1, Ordering::Relaxed);
                            pause_after(failures, &dns).min(expires)
                        }
                    }
                }
                Err(LookupError::Absent(ttl)) => {
                    failures = 0;
                    let since = *absent_since.get_or_insert_with(time::now);
                    let left = dns.hold.saturating_sub(time::now() - since);
                    let error = LookupError::Absent(ttl);
                    group.report_missing(number, &error, Stay::For(left));
                    if left.is_zero() {
                        group.replace(number, Vec::new());
                    }
                    let pause = ttl.min(LONGEST_PAUSE).clamp(dns.min_ttl, dns.max_ttl);
                    if left.is_zero() { pause } else { pause.min(left) }
                }
                Err(error) => {
                    named.failures.fetch_add(1, Ordering::Relaxed);
                    group.report_missing(number, &error, Stay::All);
                    failures = failures.saturating_add(1);
                    pause_after(failures, &dns)
                }
            };
            // Only then, so that a request that has waited finds the servers.
            if std::mem::take(&mut is_first) && had_none {
                group.looked_up();
            }
            let spread = mix(u64::from(failures) ^ hash(named.text.as_bytes()));
            health::varied(pause, spread)
        };
        let mut left = pause;
        while !left.is_zero() {
            let nap = left.min(NAP);
            sleep(nap).await;
            left -= nap;
            if group.upgrade().is_none_or(|group| group.has_ended()) {
                return;
            }
        }
    }
}

/// Returns the time until the next look-up after so many that have failed.
fn pause_after(failures: u32, dns: &Dns) -> Duration {
    let pause = dns.min_ttl.saturating_mul(1 << failures.saturating_sub(1).min(16));
    pause.min(LONGEST_PAUSE).max(dns.min_ttl)
}

/// The known servers that stay when a look-up has failed.
#[derive(Clone, Copy)]
enum Stay {
    All,
    /// All, for a while.
    For(Duration),
    /// Those of the part that has failed.
    InPart,
}

/// The outcome of a look-up.
#[derive(PartialEq, Eq, Debug)]
struct LookedUp {
    servers: Vec<Found>,
    /// The time for which they hold.
    ttl: Duration,
    /// The reason for which a part of them could not be looked up.
    failed: Option<String>,
}

/// Looks up the servers of a name.
async fn look_up(group: &Group, slot: usize, dns: &Dns) -> Result<LookedUp, LookupError> {
    let server = &group.config().servers[slot];
    let resolver = Resolver::new(dns.resolver.clone(), dns.timeout, dns.family);
    let weight = server.weight.get();
    let known = group.found(slot);
    match &server.address {
        ServerAddress::Address(Address::Tcp { host: Some(host), port }) => {
            let known: Vec<_> = known.iter().filter_map(ip).collect();
            let found = resolver.addresses(host, &known).await?;
            let origin = Address::Tcp { host: Some(host.clone()), port: *port };
            let servers = found.records.iter().map(|ip| Found {
                address: Address::Tcp { host: Some(ip.to_string()), port: *port },
                origin: Some(origin.clone()),
                weight,
                level: first_level(server),
            });
            Ok(LookedUp {
                servers: servers.collect(),
                ttl: found.ttl,
                failed: found.failed.clone(),
            })
        }
        ServerAddress::Service(name) => {
            let services = resolver.services(name).await?;
            let known = by_target(&known);
            let mut targets: Vec<_> =
                services.records.iter().map(|service| service.target.clone()).collect();
            targets.sort_unstable();
            targets.dedup();
            let asked = targets.into_iter().map(|target| {
                let known = known.get(&target).cloned().unwrap_or_default();
                (target, known)
            });
            let looked_up = Rc::new(resolver).addresses_of_all(asked.collect()).await;
            let found = of_service(&services.records, services.ttl, looked_up, &known, weight);
            found.map(|mut found| {
                for one in &mut found.servers {
                    one.level = one.level.saturating_add(first_level(server));
                }
                found
            })
        }
        // Nothing else is looked up.
        ServerAddress::Address(_) => Err(LookupError::Failed("it has no name".to_owned())),
    }
}

fn ip(found: &Found) -> Option<IpAddr> {
    let Address::Tcp { host: Some(host), .. } = &found.address else { return None };
    host.parse().ok()
}

/// Returns the known addresses of each target of a service.
fn by_target(known: &[Found]) -> BTreeMap<String, Vec<IpAddr>> {
    let mut targets: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for found in known {
        if let (Some(Address::Tcp { host: Some(target), .. }), Some(ip)) =
            (&found.origin, ip(found))
        {
            targets.entry(target.clone()).or_default().push(ip);
        }
    }
    targets
}

/// The outcomes for the targets of a service.
type Targets = Vec<(String, Result<crate::dns::Found<Vec<IpAddr>>, LookupError>)>;

/// Joins the servers of a service with the addresses of their names. A target that cannot be looked
/// up keeps the addresses that are known of it.
fn of_service(
    services: &[Service],
    mut ttl: Duration,
    looked_up: Targets,
    known: &BTreeMap<String, Vec<IpAddr>>,
    weight: u32,
) -> Result<LookedUp, LookupError> {
    let mut addresses = BTreeMap::new();
    let mut failed = None;
    for (target, outcome) in looked_up {
        match outcome {
            Ok(found) => {
                ttl = ttl.min(found.ttl);
                failed = failed.or(found.failed);
                addresses.insert(target, found.records);
            }
            Err(LookupError::Absent(for_long)) => ttl = ttl.min(for_long),
            Err(LookupError::Failed(why)) => {
                if let Some(known) = known.get(&target) {
                    addresses.insert(target, known.clone());
                }
                failed = failed.or(Some(why));
            }
        }
    }
    let mut priorities: Vec<_> = services.iter().map(|service| service.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let mut found = Vec::new();
    for service in services {
        let level = priorities.partition_point(|priority| *priority < service.priority);
        let origin = Address::Tcp { host: Some(service.target.clone()), port: service.port };
        for ip in addresses.get(&service.target).into_iter().flatten() {
            found.push(Found {
                address: Address::Tcp { host: Some(ip.to_string()), port: service.port },
                origin: Some(origin.clone()),
                weight: weight.saturating_mul(u32::from(service.weight.max(1))),
                level: u32::try_from(level).unwrap_or(u32::MAX),
            });
        }
    }
    found.truncate(crate::dns::MOST_ADDRESSES);
    match (found.is_empty(), failed) {
        (false, failed) => Ok(LookedUp { servers: found, ttl, failed }),
        (true, Some(why)) => Err(LookupError::Failed(why)),
        (true, None) => Err(LookupError::Absent(ttl)),
    }
}

impl Group {
    /// Replaces the servers of a name, reports that, and has new servers checked.
    fn replace(self: &Arc<Group>, number: usize, found: Vec<Found>) {
        let named = &self.named[number];
        named.servers.store(found.len() as u64, Ordering::Relaxed);
        let change = self.install(named.slot, found);
        if change.new.is_empty() && change.gone.is_empty() {
            return;
        }
        self.report_change(number, &change);
        for server in &change.new {
            health::begin(self, server);
        }
    }

    fn report_change(&self, number: usize, change: &ListChange) {
        let (upstream, name) = (self.name(), &self.named[number].text);
        let list = |servers: &[Arc<super::GroupServer>]| {
            let named = servers.iter().take(MOST_NAMED).map(|server| server.address.to_string());
            let mut list = named.collect::<Vec<_>>().join(", ");
            if let Some(more) = servers.len().checked_sub(MOST_NAMED + 1) {
                list = format!("{list} and {} more", more + 1);
            }
            list
        };
        let (new, gone) = (list(&change.new), list(&change.gone));
        let what = match (new.is_empty(), gone.is_empty()) {
            (false, true) => format!("{new} came"),
            (true, _) => format!("{gone} went"),
            (false, false) => format!("{new} came, and {gone} went"),
        };
        let message = format!("the servers of {upstream} by the name {name}: {what}");
        let event = Event::new(Level::Notice, "upstream-changed", message);
        let event = event.with("upstream", upstream).with("name", name.as_str());
        (self.report)(&event.with("new", new).with("gone", gone));
    }

    fn report_missing(&self, number: usize, error: &LookupError, stay: Stay) {
        let named = &self.named[number];
        let Some(left_out) = named.reports.admit() else { return };
        let (upstream, name) = (self.name(), &named.text);
        let known = self.found(named.slot).len();
        let then = match (known, stay) {
            (0, _) => "it has no servers".to_owned(),
            (_, Stay::All) => format!("the known servers stay ({known})"),
            (_, Stay::InPart) => {
                format!("the known servers of that part stay, so that there are {known}")
            }
            (_, Stay::For(Duration::ZERO)) => format!("the known servers go ({known})"),
            (_, Stay::For(hold)) => {
                let hold = humantime::format_duration(Duration::from_secs(hold.as_secs()));
                format!("the known servers stay for {hold} ({known})")
            }
        };
        let others = others(left_out);
        let message = format!("looking up {name} of {upstream}: {error}; {then}{others}");
        let event = Event::new(Level::Warning, "upstream-lookup-failed", message);
        let event = event.with("upstream", upstream).with("name", name.as_str());
        (self.report)(&event.with("error", error.to_string()).with("left_out", left_out));
    }

    fn report_recovery(&self, number: usize) {
        let (upstream, name) = (self.name(), &self.named[number].text);
        let message = format!("looking up {name} of {upstream} works again");
        let event = Event::new(Level::Notice, "upstream-lookup-works", message);
        (self.report)(&event.with("upstream", upstream).with("name", name.as_str()));
    }
}

/// Begins to check the servers of a group, if they have checks, and to look up their names.
///
/// # Errors
///
/// The runtime has ended.
pub fn watch(group: &Arc<Group>, handle: &Handle) -> superpoll_rt::Result<()> {
    if group.config().health.is_none() && group.named.is_empty() {
        return Ok(());
    }
    let engines = handle.engines().max(1) as u64;
    let engine = usize::try_from(hash(group.name().as_bytes()) % engines).unwrap_or(0);
    let group = group.clone();
    handle.call_on(engine, move || {
        for server in group.members().iter() {
            health::begin(&group, server);
        }
        for number in 0..group.named.len() {
            superpoll_rt::spawn(keep_found(Arc::downgrade(&group), number)).detach();
        }
    })
}
