//! The table of all experiments: what each asks, how `superpoll-lab all` runs it, and its part of the page.
//!
//! An experiment measures in a module of its own and knows nothing of pages. Here each has a file that says what becomes
//! of its record: the section of the report, and the figures by which two reports are compared. Whoever adds one adds
//! a file, a line in [`ALL`] and a field in [`Records`]; a test holds the three together.

use crate::comparison::Figure;
use crate::document::Records;
use crate::environment::Environment;
use crate::error::Result;
use crate::page::Page;

mod atr;
mod atr_latency;
mod echo;
mod files;
mod herd;
mod herd_dups;
mod http;
mod idle;
mod idle_ramp;
mod latency;
mod mix;
mod mix_latency;
mod models;
mod registrations;
mod relay;
mod ring;
mod sit;
mod threads;
mod timers;
mod wake;
mod zombies;

/// An experiment, as the report and `superpoll-lab all` know it.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The stem of its record's file, and its place on the page.
    pub name: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// What is done and what is measured, in a paragraph.
    pub method: &'static str,
    /// The words after `superpoll-lab` of a short run.
    pub quick: &'static str,
    /// Those of a run that takes its time.
    pub full: &'static str,
    /// Where it ran and with what, if there is a record.
    pub origin: fn(&Records) -> Option<Origin<'_>>,
    /// Its tables and plots.
    pub part: fn(&Records, &mut Page<'_>) -> Result<()>,
    /// Figures that are worth comparing with those of another report.
    pub figures: fn(&Records) -> Vec<Figure>,
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Machine, kernel and program.
    pub environment: &'a Environment,
    /// What it was measured with.
    pub parameters: &'a serde_json::Map<String, serde_json::Value>,
}

/// All of them, in the order of the page.
pub const ALL: [Experiment; 20] = [
    atr::EXPERIMENT,
    atr_latency::EXPERIMENT,
    mix::EXPERIMENT,
    mix_latency::EXPERIMENT,
    models::EXPERIMENT,
    threads::EXPERIMENT,
    wake::EXPERIMENT,
    registrations::EXPERIMENT,
    ring::EXPERIMENT,
    herd::EXPERIMENT,
    herd_dups::EXPERIMENT,
    echo::EXPERIMENT,
    http::EXPERIMENT,
    files::EXPERIMENT,
    relay::EXPERIMENT,
    timers::EXPERIMENT,
    zombies::EXPERIMENT,
    idle::EXPERIMENT,
    idle_ramp::EXPERIMENT,
    sit::EXPERIMENT,
];

/// The experiment of this name.
pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

/// The `origin` of an experiment whose record is the field of that name.
macro_rules! origin {
    ($field:ident) => {
        |records| {
            records.$field.as_ref().map(|record| crate::experiments::Origin {
                environment: &record.environment,
                parameters: &record.parameters,
            })
        }
    };
}
use origin;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_a_name_of_its_own_and_runs_itself() {
        for (place, experiment) in ALL.iter().enumerate() {
            assert!(ALL[place + 1..].iter().all(|other| other.name != experiment.name));
            for words in [experiment.quick, experiment.full] {
                let first = words.split(' ').next();
                assert_eq!(first, experiment.name.split('-').next(), "{}", experiment.name);
            }
            assert!(experiment.method.ends_with('.') && !experiment.title.ends_with('.'));
        }
    }
}
