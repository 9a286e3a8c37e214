//! The list of all experiments: for the page, for `superpoll-lab all`, and for the document with
//! their records.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::{Experiment, Figure};
use crate::record::{Record, SCHEMA};
use crate::report::Page;

/// An experiment in the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// See [`Experiment::NAME`].
    pub name: &'static str,
    /// See [`Experiment::TITLE`].
    pub title: &'static str,
    /// See [`Experiment::METHOD`].
    pub method: &'static str,
    /// See [`Experiment::QUICK`].
    pub quick: &'static str,
    /// See [`Experiment::FULL`].
    pub full: &'static str,
    /// See [`Experiment::IS_IN_ALL`].
    pub is_in_all: bool,
    /// Returns the machine and the parameters of the run, if there is a record.
    pub origin: fn(&Records) -> Option<Origin<'_>>,
    /// Its tables, plots and targets.
    pub part: fn(&Records, &mut Page<'_>) -> Result<()>,
    /// See [`Experiment::figure`], of all rows.
    pub figures: fn(&Records) -> Vec<Figure>,
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// Machine, kernel and program.
    pub environment: &'a Environment,
    /// The parameters of the measurement.
    pub parameters: &'a serde_json::Map<String, serde_json::Value>,
}

macro_rules! experiments {
    ($($field:ident: $($module:ident)::+ as $name:literal,)*) => {
        /// A record for each experiment that was run.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Records {
            $(
                #[doc = concat!("The record of `", $name, "`.")]
                #[serde(rename = $name, skip_serializing_if = "Option::is_none")]
                pub $field: Option<Record<<crate::$($module)::+ as Experiment>::Row>>,
            )*
        }

        impl Records {
            /// Reads the records that lie in a folder, and the reason for each that cannot be read.
            pub(crate) fn load(folder: &Path) -> (Records, Vec<String>) {
                let mut notes = Vec::new();
                $(let $field = read(&folder.join(concat!($name, ".json")), &mut notes);)*
                (Records { $($field),* }, notes)
            }

            /// Returns records with only the one of this experiment that is in a text, or why the
            /// text is something else.
            pub(crate) fn only(name: &str, text: &str) -> Result<Records, String> {
                match name {
                    $($name => Ok(Records { $field: Some(parsed(text)?), ..Records::default() }),)*
                    _ => Err(format!("it is about {name:?}, which is no experiment")),
                }
            }
        }

        /// All of them, in the order of the page.
        pub(crate) const ALL: &[Listed] = &[$(listed!($field, crate::$($module)::+)),*];

        #[cfg(test)]
        const NAMES: &[&str] = &[$($name),*];
    };
}

macro_rules! listed {
    ($field:ident, $experiment:ty) => {
        Listed {
            name: <$experiment>::NAME,
            title: <$experiment>::TITLE,
            method: <$experiment>::METHOD,
            quick: <$experiment>::QUICK,
            full: <$experiment>::FULL,
            is_in_all: <$experiment>::IS_IN_ALL,
            origin: |records| {
                let record = records.$field.as_ref()?;
                Some(Origin { environment: &record.environment, parameters: &record.parameters })
            },
            part: |records, page| match &records.$field {
                Some(record) => part::<$experiment>(&record.rows, page),
                None => Ok(()),
            },
            figures: |records| rows(&records.$field).filter_map(<$experiment>::figure).collect(),
        }
    };
}

experiments! {
    atr: atr::Atr as "atr",
    atr_latency: wake::AtrLatency as "atr-latency",
    mix: mix::Mix as "mix",
    mix_latency: wake::MixLatency as "mix-latency",
    models: models::Models as "models",
    threads: threads::Threads as "threads",
    wake: wake::Wake as "wake",
    registrations: registrations::Registrations as "registrations",
    gather: gather::Gather as "gather",
    ring: ring::Ring as "ring",
    herd: herd::Herd as "herd",
    herd_dups: herd::HerdDups as "herd-dups",
    echo: echo::Echo as "echo",
    http: http::Http as "http",
    files: files::Files as "files",
    relay: relay::Relay as "relay",
    timers: timers::Timers as "timers",
    zombies: zombies::Zombies as "zombies",
    idle: idle::Idle as "idle",
    fanout: fanout::Fanout as "fanout",
    sit: keep::Keep as "sit",
    cluster: cluster::Cluster as "cluster",
    million: million::Million as "million",
}

/// Returns the rows of a record; none if its experiment was not run.
pub(crate) fn rows<Row>(record: &Option<Record<Row>>) -> std::slice::Iter<'_, Row> {
    record.as_ref().map_or(&[][..], |record| &record.rows).iter()
}

fn part<E: Experiment>(rows: &[E::Row], page: &mut Page<'_>) -> Result<()> {
    E::parts(rows).into_iter().try_for_each(|part| part.show(page))?;
    page.targets(&E::targets(rows));
    Ok(())
}

/// Returns the words after `superpoll-lab` that run an experiment.
pub(crate) fn command(experiment: &str) -> &str {
    let listed = ALL.iter().find(|one| one.name == experiment);
    let words = listed.and_then(|one| one.quick.split_once(" --quick"));
    words.map_or(experiment, |(words, _)| words)
}

/// Returns the document of a file; `None`, and a note, if the file is something else, and `None`
/// without a note if the file is missing.
pub(crate) fn read<Document: DeserializeOwned>(
    path: &Path,
    notes: &mut Vec<String>,
) -> Option<Document> {
    let why = match std::fs::read_to_string(path) {
        Ok(text) => match parsed(&text) {
            Ok(document) => return Some(document),
            Err(why) => format!("{why}; measure again"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    notes.push(format!("{name} left out: {why}"));
    None
}

/// Returns the document of a text, or why the text is something else.
pub(crate) fn parsed<Document: DeserializeOwned>(text: &str) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct Shape {
        schema: Option<u32>,
    }
    match serde_json::from_str(text).map_err(|error| error.to_string())? {
        Shape { schema: Some(SCHEMA) } => serde_json::from_str(text).map_err(|e| e.to_string()),
        Shape { schema: Some(other) } => {
            Err(format!("its version is {other}, this program reads {SCHEMA}"))
        }
        Shape { schema: None } => Err("it has no \"schema\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_a_name_of_its_own_and_runs_itself() {
        let names: Vec<_> = ALL.iter().map(|one| one.name).collect();
        assert_eq!(names, NAMES);
        for (place, experiment) in ALL.iter().enumerate() {
            assert!(ALL[place + 1..].iter().all(|other| other.name != experiment.name));
            for words in [experiment.quick, experiment.full] {
                let first = words.split(' ').next();
                // Records of `keep` have the command's earlier name.
                let command = experiment.name.split('-').next().map(|name| match name {
                    "sit" => "keep",
                    other => other,
                });
                assert_eq!(first, command, "{}", experiment.name);
            }
            assert!(experiment.method.ends_with('.') && !experiment.title.ends_with('.'));
        }
    }
}
