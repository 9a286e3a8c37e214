//! The experiment `atr`, for the command line and the report.

use crate::atr::{Options, Row, plot, sweeps, table, trial};
use crate::error::Result;
use crate::experiment::{Experiment, Figure};
use crate::page::Page;
use crate::record::{Figures, Record};
use crate::target::{RINGS, Target, worst};

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

    fn run(options: &Options) -> Result<Record<Row>> {
        trial::run(options)
    }

    fn appendix(options: &Options) -> Result<String> {
        Ok(trial::appendix(options)?.map_or_else(String::new, |appendix| {
            format!(
                "a mixed load: cost per round, the best pure one = 1\n\n{}\n\
                 More mixed, shifting and random loads: superpoll-lab mix\n",
                crate::mix::table::costs(&appendix.rows)
            )
        }))
    }

    fn text(rows: &[Row]) -> String {
        table::text(rows)
    }

    fn page(rows: &[Row], page: &mut Page<'_>) -> Result<()> {
        for (name, rows) in sweeps(rows) {
            page.heading(&name);
            let stem = format!("atr-{}", name.replace(' ', "-"));
            page.plot(&format!("{stem}.svg"), Some(plot::quotient(&name, &rows)))?;
            page.plot(&format!("{stem}-subjects.svg"), Some(plot::subjects(&name, &rows)))?;
            for line in table::crossings(&rows) {
                page.text(&format!("{line}."));
            }
            page.table(&table::sweep(&rows));
            page.text("Each subject against the best pure one:");
            page.table(&table::subjects(&rows));
        }
        Ok(())
    }

    /// Returns the targets that `superpoll-lab atr` measures.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let at =
            |row: &Row| format!("{} {} of {} {}", row.kind, row.active, row.total, row.placement);
        let adaptive = |of: fn(&Figures) -> Option<f64>| {
            rows.iter()
                .filter(|row| row.subject == "adaptive")
                .filter_map(move |row| Some((of(&row.figures)?, at(row))))
        };
        // Sweeps are compared with one descriptor in a hundred active and with all active.
        let against = |ours: &'static str, theirs: &'static str| {
            rows.iter()
                .filter(move |row| row.subject == ours)
                .filter(|row| row.active == row.total || row.active == row.total.div_ceil(100))
                .filter_map(move |row| {
                    let other = rows.iter().find(|other| {
                        other.subject == theirs
                            && (&other.kind, &other.placement, other.total, other.active)
                                == (&row.kind, &row.placement, row.total, row.active)
                    })?;
                    let ratio = row.figures.ns_per_round_median / other.figures.ns_per_round_median;
                    Some((ratio, format!("{}, {ours} / {theirs}", at(row))))
                })
        };
        let steady = |of: fn(&Figures) -> Option<f64>| {
            rows.iter()
                .filter(|row| {
                    ["poll", "epoll-lt", "epoll-et", "adaptive", "adaptive-lt"]
                        .contains(&row.subject.as_str())
                })
                .filter_map(move |row| {
                    Some((of(&row.figures)?, format!("{} {}", at(row), row.subject)))
                })
        };
        // One active descriptor, and from one in a hundred on.
        let rings = RINGS.into_iter().flat_map(|subject| {
            let costs = move |kinds: &'static [&'static str], one: bool| {
                rows.iter()
                    .filter(move |row| row.subject == subject && kinds.contains(&row.kind.as_str()))
                    .filter(move |row| {
                        if one {
                            row.active == 1
                        } else {
                            row.active * 100 >= row.total && row.active > 1
                        }
                    })
                    .filter_map(move |row| Some((row.figures.cost()?, at(row))))
            };
            let name = |what| format!("uniform sweep, {what}: cost of {subject} / pure");
            [
                worst(name("one active"), 1.0, costs(&["pipe", "unix", "tcp"], true)),
                worst(name("pipes from 0.01"), 0.95, costs(&["pipe"], false)),
                worst(name("sockets from 0.01"), 0.90, costs(&["unix", "tcp"], false)),
            ]
        });
        let memory = rows.iter().filter_map(|row| {
            let bytes = row.figures.memory_bytes? as f64 / row.total.max(1) as f64;
            Some((bytes, format!("{} of {}", row.subject, row.total)))
        });
        [
            worst("uniform sweep: cost of adaptive / pure", 1.06, adaptive(Figures::cost)),
            worst("uniform sweep: loop of adaptive / pure", 1.05, adaptive(Figures::loop_part)),
            worst(
                "our epoll / raw epoll at 0.01 and 1.0",
                1.03,
                against("epoll-lt", "raw-epoll-lt").chain(against("epoll-et", "raw-epoll-et")),
            ),
            worst("our epoll / mio at 0.01 and 1.0", 1.0, against("epoll-et", "mio")),
            worst("steady state: waits per round", 1.0, steady(|f| f.waits_per_round)),
            worst("steady state: epoll_ctl per round", 0.0, steady(|f| f.epoll_ctl_per_round)),
            worst("steady state: wakes per round", 0.0, steady(|f| f.wakes_per_round)),
            worst("steady state: allocations per round", 0.0, steady(|f| f.allocations_per_round)),
            worst("own bytes per registered descriptor", 64.0, memory),
        ]
        .into_iter()
        .chain(rings)
        .flatten()
        .collect()
    }

    fn figure(row: &Row) -> Option<Figure> {
        let at = {
            format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
        };
        Figure::of_rounds(at, &row.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
