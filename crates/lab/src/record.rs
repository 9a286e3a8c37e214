//! The record of an experiment: one JSON document with a fixed structure, and the same rows as CSV.
//!
//! `schema` is raised when a field changes its meaning or goes away; new fields may appear in the
//! same schema. Times are in nanoseconds per round, over a whole round: divide by the number of
//! active descriptors for a time per event.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::error::{Doing, Error, Result};
use crate::experiments::{self, Listed};
use crate::statistics::{self, Estimate, Modes, lowest_decile};
use crate::table;

/// The version of the documents' structure.
pub(crate) const SCHEMA: u32 = 2;

/// Selects a time of a subject: the loop's own, or the total cost.
pub(crate) type Account = fn(&Figures) -> Option<f64>;

/// A finished experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record<Row> {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Its name: `atr`, `mix`, `wake`, `ring`, `herd`, `echo`, `http`, `files`, `timers`, `models`,
    /// `registrations`, `zombies`, `idle`, `fanout`, `sit`, `cluster`, `million`, `targets`,
    /// `gate`, `threads`; `atr-latency`, `mix-latency` and `herd-dups`, other views of three of
    /// them.
    pub experiment: String,
    /// Where it ran.
    pub environment: Environment,
    /// Its parameters.
    pub parameters: Map<String, Value>,
    /// Its measurements.
    pub rows: Vec<Row>,
}

/// The figures of one subject at one point. A ratio is to the best of `poll` and both triggers of
/// `epoll`, raw or ours, at the same point of the same run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figures {
    /// The loop part.
    pub ns_per_round_median: f64,
    /// Rounds that were measured and kept.
    pub rounds: usize,
    /// The write part.
    pub write_ns_per_round_median: f64,
    /// The loop part of the quickest block: the spread's lower end.
    pub block_ns_per_round_low: f64,
    /// The loop part of the slowest block: the spread's upper end.
    pub block_ns_per_round_high: f64,
    /// Rounds left out because the kernel gave the processor to another task meanwhile.
    pub preempted: usize,
    /// Reads that found nothing.
    pub empty_reads: u64,
    /// The loop part plus the extra cost of writing compared with descriptors that are not watched;
    /// from medians. Present if the floor took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns_per_round: Option<f64>,
    /// Loop part, from medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_ratio: Option<f64>,
    /// Cost, from medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ratio: Option<f64>,
    /// Loop part, from the lowest deciles of the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_ratio_decile: Option<Estimate>,
    /// Cost, from the lowest deciles of the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ratio_decile: Option<Estimate>,
    /// System calls that wait, as the poller counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_per_round: Option<f64>,
    /// `epoll_ctl` calls, as the poller counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoll_ctl_per_round: Option<f64>,
    /// Writes to the waker, as the poller counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes_per_round: Option<f64>,
    /// Allocations of this process in measured rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations_per_round: Option<f64>,
    /// System calls per event, reads included, as the subject counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_event: Option<f64>,
    /// How often the kernel had no room to note an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overflows: Option<u64>,
    /// The poller's own heap memory in bytes, without the arrays that the kernel reads or writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<usize>,
    /// Why no subject has a ratio at this point, if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_ratio: Option<String>,
    /// The two values around which the rounds lie, if there are two, while the point is measured.
    #[serde(skip)]
    pub modes: Option<Modes>,
    /// The blocks, while the point is measured.
    #[serde(skip)]
    pub blocks: Blocks,
}

/// The time of each block, in nanoseconds per round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Blocks {
    /// The loop part.
    pub loop_ns: Vec<f64>,
    /// The write part.
    pub write_ns: Vec<f64>,
}

impl Figures {
    /// Returns the headline of the loop part: the ratio of lowest deciles, or of medians in older
    /// records.
    pub(crate) fn loop_part(&self) -> Option<f64> {
        self.loop_ratio_decile.map(|ratio| ratio.value).or(self.loop_ratio)
    }

