//! The counters in the two text formats that Prometheus reads: the older format (version 0.0.4),
//! which all collectors and `promtool` know, and OpenMetrics for collectors that prefer it.

use std::fmt::{self, Write};
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use superpoll_http::accept;
use superpoll_http::body::Body;
use superpoll_http::exchange::LocalFuture;
use superpoll_http::families;
use superpoll_http::reply;
use superpoll_http::telemetry::durations::RouteDurations;
use superpoll_http::telemetry::families::{self, Labels};
use superpoll_http::telemetry::process;
use superpoll_http::telemetry::snapshot::{Connections, Engine, Set};

use super::overview::{Counts, Overview};
use super::{channels, relays, upstreams};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

families! {
    const OF_CONNECTIONS: Connections = [
        Counter connections_accepted "Connections accepted", |all| all.accepted;
        Counter connections_refused "Connections closed at once because of a limit",
            |all| all.refused;
        Counter connections_timed_out "Connections closed because they took too long",
            |all| all.timed_out;
        Counter connections_broken "Connections that broke or did not speak the protocol",
            |all| all.broken;
        Counter parkings "Times a connection was parked", |all| all.parkings;
        Counter leavings "Times a parked connection left for the keeper", |all| all.leavings;
        Counter returns "Times one came back from the keeper", |all| all.returns;
        Counter lane_requests "Plain requests that were proxied, or answered with files, from their heads",
            |all| all.lane;
        Counter response_body_bytes "Bytes of responses' bodies", |all| all.body_bytes;
        Fraction connections_active "Connections that have a task, active or not", |all| all.active as f64;
        Fraction connections_parked "Connections that are parked", |all| all.parked as f64;
        Fraction connections_away "Parked connections that a keeper watches", |all| all.away as f64;
        Fraction requests_running "Requests under way", |all| all.running as f64;
    ];

    const OF_ENGINES: Engine = [
        Counter task_polls "Times a task was run", |engine| engine.task_runs;
        Counter turns "Turns of the engine's loop", |engine| engine.turns;
        Counter waits "Waits of the poller", |engine| engine.waits;
        Counter events "Events delivered by the poller", |engine| engine.events;
        Counter events_unwanted "Events without interest in them", |engine| engine.unwanted;
        Counter slots_scanned "Descriptors that poll was asked about",
            |engine| engine.slots_scanned;
        Counter changes_saved "Changes that cost no system call", |engine| engine.changes_saved;
        Counter moves_to_hot "Moves from epoll to the poll array", |engine| engine.moves_to_hot;
        Counter moves_to_cold "Moves from the poll array to epoll", |engine| engine.moves_to_cold;
        Counter compactions "Times the poll array was compacted", |engine| engine.compactions;
        Counter hand_offs "Times a loop that went quiet gave its poll array to epoll",
            |engine| engine.hand_offs;
        Fraction tasks "Tasks", |engine| engine.tasks as f64;
        Fraction sources "Descriptors that are waited for or were", |engine| engine.sources as f64;
        Fraction timers "Timers", |engine| engine.timers as f64;
        Fraction longest_turn_seconds "The longest turn of the engine's loop",
            |engine| engine.longest_turn_ns as f64 / 1e9;
    ];

    const RESPONSES: u64 = [
        Counter responses "Responses by the class of their status", |count| *count;
    ];

    const REFUSED_HEADS: u64 = [
        Counter refused_heads "Heads of requests that were refused, by the reason", |count| *count;
    ];

    const CALLS: u64 = [
        Counter system_calls "System calls of the poller, by name", |count| *count;
    ];

    const OF_SETS: Set = [
        Gauge set_descriptors "Descriptors in a set", |set| set.len as u64;
        Counter set_watched "Descriptors that were in a set, summed over its passes",
            |set| set.watched;
        Counter set_ready "Descriptors that were ready, summed over its passes", |set| set.active;
    ];

    const RENEWALS: u64 = [
        Counter acme_renewals "Attempts to get a certificate by ACME", |count| *count;
    ];

    const LOST_LINES: u64 = [
        Counter log_lines_lost "Lines that a log could not take", |count| *count;
    ];

    const CERTIFICATE_ENDS: u64 = [
        Moment tls_certificate_expiry_timestamp "When a certificate of a listener ends", |end| *end;
    ];

    const OF_SERVER: Counts = [
        Moment start_time "When the server was started, in seconds since 1970",
            |counts| counts.snapshot.started_seconds;
        Gauge connections "Connections of all kinds", |counts| counts.snapshot.connections;
        Fraction connections_active_last_second
            "Connections on which bytes moved in the last second that has ended",
            |counts| counts.snapshot.active_ratio.map_or(0.0, |ratio| ratio.last_second.active);
        Counter active_connection_seconds
            "Connections on which bytes moved in a second, added up over all seconds",
            |counts| counts.snapshot.active_ratio.map_or(0, |ratio| ratio.active_seconds);
        Counter connection_seconds
            "Connections that there were in a second, added up over all seconds",
            |counts| counts.snapshot.active_ratio.map_or(0, |ratio| ratio.connection_seconds);
        Counter tls_certificate_failures
            "Certificates that could not be renewed; the former certificate stayed",
            |counts| counts.certificate_failures;
    ];

    const BUILD: Counts = [
        Gauge build_info "The version of the server and the back-end of its engines", |_| 1;
    ];
}

