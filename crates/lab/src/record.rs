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
use crate::statistics::{self, Estimate, lowest_decile};

/// The version of the documents' structure.
pub(crate) const SCHEMA: u32 = 1;

/// Selects a time of a subject: the loop's own, or the total cost.
pub(crate) type Account = fn(&Figures) -> Option<f64>;

/// A finished experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record<Row> {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Its name: `atr`, `mix`, `wake`, `ring`, `herd`, `echo`, `http`, `files`, `timers`, `models`,
    /// `registrations`, `zombies`, `idle`, `fanout`, `sit`, `cluster`, `million`, `targets`,
    /// `gate`, `threads`; `atr-latency`, `mix-latency`, `herd-dups` and `idle-ramp`, other views of
    /// four of them.
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
    /// The loop part: wait, reads, upkeep.
    pub ns_per_round_min: f64,
    /// The loop part.
    pub ns_per_round_median: f64,
    /// The write part.
    pub write_ns_per_round_min: f64,
    /// Rounds that were measured and kept.
    pub rounds: usize,
    /// The write part.
    pub write_ns_per_round_median: f64,
    /// The loop part; a mean hides nothing and forgives no neighbour.
    pub ns_per_round_mean: f64,
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
    /// Loop part, from minima.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loop_ratio_min: Option<f64>,
    /// Cost, from medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ratio: Option<f64>,
    /// Cost, from minima.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ratio_min: Option<f64>,
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
    /// Moves between the sets, as the poller counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_per_round: Option<f64>,
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
    // What a write costs where nobody watches: the median, the least, and the lowest decile.
    let floor = point.iter().find(|(name, _)| *name == "floor").map(|(_, floor)| {
        let decile = lowest_decile(&floor.blocks.write_ns);
        (floor.write_ns_per_round_median, floor.write_ns_per_round_min, decile)
    });
    // Writing to a watched descriptor is never cheaper; where it seems so, that is noise, and no
    // subject is credited for it.
    let cost = |f: &Figures| {
        Some(f.ns_per_round_median + (f.write_ns_per_round_median - floor?.0).max(0.0))
    };
    let cost_min =
        |f: &Figures| Some(f.ns_per_round_min + (f.write_ns_per_round_min - floor?.1).max(0.0));
    let held_against = || point.iter().filter(|(name, _)| yardstick(name)).map(|(_, own)| &**own);
    let best =
        |of: &dyn Fn(&Figures) -> Option<f64>| held_against().filter_map(of).min_by(f64::total_cmp);
    let loops = |f: &Figures| Some(f.blocks.loop_ns.clone());
    let costs = |f: &Figures| Some(f.blocks.costs(floor?.2));
    let cheapest = |of: &dyn Fn(&Figures) -> Option<Vec<f64>>| {
        held_against()
            .filter_map(|figures| of(figures).filter(|blocks| !blocks.is_empty()))
            .min_by(|a, b| lowest_decile(a).total_cmp(&lowest_decile(b)))
    };
    let (cheapest_loop, cheapest_cost) = (cheapest(&loops), cheapest(&costs));
    let decile =
        |own: Option<Vec<f64>>, other: &Option<Vec<f64>>| statistics::ratio(&own?, other.as_ref()?);
    let best_loop = best(&|f| Some(f.ns_per_round_median));
    let best_loop_min = best(&|f| Some(f.ns_per_round_min));
    let (best_cost, best_cost_min) = (best(&cost), best(&cost_min));
    let ratio = |of: Option<f64>, to: Option<f64>| {
        of.zip(to).filter(|(_, to)| *to > 0.0).map(|(of, to)| of / to)
    };
    for (_, figures) in point.iter_mut() {
        figures.loop_ratio_decile = decile(loops(figures), &cheapest_loop);
        figures.cost_ratio_decile = decile(costs(figures), &cheapest_cost);
        figures.cost_ns_per_round = cost(figures);
        figures.loop_ratio = ratio(Some(figures.ns_per_round_median), best_loop);
        figures.loop_ratio_min = ratio(Some(figures.ns_per_round_min), best_loop_min);
        figures.cost_ratio = ratio(cost(figures), best_cost);
        figures.cost_ratio_min = ratio(cost_min(figures), best_cost_min);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(loop_ns: f64, write_ns: f64) -> Figures {
        Figures {
            ns_per_round_median: loop_ns,
            ns_per_round_min: loop_ns / 2.0,
            write_ns_per_round_median: write_ns,
            write_ns_per_round_min: write_ns / 2.0,
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
        assert_eq!(adaptive.cost_ratio_min, Some(0.75));
        // By blocks: 200 + 550 of 400 + 150.
        assert_eq!(adaptive.cost(), adaptive.cost_ratio_decile.map(|ratio| ratio.value));
        assert_eq!(adaptive.cost(), Some(700.0 / 550.0));
        assert_eq!(adaptive.loop_part(), Some(200.0 / 300.0));
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
}
