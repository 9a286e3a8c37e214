//! `superpoll-lab registrations`: the cost to begin and to end watching a descriptor.
//!
//! `epoll_ctl` takes one descriptor per call. Would many per call be cheaper? There are two ways to
//! do that: changes of an epoll set can be queued in an io_uring and made in one call
//! (`IORING_OP_EPOLL_CTL`), and the ring can watch by itself, with a poll for each descriptor. Both
//! are here, next to plain `epoll_ctl` and our own back-ends, over the number of descriptors in a
//! batch.
//!
//! A round has three parts. First it registers all descriptors, batch by batch; the kernel knows
//! each batch before the next begins. Then it changes the interest of all. Then it ends all
//! registrations. Each part ends with a check for ready descriptors, so that work which a change
//! leaves for the next wait is counted. Between the parts, untimed, the round writes a byte to some
//! of the descriptors, drawn anew for each round. The byte must not be reported while only priority
//! data is of interest. After the change, it must be reported by these descriptors and by no
//! further ones. After the end, it must not be reported any more. Registries take turns round by
//! round, on the same descriptors; only one registry watches a descriptor at a time.
//!
//! The comparison is of processor time over all threads, so that it includes work handed to a
//! kernel thread. `subject.rs` has the registries by name; an epoll set, a ring and our
//! poller have a file each.

use serde::{Deserialize, Serialize};
pub(crate) use subject::{BATCHED, YARDSTICK};

use crate::experiment::{Experiment, Figure, Run, Target, Targets};
use crate::plot::{self, Plot};
use crate::statistics::Ratio;
use crate::table::{self, Part, Table};

mod subject;
mod trial;

crate::options::options! {
    /// Options of `superpoll-lab registrations`.
    pub(crate) struct Options;

    /// Descriptors that are registered in a round, in batches
    total: usize = N 1024,
    /// Kinds of descriptors: pipe, unix, tcp or all
    kind: String = LIST "all",
    /// Registries to measure, with commas, or all; raw-epoll always takes part
    subjects: Option<String> = LIST,
}

/// One registry at one point. Times are per descriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Descriptors of a batch.
    pub batch: usize,
    /// The registry.
    pub subject: String,
    /// Descriptors registered in a round.
    pub total: usize,
    /// Processor time to register, in the median round.
    pub register_ns_median: f64,
    /// Processor time to change the interest, in the median round.
    pub modify_ns_median: f64,
    /// Processor time to deregister, in the median round.
    pub deregister_ns_median: f64,
    /// Processor time to register and deregister, in the median round.
    pub both_ns_median: f64,
    /// The same in the cheapest round.
    pub both_ns_min: f64,
    /// Time to register and deregister, in the median round.
    pub wall_ns_median: f64,
    /// System calls to register and deregister.
    pub calls: f64,
    /// Rounds measured.
    pub rounds: usize,
    /// Processor time to register and deregister, relative to `epoll_ctl`: the median of the
    /// rounds' ratios.
    pub ratio: Option<Ratio>,
    /// The median of the ratios of time.
    pub wall_ratio: Option<f64>,
    /// The same as `ratio`, of registering alone.
    pub register_ratio: Option<f64>,
    /// The same as `ratio`, of changing the interest.
    pub modify_ratio: Option<f64>,
    /// The same as `ratio`, of deregistering alone.
    pub deregister_ratio: Option<f64>,
}

// The experiment `registrations`, for the command line and the report.

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
                Part::plot(file, over_batches(rows, kind)),
                Part::Table(of_kind(rows, kind)),
            ]
        };
        let kinds = kinds(rows).into_iter().flat_map(of_kind);
        kinds.chain([Part::List(QUESTION, answers(rows))]).collect()
    }

    /// The targets that `superpoll-lab registrations` measures, for batches so large that the call
    /// itself hardly counts.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let mut targets =
            Targets::new(rows, |row| format!("{} in batches of {}", row.kind, row.batch));
        let name = "register and deregister with uring, 16 or more at a time / epoll_ctl";
        targets.add(
            name,
            0.50,
            |row| row.subject == "uring" && row.batch >= 16,
            |row| Some(row.ratio?.median),
        );
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = format!("{}, {} at a time, {}", row.kind, row.batch, row.subject);
        Figure::of_ratios(at, "/ epoll_ctl", row.ratio)
    }
}

// The output of `superpoll-lab registrations`: a table for each kind, and the answer to its
// question.

/// The kinds of descriptors that were measured, in their order.
pub(crate) fn kinds(rows: &[Row]) -> Vec<&str> {
    table::distinct(rows.iter().map(|row| row.kind.as_str()))
}

