//! What the report says of `superpoll-lab mix`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, origin};
use crate::page::Page;
use crate::targets;
use crate::{mix, mix_plot, mix_table};

pub const EXPERIMENT: Experiment = Experiment {
    name: "mix",
    title: "busy and idle descriptors together",
    method: "Cost per round (waiting, reading, upkeep and what the writers pay) against the best pure \
             poller of the same run; the floor knows what is ready and only reads.",
    quick: "mix --quick --size 50/950,200/9600 --load mixed --repetitions 7 --seconds 20",
    full: "mix --kind all --paced --seconds 240",
    origin: origin!(mix),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.mix else { return Ok(()) };
    page.figure("mix.svg", &mix_plot::svg(&record.rows))?;
    page.table(&mix_table::costs(&record.rows));
    page.text("The loop's own time:");
    page.table(&mix_table::loops(&record.rows));
    page.targets(&targets::of_mix(&record.rows));
    Ok(())
}

fn figures(records: &Records) -> Vec<Figure> {
    let rows = records.mix.iter().flat_map(|record| &record.rows);
    let at = |row: &mix::Row| format!("{} {}, {}", row.kind, row.load, row.subject);
    rows.flat_map(|row| Figure::of_rounds(at(row), &row.figures)).collect()
}
