//! `superpoll-lab all`: every experiment in sequence, and the report over all of them.
//!
//! Each experiment runs in a process of its own, just as a user would start it by hand. Leftovers
//! of one experiment (threads, descriptors, a heap, an io_uring that is still being taken down) do
//! not affect the measurements of the next. An experiment that crashes costs its own part of the
//! report and no more. After each experiment the journal in the folder records the progress, so
//! that an interrupted run continues where it stopped. The page is written after each experiment,
//! too.
//!
//! The parent waits on our own runtime for the child, for a signal and for the experiment's time
//! limit, whichever comes first. It sleeps meanwhile: the bar is drawn between experiments, since a
//! process that draws takes time from the process that measures.

use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use futures_lite::FutureExt;
use superpoll_rt::{Runtime, process, signal, time};

use crate::environment::Environment;
use crate::error::{Doing, Error, Result};
use crate::experiments::{self, Listed};
use crate::record::{Extent, Journal, State};
use crate::run::Progress;
use crate::{options, report, say, sys};

/// Options of `superpoll-lab all`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Five minutes instead of an hour and a half
    #[arg(long)]
    pub quick: bool,
    /// Only these experiments, with commas
    #[arg(long, value_name = "LIST")]
    pub only: Option<String>,
    /// Begins anew, even if an interrupted run could be continued
    #[arg(long)]
    pub fresh: bool,
    /// The folder for records, plots and the report
    #[arg(long, value_name = "FOLDER", default_value = "superpoll-report")]
    pub report: PathBuf,
    /// At most this many seconds for one experiment [default: 1800, or 120 if quick]
    #[arg(long, value_name = "S")]
    pub limit: Option<u64>,
}

/// How an experiment ended.
enum Outcome {
    Ended(ExitStatus),
    Interrupted,
    TooLong,
}

/// The signals that end a run. They are caught from its start to its end: one that comes between
/// two experiments, while the report is written, is seen by the next.
struct Stop {
    interrupt: signal::Signal,
    terminate: signal::Signal,
}

impl Stop {
    fn new() -> Result<Stop> {
        let catch = |kind| signal::signal(kind).doing("watching for an interrupt");
        Ok(Stop {
            interrupt: catch(signal::SignalKind::interrupt())?,
            terminate: catch(signal::SignalKind::terminate())?,
        })
    }

    async fn recv(&mut self) -> std::io::Result<()> {
        self.interrupt.recv().or(self.terminate.recv()).await
    }
}

/// Runs the experiments that a journal does not have yet, each by `program WORDS`, and writes the
/// report. Experiments that were interrupted by a signal, or would have come after it, are pending.
pub(crate) fn run(options: &Options, program: &Path) -> Result<Journal> {
    let chosen = chosen(options)?;
    let folder = &options.report;
    std::fs::create_dir_all(folder)
        .doing(format_args!("creating the folder {}", folder.display()))?;
    let extent = if options.quick { Extent::Quick } else { Extent::Full };
    let mut journal = begin(options, Journal::new(extent, &chosen, &Environment::here()));
    let limit = Duration::from_secs(options.limit.unwrap_or(match extent {
        Extent::Quick => 120,
        Extent::Full => 1800,
    }));
    let runtime = Runtime::new().map_err(|e| Error::system("starting a runtime", e.into()))?;
    let mut stop = Stop::new()?;
    let progress = Progress::new("all", chosen.len());
    journal.write(folder)?;
    for place in 0..chosen.len() {
        let step = &journal.steps[place];
        progress.step(step.experiment.clone());
        if matches!(step.state, State::Done { .. }) {
            continue;
        }
        let started = Instant::now();
        let (outcome, said) = runtime
            .try_block_on(experiment(program, &step.command, folder, limit, &mut stop))
            .map_err(|e| {
                Error::system("waiting for an experiment", std::io::Error::other(e.to_string()))
            })??;
        let state = match outcome {
            Outcome::Interrupted => {
                report::write(folder)?;
                return Ok(journal);
            }
            Outcome::Ended(status) if status.success() => {
                State::Done { seconds: started.elapsed().as_secs_f64(), notes: said }
            }
            Outcome::Ended(status) => State::Failed {
                reason: said.last().cloned().unwrap_or_else(|| format!("it ended with {status}")),
            },
            Outcome::TooLong => State::Failed {
                reason: format!("it was ended after {} s; --limit gives it more", limit.as_secs()),
            },
        };
        if let State::Failed { reason } = &state {
            say::note(&format!("{} failed: {reason}", journal.steps[place].experiment));
        }
        journal.steps[place].state = state;
        journal.write(folder)?;
        report::write(folder)?;
    }
    drop(progress);
    if journal.done() == 0 {
        return Err(Error::usage(format!(
            "no experiment gave a result; {} says why of each",
            folder.join(report::PAGE).display()
        )));
    }
    Ok(journal)
}

