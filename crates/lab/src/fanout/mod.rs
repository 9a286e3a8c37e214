//! `superpoll-lab fanout`: the cost of a message that thousands of subscribers receive.
//!
//! A server has one channel and subscribers of one kind: by WebSocket, by server-sent events, or by
//! long-poll. One publisher posts a message; the next follows when every subscriber has the message
//! and the server sleeps. Measured are the processor time of the server for each message and
//! subscriber, the time until the last subscriber has the message, the processor time of a connect,
//! and the memory of a subscriber (its share of `Pss`, over the second half of the subscribers, so
//! that one-time memory does not count).
//!
//! All servers of a point are alive at the same time and take turns: in groups of connects, and in
//! rounds of messages. Each has one worker on a processor of its own (a rival may have processes
//! for parts of the work, all of them there). The subscribers live in processes on the other
//! processor (`server/crowd.rs`), each with one epoll set, one read for a message and one
//! comparison, so that the load is cheaper than any server; its time is not counted. Every message
//! is checked at every subscriber: number, order and each byte (`server/wire.rs`). A subscriber
//! that misses a message, gets one twice or gets another one ends the server's part in the
//! experiment.
//!
//! `service.rs` lists the servers, starts them, and posts messages; `load.rs` is the load of one;
//! `hyper.rs` and `server.js` are
//! servers that a programmer would write with hyper and with `ws`. `trial.rs` lets the servers take
//! turns.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot;
use crate::server::trial::Figures;
use crate::statistics::{self, Ratio};
use crate::table::{self, Part, Table};

