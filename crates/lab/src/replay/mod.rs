//! `superpoll-lab replay`: what other ways to wait would have cost a recorded program.
//!
//! A recording of `superpoll watch --record` says which descriptors each set had and what each wait
//! returned. The simulator plays that to each way to wait, with the costs of this machine. Nothing
//! is known of what would have changed: a cheaper wait returns sooner, and may find fewer events.

mod play;

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::PathBuf;

use serde_json::{Value, json};
use superpoll::diagnostics::{Costs, RingCosts};
use superpoll_watch::{End, Kind, RecordingError, RecordingReader};

use crate::error::{Doing, Error, Result};
use crate::replay::play::{Play, Prices};
use crate::table::Table;

/// Options of `superpoll-lab replay`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// A file of superpoll watch --record
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON document instead
    #[arg(long)]
    pub json: bool,
}

/// How many sets are printed; a document has all.
const SETS: usize = 20;

/// Reads the recording, and prints what each way to wait would have cost.
pub(crate) fn run(options: &Options) -> Result<()> {
    let reading = format!("reading {}", options.file.display());
    let mut file = File::open(&options.file).doing(&reading)?;
    let wrong = |error: RecordingError| match error {
        RecordingError::Read(error) => Error::system(&reading, error),
        error => Error::usage(format!("{reading}: {error}")),
    };
    // The kinds of descriptors are at the end.
    let (end, is_cut_off) = play::end(reader(&file).map_err(wrong)?).map_err(wrong)?;
    file.rewind().doing(&reading)?;
    let ring = RingCosts::calibrated();
    let prices = Prices { costs: *Costs::calibrated(), ring: ring.ok().copied() };
    let mut plays = play::play(reader(&file).map_err(wrong)?, &end, &prices).map_err(wrong)?;
    plays.retain(|play| play.waits > 0);
    plays.sort_by_key(|play| std::cmp::Reverse(play.waits));
    if options.json {
        return crate::say!("{:#}", document(&plays, &end, is_cut_off, &prices));
    }
    let lacks = lacks(&end, is_cut_off);
    crate::say!("{:.1} s{lacks}", end.duration_ns as f64 / 1e9)?;
    for play in plays.iter().take(SETS) {
        crate::say!("\n{}", title(play))?;
        crate::say::print(table(play, &end))?;
    }
    match plays.len() {
        0 => crate::say!("\nno wait was recorded")?,
        more @ SETS.. if more > SETS => {
            crate::say!("\n{} sets with fewer waits: with --json", more - SETS)?;
        }
        _ => {}
    }
    if !prices.costs.measured {
        crate::say!("\n(by assumed costs, as those of this machine cannot be measured)")?;
    }
    if let Err(error) = ring {
        crate::say!("\nno uring: {error}")?;
    }
    Ok(())
}

fn reader(file: &File) -> Result<RecordingReader<BufReader<&File>>, RecordingError> {
    RecordingReader::new(BufReader::new(file))
}

/// Says what a recording lacks.
fn lacks(end: &End, is_cut_off: bool) -> String {
    let mut text = String::new();
    if end.lost_waits > 0 {
        text += &format!("; the recording lacks {} waits", end.lost_waits);
    }
    if end.lost_changes > 0 {
        text += &format!("; it lacks {} changes of sets", end.lost_changes);
    }
    if end.cut_waits > 0 {
        text += &format!("; of {} waits it lacks descriptors or events", end.cut_waits);
    }
    if end.is_full {
        text += "; it ends where its file was full";
    }
    for (number, what) in [
        (end.uncounted_calls, "calls, as there were too many processes and sets at a time"),
        (end.unfollowed_processes, "processes, for the same reason"),
        (end.compat_calls, "calls of 32-bit programs"),
    ] {
        if number > 0 {
            text += &format!("; it lacks {number} {what}");
        }
    }
    if is_cut_off {
        text += "; the recording was cut off, so what it lacks and the kinds of its descriptors \
                 are not known";
    }
    text
}

