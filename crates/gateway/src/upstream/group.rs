//! A group of servers, and the state of it that all engines share.
//!
//! A server is down for one of two reasons. With active checks, a server is down when a check has
//! failed, or when requests have failed on it, until enough checks have succeeded. Without them,
//! requests that fail are the only evidence (passive checks): then a server is left out for a
//! while, and after that the next failure leaves it out again.
//!
//! The two differ when no server is up. A failed active check is believed: there is no server to
//! forward to. A passive conclusion is not: one slow minute must not turn all clients away, so the
//! server whose pause ends first is tried anyway.
//!
//! Failures and changes of state are reported, the same kind at a limited rate, as clients may
//! cause as many as they like.
//!
//! A response is not a failure, whatever its status: a server that answers 500 to one path may well
//! serve other paths.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_rustls::TlsConnector;
use futures_rustls::rustls::crypto::ring;
use futures_rustls::rustls::pki_types::pem::PemObject;
use futures_rustls::rustls::pki_types::{CertificateDer, ServerName};
use futures_rustls::rustls::{ClientConfig, RootCertStore};

use super::balance::{self, Candidate};
use super::fault::{Fault, KINDS, Outcome};
use crate::address::Address;
use crate::config::{Balance, Health, Upstream, UpstreamTls};
use crate::log::{Event, Level, RateLimited, Report, others};
use crate::telemetry::durations::Histogram;

/// How long a server is left out after failures, without active checks.
const PAUSE: Duration = Duration::from_secs(10);

/// The time between two reports of one kind of failure of one server.
const FAILURES: Duration = Duration::from_secs(10);

/// The time between two reports that a server is down, or up again.
const CHANGES: Duration = Duration::from_secs(1);

/// A server of a group.
pub struct GroupServer {
    /// The server's address.
    pub address: Address,
    /// The server's share of the group's requests, as a multiple of weight 1.
    pub weight: u32,
    /// Requests that were forwarded to the server, those that failed included.
    pub requests: AtomicU64,
    /// Requests that failed on it.
    pub failures: AtomicU64,
    /// Requests that failed on it and were sent to another server.
    pub retries: AtomicU64,
    /// Connections to it that were opened for requests.
    pub dials: AtomicU64,
    /// Connections to it that are kept for further requests.
    pub idle: AtomicU64,
    /// The times from a request to the head of its response, connecting included.
    pub(crate) durations: Histogram,
    /// Requests under way on it.
    pub active: AtomicU64,
    /// A key that is the same for the same address in all processes.
    key: u64,
    /// Set by active checks, and by failures if there are such checks.
    down: AtomicBool,
    /// Requests that failed since the last answer.
    failures_in_row: AtomicU32,
    good_checks: AtomicU32,
    bad_checks: AtomicU32,
    /// The time until which the server is left out, in ms since the group began; 0 if it is not.
    paused_until: AtomicU64,
    /// Limits the reports of each kind of failure.
    faults: [RateLimited; KINDS],
    changes: RateLimited,
}

/// The parameters of TLS to the servers.
pub(super) struct Tls {
    pub connector: TlsConnector,
    /// The same name for all servers; if there is none, the host of each.
    pub name: Option<ServerName<'static>>,
}

/// A group of servers, shared by all engines. It outlives changes of the configuration that leave
/// it as it is.
pub struct Group {
    name: String,
    config: Upstream,
    pub(super) tls: Option<Tls>,
    members: Vec<GroupServer>,
    began: Instant,
    ended: AtomicBool,
    report: Report,
    /// Requests that found no server.
    turned_away: RateLimited,
}