    /// Returns the headline of the cost, likewise.
    pub(crate) fn cost(&self) -> Option<f64> {
        self.cost_ratio_decile.map(|ratio| ratio.value).or(self.cost_ratio)
    }
}

impl Blocks {
    /// Returns the cost of each block where a write to a descriptor that is not watched costs this
    /// much.
    fn costs(&self, unwatched: f64) -> Vec<f64> {
        let blocks = self.loop_ns.iter().zip(&self.write_ns);
        blocks.map(|(loop_ns, write_ns)| loop_ns + (write_ns - unwatched).max(0.0)).collect()
    }
}

/// The subjects that do not adapt: adapting is compared with the best of them.
pub(crate) const PURE: [&str; 6] =
    ["raw-poll", "raw-epoll-lt", "raw-epoll-et", "poll", "epoll-lt", "epoll-et"];

/// Fills in the costs and ratios of the figures of one point, given with their subjects' names.
pub(crate) fn relate(point: &mut [(&str, &mut Figures)]) {
    relate_to(point, |name| PURE.contains(&name));
}

/// Like [`relate`], but the ratios are to the best of the subjects that `yardstick` selects.
pub(crate) fn relate_to(point: &mut [(&str, &mut Figures)], yardstick: impl Fn(&str) -> bool) {
    let no_ratio = two_modes(point);
    // What a write costs where nobody watches: the median, and the lowest decile.
    let floor = point.iter().find(|(name, _)| *name == "floor").map(|(_, floor)| {
        let decile = lowest_decile(&floor.blocks.write_ns);
        (floor.write_ns_per_round_median, decile)
    });
    // Writing to a watched descriptor is never cheaper; where it seems so, that is noise, and no
    // subject is credited for it.
    let cost = |f: &Figures| {
        Some(f.ns_per_round_median + (f.write_ns_per_round_median - floor?.0).max(0.0))
    };
    let held_against = || point.iter().filter(|(name, _)| yardstick(name)).map(|(_, own)| &**own);
    let best =
        |of: &dyn Fn(&Figures) -> Option<f64>| held_against().filter_map(of).min_by(f64::total_cmp);
    let loops = |f: &Figures| Some(f.blocks.loop_ns.clone());
    let costs = |f: &Figures| Some(f.blocks.costs(floor?.1));
    let cheapest = |of: &dyn Fn(&Figures) -> Option<Vec<f64>>| {
        held_against()
            .filter_map(|figures| of(figures).filter(|blocks| !blocks.is_empty()))
            .min_by(|a, b| lowest_decile(a).total_cmp(&lowest_decile(b)))
    };
    let (cheapest_loop, cheapest_cost) = (cheapest(&loops), cheapest(&costs));
    let decile =
        |own: Option<Vec<f64>>, other: &Option<Vec<f64>>| statistics::ratio(&own?, other.as_ref()?);
    let best_loop = best(&|f| Some(f.ns_per_round_median));
    let best_cost = best(&cost);
    let ratio = |of: Option<f64>, to: Option<f64>| {
        of.zip(to).filter(|(_, to)| *to > 0.0).map(|(of, to)| of / to)
    };
    for (_, figures) in point.iter_mut() {
        figures.cost_ns_per_round = cost(figures);
        if no_ratio.is_some() {
            figures.no_ratio.clone_from(&no_ratio);
            continue;
        }
        figures.loop_ratio_decile = decile(loops(figures), &cheapest_loop);
        figures.cost_ratio_decile = decile(costs(figures), &cheapest_cost);
        figures.loop_ratio = ratio(Some(figures.ns_per_round_median), best_loop);
        figures.cost_ratio = ratio(cost(figures), best_cost);
    }
}

