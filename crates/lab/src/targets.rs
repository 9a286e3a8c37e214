//! Measures in one run the figures that have targets.

use serde_json::json;
use superpoll::BackendKind;

use crate::environment::Environment;
use crate::error::Result;
use crate::experiment::{Experiment, Target};
use crate::options::Output;
use crate::record::Record;
use crate::{atr, echo, files, mix, registrations, wake};

/// Options of `superpoll-lab targets`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

/// The subjects that the targets of a sweep need.
const SWEPT: &str = "floor,raw-poll,raw-epoll-lt,raw-epoll-et,poll,epoll-lt,epoll-et,adaptive";

/// Measures every figure that has a target: all kinds, totals and placements, mixed loads,
/// wake-ups, registrations, servers that echo and that send files, and sweeps and mixes once more
/// with a second thread in the process. Takes about an hour; a quick run keeps to pipes and one
/// placement. `between` is called with the name of the part that begins.
pub(crate) fn run(options: &Options, mut between: impl FnMut(&str)) -> Result<Record<Target>> {
    options.output.check()?;
    let quick = options.output.quick;
    let (kind, total, placement) =
        if quick { ("pipe", "1000", "spread") } else { ("all", "1000,10000", "all") };
    let mio = if cfg!(feature = "rival-mio") { ",mio" } else { "" };
    let ring = if BackendKind::Uring.is_available() { ",uring" } else { "" };
    // The report has room for one record of each experiment: the one without a second thread.
    let output = |second_thread: bool, quick_seconds: f64, seconds: f64| Output {
        json: None,
        no_report: second_thread || options.output.no_report,
        second_thread: second_thread || options.output.second_thread,
        seconds: Some(options.output.budget(quick_seconds, seconds)),
        paced: true,
        ..options.output.clone()
    };
    let mut targets = Vec::new();
    for second_thread in [false, true] {
        let note = if second_thread { ", second thread" } else { "" };
        let noted = |target: Target| Target { at: target.at + note, ..target };
        between(&format!("sweeps{note}"));
        let swept = measured::<atr::Atr>(&atr::Options {
            total: Some(total.to_owned()),
            placement: placement.to_owned(),
            kind: kind.to_owned(),
            subjects: Some(format!("{SWEPT}{ring}{mio}")),
            output: output(second_thread, 6.0, 600.0),
            ..atr::Options::default()
        })?;
        targets.extend(swept.into_iter().map(noted));
        between(&format!("mixed loads{note}"));
        let mixed = measured::<mix::Mix>(&mix::Options {
            kind: kind.to_owned(),
            shift: if quick { "10,30,100" } else { "10,15,20,30,50,100,300,1000" }.to_owned(),
            output: output(second_thread, 8.0, 240.0),
            ..mix::Options::default()
        })?;
        targets.extend(mixed.into_iter().map(noted));
    }
    between("wake-ups");
    targets.extend(measured::<wake::Wake>(&wake::Options {
        kind: kind.to_owned(),
        samples: Some(if quick { 80 } else { 300 }),
        output: output(false, 1.0, 1.0),
        ..wake::Options::default()
    })?);
    between("registrations");
    targets.extend(measured::<registrations::Registrations>(&registrations::Options {
        kind: kind.to_owned(),
        output: output(false, 2.0, 40.0),
        ..registrations::Options::default()
    })?);
    between("echo servers");
    targets.extend(measured::<echo::Echo>(&echo::Options {
        output: output(false, 8.0, 60.0),
        ..echo::Options::default()
    })?);
    // The last experiment, as the process stays in a network of its own afterwards.
    between("servers of files");
    targets.extend(measured::<files::Files>(&files::Options {
        output: output(false, 10.0, 60.0),
        ..files::Options::default()
    })?);
    let parameters = [("quick", json!(quick)), ("seed", json!(options.output.seed))];
    Ok(Record::new("targets", Environment::here(), parameters, targets))
}

/// Runs an experiment, adds it to the report, if one was requested, and returns its targets.
fn measured<E: Experiment>(options: &E::Options) -> Result<Vec<Target>> {
    let record = (E::RUN)(options)?;
    crate::output::write(&record, options.as_ref())?;
    Ok(E::targets(&record.rows))
}
