//! A group of servers, and the state of it that all engines share.
//!
//! The list of servers changes only when the addresses of a name do (`names`). Then there is
//! another list, and a number that tells engines to fetch it; a server that is in both keeps its
//! state. Each engine has a copy of its own (`pool`), so a request takes no lock.
//!
//! A server is down for one of two reasons (`server` has the states). With active checks, a server
//! is down when a check has failed, or when requests have failed on it, until enough checks have
//! succeeded. Without them, requests that fail are the only evidence (passive checks): then a
//! server is left out for a while, and after that the next failure leaves it out again.
//!
//! The two differ when no server is up. A failed active check is believed: there is no server to
//! forward to. A passive conclusion is not: one slow minute must not turn all clients away, so the
//! server whose pause ends first is tried anyway. An ejection (`ejection`) is a passive conclusion,
//! too, with or without active checks.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use superpoll_config::{Balance, CertificateFiles, Health, ServerAddress, Upstream};
use tokio::sync::watch;

use super::balance::{self, Candidate};
use super::client_tls::{ClientTlsError, Tls};
use super::named_servers::NamedServers;
use super::server::{Clock, Found, GroupServer, ServerRules};
use super::sticky::Sticky;
use crate::admin::Settings;
use crate::certificates::CertificateStore;
use crate::log::{Event, RateLimited, Report};
use crate::telemetry::traffic::ServerCondition;

/// How long a server is left out after failures, without active checks.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// The time between two reports that a group has no server for requests, that requests come
/// back, or that checks are prevented.
const TURNED_AWAY: Duration = Duration::from_secs(10);

/// The time between two reports of what scripts have written for the log. Programs of PHP may write
/// something at each request.
const SCRIPT_ERRORS: Duration = Duration::from_millis(50);

/// Above the levels of all servers that are no backups: as many as a service has priorities.
const BACKUPS: u32 = 1 << 16;

/// Returns the level of the servers that an entry of the configuration stands for, or the first
/// of their levels.
pub(super) fn first_level(server: &superpoll_config::Server) -> u32 {
    if server.backup { BACKUPS } else { 0 }
}

/// The servers of a group at one moment, in the order of the configuration; those of a name in the
/// order of their addresses.
pub struct ServerList {
    servers: Vec<Arc<GroupServer>>,
    /// Whether some of them are for times when other servers are down.
    has_levels: bool,
    /// Whether all of them have an address of TCP.
    pub(super) have_addresses: bool,
    /// Grows with each list.
    pub(super) version: u64,
}

impl Deref for ServerList {
    type Target = [Arc<GroupServer>];

    fn deref(&self) -> &[Arc<GroupServer>] {
        &self.servers
    }
}

/// The servers as they were found, for each server of the configuration, and the list of all.
pub(super) struct Listed {
    found: Vec<Vec<Found>>,
    pub(super) list: Arc<ServerList>,
}

/// A group of servers, shared by all engines. It outlives changes of the configuration that leave
/// it as it is.
pub struct Group {
    name: Arc<str>,
    config: Upstream,
    pub(super) tls: Option<Tls>,
    listed: Mutex<Listed>,
    version: AtomicU64,
    /// The servers that are found by names.
    pub(super) named: Vec<NamedServers>,
    /// How many names have not been looked up for the first time.
    pending: watch::Sender<usize>,
    pub(super) clock: Clock,
    pub(super) rules: ServerRules,
    /// Held while it is decided whether a server is ejected.
    pub(super) ejecting: Mutex<()>,
    ended: AtomicBool,
    /// The settings of operators, for servers that are found later as well.
    pub(super) settings: Mutex<Settings>,
    pub(super) report: Report,
    /// Requests that found no server.
    pub(super) turned_away: RateLimited,
    pub(super) not_kept: RateLimited,
    pub(super) script_errors: RateLimited,
    /// Requests that this server has forwarded before.
    pub(super) came_back: RateLimited,
    /// Checks that a shortage on this machine has prevented.
    pub(super) unchecked: RateLimited,
}