/// Returns why a point has no ratios, if the rounds of at least half of its subjects have two
/// modes: then the machine has them, and a ratio says which subject met the slow one more often.
fn two_modes(point: &[(&str, &mut Figures)]) -> Option<String> {
    let modes: Vec<Modes> = point.iter().filter_map(|(_, figures)| figures.modes).collect();
    if modes.is_empty() || modes.len() * 2 < point.len() {
        return None;
    }
    let of = |mode: fn(&Modes) -> f64| {
        table::time(statistics::median(&modes.iter().map(mode).collect::<Vec<_>>()))
    };
    let (subjects, all) = (modes.len(), point.len());
    let (low, high) = (of(|modes| modes.low), of(|modes| modes.high));
    Some(format!("rounds have two modes, {low} or {high}, with {subjects} of {all} subjects"))
}

impl<Row: Serialize> Record<Row> {
    /// Returns the document as JSON text.
    pub(crate) fn to_json(&self) -> Result<String> {
        json(self, "the record")
    }

    /// Returns the rows as CSV, a column for each field that any row has.
    pub(crate) fn to_csv(&self) -> Result<String> {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()
            .map_err(|error| Error::usage(format!("writing the rows as CSV: {error}")))?;
        let mut columns: Vec<&str> = Vec::new();
        for row in rows.iter().filter_map(Value::as_object) {
            for name in row.keys() {
                if !columns.contains(&name.as_str()) {
                    columns.push(name);
                }
            }
        }
        let mut text = columns.join(",") + "\n";
        for row in &rows {
            let cells = columns.iter().map(|name| match row.get(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => quoted(text),
                Some(value) => quoted(&value.to_string()),
            });
            text += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        Ok(text)
    }
}

impl<Row> Record<Row> {
    /// Returns the record of an experiment of this name, with its parameters.
    pub(crate) fn new<'a>(
        experiment: &str,
        environment: Environment,
        parameters: impl IntoIterator<Item = (&'a str, Value)>,
        rows: Vec<Row>,
    ) -> Record<Row> {
        Record {
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            environment,
            parameters: parameters
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            rows,
        }
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Returns a value as a JSON document; the error says what it is.
pub(crate) fn json(value: &impl Serialize, what: &str) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Error::usage(format!("writing {what} as JSON: {error}")))
}

/// Reads a file; the error names it.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    std::fs::read_to_string(path).doing(format_args!("reading {}", path.display()))
}

/// Writes a file; the error names it.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).doing(format_args!("writing {}", path.display()))
}

// The journal of `superpoll-lab all`: the experiments that a run has done, so that an interrupted
// run can continue.
//
// The journal lies in the report's folder; after each experiment it is written anew and moved into
// place. A run continues only if program, commit, kernel, extent and choice are those of the
// journal: figures of two builds or two kernels under one heading would be an unintended
// comparison.

/// Its file in a report's folder.
pub(crate) const FILE: &str = "all.json";

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Extent {
    /// In about five minutes.
    Quick,
    /// In about an hour.
    Full,
}

impl Extent {
    /// Returns the words after `superpoll-lab` of an experiment's run of this extent.
    pub(crate) fn words(self, experiment: &Listed) -> &'static str {
        match self {
            Extent::Quick => experiment.quick,
            Extent::Full => experiment.full,
        }
    }
}

/// The state of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub(crate) enum State {
    /// The experiment has not run, or not to its end.
    Pending,
    /// The experiment ran, and its record is in the folder.
    Done {
        /// How long that took.
        seconds: f64,
        /// Its notes: the parts that were left out or made smaller, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// The experiment ended with an error, as a rule without a record.
    Failed {
        /// Its error message.
        reason: String,
    },
}

/// One experiment of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The experiment.
    pub experiment: String,
    /// The words after `superpoll-lab`.
    pub command: String,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}

/// A run of `superpoll-lab all`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// The version of the document's structure.
    pub schema: u32,
    /// How much is measured.
    pub extent: Extent,
    /// Version of the program.
    pub superpoll: String,
    /// The commit it was built from, if that was known.
    pub commit: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The day on which the run began (UTC).
    pub date: String,
    /// The experiments, in order.
    pub steps: Vec<Step>,
}

