//! What the report says of `superpoll-lab mix --latency`.

use crate::comparison::Figure;
use crate::document::Records;
use crate::error::Result;
use crate::experiments::{Experiment, latency, origin};
use crate::page::Page;

pub const EXPERIMENT: Experiment = Experiment {
    name: "mix-latency",
    title: "a blocked loop, by busy and idle ones",
    method: "Busy descriptors and a few of the idle ones have bytes for a while, so that they are placed. \
             Then nothing happens for five milliseconds, the loop sleeps, and a child process on another \
             processor writes one byte to any descriptor. Measured is the time from right before the \
             write until the byte is read. “Awake” counts wake-ups that are left out because the loop was \
             not seen asleep before the write.",
    quick: "mix --latency --quick --seconds 6",
    full: "mix --latency --seconds 90",
    origin: origin!(mix_latency),
    part,
    figures,
};

fn part(records: &Records, page: &mut Page<'_>) -> Result<()> {
    let Some(record) = &records.mix_latency else { return Ok(()) };
    latency::part(record, page)
}

fn figures(records: &Records) -> Vec<Figure> {
    latency::figures(records.mix_latency.iter().flat_map(|record| &record.rows))
}
