//! `superpoll-lab gate`: checks that the core paths have not become more expensive.
//!
//! Times differ from machine to machine and from minute to minute; people would not believe a test
//! that fails by them. The numbers of instructions and of system calls that an operation takes do
//! not differ. The gate counts them for each operation of each core path (`paths/`) and compares
//! them with the figures in `gate.toml`, which is part of the source. A change that makes a path
//! more expensive fails, and the message says by how much. If the change is worth that price, the
//! figures are written anew (`--update`) and the commit says why. A path that gets cheaper passes,
//! and the output asks for new figures, so that the gain is not lost.
//!
//! Instructions are those of the process, by callgrind. Instructions that the kernel executes for a
//! call are not included, and an instruction that misses a cache counts like any other. So the gate
//! finds added work, not slower work; the experiments cover the rest. System calls are counted by
//! the kernel (strace) and by our own counters.
//!
//! It counts in a build of its own (`.cargo/gate.toml`): our own crates are optimized, and the
//! others' are as the tests have compiled them. An operation takes up to a fifth more instructions
//! there than with the profile `dist`, where all crates are optimized together; but that build
//! takes more than twice the processor time, and added work shows in both.
//!
//! `measure.rs` counts, in processes of this program and `stored.rs` reads, writes and compares the
//! figures. A figure that varies by itself is measured again before it counts as more expensive,
//! and is not stored at all.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use measure::Tools;
use paths::Path;
use serde::{Deserialize, Serialize};
use stored::{Figures, Made, Stored};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::gate::stored::Change;
use crate::options;
use crate::record::{self, Record};
use crate::sys::process;
use crate::table::Table;

mod measure;
mod paths;
mod stored;

/// How the gate is built: the tests' libraries, and our own crates optimized.
const BUILD: &str = "cargo build --workspace --bins --example tcp_echo --config .cargo/gate.toml, then \
                     target/debug/superpoll-lab gate";

/// Instruction counts of runs that will be stored may differ by this share of the path's tolerance.
const SPREAD: f64 = 0.25;

/// How often a path is measured when its figures will be stored, and the most often when it looks
/// more expensive.
const RUNS: usize = 3;

/// Processes that count at the same time, if there are as many processors.
const AT_A_TIME: usize = 4;

/// The advice for a path that has become more expensive.
const ADVICE: &str = "find out where with valgrind --tool=callgrind or strace; if the change is worth it, run \
                      superpoll-lab gate --update and say why in the commit message";

/// Options of `superpoll-lab gate`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Paths to measure, with commas [default: all]
    #[arg(long, value_name = "LIST")]
    pub only: Option<String>,
    /// Names the paths and their stored figures, and measures nothing
    #[arg(long)]
    pub list: bool,
    /// Writes the counts to this file, after a change that makes a path more expensive on purpose
    /// or makes it cheaper
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = stored::PLACE)]
    pub update: Option<PathBuf>,
    /// Compares with the figures in this file instead of those built in
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    pub stored: Option<PathBuf>,
    /// How often each path is measured [default: 1, or 3 with --update]
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// Writes {schema, experiment, environment, parameters, rows} to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Counts without optimization as well.
    #[arg(long, hide = true)]
    pub any_build: bool,
    /// Carries out operations of this path: the counted process.
    #[arg(long, hide = true, value_name = "PATH", requires = "operations")]
    pub operate: Option<String>,
    /// How many operations.
    #[arg(long, hide = true, value_name = "N")]
    pub operations: Option<u64>,
}

/// A path with its counted and its stored figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The path.
    pub path: String,
    /// The operation, in words.
    pub operation: String,
    /// How many operations were counted.
    pub operations: u64,
    /// The cost of an operation, from the run with the fewest instructions.
    pub now: Figures,
    /// The stored figures.
    pub stored: Option<Figures>,
    /// The instructions of the most expensive run divided by those of the cheapest, less one; zero
    /// for a single run.
    pub spread: f64,
    /// Figures that have increased.
    #[serde(rename = "dearer")]
    pub regressions: Vec<String>,
    /// Figures that have decreased.
    pub cheaper: Vec<String>,
}

/// The runs of a path.
struct Measured {
    path: Path,
    runs: Vec<Figures>,
}

impl Measured {
    /// The run with the fewest instructions: a disturbance only adds instructions.
    fn least(&self) -> Figures {
        let instructions = |run: &&Figures| run.instructions.unwrap_or(0.0);
        let least = self.runs.iter().min_by(|a, b| instructions(a).total_cmp(&instructions(b)));
        least.cloned().unwrap_or_default()
    }

    fn spread(&self) -> f64 {
        let counts = || self.runs.iter().filter_map(|run| run.instructions);
        let least = counts().fold(f64::INFINITY, f64::min);
        let most = counts().fold(0.0, f64::max);
        if least > 0.0 && least.is_finite() { most / least - 1.0 } else { 0.0 }
    }
}