/// All rows of a kind, by batch.
pub(crate) fn of_kind(rows: &[Row], kind: &str) -> Table {
    table::of(
        rows.iter().filter(|row| row.kind == kind),
        1,
        &[
            ("registry", |row| row.subject.clone()),
            ("batch", |row| row.batch.to_string()),
            ("register", |row| format!("{:.0}", row.register_ns_median)),
            ("modify", |row| format!("{:.0}", row.modify_ns_median)),
            ("deregister", |row| format!("{:.0}", row.deregister_ns_median)),
            ("reg + dereg", |row| format!("{:.0}", row.both_ns_median)),
            ("least", |row| format!("{:.0}", row.both_ns_min)),
            ("wall", |row| format!("{:.0}", row.wall_ns_median)),
            ("calls", |row| format!("{:.2}", row.calls)),
            ("/ epoll_ctl", |row| table::headline(row.ratio)),
            ("90 %", |row| table::interval(row.ratio)),
            ("median", |row| table::median(row.ratio)),
            ("wall", |row| table::ratio(row.wall_ratio)),
        ],
    )
}

/// The gain or loss of changing several descriptors of an epoll set in one call: a line for each
/// kind.
pub(crate) fn answers(rows: &[Row]) -> Vec<String> {
    let from_to = |rows: &[&Row], of: fn(&Row) -> Option<f64>| {
        let ratios: Vec<String> = rows.iter().map(|row| table::ratio(of(row))).collect();
        ratios.join(", ")
    };
    let mut answers = Vec::new();
    for kind in kinds(rows) {
        let batched: Vec<&Row> =
            rows.iter().filter(|row| row.kind == kind && row.subject == BATCHED).collect();
        if batched.is_empty() {
            continue;
        }
        let batches: Vec<String> = batched.iter().map(|row| row.batch.to_string()).collect();
        answers.push(format!(
            "{kind}: with {} in a batch, through a ring / one by one: ADD {}; MOD {}; DEL {}",
            batches.join(", "),
            from_to(&batched, |row| row.register_ratio),
            from_to(&batched, |row| row.modify_ratio),
            from_to(&batched, |row| row.deregister_ratio),
        ));
    }
    answers
}

/// The question to [`answers`].
pub(crate) const QUESTION: &str = "Several descriptors per call? Changes of an epoll set through a ring \
                            (IORING_OP_EPOLL_CTL), processor time";

// The plots of `superpoll-lab registrations`: the cost of a registration over the size of the
// batch.

/// A curve for each registry, for one kind of descriptors; none if there is only one size of
/// batches.
pub(crate) fn over_batches(rows: &[Row], kind: &str) -> Option<Plot> {
    let own: Vec<&Row> = rows.iter().filter(|row| row.kind == kind).collect();
    let plot = Plot {
        title: format!("registering and deregistering, {kind}"),
        x_label: "descriptors of a batch".to_owned(),
        y_label: "processor time / epoll_ctl".to_owned(),
        curves: plot::curves(&own, |row| {
            Some((row.subject.as_str(), (row.batch as f64, row.ratio?.headline().value)))
        }),
        break_even: true,
        ..Plot::default()
    };
    plot.drawn_over_powers_of_ten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registrations::YARDSTICK;

    #[test]
    fn targets_apply_to_large_batches() {
        let row = |subject: &str, batch, ratio| Row {
            subject: subject.to_owned(),
            kind: "tcp".to_owned(),
            batch,
            ratio: Some(Ratio { median: ratio, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [row("uring", 1, 0.8), row("uring", 16, 0.45), row("ring-poll", 64, 0.7)];
        let targets = Registrations::targets(&rows);
        assert_eq!((targets.len(), targets[0].measured), (1, 0.45));
        assert!(targets[0].is_kept() && targets[0].at == "tcp in batches of 16");
        assert!(Registrations::targets(&rows[2..]).is_empty());
    }

    #[test]
    fn the_question_is_answered_for_each_kind_if_it_was_asked() {
        let row = |kind: &str, subject: &str, batch, ratio| Row {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            batch,
            register_ratio: Some(ratio),
            modify_ratio: Some(ratio + 0.1),
            deregister_ratio: Some(ratio + 0.2),
            ..Row::default()
        };
        let rows = [
            row("pipe", YARDSTICK, 1, 1.0),
            row("pipe", BATCHED, 1, 1.2),
            row("pipe", BATCHED, 64, 0.7),
            row("tcp", YARDSTICK, 1, 1.0),
        ];
        let answers = answers(&rows);
        assert_eq!(answers.len(), 1);
        let parts = ["pipe: with 1, 64 in", "ADD 1.20, 0.70", "MOD 1.30, 0.80", "DEL 1.40, 0.90"];
        assert!(parts.iter().all(|part| answers[0].contains(part)), "{answers:?}");
        assert!(super::answers(&rows[3..]).is_empty());
    }

    #[test]
    fn each_kind_has_its_own_plot() {
        let row = |kind: &str, batch, ratio| Row {
            kind: kind.to_owned(),
            subject: "uring".to_owned(),
            batch,
            ratio: Some(Ratio { median: ratio, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [row("pipe", 1, 0.9), row("pipe", 100, 0.5), row("tcp", 1, 0.8)];
        let plot = over_batches(&rows, "pipe").unwrap();
        assert_eq!(plot.curves[0].points, [(0.0, 0.9), (2.0, 0.5)]);
        assert!(plot.svg().unwrap().contains("uring"));
        assert!(over_batches(&rows, "tcp").is_none());
    }
}
