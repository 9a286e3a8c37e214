//! The experiment `fanout`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::fanout::{Options, Row, plot, table, trial};
use crate::part::Part;
use crate::target::{Target, Targets};

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
            Part::Picture("fanout.svg", plot::bars(rows)),
            Part::Table(table::deliveries(rows)),
            Part::Table(table::subscribers(rows)),
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
}