impl Group {
    /// Creates a group. `report` receives the events of its servers, and must not block.
    ///
    /// # Errors
    ///
    /// The certificates of the authorities that issue the servers' certificates cannot be read.
    pub fn new(
        name: &str,
        config: &Upstream,
        report: Arc<dyn Fn(&Event) + Send + Sync>,
    ) -> Result<Arc<Group>, String> {
        let tls = config.tls.as_ref().map(|tls| connector(tls, config.h2)).transpose()?;
        let members = config.servers.iter().map(|server| GroupServer {
            address: server.address.clone(),
            weight: server.weight.get(),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            dials: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            durations: Histogram::default(),
            active: AtomicU64::new(0),
            key: balance::hash(server.address.to_string().as_bytes()),
            down: AtomicBool::new(false),
            failures_in_row: AtomicU32::new(0),
            good_checks: AtomicU32::new(0),
            bad_checks: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
            faults: [const { RateLimited::new(FAILURES) }; KINDS],
            changes: RateLimited::new(CHANGES),
        });
        Ok(Arc::new(Group {
            name: name.to_owned(),
            config: config.clone(),
            tls,
            members: members.collect(),
            began: Instant::now(),
            ended: AtomicBool::new(false),
            report,
            turned_away: RateLimited::new(FAILURES),
        }))
    }

    /// Returns the group's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the group's configuration.
    #[must_use]
    pub fn config(&self) -> &Upstream {
        &self.config
    }

    /// Returns the group's servers, in the order of the configuration.
    #[must_use]
    pub fn members(&self) -> &[GroupServer] {
        &self.members
    }

    /// Whether requests are forwarded to a server.
    #[must_use]
    pub fn is_up(&self, index: usize) -> bool {
        let member = &self.members[index];
        let paused = member.paused_until.load(Ordering::Relaxed);
        !member.down.load(Ordering::Relaxed) && (paused == 0 || paused <= self.now())
    }

