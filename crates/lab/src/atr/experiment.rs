//! The experiment `atr`, for the command line and the report.

use crate::atr::{Options, Row, plot, sweeps, table, trial};
use crate::error::Result;
use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::record::{Account, PURE};
use crate::target::{RINGS, Target, Targets};

/// Where `poll` beats `epoll` and the reverse.
#[derive(Debug)]
pub(crate) struct Atr;

impl Experiment for Atr {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "atr";
    const TITLE: &'static str = "active / total";
    const METHOD: &'static str = "In every round one byte is written to each active descriptor; the poller reports them and \
             each is read. “Loop” is the time of waiting and reading, “with writes” adds what the writes \
             cost more than to descriptors that are not watched: epoll makes the writer pay for the \
             wake-up. “Pure” is the best of poll and both triggers of epoll, raw or ours.";
    const QUICK: &'static str = "atr --quick --total 1000,4000 --placement end,spread --no-mix --seconds 24 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,adaptive,mio";
    const FULL: &'static str = "atr --total 1000,10000 --placement end,spread --kind pipe,tcp --paced --seconds 300 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,epoll-et,adaptive,uring,mio";
    const RUN: Run<Self> = trial::run;

    fn appendix(options: &Options) -> Result<String> {
        Ok(trial::appendix(options)?.map_or_else(String::new, |appendix| {
            format!(
                "a mixed load: cost per round, the best pure one = 1\n\n{}\n\
                 More mixed, shifting and random loads: superpoll-lab mix\n",
                crate::mix::table::costs(&appendix.rows)
            )
        }))
    }

    fn parts(rows: &[Row]) -> Vec<Part> {
        let parts = sweeps(rows).into_iter().flat_map(|(name, rows)| {
            let stem = format!("atr-{}", name.replace(' ', "-"));
            let best = format!("Each subject against the best pure one ({}):", PURE.join(", "));
            [
                Part::Heading(name.clone()),
                Part::plot(format!("{stem}.svg"), Some(plot::quotient(&name, &rows))),
                Part::plot(format!("{stem}-subjects.svg"), Some(plot::subjects(&name, &rows))),
                Part::List("Where they break even:", table::crossings(&rows)),
                Part::text("Time per round of the loop part (median):"),
                Part::Table(table::sweep(&rows)),
                Part::Text(best),
                Part::Table(table::subjects(&rows)),
            ]
        });
        parts.collect()
    }

    /// Returns the targets that `superpoll-lab atr` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let is = |names: &'static [&'static str]| move |row: &Row| names.contains(&&*row.subject);
        // Sweeps are compared with one descriptor in a hundred active and with all active.
        let against = |row: &Row, theirs: &str| {
            let is_end = row.active == row.total || row.active == row.total.div_ceil(100);
            let other = rows.iter().filter(|_| is_end).find(|other| {
                other.subject == theirs
                    && (&other.kind, &other.placement, other.total, other.active)
                        == (&row.kind, &row.placement, row.total, row.active)
            })?;
            Some(row.figures.ns_per_round_median / other.figures.ns_per_round_median)
        };
        let mut all = Targets::new(rows, place);
        let adaptive = is(&["adaptive"]);
        let name = "uniform sweep: cost of adaptive / pure";
        all.add(name, 1.06, adaptive, |row| row.figures.cost());
        let name = "uniform sweep: loop of adaptive / pure";
        all.add(name, 1.05, adaptive, |row| row.figures.loop_part());
        all.at = |row| format!("{}, {1} / raw-{1}", place(row), row.subject);
        let name = "our epoll / raw epoll at 0.01 and 1.0";
        let raw = |row: &Row| against(row, &format!("raw-{}", row.subject));
        all.add(name, 1.03, is(&["epoll-lt", "epoll-et"]), raw);
        all.at = |row| format!("{}, {} / mio", place(row), row.subject);
        let name = "our epoll / mio at 0.01 and 1.0";
        all.add(name, 1.0, is(&["epoll-et"]), |row| against(row, "mio"));
        all.at = |row| format!("{} {}", place(row), row.subject);
        let steady = is(&["poll", "epoll-lt", "epoll-et", "adaptive", "adaptive-lt"]);
        let counts: [(&str, f64, Account); 4] = [
            ("waits", 1.0, |figures| figures.waits_per_round),
            ("epoll_ctl", 0.0, |figures| figures.epoll_ctl_per_round),
            ("wakes", 0.0, |figures| figures.wakes_per_round),
            ("allocations", 0.0, |figures| figures.allocations_per_round),
        ];
        for (what, bound, of) in counts {
            let name = format!("steady state: {what} per round");
            all.add(name, bound, steady, |row| of(&row.figures));
        }
        all.at = |row| format!("{} of {}", row.subject, row.total);
        let bytes = |row: &Row| Some(row.figures.memory_bytes? as f64 / row.total.max(1) as f64);
        all.add("own bytes per registered descriptor", 64.0, |_| true, bytes);
        all.at = place;
        for subject in RINGS {
            // One active descriptor, and from one in a hundred on.
            for (what, bound, kinds, one) in [
                ("one active", 1.0, &["pipe", "unix", "tcp"][..], true),
                ("pipes from 0.01", 0.95, &["pipe"], false),
                ("sockets from 0.01", 0.90, &["unix", "tcp"], false),
            ] {
                let applies = |row: &Row| {
                    let is_one = row.active == 1;
                    let is_there =
                        if one { is_one } else { row.active * 100 >= row.total && !is_one };
                    row.subject == subject && kinds.contains(&&*row.kind) && is_there
                };
                let name = format!("uniform sweep, {what}: cost of {subject} / pure");
                all.add(name, bound, applies, |row| row.figures.cost());
            }
        }
        all.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = {
            format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
        };
        Figure::of_rounds(at, &row.figures)
    }
}