/// Counts, then compares or stores.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let (Some(name), Some(operations)) = (&options.operate, options.operations) {
        return measure::operate(Path::named(name)?, operations);
    }
    if options.runs == Some(0) {
        return Err(Error::usage("--runs 0 measures nothing: give 1 or more"));
    }
    let only = options.only.as_deref().unwrap_or("all");
    let chosen = options::named(only, paths::ALL, |path| path.name, |_| true, "no path")?;
    let stored = read(options)?;
    if options.list {
        return list(&chosen, &stored);
    }
    if cfg!(debug_assertions) && !options.any_build {
        return Err(Error::usage(format!("lab gate counts in a build of its own: {BUILD}")));
    }
    let here = Made::here();
    let (tools, mut notes) = Tools::here()?;
    if options.update.is_some() && !tools.are_complete() {
        let cause = notes.join("; ");
        return Err(Error::usage(format!("cannot write the figures of paths: {cause}")));
    }
    let (chosen, missing): (Vec<Path>, Vec<Path>) =
        chosen.into_iter().partition(|path| path.missing().is_none());
    notes.extend(missing.iter().map(|path| {
        format!("skipped: the path {}: {}", path.name, path.missing().unwrap_or_default())
    }));
    match &options.update {
        Some(file) => update(options, stored, &chosen, &tools, &here, file, &notes),
        None => compare(options, &stored, &chosen, &tools, &here, notes),
    }
}

/// Reads the figures to compare with, or to change.
fn read(options: &Options) -> Result<Stored> {
    match (&options.update, &options.stored) {
        (Some(file), _) if file.exists() => Stored::read(file),
        (Some(file), _) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if folder.is_some_and(|folder| !folder.is_dir()) {
                return Err(Error::usage(format!(
                    "there is no folder for {}: run this in the root of a checkout, or name a file",
                    file.display()
                )));
            }
            Ok(Stored::default())
        }
        (None, Some(file)) => Stored::read(file),
        (None, None) => Stored::parse(stored::PLACE, stored::BUILT_IN),
    }
}

fn list(chosen: &[Path], stored: &Stored) -> Result<()> {
    let mut table = Table::new(["path", "an operation", "instructions", "system calls"]).names(2);
    for path in chosen {
        let figures = stored.paths.get(path.name).cloned().unwrap_or_default();
        table.row([
            path.name.to_owned(),
            path.operation.to_owned(),
            count(figures.instructions),
            calls(&figures),
        ]);
    }
    crate::say!("{table}")
}

fn count(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1}"))
}

/// System calls of all names, by the kernel's count, or else by our own.
fn calls(figures: &Figures) -> String {
    let calls = figures.calls.as_ref().unwrap_or(&figures.counted);
    stored::digits(calls.values().sum())
}

/// Measures all paths, several at a time, each `runs` times.
fn measure(paths: &[Path], tools: &Tools, runs: usize) -> Result<Vec<Measured>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<Figures>>>> =
        Mutex::new((0..paths.len() * runs).map(|_| None).collect());
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(job / runs) else { return };
            let figures = tools.count(*path);
            done.lock().unwrap_or_else(PoisonError::into_inner)[job] = Some(figures);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..process::processors().len().min(AT_A_TIME) {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut figures = done.into_iter().flatten();
    paths
        .iter()
        .map(|&path| {
            let runs = figures.by_ref().take(runs).collect::<Result<Vec<_>>>()?;
            Ok(Measured { path, runs })
        })
        .collect()
}

/// Writes the counted figures.
fn update(
    options: &Options,
    mut stored: Stored,
    chosen: &[Path],
    tools: &Tools,
    here: &Made,
    file: &std::path::Path,
    notes: &[String],
) -> Result<()> {
    let is_mixed = |path: &&String| chosen.iter().all(|chosen| chosen.name != path.as_str());
    if stored.made != *here && stored.paths.keys().find(is_mixed).is_some() {
        return Err(Error::usage(format!(
            "{} has figures of {}, and this is {}: update all paths, not some",
            file.display(),
            about(&stored.made),
            about(here)
        )));
    }
    let measured = measure(chosen, tools, options.runs.unwrap_or(RUNS))?;
    let most = |path: Path| SPREAD * path.tolerance.unwrap_or(stored::TOLERANCE);
    let too_wide = measured.iter().filter(|measured| measured.spread() > most(measured.path));
    let about_it = |measured: &Measured| {
        let (name, spread) = (measured.path.name, 100.0 * measured.spread());
        format!("{name} by {spread:.2} % where {:.2} % may be", 100.0 * most(measured.path))
    };
    let wide: Vec<String> = too_wide.map(about_it).collect();
    if !wide.is_empty() {
        return Err(Error::usage(format!(
            "nothing was written: instructions differ from run to run, of {}",
            wide.join(", ")
        )));
    }
    let rows: Vec<Row> = measured.iter().map(|measured| row(measured, &stored, None)).collect();
    for measured in &measured {
        stored.update(measured.path.name, measured.least());
    }
    stored.paths.retain(|name, _| paths::ALL.iter().any(|path| path.name == name));
    stored.made = here.clone();
    record::write(file, &stored.to_text())?;
    tell(options, &rows, notes)?;
    crate::say!(
        "written to {}. That is right where a change is meant to cost this, or has made a path cheaper: say in the \
         commit message which paths moved, by how much, and why.",
        file.display()
    )
}

