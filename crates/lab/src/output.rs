//! Where results go: JSON on request, CSV next to the report, and a text on the standard output.
//!
//! Files are written before anything is printed: the results of an hour survive even if the
//! standard output is on a full disk.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::claims::{self, Verdict};
use crate::document::Document;
use crate::error::{Doing, Error, Result};
use crate::experiment::{self, Experiment, Target};
use crate::experiments::Records;
use crate::options::Output;
use crate::record::{self, Journal, Record, State};
use crate::report::PAGE;
use crate::say::{note, print};
use crate::{rivals, run, table};

/// Writes the requested files. Returns the path of the report, if there is one.
pub(crate) fn write<Row: Serialize>(
    record: &Record<Row>,
    output: &Output,
) -> Result<Option<PathBuf>> {
    if let Some(path) = &output.json {
        record::write(path, &record.to_json()?)?;
    }
    if output.no_report {
        return Ok(None);
    }
    let folder = &output.report;
    std::fs::create_dir_all(folder)
        .doing(format_args!("creating the folder {}", folder.display()))?;
    let name = &record.experiment;
    record::write(&folder.join(format!("{name}.json")), &record.to_json()?)?;
    record::write(&folder.join(format!("{name}.csv")), &record.to_csv()?)?;
    crate::report::write(folder)?;
    Ok(Some(folder.join(PAGE)))
}

/// Runs an experiment, and writes and prints its results.
pub(crate) fn present<E: Experiment>(options: &E::Options) -> Result<()> {
    options.as_ref().check()?;
    run::watch()?;
    let record = (E::RUN)(options).map_err(interrupted)?;
    if run::signal().is_some() && record.rows.is_empty() {
        return Err(interrupted(Error::usage("nothing was measured")));
    }
    let report = write(&record, options.as_ref())?;
    crate::say!("{}", record.environment.summary())?;
    if let Some(line) = rivals::line(&record.parameters) {
        crate::say!("rivals: {line}")?;
    }
    if !E::MEASURED.is_empty() {
        crate::say!("\n{}", E::MEASURED)?;
    }
    if let Some(note) = record.parameters.get("interrupted").and_then(|note| note.as_str()) {
        crate::say!("\n{note}")?;
    }
    print(format_args!("\n{}", table::text(&E::parts(&record.rows))))?;
    let promised = E::targets(&record.rows);
    targets(&promised)?;
    // Half of a record decides no claim.
    if run::signal().is_none() {
        verdicts(&record)?;
    }
    say_where(report)?;
    match run::signal() {
        None if E::IS_STRICT => kept(&promised),
        None => Ok(()),
        Some(signal) => Err(Error::Interrupted {
            signal,
            result: "the results above are incomplete".to_owned(),
        }),
    }
}

/// Returns the error of an experiment, or the interrupt that caused it.
fn interrupted(error: Error) -> Error {
    match run::signal() {
        None => error,
        Some(signal) => Error::Interrupted { signal, result: format!("no result: {error}") },
    }
}

fn say_where(report: Option<PathBuf>) -> Result<()> {
    report.map_or(Ok(()), |path| crate::say!("\nreport: {}", path.display()))
}

/// Prints the targets of a run.
fn targets(all: &[Target]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    crate::say!("\ntargets\n\n{}", experiment::table(all))
}

/// Returns the error of a run in which something happened that never may: its target is zero.
fn kept(all: &[Target]) -> Result<()> {
    let broken = all.iter().find(|target| target.bound == 0.0 && !target.is_kept());
    broken.map_or(Ok(()), |Target { name, measured, at, .. }| {
        Err(Error::usage(format!(
            "{name}: {measured} ({at}), where no run may have any; the notes above say more"
        )))
    })
}

/// Prints the claims that a record decides, each with its verdict.
fn verdicts<Row: Serialize>(record: &Record<Row>) -> Result<()> {
    let records = Records::only(&record.experiment, &record.to_json()?).unwrap_or_else(|why| {
        note(&format!("no claim of {} is judged: {why}", record.experiment));
        Records::default()
    });
    let findings = claims::evaluate(&records);
    for one in findings.iter().filter(|one| one.verdict != Verdict::NotMeasured) {
        crate::say!("\n{}\n  {}: {}", one.claim, one.verdict, one.reason)?;
    }
    Ok(())
}

/// Prints and writes the results of `superpoll-lab targets`.
pub(crate) fn all_targets(record: &Record<Target>, output: &Output) -> Result<()> {
    if let Some(path) = &output.json {
        record::write(path, &record.to_json()?)?;
    }
    crate::say!("{}", record.environment.summary())?;
    targets(&record.rows)?;
    say_where((!output.no_report).then(|| output.report.join(PAGE)))
}

/// Prints how a run of everything ended.
pub(crate) fn all(journal: &Journal, folder: &Path) -> Result<()> {
    let document = Document::of(folder);
    crate::say!("{}.", claims::tally(&document.claims))?;
    for step in &journal.steps {
        if let State::Failed { reason } = &step.state {
            crate::say!("{} failed: {reason}", step.experiment)?;
        }
    }
    say_where(Some(folder.join(PAGE)))?;
    if !journal.is_interrupted() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "interrupted with {} of {} experiments done; the same command goes on",
        journal.done(),
        journal.steps.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_fails_by_targets_of_zero_only() {
        let target = |bound, measured| {
            let (name, at) = ("cluster: messages lost".to_owned(), "stop".to_owned());
            Target { name, bound, measured, at }
        };
        kept(&[target(0.0, 0.0), target(1.1, 2.0)]).unwrap();
        let error = kept(&[target(1.1, 1.0), target(0.0, 2.0)]).unwrap_err().to_string();
        assert!(error.starts_with("cluster: messages lost: 2 (stop)"), "{error}");
    }
}