/// Names the point of a row.
fn place(row: &Row) -> String {
    format!("{} {} of {} {}", row.kind, row.active, row.total, row.placement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    fn row(subject: &str, active: usize, loop_ns: f64, cost_ratio: f64) -> Row {
        Row {
            kind: "pipe".to_owned(),
            placement: "end".to_owned(),
            total: 1000,
            active,
            subject: subject.to_owned(),
            figures: Figures {
                ns_per_round_median: loop_ns,
                cost_ratio: Some(cost_ratio),
                loop_ratio: Some(cost_ratio),
                memory_bytes: (subject == "adaptive").then_some(65_000),
                ..Figures::default()
            },
        }
    }

    #[test]
    fn each_target_is_judged_at_its_worst_point() {
        let rows = [
            row("adaptive", 1, 1.0, 1.01),
            row("adaptive", 1000, 1.0, 1.07),
            row("raw-epoll-lt", 10, 100.0, 1.0),
            row("epoll-lt", 10, 102.0, 1.0),
            row("raw-epoll-lt", 500, 100.0, 1.0),
            row("epoll-lt", 500, 200.0, 1.0),
        ];
        let targets = Atr::targets(&rows);
        let find = |name: &str| targets.iter().find(|t| t.name.contains(name)).unwrap();
        assert!(!find("cost of adaptive").is_kept());
        assert_eq!(find("cost of adaptive").at, "pipe 1000 of 1000 end");
        assert_eq!(find("raw epoll").measured, 1.02);
        assert!(find("raw epoll").is_kept());
        assert_eq!(find("own bytes").measured, 65.0);
        assert!(targets.iter().all(|target| !target.name.contains("mio")));
        let text = crate::target::table(&targets).to_string();
        assert!(text.contains("missed") && text.contains("ok"));
    }

    #[test]
    fn rings_have_targets_of_their_own_by_kind_and_share() {
        let row = |subject: &str, kind: &str, active, ratio| Row {
            kind: kind.to_owned(),
            ..row(subject, active, 1.0, ratio)
        };
        let targets = Atr::targets(&[
            row("uring", "pipe", 1, 1.02),
            row("uring", "pipe", 5, 3.0),
            row("uring", "pipe", 10, 0.94),
            row("uring", "unix", 1000, 0.91),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, false), (0.94, true), (0.91, false)]);
        assert!(targets.iter().all(|target| target.name.contains("cost of uring / pure")));
    }
}
