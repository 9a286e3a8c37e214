//! `superpoll-lab verify`: whether the promises of `docs/promises.md` hold on this machine.
//!
//! A promise is a bound that is stated there, wide enough to hold in every run on a machine of its
//! kind, and not the best figure of one run. Each promise names the experiment that decides it.
//! These experiments are run, for a short time, into a folder of their own; or an existing report
//! is judged. A test compares the table of that page with this list.
//!
//! Short runs err: ten promises with a dozen points each, of five rounds, meet some seconds in
//! which the machine is slow. So a promise that looks broken is measured once more, and counts as
//! broken if both measurements break it; both figures are printed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::all;
use crate::document::Document;
use crate::error::{Doing, Error, Result};
use crate::experiments::{self, Records};
use crate::say;
use crate::statistics;
use crate::table::Table;

/// Options of `superpoll-lab verify`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Judges this report.json, or the file that --json wrote for one experiment, and measures
    /// nothing
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Keeps the records and the report of the measurements in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "from")]
    pub report: Option<PathBuf>,
}

/// A bound that `docs/promises.md` states.
#[derive(Clone, Copy)]
pub(crate) struct Promise {
    /// The promise in the words of that page.
    pub says: &'static str,
    /// Not more than this.
    pub bound: f64,
    /// The experiment that decides it.
    pub experiment: &'static str,
    /// Returns the measured value that counts, the worst or the median, and where.
    measured: fn(&Records) -> Option<(f64, String)>,
}

/// The folder within a report's folder for the second measurement of promises that looked broken.
const AGAIN: &str = "again";

/// All promises, in the order of that page.
pub(crate) const PROMISES: [Promise; 10] = [
    Promise {
        says: "one pipe active of a thousand or more: cost of `adaptive` / the better of `poll` and `epoll`",
        bound: 1.4,
        experiment: "atr",
        measured: |records| middle(adaptive_over_atr(records, 0.0, 0.002)),
    },
    Promise {
        says: "1 to 50 % of the pipes active: the same",
        bound: 1.0,
        experiment: "atr",
        measured: |records| middle(adaptive_over_atr(records, 0.01, 0.5)),
    },
    Promise {
        says: "60 to 100 % of the pipes active: the same",
        bound: 1.15,
        experiment: "atr",
        measured: |records| middle(adaptive_over_atr(records, 0.6, 1.0)),
    },
    Promise {
        says: "busy and idle pipes together: the same",
        bound: 1.25,
        experiment: "mix",
        measured: |records| {
            let own = experiments::rows(&records.mix).filter(|row| {
                (&*row.family, &*row.subject, &*row.kind) == ("mixed", "adaptive", "pipe")
            });
            middle(own.filter_map(|row| row.figures.cost()).collect())
        },
    },
    Promise {
        says: "a byte through a ring of tasks: time on our runtime / on a bare loop on epoll, best rounds",
        bound: 1.5,
        experiment: "ring",
        measured: |records| {
            let own = experiments::rows(&records.ring)
                .filter(|row| row.subject == "superpoll-rt-epoll" && row.in_flight == 1);
            largest(own.filter_map(|row| {
                let mut others = experiments::rows(&records.ring).filter(|other| {
                    other.subject == "raw-epoll-lt"
                        && (other.total, other.in_flight) == (row.total, row.in_flight)
                });
                let least = others.next().map(|other| other.ns_per_hop_min);
                let least = least.filter(|least| *least > 0.0)?;
                Some((row.ns_per_hop_min / least, format!("{} pipes", row.total)))
            }))
        },
    },
    Promise {
        says: "a connection while many processes wait: those that our exclusive listener wakes",
        bound: 1.5,
        experiment: "herd",
        measured: |records| {
            let own = experiments::rows(&records.herd)
                .filter(|row| row.subject == "superpoll-rt-exclusive" && row.dups == 0);
            largest(own.map(|row| (row.woken_per_connect, format!("{} wait", row.processes))))
        },
    },
    Promise {
        says: "silent connections next to busy ones: CPU of a request / with none of them",
        bound: 1.25,
        experiment: "zombies",
        measured: |records| {
            let own = experiments::rows(&records.zombies).filter(|row| {
                ["gateway-epoll", "gateway-adaptive", "superpoll-rt-epoll"].contains(&&*row.subject)
            });
            largest(own.filter_map(|row| {
                Some((
                    row.none_ratio?.headline().value,
                    format!("{} with {}", row.subject, row.zombies),
                ))
            }))
        },
    },
    Promise {
        says: "an idle keep-alive connection, WebSocket or stream of events: KiB of memory of the server",
        bound: 1.0,
        experiment: "idle",
        measured: |records| {
            let own = experiments::rows(&records.idle).filter(|row| {
                ["superpoll-keep-alive", "superpoll-websocket", "superpoll-events"]
                    .contains(&&*row.subject)
            });
            largest(own.map(|row| {
                let bytes = row.user_bytes_per_connection.median;
                (bytes / 1024.0, format!("{} {}", row.subject, row.arrival))
            }))
        },
    },
    Promise {
        says: "a TCP connection passed on: system calls",
        bound: 18.0,
        experiment: "relay",
        measured: |records| {
            let own = experiments::rows(&records.relay).filter(|row| {
                ["superpoll-epoll", "superpoll-adaptive"].contains(&&*row.subject)
                    && row.load == "connection"
            });
            largest(own.filter_map(|row| Some((row.calls_per_request?, row.subject.clone()))))
        },
    },
    Promise {
        says: "idle connections through an upgrade and a crash (`--keeper`): dropped, lost or doubled",
        bound: 0.0,
        experiment: "sit",
        measured: |records| {
            let own = experiments::rows(&records.sit).filter(|row| {
                row.part == "restart" && ["dropped", "lost", "doubled"].contains(&&*row.figure)
            });
            largest(own.map(|row| (row.most, format!("{}, {}", row.subject, row.figure))))
        },
    },
];

