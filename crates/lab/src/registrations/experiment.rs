//! The experiment `registrations`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::registrations::{Options, Row, YARDSTICK, plot, table, trial};
use crate::target::{Target, Targets};

/// The cost to begin and to end watching a descriptor.
#[derive(Debug)]
pub(crate) struct Registrations;

impl Experiment for Registrations {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "registrations";
    const TITLE: &'static str = "to begin and to end watching";
    const METHOD: &'static str = "Nanoseconds of processor time per descriptor. All are registered, changed and deregistered \
             in batches, each of which the kernel knows before the next begins; each part ends with a \
             look at what is ready. That a registration holds, and that it has ended, is checked with \
             bytes in every round. “raw-epoll” makes a call of epoll_ctl for each; ratios to it are those \
             of each round.";
    const QUICK: &'static str = "registrations --quick --kind pipe --seconds 6";
    const FULL: &'static str = "registrations --seconds 60";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let of_kind = |kind| {
            let file = format!("registrations-{kind}.svg");
            [
                Part::Heading(format!(
                    "{kind}, ns of processor time per descriptor; ratios to {YARDSTICK} round by round"
                )),
                Part::plot(file, plot::over_batches(rows, kind)),
                Part::Table(table::of_kind(rows, kind)),
            ]
        };
        let kinds = table::kinds(rows).into_iter().flat_map(of_kind);
        kinds.chain([Part::List(table::QUESTION, table::answers(rows))]).collect()
    }

    /// The targets that `superpoll-lab registrations` measures, for batches so large that the call
    /// itself hardly counts.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets =
            Targets::new(rows, |row| format!("{} in batches of {}", row.kind, row.batch));
        let name = "register and deregister with uring, 16 or more at a time / epoll_ctl";
        targets.add(name, 0.50, |row| row.subject == "uring" && row.batch >= 16, |row| row.ratio);
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = format!("{}, {} at a time, {}", row.kind, row.batch, row.subject);
        Figure::of_ratios(at, "/ epoll_ctl", row.ratio, row.ratio_low, row.ratio_high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_apply_to_large_batches() {
        let row = |subject: &str, batch, ratio| Row {
            subject: subject.to_owned(),
            kind: "tcp".to_owned(),
            batch,
            ratio: Some(ratio),
            ..Row::default()
        };
        let rows = [row("uring", 1, 0.8), row("uring", 16, 0.45), row("ring-poll", 64, 0.7)];
        let targets = Registrations::targets(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.45));
        assert!(targets[0].is_kept() && targets[0].at == "tcp in batches of 16");
        assert!(Registrations::targets(&rows[2..]).is_empty());
    }
}