/// The consequences of other addresses of a name.
#[derive(Default)]
pub(super) struct ListChange {
    pub new: Vec<Arc<GroupServer>>,
    pub gone: Vec<Arc<GroupServer>>,
}

impl Group {
    /// Creates a group. `report` receives the events of its servers, and must not block. Where the
    /// group replaces another one, servers are known by the names that are in both until
    /// they are looked up again.
    ///
    /// # Errors
    ///
    /// The certificates of the authorities that issue the servers' certificates cannot be read.
    pub fn new(
        name: &str,
        config: &Upstream,
        before: Option<&Group>,
        report: Arc<dyn Fn(&Event) + Send + Sync>,
    ) -> Result<Arc<Group>, ClientTlsError> {
        let tls = config.tls.as_ref().map(|tls| Tls::new(tls, config.h2)).transpose()?;
        let named = NamedServers::all(config);
        let found = config.servers.iter().map(|server| match &server.address {
            ServerAddress::Address(address) if !server.address.is_looked_up() => vec![Found {
                address: address.clone(),
                origin: None,
                weight: server.weight.get(),
                level: first_level(server),
            }],
            _ => before.map_or_else(Vec::new, |before| before.known(server)),
        });
        let found: Vec<_> = found.collect();
        for named in &named {
            named.servers.store(found[named.slot].len() as u64, Ordering::Relaxed);
        }
        let pending = named.iter().filter(|named| found[named.slot].is_empty()).count();
        let slow_start = config.slow_start.unwrap_or_default().as_millis();
        let rules = ServerRules {
            slow_start: u64::try_from(slow_start).unwrap_or(u64::MAX),
            sticky: config.sticky.as_ref().map(|sticky| Sticky::new(name, sticky)),
        };
        let (list, _) = ServerList::new(&found, &rules, None, 0);
        Ok(Arc::new(Group {
            name: name.into(),
            config: config.clone(),
            tls,
            listed: Mutex::new(Listed { found, list: Arc::new(list) }),
            version: AtomicU64::new(0),
            named,
            pending: watch::Sender::new(pending),
            clock: Clock::start(),
            rules,
            ejecting: Mutex::default(),
            ended: AtomicBool::new(false),
            settings: Mutex::default(),
            report,
            turned_away: RateLimited::new(TURNED_AWAY),
            not_kept: RateLimited::new(TURNED_AWAY),
            script_errors: RateLimited::new(SCRIPT_ERRORS),
            came_back: RateLimited::new(TURNED_AWAY),
            unchecked: RateLimited::new(TURNED_AWAY),
        }))
    }

    /// Returns the group's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the files of the certificate that servers are shown, and the store that holds it.
    pub fn identity(&self) -> Option<(&CertificateFiles, &Arc<CertificateStore>)> {
        let files = self.config.tls.as_ref()?.identity.as_ref()?;
        Some((files, self.tls.as_ref()?.identity.as_ref()?))
    }

    /// Returns the group's configuration.
    #[must_use]
    pub fn config(&self) -> &Upstream {
        &self.config
    }

    pub(super) fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the group's servers at this moment.
    #[must_use]
    pub fn members(&self) -> Arc<ServerList> {
        self.listed().list.clone()
    }

    /// Returns the group's name for lines of the access log.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the servers that are found by names, for the metrics.
    pub fn names(&self) -> &[NamedServers] {
        &self.named
    }

    /// Returns the number of the list: another one means another list.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether new requests are forwarded to a server: it is healthy, and no operator has taken it
    /// out.
    #[must_use]
    pub fn is_up(&self, server: &GroupServer) -> bool {
        server.share(|| self.clock.now()).is_some()
    }

    /// Returns the condition of a server, for operators.
    pub fn condition(&self, server: &GroupServer) -> ServerCondition {
        server.condition(self.clock.now())
    }

    /// Returns the servers that were found for a server of another configuration.
    fn known(&self, server: &superpoll_config::Server) -> Vec<Found> {
        let same = |known: &superpoll_config::Server| known.address == server.address;
        let slot = self.config.servers.iter().position(same);
        slot.map_or_else(Vec::new, |slot| self.found(slot))
    }