fn largest(measured: impl Iterator<Item = (f64, String)>) -> Option<(f64, String)> {
    measured.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Returns the costs of `adaptive` at the ratios of active to all descriptors within a range.
fn adaptive_over_atr(records: &Records, from: f64, to: f64) -> Vec<f64> {
    experiments::rows(&records.atr)
        .filter(|row| row.subject == "adaptive" && row.kind == "pipe")
        .filter(|row| (from..=to).contains(&row.atr()))
        .filter_map(|row| row.figures.cost())
        .collect()
}

/// Returns the median: of forty points in a short run, some are hit by other load on the machine.
fn middle(costs: Vec<f64>) -> Option<(f64, String)> {
    let points = format!("the middle of {} points", costs.len());
    (!costs.is_empty()).then(|| (statistics::median(&costs), points))
}

/// A promise and its measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verified {
    /// The promise.
    pub says: &'static str,
    /// Not more than this.
    pub bound: f64,
    /// The measured value that counts, and where, if there is one.
    pub measured: Option<(f64, String)>,
}

impl Verified {
    /// Returns whether the promise is kept; `None` without a measurement.
    pub(crate) fn is_kept(&self) -> Option<bool> {
        self.measured.as_ref().map(|(value, _)| *value <= self.bound)
    }
}

/// Judges every promise by the records.
pub(crate) fn evaluate(records: &Records) -> Vec<Verified> {
    PROMISES
        .iter()
        .map(|one| Verified { says: one.says, bound: one.bound, measured: (one.measured)(records) })
        .collect()
}

/// Returns the promises, each with its measurement.
pub(crate) fn table(verified: &[Verified]) -> Table {
    let mut table = Table::new(["promise", "at", "at most", "measured", "kept"]).names(2);
    for one in verified {
        let (measured, at) = match &one.measured {
            Some((value, at)) => (format!("{value:.2}"), at.clone()),
            None => ("-".to_owned(), String::new()),
        };
        let kept = match one.is_kept() {
            Some(true) => "ok",
            Some(false) => "broken",
            None => "not measured",
        };
        let bound = format!("{:.2}", one.bound);
        table.row([one.says.to_owned(), at, bound, measured, kept.to_owned()]);
    }
    table
}

/// Returns the results of the promises after those that looked broken were measured again. The
/// better figure counts.
fn at_second_sight(first: Vec<Verified>, again: &[Verified]) -> Vec<Verified> {
    let judged = first.into_iter().zip(again).map(|(mut first, again)| {
        if first.is_kept() == Some(false)
            && let (Some(before), Some(now)) = (&first.measured, &again.measured)
        {
            let (better, other) = if now.0 < before.0 { (now, before) } else { (before, now) };
            let at = format!("{}; the other time {:.2}", better.1, other.0);
            first.measured = Some((better.0, at));
        }
        first
    });
    judged.collect()
}

/// Returns the experiments that decide the promises that `of` chooses, each once, with commas.
fn experiments_of(of: impl Fn(usize) -> bool) -> String {
    let chosen = PROMISES.iter().enumerate().filter(|(place, _)| of(*place));
    let names: BTreeSet<&str> = chosen.map(|(_, one)| one.experiment).collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}

/// Makes short runs of experiments, into a folder.
fn measure(names: String, folder: &Path, program: &Path) -> Result<Document> {
    let measured = all::run(
        &all::Options {
            quick: true,
            only: Some(names),
            fresh: true,
            report: folder.to_owned(),
            limit: None,
        },
        program,
    )?;
    if measured.is_interrupted() {
        return Err(Error::usage("interrupted before everything was measured"));
    }
    Ok(Document::of(folder))
}

fn broken(verified: &[Verified]) -> Vec<&Verified> {
    verified.iter().filter(|one| one.is_kept() == Some(false)).collect()
}

/// Judges every promise by a document, and prints its notes.
fn judge(document: &Document) -> Vec<Verified> {
    document.notes.iter().for_each(|note| say::note(note));
    evaluate(&document.records)
}