#[cfg(feature = "http")]
mod hyper;
mod load;
pub(crate) mod service;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab fanout`.
    pub(crate) struct Options;

    /// Subscribers of each server, with commas
    subscribers: String = LIST "2000",
    /// Protocols of the subscribers: websocket, sse, long-poll or all
    transport: String = LIST "all",
    /// Bytes of a message
    bytes: usize = N 100,
    /// Servers to measure, with commas, or all
    subjects: Option<String> = LIST,
}

/// A server with subscribers of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    /// The server.
    pub subject: String,
    /// The protocol of its subscribers: `websocket`, `sse`, `long-poll`.
    pub transport: String,
    /// Subscribers, each of which receives every message.
    pub subscribers: usize,
    /// Bytes of a message.
    pub bytes: usize,
    /// Processor time of the server for each message and subscriber, in the cheapest round.
    pub cpu_ns_per_delivery_min: f64,
    /// The same in the median round.
    pub cpu_ns_per_delivery_median: f64,
    /// The processor time relative to that of nginx with nchan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nchan_ratio: Option<Ratio>,
    /// From the publisher's request until the last subscriber has the message: the median message.
    pub all_ns_p50: f64,
    /// The same of the slowest message in a hundred.
    pub all_ns_p99: f64,
    /// Proportional memory (`Pss`) per subscriber, over the second half of the subscribers, in
    /// bytes.
    pub pss_bytes_per_subscriber: f64,
    /// The same over the first half, including one-time memory.
    pub first_half_pss_bytes_per_subscriber: f64,
    /// Processor time of the server for a connect and the beginning of a subscription, in the
    /// lowest decile of the groups of connects.
    pub connect_cpu_ns_low: f64,
    /// The same in the median group.
    pub connect_cpu_ns_median: f64,
    /// The processor time of a connect relative to that of nginx with nchan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_nchan_ratio: Option<Ratio>,
    /// The times of its rounds; a request is a message to all subscribers.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The fewest and the most bytes of a message.
const BYTES: std::ops::RangeInclusive<usize> = 16..=16_384;

// The experiment `fanout`, for the command line and the report.

/// Messages to many subscribers.
#[derive(Debug)]
pub(crate) struct Fanout;

impl Experiment for Fanout {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "fanout";
    const TITLE: &'static str = "a message to thousands of subscribers";
    const METHOD: &'static str = "One publisher posts messages to a channel; each goes to all subscribers, and the next \
             follows when all have it and the server sleeps. A delivery is a message at a subscriber, and its \
             cost the processor time of the server's processes, which share one processor. Memory is the \
             server's (PSS) by subscriber, of the second half of them. A connect is a connection and the \
             beginning of a subscription. Every message is checked at every subscriber.";
    const QUICK: &'static str =
        "fanout --quick --subscribers 500 --subjects superpoll-adaptive,nchan,hyper-tokio";
    const FULL: &'static str = "fanout --subscribers 2000,9000";
    const MEASURED: &'static str =
        "messages from one publisher to all subscribers of a channel: the server's processor time";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![
            Part::Picture("fanout.svg", bars(rows)),
            Part::Table(deliveries(rows)),
            Part::Table(subscribers(rows)),
        ]
    }

    /// The targets that `superpoll-lab fanout` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let at = |row: &Row| format!("{} {}, {}", row.subscribers, row.transport, row.subject);
        let mut targets = Targets::new(rows, at);
        let by = |transport: &'static str| {
            move |row: &Row| row.subject.starts_with("superpoll-") && row.transport == transport
        };
        for (transport, name) in [("websocket", "WebSocket"), ("sse", "SSE")] {
            let name = format!("fan-out: CPU of a delivery by {name} / nchan");
            let ratio = |row: &Row| Some(row.nchan_ratio?.headline().value);
            targets.add(name, 0.6, by(transport), ratio);
        }
        for (transport, name) in
            [("websocket", "WebSocket"), ("sse", "SSE"), ("long-poll", "long-poll")]
        {
            let name = format!("fan-out: KiB (PSS) of a subscriber by {name}");
            let kibibytes = |row: &Row| Some(row.pss_bytes_per_subscriber / 1024.0);
            targets.add(name, 0.5, by(transport), kibibytes);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = format!("{} {}, {}", row.subscribers, row.transport, row.subject);
        let (least, median) = (row.cpu_ns_per_delivery_min, row.cpu_ns_per_delivery_median);
        Some(Figure::of_cost(at, "processor time by delivery, ns", least, median))
    }
}

// The output of `superpoll-lab fanout`: a line for each server and kind of subscribers.

/// Returns the table of deliveries.
pub(crate) fn deliveries(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("subscribers by", |row| row.transport.clone()),
            ("number", |row| row.subscribers.to_string()),
            ("cpu ns/delivery", |row| format!("{:.0}", row.cpu_ns_per_delivery_median)),
            ("least", |row| format!("{:.0}", row.cpu_ns_per_delivery_min)),
            ("/ nchan", |row| table::headline(row.nchan_ratio)),
            ("90 %", |row| table::interval(row.nchan_ratio)),
            ("median", |row| table::median(row.nchan_ratio)),
            ("all have it, p50", |row| table::time(row.all_ns_p50)),
            ("p99", |row| table::time(row.all_ns_p99)),
            ("load busy", |row| format!("{:.0} %", 100.0 * row.figures.generator_busy)),
        ],
    )
}

/// Returns the table of subscribers: memory and connects.
pub(crate) fn subscribers(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("server", |row| row.subject.clone()),
            ("subscribers by", |row| row.transport.clone()),
            ("number", |row| row.subscribers.to_string()),
            ("PSS, KiB each", |row| kibibytes(row.pss_bytes_per_subscriber)),
            ("first half", |row| kibibytes(row.first_half_pss_bytes_per_subscriber)),
            ("connect, cpu us", |row| format!("{:.1}", row.connect_cpu_ns_median / 1e3)),
            ("least", |row| format!("{:.1}", row.connect_cpu_ns_low / 1e3)),
            ("/ nchan", |row| table::headline(row.connect_nchan_ratio)),
            ("90 %", |row| table::interval(row.connect_nchan_ratio)),
        ],
    )
}

fn kibibytes(bytes: f64) -> String {
    format!("{:.2}", bytes / 1024.0)
}

// The plot of `superpoll-lab fanout`: bars of processor time for each message and subscriber.

/// Returns a bar for each row.
pub(crate) fn bars(rows: &[Row]) -> String {
    let all: Vec<f64> = rows.iter().map(|row| row.cpu_ns_per_delivery_median).collect();
    let most = statistics::maximum(&all).max(1.0);
    let bars = rows.iter().map(|row| {
        let name = format!("{}, {} {}", row.subject, row.subscribers, row.transport);
        (name, row.cpu_ns_per_delivery_median / most, row.cpu_ns_per_delivery_median)
    });
    plot::bars("server's cpu ns for each message and subscriber", 260.0, bars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Ratio;

    #[test]
    fn each_kind_of_subscribers_has_its_targets_and_rivals_have_none() {
        let row = |subject: &str, transport: &str, median, pss| Row {
            subject: subject.to_owned(),
            transport: transport.to_owned(),
            subscribers: 2000,
            nchan_ratio: Some(Ratio { median, ..Ratio::default() }),
            pss_bytes_per_subscriber: pss,
            ..Row::default()
        };
        let rows = [
            row("superpoll-epoll", "sse", 0.5, 300.0),
            row("superpoll-adaptive", "sse", 0.7, 400.0),
            row("superpoll-adaptive", "long-poll", 2.0, 2048.0),
            row("nchan", "sse", 1.0, 10_240.0),
        ];
        let found: Vec<_> = Fanout::targets(&rows)
            .into_iter()
            .map(|target| (target.measured, target.is_kept(), target.at))
            .collect();
        let at = |text: &str| text.to_owned();
        assert_eq!(
            found,
            [
                (0.7, false, at("2000 sse, superpoll-adaptive")),
                (400.0 / 1024.0, true, at("2000 sse, superpoll-adaptive")),
                (2.0, false, at("2000 long-poll, superpoll-adaptive")),
            ]
        );
    }

    #[test]
    fn each_server_has_its_line_in_both_tables() {
        let row = Row {
            subject: "ours".to_owned(),
            transport: "sse".to_owned(),
            subscribers: 2000,
            cpu_ns_per_delivery_median: 6400.4,
            nchan_ratio: Some(Ratio { median: 0.61, low: 0.5, high: 0.7, decile: None }),
            all_ns_p50: 13_600_000.0,
            pss_bytes_per_subscriber: 256.0,
            connect_cpu_ns_median: 35_200.0,
            ..Row::default()
        };
        let rows = [row];
        for (table, parts) in [
            (deliveries(&rows), ["ours", "sse", "2000", "6400", "0.61", "0.50-0.70", "13.6 ms"]),
            (subscribers(&rows), ["ours", "sse", "2000", "0.25", "35.2", "-", "0.00"]),
        ] {
            let text = table.to_string();
            let last = text.lines().last().unwrap();
            for part in parts {
                assert!(last.contains(part), "{part} is missing in {text}");
            }
        }
    }

    #[test]
    fn each_row_has_a_bar_with_its_figure() {
        let row = |subject: &str, cpu_ns_per_delivery_median| Row {
            subject: subject.to_owned(),
            transport: "sse".to_owned(),
            cpu_ns_per_delivery_median,
            ..Row::default()
        };
        let svg = bars(&[row("superpoll-epoll", 6000.0), row("nchan", 12_000.0)]);
        assert!(svg.starts_with("<svg") && svg.matches("<rect").count() == 2);
        assert!(svg.contains(">6000<") && svg.contains("width=\"530.0\""), "{svg}");
    }
}
