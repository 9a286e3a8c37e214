//! The output of `superpoll-lab wake`: a line for each kind and subject.

use crate::table::{self, Table};
use crate::wake::Row;

/// Returns the table of wake-up times.
pub(crate) fn wake_ups(rows: &[Row]) -> Table {
    table::of(
        rows,
        2,
        &[
            ("kind", |row| row.kind.clone()),
            ("subject", |row| row.subject.clone()),
            ("p50", |row| table::time(row.times.wake_ns_p50)),
            ("p90", |row| table::time(row.times.wake_ns_p90)),
            ("least", |row| table::time(row.times.wake_ns_min)),
            ("p50 / epoll", |row| table::ratio(row.times.p50_ratio)),
            ("wake-ups", |row| row.times.samples.to_string()),
        ],
    )
}
