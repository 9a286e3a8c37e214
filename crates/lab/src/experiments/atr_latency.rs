//! What the report says of `superpoll-lab atr --latency`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, latency, origin};
use crate::page::Page;

pub const EXPERIMENT: Experiment = Experiment {
    name: "atr-latency",
    title: "a blocked loop, by how many it watches",
    method: "Some descriptors are busy for a while, one of them or as many as were asked for. Then \
             nothing happens for five milliseconds, the loop sleeps, and a child process on another \
             processor writes one byte to any descriptor. Measured is the time from right before the \
             write until the byte is read. “Awake” counts wake-ups that are left out because the loop was \
             not seen asleep before the write.",
    quick: "atr --latency --quick --seconds 10",
    full: "atr --latency --seconds 120",
    origin: origin!(atr_latency),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.atr_latency else { return Ok(()) };
    latency::part(record, page)
}

fn figures(records: &Records) -> Vec<Figure> {
    latency::figures(records.atr_latency.iter().flat_map(|record| &record.rows))
}
