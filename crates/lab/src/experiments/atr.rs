//! What the report says of `superpoll-lab atr`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;
use crate::{atr, atr_plot, atr_table};

pub const EXPERIMENT: Experiment = Experiment {
    name: "atr",
    title: "active / total",
    method: "In every round one byte is written to each active descriptor; the poller reports them and \
             each is read. “Loop” is the time of waiting and reading, “with writes” adds what the writes \
             cost more than to descriptors that nobody watches: epoll makes the writer pay for the \
             wake-up. “Pure” is the best of poll and both triggers of epoll, raw or ours.",
    quick: "atr --quick --total 1000,4000 --placement end,spread --no-mix --seconds 24 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,adaptive,mio",
    full: "atr --total 1000,10000 --placement end,spread --kind pipe,tcp --paced --seconds 300 --subjects floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,epoll-et,adaptive,uring,mio",
    origin: origin!(atr),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.atr else { return Ok(()) };
    for (name, rows) in atr::sweeps(&record.rows) {
        page.heading(&name);
        let stem = format!("atr-{}", name.replace(' ', "-"));
        page.plot(&format!("{stem}.svg"), Some(atr_plot::quotient(&name, &rows)))?;
        page.plot(&format!("{stem}-subjects.svg"), Some(atr_plot::subjects(&name, &rows)))?;
        for line in atr_table::crossings(&rows) {
            page.text(&format!("{line}."));
        }
        page.table(&atr_table::sweep(&rows));
        page.text("Each subject against the best pure one:");
        page.table(&atr_table::subjects(&rows));
    }
    page.targets(&targets::of_atr(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.atr.iter().flat_map(|record| &record.rows);
    let at = |row: &atr::Row| {
        format!("{} {} {}/{}, {}", row.kind, row.placement, row.active, row.total, row.subject)
    };
    rows.flat_map(|row| Figure::of_rounds(at(row), &row.figures)).collect()
}
