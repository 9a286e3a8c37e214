//! Where results go: JSON where asked, CSV beside the report, and a text on the standard output.
//!
//! Files are written before anything is printed: who has measured for an hour keeps the results though the
//! standard output may be on a full disk.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::all::End;
use crate::claims;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::journal::{Journal, State};
use crate::options::Output;
use crate::record::{self, Record};
use crate::report::PAGE;
use crate::rivals;
use crate::targets::{self, Target};

/// The name of the command, before each line on standard error.
pub const PROGRAM: &str = "superpoll-lab";

/// Prints a line on the standard output, as `println!` does, but gives back what went wrong.
#[macro_export]
macro_rules! say {
    ($($text:tt)+) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)+)))
    };
}

/// Prints on the standard output.
///
/// # Errors
///
/// [`Error::System`], on a full disk for example.
pub fn print(text: impl fmt::Display) -> Result<()> {
    let mut output = std::io::stdout().lock();
    write!(output, "{text}")
        .and_then(|()| output.flush())
        .map_err(|e| Error::system("writing to the standard output", e))
}

/// Writes the files that were asked for. Returns where the report is, if there is one.
///
/// # Errors
///
/// [`Error::System`] if a file or the folder cannot be written.
pub fn write<Row: Serialize>(record: &Record<Row>, output: &Output) -> Result<Option<PathBuf>> {
    if let Some(path) = &output.json {
        record::write(path, &record.to_json()?)?;
    }
    if output.no_report {
        return Ok(None);
    }
    let folder = &output.report;
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::system(format!("creating the folder {}", folder.display()), e))?;
    let name = &record.experiment;
    record::write(&folder.join(format!("{name}.json")), &record.to_json()?)?;
    record::write(&folder.join(format!("{name}.csv")), &record.to_csv()?)?;
    crate::report::write(folder)?;
    Ok(Some(folder.join(PAGE)))
}

/// Says where a record was made, and who took part besides us.
fn say_who<Row>(record: &Record<Row>) -> Result<()> {
    crate::say!("{}", record.environment.summary())?;
    if let Some(line) = rivals::line(&record.parameters) {
        crate::say!("rivals: {line}")?;
    }
    crate::say!("")
}

fn say_where(report: Option<PathBuf>) -> Result<()> {
    report.map_or(Ok(()), |path| crate::say!("\nreport: {}", path.display()))
}