    /// Returns the servers that were found for a server of the configuration.
    pub(super) fn found(&self, slot: usize) -> Vec<Found> {
        self.listed().found[slot].clone()
    }

    /// Replaces the servers that were found for a server of the configuration.
    pub(super) fn install(&self, slot: usize, found: Vec<Found>) -> ListChange {
        let mut listed = self.listed();
        let listed = &mut *listed;
        if listed.found[slot] == found {
            return ListChange::default();
        }
        listed.found[slot] = found;
        let before = listed.list.clone();
        // The first servers of a name are no newer than the others.
        let is_first = before.is_empty() || self.is_being_looked_up();
        let up_since = if is_first { 0 } else { self.clock.now() };
        let (list, new) = ServerList::new(&listed.found, &self.rules, Some(&before), up_since);
        let gone = |server: &&Arc<GroupServer>| !list.iter().any(|kept| Arc::ptr_eq(kept, server));
        let gone: Vec<_> = before.iter().filter(gone).cloned().collect();
        gone.iter().for_each(|server| server.leave());
        // Before the list is known, so that no server gets a request that an operator has taken
        // out.
        self.apply_settings(&list);
        self.version.store(list.version, Ordering::Release);
        listed.list = Arc::new(list);
        ListChange { new, gone }
    }

    /// Notes that a name was looked up for the first time.
    pub(super) fn looked_up(&self) {
        self.pending.send_modify(|pending| *pending = pending.saturating_sub(1));
    }

    /// Whether a name is being looked up for the first time.
    pub fn is_being_looked_up(&self) -> bool {
        *self.pending.borrow() > 0
    }

    /// Waits until all names have been looked up, or a server is there.
    pub async fn has_servers(&self) {
        let mut pending = self.pending.subscribe();
        // The sender lives as long as the group.
        let _ = pending.wait_for(|pending| *pending == 0 || !self.members().is_empty()).await;
    }

    /// Ends the checks and the look-ups.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the number of failures in a row after which a server is down.
    pub(super) fn fall(&self) -> u32 {
        let health = self.config.health.as_ref();
        health.map_or_else(|| Health::default().fall, |health| health.fall).get()
    }

    /// Returns the time after which a client may ask again, if no server is up.
    pub(super) fn retry_after(&self) -> Duration {
        match &self.config.health {
            Some(health) => health.interval.saturating_mul(health.rise.get()),
            None => PAUSE,
        }
    }

    /// Chooses a server of a list for a client, but none among `tried`. Returns its place.
    pub(super) fn choose(
        &self,
        list: &ServerList,
        credit: &mut [i64],
        client: Option<IpAddr>,
        tried: &[u64],
    ) -> Option<usize> {
        let is_untried = |index: &usize| !tried.contains(&list[*index].id);
        let untried = (0..list.len()).filter(is_untried);
        let up = untried.clone().filter_map(|index| {
            let weight = list[index].share(|| self.clock.now())?;
            Some(Candidate { index, weight })
        });
        let chosen = match list.has_levels {
            false => self.balance(list, credit, client, up),
            true => {
                let level = up.clone().map(|candidate| list[candidate.index].level()).min();
                let first = up.filter(|candidate| Some(list[candidate.index].level()) == level);
                self.balance(list, credit, client, first)
            }
        };
        let tried_anyway = || {
            let untried = untried.filter(|index| !list[*index].is_down());
            untried.min_by_key(|index| list[*index].left_out_until())
        };
        chosen.or_else(tried_anyway)
    }