impl Journal {
    /// Creates the journal of a run that has done nothing yet.
    pub(crate) fn new(extent: Extent, experiments: &[&Listed], here: &Environment) -> Journal {
        let step = |experiment: &&Listed| Step {
            experiment: experiment.name.to_owned(),
            command: extent.words(experiment).to_owned(),
            state: State::Pending,
        };
        Journal {
            schema: SCHEMA,
            extent,
            superpoll: here.superpoll.clone(),
            commit: here.commit.clone(),
            kernel: here.kernel.clone(),
            date: here.date.clone(),
            steps: experiments.iter().map(step).collect(),
        }
    }

    /// Returns the journal of a folder; `None`, and a note, if it cannot be read, and `None`
    /// without a note if there is no journal.
    pub(crate) fn load(folder: &Path, notes: &mut Vec<String>) -> Option<Journal> {
        experiments::read(&folder.join(FILE), notes)
    }

    /// Writes the journal; at any time a reader finds the complete old or the complete new journal.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = json(self, "the journal")?;
        let path = folder.join(FILE);
        let system = |e| Error::system(format!("writing {}", path.display()), e);
        let mut new = tempfile::NamedTempFile::new_in(folder).map_err(system)?;
        std::io::Write::write_all(&mut new, text.as_bytes()).map_err(system)?;
        new.persist(&path).map(drop).map_err(|e| system(e.error))
    }

    /// Returns why a new run cannot continue where this run ended; `None` if it can.
    pub(crate) fn differs(&self, new: &Journal) -> Option<&'static str> {
        let commands = |journal: &Journal| -> Vec<String> {
            journal.steps.iter().map(|step| step.command.clone()).collect()
        };
        if self.extent != new.extent {
            Some("it measured another extent")
        } else if (&self.superpoll, &self.commit) != (&new.superpoll, &new.commit) {
            Some("it was made by another build")
        } else if self.kernel != new.kernel {
            Some("it ran on another kernel")
        } else if commands(self) != commands(new) {
            Some("it measured other experiments")
        } else {
            None
        }
    }

    /// Returns how many experiments are done.
    pub(crate) fn done(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step.state, State::Done { .. })).count()
    }

    /// Returns whether a signal ended the run before all experiments were run.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.steps.iter().any(|step| step.state == State::Pending)
    }

    /// Returns whether all experiments are done.
    pub(crate) fn is_complete(&self) -> bool {
        self.done() == self.steps.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(loop_ns: f64, write_ns: f64) -> Figures {
        Figures {
            ns_per_round_median: loop_ns,
            write_ns_per_round_median: write_ns,
            blocks: Blocks {
                loop_ns: vec![loop_ns, 3.0 * loop_ns],
                write_ns: vec![4.0 * write_ns, write_ns],
            },
            ..Figures::default()
        }
    }

    #[test]
    fn ratios_are_to_the_best_pure_one_by_each_account() {
        let mut floor = figures(100.0, 50.0);
        let mut poll = figures(400.0, 50.0);
        let mut epoll = figures(300.0, 250.0);
        let mut adaptive = figures(200.0, 150.0);
        relate(&mut [
            ("floor", &mut floor),
            ("raw-poll", &mut poll),
            ("epoll-et", &mut epoll),
            ("adaptive", &mut adaptive),
        ]);
        assert_eq!(adaptive.cost_ns_per_round, Some(300.0));
        assert_eq!(adaptive.cost_ratio, Some(300.0 / 400.0));
        assert_eq!(adaptive.loop_ratio, Some(200.0 / 300.0));
        assert_eq!((poll.cost_ratio, epoll.cost_ratio), (Some(1.0), Some(500.0 / 400.0)));
        // By blocks: 200 + 550 of 400 + 150.
        assert_eq!(adaptive.cost(), adaptive.cost_ratio_decile.map(|ratio| ratio.value));
        assert_eq!(adaptive.cost(), Some(700.0 / 550.0));
        assert_eq!(adaptive.loop_part(), Some(200.0 / 300.0));
    }

    #[test]
    fn a_point_with_two_modes_has_the_reason_and_no_ratio() {
        let modes = Some(Modes { low: 8e6, high: 25e6 });
        let [mut floor, mut poll, mut epoll] = [(); 3].map(|()| figures(100.0, 50.0));
        poll.modes = modes;
        relate(&mut [("floor", &mut floor), ("poll", &mut poll), ("epoll-et", &mut epoll)]);
        // One of three may have a reason of its own.
        assert!(poll.no_ratio.is_none() && poll.cost_ratio == Some(1.0));
        let [mut floor, mut poll, mut epoll] = [(); 3].map(|()| figures(100.0, 50.0));
        (floor.modes, poll.modes) = (modes, modes);
        relate(&mut [("floor", &mut floor), ("poll", &mut poll), ("epoll-et", &mut epoll)]);
        for figures in [&poll, &epoll] {
            let reason = "rounds have two modes, 8000.0 us or 25.0 ms, with 2 of 3 subjects";
            assert_eq!(figures.no_ratio.as_deref(), Some(reason));
            assert_eq!((figures.cost(), figures.loop_part()), (None, None));
            assert_eq!(figures.cost_ns_per_round, Some(100.0));
        }
    }

    #[test]
    fn without_floor_or_pure_subjects_there_is_no_such_ratio() {
        let mut adaptive = figures(200.0, 150.0);
        relate(&mut [("adaptive", &mut adaptive)]);
        assert_eq!((adaptive.cost_ns_per_round, adaptive.loop_ratio), (None, None));
        let mut poll = figures(100.0, 150.0);
        relate(&mut [("adaptive", &mut adaptive), ("poll", &mut poll)]);
        assert_eq!((adaptive.cost_ratio, adaptive.loop_ratio), (None, Some(2.0)));
    }

    #[test]
    fn csv_has_a_column_for_every_field_of_any_row() {
        let record = Record {
            schema: SCHEMA,
            experiment: "atr".to_owned(),
            environment: Environment::default(),
            parameters: Map::new(),
            rows: vec![
                serde_json::json!({"kind": "pipe", "n": 1}),
                serde_json::json!({"kind": "a,\"b\"", "extra": 0.5}),
            ],
        };
        assert_eq!(record.to_csv().unwrap(), "kind,n,extra\npipe,1,\n\"a,\"\"b\"\"\",,0.5\n");
    }

    fn journal(extent: Extent) -> Journal {
        let all: Vec<&Listed> = experiments::ALL.iter().collect();
        Journal::new(extent, &all, &Environment::here())
    }

    #[test]
    fn it_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        assert_eq!(Journal::load(folder.path(), &mut notes), None);
        let mut one = journal(Extent::Quick);
        one.steps[0].state = State::Done { seconds: 1.5, notes: vec!["less".to_owned()] };
        one.steps[1].state = State::Failed { reason: "no room".to_owned() };
        one.write(folder.path()).unwrap();
        assert_eq!(Journal::load(folder.path(), &mut notes), Some(one.clone()));
        assert!(notes.is_empty() && one.done() == 1 && !one.is_complete());
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(Journal::load(folder.path(), &mut notes), None);
        assert!(notes[0].starts_with("all.json left out"), "{notes:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_the_same_run_goes_on() {
        let one = journal(Extent::Quick);
        assert_eq!(one.differs(&one), None);
        assert!(one.differs(&journal(Extent::Full)).unwrap().contains("extent"));
        let other = Journal { commit: Some("x".to_owned()), ..one.clone() };
        assert!(one.differs(&other).unwrap().contains("build"));
        let other = Journal { kernel: "x".to_owned(), ..one.clone() };
        assert!(one.differs(&other).unwrap().contains("kernel"));
        let other = Journal { steps: Vec::new(), ..one.clone() };
        assert!(one.differs(&other).unwrap().contains("experiments"));
    }
}
