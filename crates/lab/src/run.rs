//! A run of an experiment from its options to its record: the notes, the time, the progress, and
//! the rivals that failed.

use serde_json::{Value, json};

use crate::budget::Budget;
use crate::environment::Environment;
use crate::options::Output;
use crate::progress::Progress;
use crate::record::Record;
use crate::rivals::Lost;
use crate::say;

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
