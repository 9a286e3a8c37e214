//! A run of an experiment from its options to its record: the notes, the time, the progress, and
//! the rivals that failed.

use std::sync::atomic::{AtomicI32, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::environment::Environment;
use crate::error::{Doing, Result};
use crate::options::Output;
use crate::record::Record;
use crate::rivals::Lost;
use crate::{say, sys};

/// A run under way.
pub(crate) struct Run<'a> {
    name: &'static str,
    /// Its options.
    pub output: &'a Output,
    /// Its time.
    pub budget: Budget,
    /// Its progress, by blocks.
    pub progress: Progress,
    /// The rivals that failed.
    pub lost: Lost,
    environment: Environment,
    notes: Vec<String>,
}

impl<'a> Run<'a> {
    /// Begins a run of this many blocks, and says how it differs from the request. The processors
    /// that this thread may run on now are the machine's in the record.
    pub(crate) fn new(
        name: &'static str,
        output: &'a Output,
        notes: Vec<String>,
        blocks: usize,
        budget: Budget,
    ) -> Run<'a> {
        notes.iter().for_each(|note| say::note(note));
        let progress = Progress::new(name, blocks);
        let (lost, environment) = (Lost::default(), Environment::here());
        Run { name, output, budget, progress, lost, environment, notes }
    }

    /// Says a difference from the request, once, and keeps it for the record.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            say::note(&note);
            self.notes.push(note);
        }
    }

    /// Ends the run; returns its record with these parameters in addition to the common ones.
    pub(crate) fn record<Row>(
        self,
        parameters: impl IntoIterator<Item = (&'static str, Value)>,
        rows: Vec<Row>,
    ) -> Record<Row> {
        drop(self.progress);
        let notes: Vec<String> = self.notes.into_iter().chain(self.lost.notes()).collect();
        let common = self.output.parameters().into_iter().chain(parameters);
        let all = common.chain([("notes", json!(notes))]).chain(self.budget.end());
        Record::new(self.name, self.environment, all, rows)
    }
}

// The progress bar: on standard error, only if that is a terminal, and drawn by the measuring
// thread between blocks, so that no second thread makes descriptor lookups more expensive.

/// A bar over all blocks of an experiment.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Creates a bar of this many blocks.
    pub(crate) fn new(experiment: &'static str, blocks: usize) -> Progress {
        // The target draws nothing where standard error is not a terminal.
        let target = ProgressDrawTarget::stderr_with_hz(5);
        let bar = ProgressBar::with_draw_target(Some(blocks as u64), target);
        let template = "{prefix} [{bar:32}] {pos}/{len} {msg} (about {eta} left)";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(experiment);
        Progress { bar }
    }

    /// Notes that a block is over, and that the next is about to begin.
    pub(crate) fn step(&self, what: String) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

// The interrupt of a run: Ctrl-C ends an experiment after its round, and the results that it has
// are written.
//
// The first signal is noted and the run ends by itself; the second ends the process at once.

/// The signal that came; zero before.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Notes an interrupt or a termination from now on, instead of ending.
pub(crate) fn watch() -> Result<()> {
    sys::signal::note_once(&[Signal::SIGINT, Signal::SIGTERM], |signal| {
        SIGNAL.store(signal, Ordering::Relaxed);
    })
    .doing("watching for an interrupt")
}

/// Returns the signal that ends this run, if one has come.
pub(crate) fn signal() -> Option<i32> {
    Some(SIGNAL.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