/// Returns the engines with their names. Those of several processes have the process' place in
/// their names.
fn named(engines: &[(Option<u32>, Engine)]) -> Vec<(String, &Engine)> {
    let mut before = (None, 0);
    let name = |(process, engine)| {
        before = match before {
            (known, index) if known == Some(process) => (known, index + 1),
            _ => (Some(process), 0),
        };
        let name = match process {
            Some(process) => format!("{process}.{}", before.1),
            None => before.1.to_string(),
        };
        (name, engine)
    };
    engines.iter().map(|(process, engine)| (*process, engine)).map(name).collect()
}

/// Writes the families of the engines.
fn write_engines(
    engines: &[(Option<u32>, Engine)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let engines = named(engines);
    let labels = |engine: &str| vec![("engine", engine.to_owned())];
    let with = |engine: &str, label: &'static str, value: &str| -> Labels {
        vec![("engine", engine.to_owned()), (label, value.to_owned())]
    };
    let connections = engines.iter().filter_map(|(name, engine)| {
        engine.connections.as_ref().map(|connections| (name, connections))
    });
    let all: Vec<_> = connections.clone().map(|(name, one)| (labels(name), one)).collect();
    families::write(OF_CONNECTIONS, &all, encoder)?;
    let all: Vec<_> = engines.iter().map(|(name, engine)| (labels(name), *engine)).collect();
    families::write(OF_ENGINES, &all, encoder)?;
    let responses = connections.flat_map(|(name, connections)| {
        let classes = connections.by_class.iter().zip(1..);
        classes.map(move |(count, class)| (with(name, "class", &format!("{class}xx")), count))
    });
    families::write(RESPONSES, &responses.collect::<Vec<_>>(), encoder)?;
    let heads = engines.iter().flat_map(|(name, engine)| {
        engine.refused_heads.iter().map(move |(why, count)| (with(name, "reason", why), count))
    });
    families::write(REFUSED_HEADS, &heads.collect::<Vec<_>>(), encoder)?;
    let calls = engines.iter().flat_map(|(name, engine)| {
        engine.poller_calls.iter().map(move |(call, count)| (with(name, "name", call), count))
    });
    families::write(CALLS, &calls.collect::<Vec<_>>(), encoder)?;
    let sets = engines.iter().flat_map(|(name, engine)| {
        [("hot", &engine.hot), ("cold", &engine.cold)]
            .map(|(set, state)| (with(name, "set", set), state))
    });
    families::write(OF_SETS, &sets.collect::<Vec<_>>(), encoder)
}