/// Prints and writes the results of `superpoll-lab atr`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn atr(
    record: &Record<crate::atr::Row>,
    appendix: Option<&Record<crate::mix::Row>>,
    output: &Output,
) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    print(crate::atr_table::text(&record.rows))?;
    if let Some(appendix) = appendix {
        crate::say!("a mixed load: cost per round, the best pure one = 1\n")?;
        crate::say!("{}", crate::mix_table::costs(&appendix.rows))?;
        crate::say!("More mixed, shifting and random loads: superpoll-lab mix")?;
    }
    targets(&targets::of_atr(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab mix`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn mix(record: &Record<crate::mix::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    print(crate::mix_table::text(&record.rows))?;
    targets(&targets::of_mix(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab wake`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn wake(record: &Record<crate::wake::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("time from a write until a blocked loop has read it\n")?;
    print(crate::wake::table(&record.rows))?;
    targets(&targets::of_wake(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab atr --latency` and `superpoll-lab mix --latency`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn latency(record: &Record<crate::latency::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    crate::say!("{}\n", record.environment.summary())?;
    crate::say!("time from a write until a blocked loop has read it\n")?;
    print(crate::latency::table::wake_ups(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab ring`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn ring(record: &Record<crate::ring::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("time for one byte to pass one pipe of a ring\n")?;
    print(crate::ring::table::text(&record.rows))?;
    targets(&targets::of_ring(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab herd`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn herd(record: &Record<crate::herd::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("time of a connect() while others wait, and how many of them it wakes\n")?;
    print(crate::herd::table::herds(&record.rows))?;
    targets(&targets::of_herd(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab models`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn models(record: &Record<crate::models::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    print(crate::models::table::text(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab threads`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn threads(record: &Record<crate::threads::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    crate::say!("{}\n", record.environment.summary())?;
    print(crate::threads::table::text(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab registrations`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn registrations(record: &Record<crate::registrations::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    print(crate::registrations::table::text(&record.rows))?;
    targets(&targets::of_registrations(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab echo`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn echo(record: &Record<crate::echo::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("processor time of a server that sends back what it gets, for one request\n")?;
    print(crate::echo::table::servers(&record.rows))?;
    targets(&targets::of_echo(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab http`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn http(record: &Record<crate::http::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("processor time of a web server for one request\n")?;
    print(crate::http::table::servers(&record.rows))?;
    targets(&targets::of_http(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab files`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn files(record: &Record<crate::files::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("processor time of a server for one request for a file\n")?;
    print(crate::files::table::servers(&record.rows))?;
    let calls = crate::files::table::calls(&record.rows);
    if !calls.rows().is_empty() {
        crate::say!("\nsystem calls by name, for one request, as strace counts them\n")?;
        print(calls)?;
    }
    targets(&targets::of_files(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab relay`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn relay(record: &Record<crate::relay::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("processor time of a relay for one request\n")?;
    print(crate::relay::table::relays(&record.rows))?;
    crate::say!("\nsystem calls by name, for one request\n")?;
    print(crate::relay::table::calls(&record.rows))?;
    targets(&targets::of_relay(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab timers`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn timers(record: &Record<crate::timers::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    print(crate::timers::table::text(&record.rows))?;
    targets(&targets::of_timers(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab idle`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn idle(record: &Record<crate::idle::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!("memory of a connection that does nothing; the kernel's is that of both ends\n")?;
    print(crate::idle::table::connections(&record.rows))?;
    targets(&targets::of_idle(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab idle --ramp`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn idle_ramp(record: &Record<crate::idle::ramp::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    crate::say!("{}\n", record.environment.summary())?;
    crate::say!("memory of a connection that does nothing, by their number, and what ends it\n")?;
    print(crate::idle::ramp::table::steps(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab zombies`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn zombies(record: &Record<crate::zombies::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    say_who(record)?;
    crate::say!(
        "processor time of a server for one request, beside connections that are silent\n"
    )?;
    print(crate::zombies::table::servers(&record.rows))?;
    targets(&targets::of_zombies(&record.rows))?;
    say_where(report)
}

/// Prints and writes the results of `superpoll-lab sit`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn sit(record: &Record<crate::sit::Row>, output: &Output) -> Result<()> {
    let report = write(record, output)?;
    crate::say!("{}", record.environment.summary())?;
    for (heading, table) in crate::sit::table::parts(&record.rows) {
        crate::say!("\n{heading}\n\n{table}")?;
    }
    targets(&targets::of_sit(&record.rows))?;
    say_where(report)
}

/// Says what differs from what was asked for, on standard error.
pub fn note(text: &str) {
    eprintln!("{PROGRAM}: {text}");
}

/// Prints the targets of a run.
///
/// # Errors
///
/// As [`print()`].
pub fn targets(all: &[Target]) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    crate::say!("\ntargets\n\n{}", targets::table(all))
}

/// Prints and writes the results of `superpoll-lab targets`.
///
/// # Errors
///
/// As [`write()`] and [`print()`].
pub fn all_targets(record: &Record<Target>, output: &Output) -> Result<()> {
    if let Some(path) = &output.json {
        record::write(path, &record.to_json()?)?;
    }
    crate::say!("{}", record.environment.summary())?;
    targets(&record.rows)?;
    say_where((!output.no_report).then(|| output.report.join(PAGE)))
}

/// Prints how a run of everything ended.
///
/// # Errors
///
/// As [`print()`]; [`Error::Usage`] in one line if it was interrupted.
pub fn all(run: &(Journal, End), folder: &Path) -> Result<()> {
    let (journal, end) = run;
    let document = Document::of(folder);
    crate::say!("{}.", claims::tally(&document.claims))?;
    for step in &journal.steps {
        if let State::Failed { reason } = &step.state {
            crate::say!("{} failed: {reason}", step.experiment)?;
        }
    }
    say_where(Some(folder.join(PAGE)))?;
    match end {
        End::Complete => Ok(()),
        End::Interrupted => Err(Error::usage(format!(
            "interrupted with {} of {} experiments done; the same command goes on",
            journal.done(),
            journal.steps.len()
        ))),
    }
}
