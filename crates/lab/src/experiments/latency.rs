//! What the report has of the wake-ups of a blocked loop, over whatever they were measured.

use crate::comparison::Figure;
use crate::error::Result;
use crate::latency::{Row, plot, sweeps, table};
use crate::page::Page;
use crate::record::Record;

/// A plot for each kind and load, and all figures.
///
/// # Errors
///
/// As [`Page::plot`].
pub(super) fn part(record: &Record<Row>, page: &mut Page<'_>) -> Result<()> {
    for (name, rows) in sweeps(&record.rows) {
        let stem = name.replace(", ", "-").replace(' ', "-");
        let file = format!("{}-{stem}.svg", record.experiment);
        page.plot(&file, plot::over_total(&name, &rows))?;
    }
    page.table(&table::wake_ups(&record.rows));
    Ok(())
}

/// The median of each subject with each number of descriptors.
pub(super) fn figures<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Figure> {
    rows.map(|row| Figure {
        at: format!("{} {} busy of {}, {}", row.kind, row.hot, row.total, row.subject),
        name: "wake-up p50, ns".to_owned(),
        value: row.wake_ns_p50,
        low: row.wake_ns_min,
        high: row.wake_ns_p90,
    })
    .collect()
}
