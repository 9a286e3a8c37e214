//! The counters in the two text formats that Prometheus reads: the older format (version 0.0.4),
//! which all collectors and `promtool` know, and OpenMetrics for collectors that prefer it.

use std::fmt::{self, Write};
use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::durations::RouteDurations;
use super::overview::{Counts, Overview};
use super::socket::{Connections, Engine, Set};
use super::{channels, process, relays, upstreams};
use crate::accept;
use crate::body::Body;
use crate::exchange::LocalFuture;
use crate::reply;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A counter of an engine, which only grows.
type Counter = (&'static str, &'static str, fn(&Engine, &Connections) -> u64);

const COUNTERS: &[Counter] = &[
    ("connections_accepted", "Connections accepted", |_, all| all.accepted),
    ("connections_refused", "Connections closed at once because of a limit", |_, all| all.refused),
    ("connections_timed_out", "Connections closed because they took too long", |_, all| {
        all.timed_out
    }),
    ("connections_broken", "Connections that broke or did not speak the protocol", |_, all| {
        all.broken
    }),
    ("parkings", "Times a connection was parked", |_, all| all.parkings),
    ("leavings", "Times a parked connection left for the keeper", |_, all| all.leavings),
    ("returns", "Times one came back from the keeper", |_, all| all.returns),
    ("lane_requests", "Regular requests that were answered without being taken apart", |_, all| {
        all.lane
    }),
    ("response_body_bytes", "Bytes of responses' bodies", |_, all| all.body_bytes),
    ("task_polls", "Times a task was run", |engine, _| engine.task_runs),
    ("turns", "Turns of the engine's loop", |engine, _| engine.turns),
    ("waits", "Waits of the poller", |engine, _| engine.waits),
    ("events", "Events delivered by the poller", |engine, _| engine.events),
    ("events_unwanted", "Events without interest in them", |engine, _| engine.unwanted),
    ("slots_scanned", "Descriptors that poll was asked about", |engine, _| engine.slots_scanned),
    ("changes_saved", "Changes that cost no system call", |engine, _| engine.changes_saved),
    ("moves_to_hot", "Moves from epoll to the poll array", |engine, _| engine.moves_to_hot),
    ("moves_to_cold", "Moves from the poll array to epoll", |engine, _| engine.moves_to_cold),
    ("hand_offs", "Times a loop that went quiet gave its poll array to epoll", |engine, _| {
        engine.hand_offs
    }),
];

/// A gauge of an engine, which goes up and down.
type Gauge = (&'static str, &'static str, fn(&Engine, &Connections) -> f64);

const GAUGES: &[Gauge] = &[
    ("connections_active", "Connections that have a task", |_, all| all.active as f64),
    ("connections_parked", "Connections that are parked", |_, all| all.parked as f64),
    ("connections_away", "Parked connections that a keeper watches", |_, all| all.away as f64),
    ("requests_running", "Requests under way", |_, all| all.running as f64),
    ("tasks", "Tasks", |engine, _| engine.tasks as f64),
    ("sources", "Descriptors that are waited for or were", |engine, _| engine.sources as f64),
    ("timers", "Timers", |engine, _| engine.timers as f64),
    ("longest_turn_seconds", "The longest turn of the engine's loop", |engine, _| {
        engine.longest_turn_ns as f64 / 1e9
    }),
];

/// A figure of a set.
type OfSet = (&'static str, &'static str, fn(&Set) -> u64);

/// The status at one moment, as families.
struct Families<'a>(&'a Counts);