fn chosen(options: &Options) -> Result<Vec<&'static Listed>> {
    let all: Vec<&'static Listed> = experiments::ALL.iter().collect();
    if options.limit == Some(0) {
        return Err(Error::usage("--limit 0 leaves no time for any experiment: give 1 or more"));
    }
    options::named(
        options.only.as_deref().unwrap_or("all"),
        &all,
        |one| one.name,
        |one| one.is_in_all,
        "no experiment",
    )
}

/// Returns the journal to continue: the folder's journal if the run is the same and not complete,
/// otherwise a new one.
fn begin(options: &Options, new: Journal) -> Journal {
    let mut notes = Vec::new();
    let found = Journal::load(&options.report, &mut notes);
    for note in notes {
        say::note(&note);
    }
    match found.filter(|old| !options.fresh && !old.is_complete()) {
        None => new,
        Some(mut old) => match old.differs(&new) {
            None => {
                say::note(&format!(
                    "going on with the run of {}: {} of {} experiments are done (--fresh begins anew)",
                    old.date,
                    old.done(),
                    old.steps.len()
                ));
                // What failed is run again; until then, the run is not over.
                let steps = old.steps.iter_mut();
                steps
                    .filter(|step| matches!(step.state, State::Failed { .. }))
                    .for_each(|step| step.state = State::Pending);
                old
            }
            Some(why) => {
                say::note(&format!("the unfinished run in the folder is not gone on with: {why}"));
                new
            }
        },
    }
}

/// Runs one experiment, and returns how it ended and the last lines of its standard error, without
/// the name of the program before them.
async fn experiment(
    program: &Path,
    words: &str,
    folder: &Path,
    limit: Duration,
    stop: &mut Stop,
) -> Result<(Outcome, Vec<String>)> {
    const KEPT: usize = 20;
    let failed = |e| Error::system(format!("running superpoll-lab {words}"), e);
    // A file, since a process that outlives the experiment could hold a pipe open.
    let mut errors = tempfile::tempfile().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(words.split(' '))
        .arg("--report")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone().map_err(failed)?);
    // A process group of its own: this process handles the terminal's signals for both.
    command.process_group(0);
    sys::process::end_with_this(&mut command);
    let mut child = process::spawn(&mut command).map_err(failed)?;
    child.kill_on_drop(true);
    let stopped = async { stop.recv().await.map(|()| Outcome::Interrupted) };
    let ended = async { child.wait().await.map(Outcome::Ended) };
    let late = async {
        time::sleep(limit).await;
        Ok(Outcome::TooLong)
    };
    let outcome = stopped.or(ended).or(late).await.map_err(failed)?;
    let mut said = Vec::new();
    errors.rewind().and_then(|()| errors.read_to_end(&mut said)).map_err(failed)?;
    let said = String::from_utf8_lossy(&said);
    let lines = said.lines().map(|line| line.trim().trim_start_matches("superpoll-lab: "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Ok((outcome, lines[lines.len().saturating_sub(KEPT)..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_that_need_a_rare_program_run_only_by_name() {
        let of = |only: Option<&str>| {
            let only = only.map(str::to_owned);
            let report = PathBuf::new();
            let options = Options { quick: true, only, fresh: false, report, limit: None };
            let chosen = chosen(&options).unwrap();
            chosen.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        let all = of(None);
        assert!(all.contains(&"sit"), "{all:?}");
        assert!(!all.contains(&"cluster") && !all.contains(&"million"), "{all:?}");
        assert_eq!(of(Some("cluster")), ["cluster"]);
    }
}
