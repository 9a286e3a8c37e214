//! `superpoll-lab gather`: what it saves to wait for several events, and what it costs in latency.
//!
//! Messages come one by one, at a pace, on many descriptors in random order. In *fan-in* a loop
//! over one poller reads them. In *relay* our relay forwards them, from as many connections to as
//! many others. A loop that is faster than the pace is woken by each message. With
//! [`Poller::gather`](superpoll::Poller::gather) it is woken by several of them.
//!
//! Each message is the time of its writing, so that its reader knows the latency; for the relay,
//! the whole way through it. The writer, which for the relay is the last reader as well, keeps one
//! processor busy: a writer that slept could not keep the pace. The other processor has the loop,
//! and only its time is counted. A round is over when every message was read; each must come once,
//! and in order on its descriptor.

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Figure, Run};
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

mod load;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab gather`.
    pub(crate) struct Options;

    /// fan-in, relay or all, with commas
    load: String = LIST "all",
    /// Descriptors, or relayed connections
    descriptors: usize = N 200,
    /// Microseconds between two messages, with commas
    interval: String = LIST "10,30,100,1000",
    /// Microseconds for which waits gather, with commas; 0 takes part in any case
    gather: String = LIST "0,50,200",
    /// Back-ends, with commas
    subjects: String = LIST "adaptive,uring",
}

/// One back-end at one pace, with one time for which waits gather.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `fan-in` or `relay`.
    pub load: String,
    /// Microseconds between two messages.
    pub interval: usize,
    /// The back-end.
    pub subject: String,
    /// Microseconds for which waits gather.
    pub gather: usize,
    /// Descriptors, or relayed connections.
    pub descriptors: usize,
    /// Processor time of the loop for a message, in the median round.
    pub message_ns_median: f64,
    /// The same in the lowest decile of the rounds.
    pub message_ns_decile: f64,
    /// Waits of the loop for a message.
    pub waits: f64,
    /// The median latency of a message.
    pub late_ns_p50: f64,
    /// The 99th percentile.
    pub late_ns_p99: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time relative to the same without gathering.
    pub ratio: Option<Ratio>,
}

/// Waits that gather.
#[derive(Debug)]
pub(crate) struct Gather;

impl Experiment for Gather {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "gather";
    const TITLE: &'static str = "waits that gather events";
    const METHOD: &'static str = "Messages come one by one, at a pace, on many descriptors. A loop reads them, or our relay \
             forwards them. Measured are the processor time of the loop for a message, how often it \
             waits, and the time from the writing of a message until it was read. Without gathering \
             it is woken as soon as there is anything.";
    const QUICK: &'static str = "gather --quick --interval 30 --seconds 8";
    const FULL: &'static str = "gather --seconds 90";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        vec![Part::Table(table_of(rows))]
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { load, interval, subject, gather, .. } = row;
        Some(Figure::of_cost(
            format!("{load} every {interval} us, {subject}, gather {gather} us"),
            "processor time by message, ns",
            row.message_ns_decile,
            row.message_ns_median,
        ))
    }
}

fn table_of(rows: &[Row]) -> Table {
    table::of(
        rows.iter(),
        3,
        &[
            ("load", |row| row.load.clone()),
            ("every, us", |row| row.interval.to_string()),
            ("back-end", |row| row.subject.clone()),
            ("gather, us", |row| row.gather.to_string()),
            ("ns/message", |row| format!("{:.0}", row.message_ns_median)),
            ("decile", |row| format!("{:.0}", row.message_ns_decile)),
            ("/ without", |row| table::headline(row.ratio)),
            ("90 %", |row| table::interval(row.ratio)),
            ("waits", |row| format!("{:.2}", row.waits)),
            ("late, p50", |row| table::time(row.late_ns_p50)),
            ("p99", |row| table::time(row.late_ns_p99)),
        ],
    )
}