/// Compares the counted figures with the stored ones.
fn compare(
    options: &Options,
    stored: &Stored,
    chosen: &[Path],
    tools: &Tools,
    here: &Made,
    mut notes: Vec<String>,
) -> Result<()> {
    if stored.made.processor() != here.processor() {
        return crate::say!(
            "skipped: the stored figures are of {}, and this is {}",
            stored.made.processor(),
            here.processor()
        );
    }
    if stored.made.profile != here.profile {
        return Err(Error::usage(format!(
            "the stored figures are of a {} build, and this is a {} build: {BUILD}, or --stored FILE with figures of \
             such a build",
            stored.made.profile, here.profile
        )));
    }
    let widened = (stored.made != *here).then_some(stored::OTHER_TOLERANCE);
    if widened.is_some() {
        notes.push(format!(
            "the stored figures are of {}, and this is {}: {:.0} % more instructions may pass",
            about(&stored.made),
            about(here),
            100.0 * stored::OTHER_TOLERANCE
        ));
    }
    let mut measured = measure(chosen, tools, options.runs.unwrap_or(1))?;
    // An increase by chance does not happen a second time.
    for _ in 1..RUNS {
        let is_regression =
            |measured: &Measured| !row(measured, stored, widened).regressions.is_empty();
        let again: Vec<Path> =
            measured.iter().filter(|one| is_regression(one)).map(|one| one.path).collect();
        for more in measure(&again, tools, 1)? {
            let known = measured.iter_mut().find(|known| known.path == more.path);
            known.into_iter().for_each(|known| known.runs.extend(more.runs.iter().cloned()));
        }
    }
    let rows: Vec<Row> = measured.iter().map(|one| row(one, stored, widened)).collect();
    tell(options, &rows, &notes)?;
    verdict(&rows, stored, options.only.is_none())
}

fn about(made: &Made) -> String {
    [&made.rustc, &made.target, &made.profile, &made.libc].map(String::as_str).join(", ")
}

/// Builds the row of a path. A figure counts as more expensive only if it was so in each run.
fn row(measured: &Measured, stored: &Stored, widened: Option<f64>) -> Row {
    let path = measured.path;
    let known = stored.paths.get(path.name);
    let now = measured.least();
    let changes = |figures: &Figures| {
        known.map_or_else(Vec::new, |known| stored::changes(path.name, known, figures, widened))
    };
    let regressed_in = |run: &Figures, what: &str| {
        changes(run).iter().any(|change: &Change| change.is_regression() && change.what == what)
    };
    let (regressions, cheaper): (Vec<Change>, Vec<Change>) =
        changes(&now).into_iter().partition(Change::is_regression);
    let lasting = regressions
        .iter()
        .filter(|change| measured.runs.iter().all(|run| regressed_in(run, &change.what)));
    Row {
        path: path.name.to_owned(),
        operation: path.operation.to_owned(),
        operations: path.operations,
        stored: known.cloned(),
        spread: measured.spread(),
        regressions: lasting.map(ToString::to_string).collect(),
        cheaper: cheaper.iter().map(ToString::to_string).collect(),
        now,
    }
}

/// Prints a table and writes the record.
fn tell(options: &Options, rows: &[Row], notes: &[String]) -> Result<()> {
    if let Some(file) = &options.json {
        let parameters = [("only", options.only.clone().into())];
        let record = Record::new("gate", Environment::here(), parameters, rows.to_vec());
        record::write(file, &record.to_json()?)?;
    }
    let mut table =
        Table::new(["path", "instructions", "stored", "change", "spread", "calls", "stored", ""]);
    for row in rows {
        let known = row.stored.as_ref();
        let before = known.and_then(|known| known.instructions);
        let change = row.now.instructions.zip(before).map(|(now, before)| now / before - 1.0);
        let verdict = match (known, row.regressions.is_empty(), row.cheaper.is_empty()) {
            (None, ..) => "new",
            (_, false, _) => "more expensive",
            (_, true, false) => "cheaper",
            (_, true, true) => "ok",
        };
        table.row([
            row.path.clone(),
            count(row.now.instructions),
            count(before),
            change.map_or_else(|| "-".to_owned(), |change| format!("{:+.2} %", 100.0 * change)),
            format!("{:.2} %", 100.0 * row.spread),
            calls(&row.now),
            known.map_or_else(|| "-".to_owned(), calls),
            verdict.to_owned(),
        ]);
    }
    crate::say!("instructions and system calls by operation\n\n{table}")?;
    for note in notes {
        crate::say!("{note}")?;
    }
    Ok(())
}

