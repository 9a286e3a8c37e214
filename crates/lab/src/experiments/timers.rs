//! What the report says of `superpoll-lab timers`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;
use crate::timers;

pub const EXPERIMENT: Experiment = Experiment {
    name: "timers",
    title: "set, taken back, waited for",
    method: "Nanoseconds of processor time for each timer. All are set and then taken back, in the order \
             in which they were made or in another, or each before the next is set. That each was there \
             and is gone is checked by the wakers that the runtime holds.",
    quick: "timers --quick --timers 10000,100000 --seconds 6",
    full: "timers --seconds 60",
    origin: origin!(timers),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.timers else { return Ok(()) };
    page.plot("timers.svg", timers::plot::over_timers(&record.rows))?;
    page.table(&timers::table::taken(&record.rows));
    page.text(
        "A task waits for each and looks at the clock when it is over: how late that is. None is early.",
    );
    page.table(&timers::table::ending(&record.rows));
    page.targets(&targets::of_timers(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.timers.iter().flat_map(|record| &record.rows);
    rows.map(|row| Figure {
        at: format!("{} {}, {}", row.timers, row.load, row.subject),
        name: "processor time by timer, ns".to_owned(),
        value: row.timer_ns_median,
        low: row.timer_ns_min,
        high: row.timer_ns_min + row.timer_ns_spread,
    })
    .collect()
}