    fn balance(
        &self,
        list: &ServerList,
        credit: &mut [i64],
        client: Option<IpAddr>,
        up: impl Iterator<Item = Candidate> + Clone,
    ) -> Option<usize> {
        match (self.config.balance, client) {
            (Balance::LeastConnections, _) => {
                balance::by_load(credit, up, |index| list[index].active.load(Ordering::Relaxed))
            }
            (Balance::Hash, Some(client)) => {
                let client = match client {
                    IpAddr::V4(address) => balance::hash(&address.octets()),
                    IpAddr::V6(address) => balance::hash(&address.octets()),
                };
                balance::by_hash(client, up, |index| list[index].key)
            }
            (Balance::RoundRobin | Balance::Hash, _) => balance::by_turns(credit, up),
        }
    }
}

impl ServerList {
    /// Makes the list of the servers that were found, and returns those that were not in the list
    /// before. Of several with the same address the first one counts.
    fn new(
        found: &[Vec<Found>],
        rules: &ServerRules,
        before: Option<&ServerList>,
        up_since: u64,
    ) -> (ServerList, Vec<Arc<GroupServer>>) {
        let mut servers: Vec<Arc<GroupServer>> = Vec::new();
        let mut new = Vec::new();
        let known = before.map_or(&[][..], |before| &before.servers);
        let found = found.iter().enumerate();
        for (slot, found) in found.flat_map(|(slot, all)| all.iter().map(move |one| (slot, one))) {
            if servers.iter().any(|server| server.address == found.address) {
                continue;
            }
            let server = match known.iter().find(|server| server.is(found)) {
                Some(known) => {
                    known.weigh(found, slot);
                    known.clone()
                }
                None => {
                    let server = Arc::new(GroupServer::new(found, slot, rules, up_since));
                    new.push(server.clone());
                    server
                }
            };
            servers.push(server);
        }
        let first = servers.first().map(|server| server.level());
        let has_levels = servers.iter().any(|server| Some(server.level()) != first);
        let version = before.map_or(0, |before| before.version + 1);
        let have_addresses = servers.iter().all(|server| server.socket_address.is_some());
        (ServerList { servers, has_levels, have_addresses, version }, new)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members();
        let members: Vec<_> =
            members.iter().map(|server| (&server.address, self.is_up(server))).collect();
        f.debug_struct("Group").field("name", &self.name).field("members", &members).finish()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use superpoll_config::Config;

    use super::super::fault::{Fault, Outcome};
    use super::super::http2::StreamReset;
    use super::*;

    pub(in crate::upstream) fn telling(
        text: &str,
        told: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Arc<Group> {
        let servers = "[upstreams.a]\nservers = [{ address = \"127.0.0.1:1\" }, { address = \"127.0.0.2:1\" }]\n";
        let listener = "[[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n";
        let config = Config::parse("test", &format!("{listener}{servers}{text}")).unwrap();
        Group::new("a", &config.upstreams["a"], None, Arc::new(move |event| told(event))).unwrap()
    }

    pub(in crate::upstream) fn group(text: &str) -> Arc<Group> {
        telling(text, |_| {})
    }

    /// Creates a group of so many servers.
    pub(in crate::upstream) fn group_of(servers: usize, text: &str) -> Arc<Group> {
        let servers = (1..=servers).map(|last| format!("{{ address = \"127.0.0.{last}:1\" }}"));
        let servers = servers.collect::<Vec<_>>().join(", ");
        let text = format!(
            "[[listeners]]\naddress = \":1\"\nrelay = {{ to = \":2\" }}\n[upstreams.a]\nservers = [{servers}]\n{text}"
        );
        let config = Config::parse("test", &text).unwrap();
        Group::new("a", &config.upstreams["a"], None, Arc::new(|_: &Event| {})).unwrap()
    }

    /// Chooses a server by its place in the list, but none of those at the places in `tried`.
    pub(in crate::upstream) fn choose(
        group: &Group,
        credit: &mut [i64],
        tried: &[usize],
    ) -> Option<usize> {
        let list = group.members();
        let tried: Vec<_> = tried.iter().map(|index| list[*index].id).collect();
        group.choose(&list, credit, None, &tried)
    }

    #[test]
    fn failures_pause_a_server_and_answers_end_that() {
        let group = group("");
        let list = group.members();
        let is_up = |index: usize| group.is_up(&list[index]);
        for _ in 0..2 {
            group.failed(&list[0]);
        }
        assert!(is_up(0));
        group.worked(&list[0]);
        for _ in 0..3 {
            assert!(is_up(0));
            group.failed(&list[0]);
        }
        assert!(!is_up(0) && is_up(1));
        let mut credit = [0; 2];
        for _ in 0..5 {
            assert_eq!(choose(&group, &mut credit, &[]), Some(1));
        }
        for _ in 0..3 {
            group.failed(&list[1]);
        }
        // No check has found them unhealthy.
        assert!(choose(&group, &mut credit, &[]).is_some());
        assert_eq!(choose(&group, &mut credit, &[0]), Some(1));
        assert_eq!(choose(&group, &mut credit, &[0, 1]), None);
        group.worked(&list[0]);
        assert!(is_up(0));
    }

    /// As those whose deadlines are over.
    #[test]
    fn requests_that_a_server_has_cancelled_are_no_failures() {
        for text in ["", "eject = { errors = 1 }"] {
            let group = group(text);
            let list = group.members();
            let reset = |code: h2::Reason| Fault::Broken(StreamReset(code.into()).into());
            for _ in 0..10 {
                group.attempt_failed(&list[0], &reset(h2::Reason::CANCEL));
                group.attempt_failed(&list[1], &reset(h2::Reason::REFUSED_STREAM));
            }
            let is_up = |index: usize| group.is_up(&list[index]);
            assert!(is_up(0) && !is_up(1), "{text}");
        }
    }

    #[test]
    fn checks_decide_where_there_are_some() {
        let group = group("health = { rise = 2, fall = 2 }");
        let list = group.members();
        let mut credit = [0; 2];
        for server in list.iter() {
            group.checked(server, Err("no".to_owned()));
            assert!(group.is_up(server));
            group.checked(server, Err("no".to_owned()));
            assert!(!group.is_up(server));
        }
        assert_eq!(choose(&group, &mut credit, &[]), None);
        group.checked(&list[1], Ok(()));
        group.checked(&list[1], Err("no".to_owned()));
        group.checked(&list[1], Ok(()));
        assert!(!group.is_up(&list[1]));
        group.checked(&list[1], Ok(()));
        assert!(group.is_up(&list[1]));
        assert_eq!(choose(&group, &mut credit, &[]), Some(1));
        group.failed(&list[1]);
        group.failed(&list[1]);
        assert!(!group.is_up(&list[1]));
    }

    #[test]
    fn failures_are_rate_limited_and_state_changes_are_not() {
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let hears = told.clone();
        let group = telling("", move |event| hears.lock().unwrap().push(event.clone()));
        let server = &group.members()[0];
        let refused = || Fault::Connect(std::io::ErrorKind::ConnectionRefused.into());
        for _ in 0..1000 {
            group.report_failure(server, "/api", &refused(), Outcome::Retried, None);
            group.failed(server);
        }
        let answered = Outcome::Answered(http::StatusCode::GATEWAY_TIMEOUT);
        let silent = Fault::Silent(Duration::from_secs(60));
        group.report_failure(server, "/api", &silent, answered, None);
        group.turned_away("/", None);
        let told = told.lock().unwrap();
        let names: Vec<_> = told.iter().map(Event::name).collect();
        let failed = "upstream-failed";
        assert_eq!(names, [failed, "upstream-down", failed, failed]);
        let text = told[0].to_string();
        let expected =
            "forwarding a request below /api to 127.0.0.1:1 of a: connecting: connection refused";
        assert!(text.starts_with(expected), "{text}");
        let field = |event: &Event, name| {
            event.fields().iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
        };
        assert_eq!(field(&told[0], "reason").unwrap(), "refused");
        assert_eq!(field(&told[1], "server").unwrap(), "127.0.0.1:1");
        assert_eq!(field(&told[2], "status").unwrap(), 504);
        let text = told[2].to_string();
        assert!(text.contains("did not come within 1m; the client gets 504"), "{text}");
    }
}