/// Measures the figures of the promises, or reads a report, and prints the result of each promise.
pub(crate) fn run(options: &Options, program: &Path) -> Result<()> {
    let verified = match &options.from {
        Some(path) => judge(&Document::read(path)?),
        None => {
            let own = tempfile::tempdir().doing("creating a temporary folder")?;
            let folder = options.report.as_deref().unwrap_or(own.path());
            let first = judge(&measure(experiments_of(|_| true), folder, program)?);
            match broken(&first).len() {
                0 => first,
                count => {
                    say::note(&format!(
                        "{count} of {} promises look broken: measuring them once more",
                        first.len()
                    ));
                    let names = experiments_of(|place| first[place].is_kept() == Some(false));
                    let again = judge(&measure(names, &folder.join(AGAIN), program)?);
                    at_second_sight(first, &again)
                }
            }
        }
    };
    say::print(table(&verified))?;
    let broken: Vec<&str> = broken(&verified).iter().map(|one| one.says).collect();
    if !broken.is_empty() {
        return Err(Error::usage(format!(
            "{} of {} promises are broken on this machine: {}",
            broken.len(),
            verified.len(),
            broken.join("; ")
        )));
    }
    if verified.iter().all(|one| one.measured.is_none()) {
        return Err(Error::usage("none of the promises of docs/promises.md was measured"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::idle;
    use crate::record::Record;

    #[test]
    fn the_page_states_every_promise_with_its_bound_and_no_other() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/promises.md");
        let page = std::fs::read_to_string(path).unwrap();
        let stated: Vec<&str> = page
            .lines()
            .skip_while(|line| !line.starts_with("| promise |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .collect();
        let promised: Vec<String> = PROMISES
            .iter()
            .map(|one| {
                format!(
                    "| {} (`superpoll-lab {}`) | {} |",
                    one.says,
                    experiments::command(one.experiment),
                    one.bound
                )
            })
            .collect();
        assert_eq!(stated, promised);
        for promise in PROMISES {
            let is_known = experiments::ALL.iter().any(|one| one.name == promise.experiment);
            assert!(is_known, "{}", promise.experiment);
        }
    }

    #[test]
    fn the_worst_is_held_against_the_bound() {
        let row = |subject: &str, kibibytes: f64| idle::Row {
            subject: subject.to_owned(),
            arrival: "burst".to_owned(),
            user_bytes_per_connection: idle::Spread {
                median: kibibytes * 1024.0,
                ..idle::Spread::default()
            },
            ..idle::Row::default()
        };
        let of = |rows: Vec<idle::Row>| {
            let record = Record::new("idle", Environment::here(), [], rows);
            evaluate(&Records { idle: Some(record), ..Records::default() })
        };
        let kept = of(vec![row("superpoll-keep-alive", 0.3), row("hyper-keep-alive", 10.0)]);
        let broken = of(vec![row("superpoll-websocket", 1.5), row("superpoll-keep-alive", 0.3)]);
        let count = |all: &[Verified], kept| all.iter().filter(|one| one.is_kept() == kept).count();
        assert_eq!((count(&kept, Some(true)), count(&kept, Some(false))), (1, 0));
        assert_eq!((count(&broken, Some(true)), count(&broken, Some(false))), (0, 1));
        assert_eq!(count(&kept, None), PROMISES.len() - 1);
        assert!(table(&broken).rows().iter().any(|row| row[4] == "broken" && row[3] == "1.50"));
    }
    #[test]
    fn a_promise_is_broken_if_both_measurements_break_it() {
        let verified = |values: [Option<f64>; 4]| -> Vec<Verified> {
            let one = |value: Option<f64>| Verified {
                says: "less",
                bound: 1.25,
                measured: value.map(|value| (value, format!("at {value}"))),
            };
            values.into_iter().map(one).collect()
        };
        let first = verified([Some(1.26), Some(1.3), Some(1.0), Some(1.4)]);
        let again = verified([Some(1.01), Some(1.5), Some(9.0), None]);
        let judged = at_second_sight(first, &again);
        let kept: Vec<Option<bool>> = judged.iter().map(Verified::is_kept).collect();
        assert_eq!(kept, [Some(true), Some(false), Some(true), Some(false)]);
        let table = table(&judged);
        let told: Vec<[&str; 2]> =
            table.rows().iter().map(|row| [row[1].as_str(), row[3].as_str()]).collect();
        assert_eq!(told[0], ["at 1.01; the other time 1.26", "1.01"]);
        assert_eq!(told[1], ["at 1.3; the other time 1.50", "1.30"]);
        assert_eq!(told[2..], [["at 1", "1.00"], ["at 1.4", "1.40"]]);
    }

    #[test]
    fn an_experiment_that_decides_several_promises_is_run_once() {
        assert_eq!(experiments_of(|place| place < 4), "atr,mix");
        assert_eq!(experiments_of(|place| place == 6), "zombies");
    }
}
