//! The journal of `superpoll-lab all`: the experiments that a run has done, so that an interrupted
//! run can continue.
//!
//! The journal lies in the report's folder; after each experiment it is written anew and moved into
//! place. A run continues only if program, commit, kernel, extent and choice are those of the
//! journal: figures of two builds or two kernels under one heading would be an unintended
//! comparison.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiments::{self, Listed};
use crate::record::{self, SCHEMA};

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
    /// The experiment ended without a record.
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
        experiments::read(&folder.join(FILE), |journal: &Journal| journal.schema, notes)
    }

    /// Writes the journal; at any time a reader finds the complete old or the complete new journal.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let text = record::json(self, "the journal")?;
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

    /// Returns whether all experiments are done.
    pub(crate) fn is_complete(&self) -> bool {
        self.done() == self.steps.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