fn title(play: &Play) -> String {
    let Play { key, thread, waits, events, most, .. } = play;
    let (least, greatest) = key.lengths();
    let name = match key.kind {
        Kind::Epoll => format!("epoll set {}", key.id),
        Kind::Poll => format!("poll of {least} to {greatest}, thread {thread}"),
        _ => format!("select up to {least} to {greatest}, thread {thread}"),
    };
    let kind = if play.is_kind_known {
        play.kind.name().to_owned()
    } else {
        format!("not known, so taken for {}", play.kind.name())
    };
    // Several arrays of a thread may take turns.
    let changes = match play.changes {
        changes if changes > 0 && key.kind != Kind::Epoll => {
            format!("; {changes} times one joined or left")
        }
        _ => String::new(),
    };
    format!(
        "process {}: {name}: {waits} waits, {events} events, at most {most} descriptors \
         ({kind}){changes}",
        key.process
    )
}

/// The ways that are cheapest in the program's own time come first.
fn table(play: &Play, end: &End) -> Table {
    let mut table = Table::new(["way", "ns an event", "with writers", "of a processor", "moves"]);
    let mut ways = play.ways();
    ways.sort_by(|one, other| one.spent.own().total_cmp(&other.spent.own()));
    for way in ways {
        let by_event = |cost: f64| match play.events {
            0 => "-".to_owned(),
            events => format!("{:.0}", cost / events as f64),
        };
        table.row([
            way.name.to_owned(),
            by_event(way.spent.own()),
            by_event(way.spent.total()),
            format!("{:.3} %", 100.0 * way.spent.own() / end.duration_ns.max(1) as f64),
            way.moves.map_or_else(|| "-".to_owned(), |moves| moves.to_string()),
        ]);
    }
    table
}

fn document(plays: &[Play], end: &End, is_cut_off: bool, prices: &Prices) -> Value {
    let nanoseconds = end.duration_ns.max(1) as f64;
    let set = |play: &Play| {
        let by_event = |cost: f64| (play.events > 0).then(|| cost / play.events as f64);
        let ways: Vec<Value> = play
            .ways()
            .iter()
            .map(|way| {
                json!({
                    "way": way.name,
                    "ns_per_event": by_event(way.spent.own()),
                    "ns_per_event_with_writers": by_event(way.spent.total()),
                    "processors": way.spent.own() / nanoseconds,
                    "processors_with_writers": way.spent.total() / nanoseconds,
                    "moves": way.moves,
                })
            })
            .collect();
        let is_set = play.key.kind == Kind::Epoll;
        json!({
            "process": play.key.process,
            "kind": match play.key.kind {
                Kind::Epoll => "epoll",
                Kind::Poll => "poll",
                _ => "select",
            },
            "descriptor": is_set.then_some(play.key.id),
            "lengths": (!is_set).then(|| play.key.lengths()),
            "thread": (!is_set).then_some(play.thread),
            "descriptors": play.kind.name(),
            "descriptors_are_known": play.is_kind_known,
            "waits": play.waits,
            "blocked_waits": play.blocked,
            "events": play.events,
            "most_descriptors": play.most,
            "changes": play.changes,
            "ways": ways,
        })
    };
    json!({
        "schema": 1,
        "seconds": end.duration_ns as f64 / 1e9,
        "is_full": end.is_full,
        "is_cut_off": is_cut_off,
        "lost_waits": end.lost_waits,
        "lost_changes": end.lost_changes,
        "cut_waits": end.cut_waits,
        "uncounted_calls": end.uncounted_calls,
        "unfollowed_processes": end.unfollowed_processes,
        "uncounted_32_bit_calls": end.compat_calls,
        "costs_measured": prices.costs.measured,
        "sets": plays.iter().map(set).collect::<Vec<Value>>(),
    })
}