/// Writes the families of the status at one moment.
fn write(counts: &Counts, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    write_engines(&counts.engines, encoder)?;
    RouteDurations::write(&counts.requests, encoder)?;
    upstreams::write(&counts.upstreams, encoder)?;
    relays::write(&counts.relays, encoder)?;
    if let Some(broker) = &counts.broker {
        broker.write(encoder)?;
    }
    channels::write(&counts.channels, encoder)?;
    let ends =
        counts.certificate_ends.iter().map(|(name, end)| (vec![("name", name.clone())], end));
    families::write(CERTIFICATE_ENDS, &ends.collect::<Vec<_>>(), encoder)?;
    counts.reload.write(encoder)?;
    let renewals =
        counts.renewals.iter().map(|(result, count)| (vec![("result", result.to_string())], count));
    families::write(RENEWALS, &renewals.collect::<Vec<_>>(), encoder)?;
    let lost = counts.lost_lines.iter();
    let lost = lost.map(|(log, count)| (vec![("log", log.to_string())], count));
    families::write(LOST_LINES, &lost.collect::<Vec<_>>(), encoder)?;
    families::write(OF_SERVER, &[(Labels::new(), counts)], encoder)?;
    let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
    let build = vec![version, ("backend", counts.snapshot.backend.clone())];
    families::write(BUILD, &[(build, counts)], encoder)
}

/// Families of one moment: those of the server, whose names begin with its own, or those that every
/// process has.
#[derive(Debug)]
struct Families {
    counts: Arc<Counts>,
    write: fn(&Counts, &mut DescriptorEncoder<'_>) -> fmt::Result,
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.write)(&self.counts, &mut encoder)
    }
}

/// Returns the counters of one moment in OpenMetrics.
fn open_metrics(counts: Counts) -> Result<String, fmt::Error> {
    let counts = Arc::new(counts);
    let mut server = Registry::with_prefix("superpoll");
    server.register_collector(Box::new(Families { counts: counts.clone(), write }));
    let mut process = Registry::default();
    let write_processes = |counts: &Counts, encoder: &mut DescriptorEncoder<'_>| {
        process::write(&counts.processes, encoder)
    };
    process.register_collector(Box::new(Families { counts, write: write_processes }));
    let mut text = String::new();
    encode_registry(&mut text, &server)?;
    encode_registry(&mut text, &process)?;
    encode_eof(&mut text)?;
    Ok(text)
}

/// Whether a client prefers OpenMetrics.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let open = accept::weight_of(headers, "application/openmetrics-text").unwrap_or(0);
    open > 0 && accept::weight_of(headers, "text/plain").is_none_or(|plain| plain <= open)
}

/// Turns OpenMetrics into the older format, in which a counter has the name of its samples.
fn as_text(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + open.len() / 8);
    let mut help = "";
    for line in open.lines() {
        let comment = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        match comment {
            Some(("HELP", rest)) => help = rest,
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                let end = if kind == "counter" { "_total" } else { "" };
                let help = help.strip_prefix(name).unwrap_or("").trim_start();
                // Writing to a string cannot fail.
                let _ = writeln!(text, "# HELP {name}{end} {help}\n# TYPE {name}{end} {kind}");
            }
            Some(_) => {}
            None if line.starts_with('#') => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

impl Overview {
    /// Answers a request for the counters.
    pub(crate) fn prometheus(self: &Arc<Self>, headers: &HeaderMap) -> LocalFuture<Response<Body>> {
        let (overview, is_open) = (self.clone(), wants_open_metrics(headers));
        Box::pin(async move { response(overview.collect().await, is_open) })
    }
}

/// Returns the counters of one moment.
fn response(counts: Counts, is_open: bool) -> Response<Body> {
    let Ok(mut text) = open_metrics(counts) else {
        return reply::status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    if !is_open {
        text = as_text(&text);
    }
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    let kind = if is_open { OPEN_METRICS } else { TEXT };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    response.map(|_| Body::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_calls_counters_as_their_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{e=\"0\"} 1\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds gauge\n# UNIT c_seconds seconds\n\
                    c_seconds 2\n# EOF\n";
        let text = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{e=\"0\"} 1\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds gauge\nc_seconds 2\n";
        assert_eq!(as_text(open), text);
    }

    #[test]
    fn clients_that_prefer_openmetrics_get_it() {
        for (accept, expected) in [
            (None, false),
            (Some("*/*"), false),
            (Some("text/plain"), false),
            (Some("application/openmetrics-text;version=1.0.0"), true),
            (Some("application/openmetrics-text;q=0"), false),
            (
                Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.2"),
                true,
            ),
            (Some("application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.5"), false),
        ] {
            let accept =
                accept.map(|accept| (http::header::ACCEPT, HeaderValue::from_static(accept)));
            assert_eq!(wants_open_metrics(&accept.into_iter().collect()), expected);
        }
    }
}
