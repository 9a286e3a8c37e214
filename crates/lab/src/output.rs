//! Where results go: JSON where asked, CSV beside the report.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::options::Output;
use crate::record::{self, Record};
use crate::targets::{self, Target};

/// Writes what was asked for and says where it is.
///
/// # Errors
///
/// [`Error::System`] if a file or the folder cannot be written.
pub fn write<Row: Serialize>(record: &Record<Row>, output: &Output) -> Result<()> {
    if let Some(path) = &output.json {
        record::write(path, &record.to_json()?)?;
    }
    if output.no_report {
        return Ok(());
    }
    let folder = &output.report;
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::system(format!("creating the folder {}", folder.display()), e))?;
    let name = &record.experiment;
    record::write(&folder.join(format!("{name}.json")), &record.to_json()?)?;
    record::write(&folder.join(format!("{name}.csv")), &record.to_csv()?)?;
    crate::report::write(folder)?;
    println!("\nreport: {}", folder.join("index.html").display());
    Ok(())
}

/// Prints and writes the results of `lab atr`.
///
/// # Errors
///
/// As [`write()`].
pub fn atr(
    record: &Record<crate::atr::Row>,
    appendix: Option<&Record<crate::mix::Row>>,
    output: &Output,
) -> Result<()> {
    println!("{}\n", record.environment.summary());
    print!("{}", crate::atr_table::text(&record.rows));
    if let Some(appendix) = appendix {
        println!("a mixed load: cost per round, the best pure one = 1\n");
        println!("{}", crate::mix_table::costs(&appendix.rows));
        println!("More mixed, shifting and random loads: superpoll lab mix");
    }
    targets(&targets::of_atr(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab mix`.
///
/// # Errors
///
/// As [`write()`].
pub fn mix(record: &Record<crate::mix::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    print!("{}", crate::mix_table::text(&record.rows));
    targets(&targets::of_mix(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab wake`.
///
/// # Errors
///
/// As [`write()`].
pub fn wake(record: &Record<crate::wake::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    println!("time from a write until a blocked loop has read it\n");
    print!("{}", crate::wake::table(&record.rows));
    targets(&targets::of_wake(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab ring`.
///
/// # Errors
///
/// As [`write()`].
pub fn ring(record: &Record<crate::ring::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    println!("time for one byte to pass one pipe of a ring\n");
    print!("{}", crate::ring::table::text(&record.rows));
    targets(&targets::of_ring(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab herd`.
///
/// # Errors
///
/// As [`write()`].
pub fn herd(record: &Record<crate::herd::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    println!("time of a connect() while others wait, and how many of them it wakes\n");
    print!("{}", crate::herd::table::herds(&record.rows));
    targets(&targets::of_herd(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab http`.
///
/// # Errors
///
/// As [`write()`].
pub fn http(record: &Record<crate::http::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    println!("processor time of a web server for one request\n");
    print!("{}", crate::http::table::servers(&record.rows));
    targets(&targets::of_http(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab timers`.
///
/// # Errors
///
/// As [`write()`].
pub fn timers(record: &Record<crate::timers::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    print!("{}", crate::timers::table::text(&record.rows));
    targets(&targets::of_timers(&record.rows));
    write(record, output)
}

/// Says what differs from what was asked for, on standard error.
pub fn note(text: &str) {
    eprintln!("superpoll: {text}");
}

/// Prints the targets of a run.
pub fn targets(all: &[Target]) {
    if !all.is_empty() {
        println!("\ntargets\n\n{}", targets::table(all));
    }
}

/// Prints and writes the results of `lab targets`.
///
/// # Errors
///
/// As [`write()`].
pub fn all_targets(record: &Record<Target>, output: &Output) -> Result<()> {
    println!("{}", record.environment.summary());
    targets(&record.rows);
    match &output.json {
        Some(path) => record::write(path, &record.to_json()?),
        None => Ok(()),
    }
}