impl Families<'_> {
    /// Returns the engines with their labels. Those of several processes have the process' place in
    /// their names.
    fn engines(&self) -> impl Iterator<Item = (String, &Engine)> {
        let mut before = (None, 0);
        self.0.engines.iter().map(move |(process, engine)| {
            // Two workers may have one place for a moment.
            before = if before.0 == Some(*process) {
                (before.0, before.1 + 1)
            } else {
                (Some(*process), 0)
            };
            let name = match process {
                Some(process) => format!("{process}.{}", before.1),
                None => before.1.to_string(),
            };
            (name, engine)
        })
    }

    fn write(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, of) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (name, engine) in self.engines() {
                let count = of(engine, &engine.connections.unwrap_or_default());
                family
                    .encode_family(&[("engine", name)])?
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        for (name, help, of) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (name, engine) in self.engines() {
                let value = of(engine, &engine.connections.unwrap_or_default());
                family.encode_family(&[("engine", name)])?.encode_gauge(&value)?;
            }
        }
        self.write_by_label(encoder)
    }

    fn write_by_label(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Responses by the class of their status";
        let mut family = encoder.encode_descriptor("responses", help, None, MetricType::Counter)?;
        for (engine, state) in self.engines() {
            for (class, count) in state.connections.unwrap_or_default().by_class.iter().enumerate()
            {
                let class = format!("{}xx", class + 1);
                let labels = [("engine", engine.clone()), ("class", class)];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let help = "System calls of the poller, by name";
        let mut family =
            encoder.encode_descriptor("system_calls", help, None, MetricType::Counter)?;
        for (engine, state) in self.engines() {
            for (name, count) in &state.poller_calls {
                let labels = [("engine", engine.clone()), ("name", name.clone())];
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let sets: [OfSet; 3] = [
            ("set_descriptors", "Descriptors in a set", |set| set.len as u64),
            ("set_watched", "Descriptors that were in a set, summed over its passes", |set| {
                set.watched
            }),
            ("set_ready", "Descriptors that were ready, summed over its passes", |set| set.active),
        ];
        for (index, (name, help, of)) in sets.into_iter().enumerate() {
            let kind = if index == 0 { MetricType::Gauge } else { MetricType::Counter };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (engine, state) in self.engines() {
                for (set, state) in [("hot", &state.hot), ("cold", &state.cold)] {
                    let labels = [("engine", engine.clone()), ("set", set.to_owned())];
                    let mut family = family.encode_family(&labels)?;
                    if index == 0 {
                        family.encode_gauge(&(of(state) as i64))?;
                    } else {
                        family.encode_counter::<NoLabelSet, _, u64>(&of(state), None)?;
                    }
                }
            }
        }
        RouteDurations::write(&self.0.requests, encoder)?;
        upstreams::write(&self.0.upstreams, encoder)?;
        relays::write(&self.0.relays, encoder)?;
        if let Some(broker) = &self.0.broker {
            broker.write(encoder)?;
        }
        channels::write(&self.0.channels, encoder)?;
        self.write_certificates(encoder)?;
        self.0.reload.write(encoder)?;
        let help = "Attempts to get a certificate by ACME";
        let name = "acme_renewals";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (result, count) in &self.0.renewals {
            let labels = [("result", result.to_string())];
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let help = "When the server was started, in seconds since 1970";
        let started = self.0.started_seconds as i64;
        encoder
            .encode_descriptor("start_time", help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&started)?;
        let help = "The version of the server and the back-end of its engines";
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("backend", &*self.0.backend)];
        encoder
            .encode_descriptor("build_info", help, None, MetricType::Gauge)?
            .encode_family(&labels)?
            .encode_gauge(&1_i64)?;
        let help = "Connections of all kinds";
        encoder
            .encode_descriptor("connections", help, None, MetricType::Gauge)?
            .encode_gauge(&i64::from(self.0.connections))
    }
}

impl Families<'_> {
    fn write_certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) =
            ("tls_certificate_expiry_timestamp", "When a certificate of a listener ends");
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (name, end) in &self.0.certificate_ends {
            let end = i64::try_from(*end).unwrap_or(i64::MAX);
            family.encode_family(&[("name", name.clone())])?.encode_gauge(&end)?;
        }
        let help = "Certificates that could not be renewed; the former certificate stayed";
        let name = "tls_certificate_failures";
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&self.0.certificate_failures, None)
    }
}

/// The families of the server, whose names begin with its own.
#[derive(Debug)]
struct ServerCollector(Arc<Counts>);

impl Collector for ServerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        Families(&self.0).write(&mut encoder)
    }
}

/// The families that every process has.
#[derive(Debug)]
struct ProcessCollector(Arc<Counts>);

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        process::write(&self.0.processes, &mut encoder)
    }
}

/// Returns the counters of one moment in OpenMetrics.
fn open_metrics(counts: Counts) -> Result<String, fmt::Error> {
    let counts = Arc::new(counts);
    let mut server = Registry::with_prefix("superpoll");
    server.register_collector(Box::new(ServerCollector(counts.clone())));
    let mut process = Registry::default();
    process.register_collector(Box::new(ProcessCollector(counts)));
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