/// The verdict: a line for each path that became cheaper, an error for each that became more
/// expensive.
fn verdict(rows: &[Row], stored: &Stored, are_all: bool) -> Result<()> {
    let cheaper: Vec<&str> = rows.iter().flat_map(|row| &row.cheaper).map(String::as_str).collect();
    if !cheaper.is_empty() {
        crate::say!(
            "cheaper than stored: {}. Write the figures anew, so that the gain is kept: superpoll-lab gate --update",
            cheaper.join("; ")
        )?;
    }
    let mut failures: Vec<String> = rows.iter().flat_map(|row| row.regressions.clone()).collect();
    if !failures.is_empty() {
        let names: Vec<&str> = rows
            .iter()
            .filter(|row| !row.regressions.is_empty())
            .map(|row| row.path.as_str())
            .collect();
        return Err(Error::usage(format!(
            "more expensive than stored: {} (by operation: {}); {ADVICE}",
            names.join(", "),
            failures.join("; ")
        )));
    }
    let unknown = rows.iter().filter(|row| row.stored.is_none()).map(|row| &row.path);
    failures.extend(unknown.map(|path| format!("nothing is stored of the path {path}")));
    let is_gone = |name: &&String| paths::ALL.iter().all(|path| path.name != name.as_str());
    if are_all {
        let gone = stored.paths.keys().filter(is_gone);
        failures.extend(gone.map(|name| format!("there is no path {name} any more")));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "{}: run superpoll-lab gate --update in a build of {}",
            failures.join("; "),
            stored.made.profile
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(instructions: &[f64]) -> Measured {
        let run = |&count| Figures { instructions: Some(count), ..Figures::default() };
        Measured {
            path: Path::named("wake").unwrap(),
            runs: instructions.iter().map(run).collect(),
        }
    }

    fn stored(instructions: f64) -> Stored {
        let mut stored = Stored::default();
        let instructions = Some(instructions);
        stored.update("wake", Figures { instructions, ..Figures::default() });
        stored
    }

    #[test]
    fn a_regression_in_each_run_fails_with_one_line_of_advice() {
        let row = row(&of(&[1100.0, 1101.0]), &stored(1000.0), None);
        assert_eq!(row.regressions.len(), 1);
        let error = verdict(&[row], &stored(1000.0), false).unwrap_err().to_string();
        for part in
            ["more expensive than stored: wake (", "1100 instead of 1000", "+10.0 %", "--update"]
        {
            assert!(error.contains(part), "{part:?} is missing in {error}");
        }
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_regression_in_a_single_run_passes() {
        let row = row(&of(&[1100.0, 1001.0]), &stored(1000.0), None);
        assert!(row.regressions.is_empty() && (row.spread - 0.0989).abs() < 1e-3, "{row:?}");
        verdict(&[row], &stored(1000.0), true).unwrap();
    }

    #[test]
    fn a_call_is_a_regression_only_if_each_run_has_it() {
        let mut measured = of(&[1000.0, 1001.0]);
        let mut known = stored(1000.0);
        let calls = |count: f64| Some([("read".to_owned(), count)].into());
        known.paths.get_mut("wake").unwrap().calls = calls(1.0);
        measured.runs[0].calls = calls(2.0);
        measured.runs[1].calls = calls(1.0);
        assert!(row(&measured, &known, None).regressions.is_empty());
        measured.runs[1].calls = calls(2.0);
        assert_eq!(row(&measured, &known, None).regressions.len(), 1);
    }

    #[test]
    fn an_improvement_passes() {
        let row = row(&of(&[900.0]), &stored(1000.0), None);
        assert!(row.regressions.is_empty() && row.cheaper.len() == 1);
        verdict(&[row], &stored(1000.0), true).unwrap();
    }

    #[test]
    fn a_path_without_figures_and_figures_without_a_path_fail() {
        let row = row(&of(&[900.0]), &Stored::default(), None);
        let error = verdict(&[row], &Stored::default(), true).unwrap_err().to_string();
        assert!(error.contains("nothing is stored of the path wake"), "{error}");
        let mut old = Stored::default();
        old.update("wait-kqueue", Figures::default());
        let error = verdict(&[], &old, true).unwrap_err().to_string();
        assert!(error.contains("no path wait-kqueue any more"), "{error}");
        verdict(&[], &old, false).unwrap();
    }
}