    /// Ends the checks.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the number of failures in a row after which a server is down.
    fn fall(&self) -> u32 {
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

    /// Notes that a server has answered a request.
    pub(super) fn worked(&self, index: usize) {
        let member = &self.members[index];
        if member.failures_in_row.load(Ordering::Relaxed) != 0 {
            member.failures_in_row.store(0, Ordering::Relaxed);
            if member.paused_until.swap(0, Ordering::Relaxed) != 0 {
                self.changed(index, true, "it has answered");
            }
        }
    }

    /// Reports that a server is up or down now.
    fn changed(&self, index: usize, is_up: bool, why: &str) {
        let member = &self.members[index];
        let Some(left_out) = member.changes.admit() else { return };
        let (level, name, now) = match is_up {
            true => (Level::Notice, "upstream-up", "up again"),
            false => (Level::Warning, "upstream-down", "down"),
        };
        let (upstream, server) = (&self.name, member.address.to_string());
        let others = others(left_out);
        let message = format!("the server {server} of {upstream} is {now}: {why}{others}");
        let event = Event::new(level, name, message);
        let event = event.with("upstream", upstream.as_str()).with("server", server);
        (self.report)(&event.with("why", why).with("left_out", left_out));
    }

    /// Reports the reason for which a request below a path has failed on a server.
    pub(super) fn report_failure(
        &self,
        index: usize,
        route: &str,
        fault: &Fault,
        outcome: Outcome,
    ) {
        let member = &self.members[index];
        if matches!(outcome, Outcome::Retried) {
            member.retries.fetch_add(1, Ordering::Relaxed);
        }
        let (number, kind) = fault.kind();
        let Some(left_out) = member.faults[number].admit() else { return };
        let (upstream, server) = (&self.name, member.address.to_string());
        let (then, status) = match outcome {
            Outcome::Retried => ("it is sent again".to_owned(), None),
            Outcome::Answered(status) => {
                (format!("the client gets {}", status.as_u16()), Some(status.as_u16()))
            }
            Outcome::CutOff => ("the client is cut off".to_owned(), None),
        };
        let others = others(left_out);
        let message = format!(
            "forwarding a request below {route} to {server} of {upstream}: {fault}; {then}{others}"
        );
        let event = Event::new(Level::Warning, "upstream-failed", message);
        let event = event.with("upstream", upstream.as_str()).with("server", server);
        let event = event.with("route", route).with("reason", kind);
        let event = event.with("error", fault.to_string()).with("status", status);
        (self.report)(&event.with("left_out", left_out));
    }

    /// Reports that there is no server for a request below a path.
    pub(super) fn turned_away(&self, route: &str) {
        let Some(left_out) = self.turned_away.admit() else { return };
        let upstream = &self.name;
        let others = others(left_out);
        let message = format!(
            "forwarding a request below {route} to {upstream}: no server is up; the client gets 503{others}"
        );
        let event = Event::new(Level::Warning, "upstream-failed", message);
        let event = event.with("upstream", upstream.as_str()).with("route", route);
        let event = event.with("reason", "none-up").with("status", 503);
        (self.report)(&event.with("left_out", left_out));
    }

    /// Notes that a request has failed on a server.
    pub(super) fn failed(&self, index: usize) {
        let member = &self.members[index];
        member.failures.fetch_add(1, Ordering::Relaxed);
        let failures = member.failures_in_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < self.fall() {
            return;
        }
        if self.config.health.is_some() {
            member.good_checks.store(0, Ordering::Relaxed);
            if !member.down.swap(true, Ordering::Relaxed) {
                let why = format!("{failures} requests in a row have failed");
                self.changed(index, false, &why);
            }
        } else {
            let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
            let until = self.now().saturating_add(pause).max(1);
            if member.paused_until.swap(until, Ordering::Relaxed) == 0 {
                let why = format!(
                    "{failures} requests in a row have failed; it is left out for {}",
                    humantime::format_duration(PAUSE)
                );
                self.changed(index, false, &why);
            }
        }
    }

    /// Notes the outcome of a check of a server.
    pub(super) fn checked(&self, index: usize, outcome: Result<(), String>) {
        let Some(health) = &self.config.health else { return };
        let member = &self.members[index];
        let is_well = outcome.is_ok();
        let (counted, other) = match is_well {
            true => (&member.good_checks, &member.bad_checks),
            false => (&member.bad_checks, &member.good_checks),
        };
        other.store(0, Ordering::Relaxed);
        let in_row = counted.load(Ordering::Relaxed).saturating_add(1);
        counted.store(in_row, Ordering::Relaxed);
        if is_well && in_row >= health.rise.get() {
            member.failures_in_row.store(0, Ordering::Relaxed);
            if member.down.swap(false, Ordering::Relaxed) {
                self.changed(index, true, &format!("{in_row} checks in a row went well"));
            }
        } else if let Err(why) = outcome
            && in_row >= health.fall.get()
            && !member.down.swap(true, Ordering::Relaxed)
        {
            let why = format!("{in_row} checks in a row went wrong, the last one: {why}");
            self.changed(index, false, &why);
        }
    }

    /// Chooses a server for a client, but none among `tried`.
    pub(super) fn choose(
        &self,
        credit: &mut [i64],
        client: Option<IpAddr>,
        tried: &[usize],
    ) -> Option<usize> {
        let untried = |index: &usize| !tried.contains(index);
        let up = (0..self.members.len()).filter(|&index| untried(&index) && self.is_up(index));
        let up = up.map(|index| Candidate { index, weight: self.members[index].weight });
        let chosen = match (self.config.balance, client) {
            (Balance::LeastConnections, _) => balance::by_load(credit, up, |index| {
                self.members[index].active.load(Ordering::Relaxed)
            }),
            (Balance::Hash, Some(client)) => {
                let client = match client {
                    IpAddr::V4(address) => balance::hash(&address.octets()),
                    IpAddr::V6(address) => balance::hash(&address.octets()),
                };
                balance::by_hash(client, up, |index| self.members[index].key)
            }
            (Balance::RoundRobin | Balance::Hash, _) => balance::by_turns(credit, up),
        };
        if chosen.is_some() || self.config.health.is_some() {
            return chosen;
        }
        let untried = (0..self.members.len()).filter(untried);
        untried.min_by_key(|&index| self.members[index].paused_until.load(Ordering::Relaxed))
    }
}

/// Returns the encryption of connections to servers with a certificate of the authorities in a
/// file.
///
/// # Errors
///
/// The mistake in words.
pub(crate) fn client_tls(ca: &Path, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    let failed = |what: &dyn fmt::Display| {
        format!("reading the certificates that vouch for servers, {}: {what}", ca.display())
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(ca).map_err(|error| failed(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"it has none; a PEM file begins one with -----BEGIN CERTIFICATE-----"));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn connector(tls: &UpstreamTls, h2: bool) -> Result<Tls, String> {
    let protocols: &[&[u8]] = if h2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    let connector = client_tls(&tls.ca, protocols)?;
    let name = tls.server_name.clone().map(ServerName::try_from).transpose();
    let name = name.map_err(|error| format!("the name of a server, {error}"))?;
    Ok(Tls { connector, name })
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.iter().enumerate();
        let members: Vec<_> =
            members.map(|(index, member)| (&member.address, self.is_up(index))).collect();
        f.debug_struct("Group").field("name", &self.name).field("members", &members).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn telling(text: &str, told: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Group> {
        let servers = "[upstreams.a]\nservers = [{ address = \"a:1\" }, { address = \"b:1\" }]\n";
        let listener = "[[listeners]]\naddress = \":1\"\nrelay = { to = \":2\" }\n";
        let config = Config::parse("test", &format!("{listener}{servers}{text}")).unwrap();
        Group::new("a", &config.upstreams["a"], Arc::new(move |event| told(event))).unwrap()
    }

    fn group(text: &str) -> Arc<Group> {
        telling(text, |_| {})
    }

    #[test]
    fn failures_pause_a_server_and_answers_end_that() {
        let group = group("");
        for _ in 0..2 {
            group.failed(0);
        }
        assert!(group.is_up(0));
        group.worked(0);
        for _ in 0..3 {
            assert!(group.is_up(0));
            group.failed(0);
        }
        assert!(!group.is_up(0) && group.is_up(1));
        let mut credit = [0; 2];
        for _ in 0..5 {
            assert_eq!(group.choose(&mut credit, None, &[]), Some(1));
        }
        for _ in 0..3 {
            group.failed(1);
        }
        // No check has found them unhealthy.
        assert!(group.choose(&mut credit, None, &[]).is_some());
        assert_eq!(group.choose(&mut credit, None, &[0]), Some(1));
        assert_eq!(group.choose(&mut credit, None, &[0, 1]), None);
        group.worked(0);
        assert!(group.is_up(0));
    }

    #[test]
    fn checks_decide_where_there_are_some() {
        let group = group("health = { rise = 2, fall = 2 }");
        let mut credit = [0; 2];
        for index in [0, 1] {
            group.checked(index, Err("no".to_owned()));
            assert!(group.is_up(index));
            group.checked(index, Err("no".to_owned()));
            assert!(!group.is_up(index));
        }
        assert_eq!(group.choose(&mut credit, None, &[]), None);
        group.checked(1, Ok(()));
        group.checked(1, Err("no".to_owned()));
        group.checked(1, Ok(()));
        assert!(!group.is_up(1));
        group.checked(1, Ok(()));
        assert!(group.is_up(1));
        assert_eq!(group.choose(&mut credit, None, &[]), Some(1));
        group.failed(1);
        group.failed(1);
        assert!(!group.is_up(1));
    }

    #[test]
    fn failures_are_rate_limited_and_state_changes_are_not() {
        use std::sync::Mutex;
        let told: Arc<Mutex<Vec<Event>>> = Arc::default();
        let hears = told.clone();
        let group = telling("", move |event| hears.lock().unwrap().push(event.clone()));
        let refused = || Fault::Connect(std::io::ErrorKind::ConnectionRefused.into());
        for _ in 0..1000 {
            group.report_failure(0, "/api", &refused(), Outcome::Retried);
            group.failed(0);
        }
        let answered = Outcome::Answered(http::StatusCode::GATEWAY_TIMEOUT);
        group.report_failure(0, "/api", &Fault::Silent(Duration::from_secs(60)), answered);
        group.turned_away("/");
        let told = told.lock().unwrap();
        let names: Vec<_> = told.iter().map(Event::name).collect();
        let failed = "upstream-failed";
        assert_eq!(names, [failed, "upstream-down", failed, failed]);
        let text = told[0].to_string();
        let expected =
            "forwarding a request below /api to a:1 of a: connecting: connection refused";
        assert!(text.starts_with(expected), "{text}");
        let field = |event: &Event, name| {
            event.fields().iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
        };
        assert_eq!(field(&told[0], "reason").unwrap(), "refused");
        assert_eq!(field(&told[1], "server").unwrap(), "a:1");
        assert_eq!(field(&told[2], "status").unwrap(), 504);
        let text = told[2].to_string();
        assert!(text.contains("did not come within 1m; the client gets 504"), "{text}");
    }
}
