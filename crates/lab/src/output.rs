//! Where results go: JSON where asked, CSV beside the report.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::options::Output;
use crate::record::{self, Record};

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
/// As [`write`].
pub fn atr(record: &Record<crate::atr::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    print!("{}", crate::atr_table::text(&record.rows));
    write(record, output)
}

/// Prints and writes the results of `lab mix`.
///
/// # Errors
///
/// As [`write`].
pub fn mix(record: &Record<crate::mix::Row>, output: &Output) -> Result<()> {
    println!("{}\n", record.environment.summary());
    print!("{}", crate::mix_table::text(&record.rows));
    write(record, output)
}
