//! What we promise, held against what was measured in the same run.
//!
//! Each target is judged at its worst point, and that point is named. "Cost" is waiting, reading,
//! upkeep and what the writes cost more than to unwatched descriptors; "pure" the best of poll and
//! both triggers of epoll, raw or ours. Each experiment has its targets in a file of its own.

use serde::{Deserialize, Serialize};

use crate::document::Records;
use crate::record::Record;
use crate::table::Table;

mod atr;
mod echo;
mod files;
mod herd;
mod http;
mod idle;
mod mix;
mod registrations;
mod relay;
mod ring;
mod run;
mod sit;
mod timers;
mod wake;
mod zombies;

pub use atr::of_atr;
pub use echo::of_echo;
pub use files::of_files;
pub use herd::of_herd;
pub use http::of_http;
pub use idle::of_idle;
pub use mix::of_mix;
pub use registrations::of_registrations;
pub use relay::of_relay;
pub use ring::of_ring;
pub use run::{Options, run};
pub use sit::of_sit;
pub use timers::of_timers;
pub use wake::of_wake;
pub use zombies::of_zombies;

/// Subjects on io_uring, with targets of their own.
const RINGS: [&str; 2] = ["uring", "adaptive-uring"];

/// A promise and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What is promised.
    pub name: String,
    /// Not more than this.
    pub bound: f64,
    /// The worst that was measured.
    pub measured: f64,
    /// Where that was.
    pub at: String,
}

impl Target {
    /// Whether it is kept.
    pub fn is_kept(&self) -> bool {
        self.measured <= self.bound
    }
}

/// The worst of some measurements; no target where nothing was measured.
fn worst(
    name: impl Into<String>,
    bound: f64,
    measured: impl Iterator<Item = (f64, String)>,
) -> Option<Target> {
    let (measured, at) = measured.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Target { name: name.into(), bound, measured, at })
}

/// All targets that some records tell of.
pub fn of(records: &Records) -> Vec<Target> {
    fn each<R>(record: Option<&Record<R>>, of: fn(&[R]) -> Vec<Target>) -> Vec<Target> {
        record.map(|record| of(&record.rows)).unwrap_or_default()
    }
    [
        each(records.atr.as_ref(), of_atr),
        each(records.mix.as_ref(), of_mix),
        each(records.wake.as_ref(), of_wake),
        each(records.registrations.as_ref(), of_registrations),
        each(records.ring.as_ref(), of_ring),
        each(records.herd.as_ref(), of_herd),
        each(records.echo.as_ref(), of_echo),
        each(records.http.as_ref(), of_http),
        each(records.files.as_ref(), of_files),
        each(records.relay.as_ref(), of_relay),
        each(records.timers.as_ref(), of_timers),
        each(records.zombies.as_ref(), of_zombies),
        each(records.idle.as_ref(), of_idle),
        each(records.sit.as_ref(), of_sit),
    ]
    .concat()
}

/// The targets of a run, each with what was measured.
pub fn table(targets: &[Target]) -> Table {
    let mut table = Table::new(["target", "worst at", "at most", "measured", "kept"]).names(2);
    for target in targets {
        let digits = |value: f64| format!("{value:.2}");
        table.row([
            target.name.clone(),
            target.at.clone(),
            digits(target.bound),
            if target.measured > target.bound && digits(target.measured) == digits(target.bound) {
                format!("{:.4}", target.measured)
            } else {
                digits(target.measured)
            },
            if target.is_kept() { "ok" } else { "missed" }.to_owned(),
        ]);
    }
    table
}
