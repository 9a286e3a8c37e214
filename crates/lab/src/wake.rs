//! `lab wake`: how long a loop that has gone quiet takes to wake up.
//!
//! Some descriptors are busy for a while; then nothing happens for at least five milliseconds, and
//! one byte arrives on any of them. Measured is the time from right before the write until the
//! subject has read the byte. The writer is a child process on another processor, forked before
//! there are threads: a second thread would make the descriptor lookups of this process dearer,
//! and a writer on the same processor would measure the scheduler. A blocked `poll` joins a wait
//! queue per descriptor and leaves all of them before it returns, which is what makes it slow here.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use superpoll::BackendKind;

use crate::channel::{self, Pairs};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::measure;
use crate::options::{self, Output};
use crate::output;
use crate::placement::Placement;
use crate::probe;
use crate::progress::Progress;
use crate::random::Random;
use crate::record::Record;
use crate::statistics;
use crate::subject::{Entry, Ledger};
use crate::sys::memory::SharedNumbers;
use crate::sys::{descriptor, process};
use crate::table::{self, Table};

/// Options of `lab wake`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Descriptors
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub total: usize,
    /// How many of them were busy before
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub hot: usize,
    /// Wake-ups of each subject [default: 300, or 80 if quick]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Kinds of descriptors: pipe, unix, tcp or all
    #[arg(long, value_name = "LIST", default_value = "pipe")]
    pub kind: String,
    /// Pollers to measure, with commas, or all but the floor
    #[arg(long, value_name = "LIST")]
    pub subjects: Option<String>,
    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

impl Default for Options {
    /// What the command line has without options.
    fn default() -> Options {
        Options {
            total: 1000,
            hot: 200,
            samples: None,
            kind: "pipe".to_owned(),
            subjects: None,
            output: Output::default(),
        }
    }
}

const DEFAULTS: [&str; 7] =
    ["raw-epoll-lt", "epoll-lt", "poll", "adaptive", "uring", "mio", "polling"];

/// The busy rounds when a subject is new, and before each wake-up.
const BUSY: (usize, usize) = (100, 20);

/// The quiet before a wake-up, in nanoseconds, and by how much it varies.
const QUIET: (u64, u64) = (5_000_000, 1_000_000);

/// Wake-ups of one subject in a row.
const BLOCK: usize = 20;

/// One subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Kind of the descriptors.
    pub kind: String,
    /// Descriptors watched.
    pub total: usize,
    /// How many of them were busy before.
    pub hot: usize,
    /// The poller.
    pub subject: String,
    /// Wake-ups measured.
    pub samples: usize,
    /// The quickest.
    pub wake_ns_min: f64,
    /// Half were quicker.
    pub wake_ns_p50: f64,
    /// Nine of ten were quicker.
    pub wake_ns_p90: f64,
    /// The median against that of the better of our and a raw level-triggered epoll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ratio: Option<f64>,
}

/// Runs the experiment.
///
/// # Errors
///
/// As [`atr::run`](crate::atr::run).
pub fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let kinds = options::kinds(&options.kind)?;
    let mut entries = options::subjects(options.subjects.as_deref(), &DEFAULTS)?;
    entries.retain(|entry| entry.name != "floor");
    if entries.is_empty() {
        return Err(Error::usage("the floor does not wait: name a subject that does"));
    }
    let notes = leave_out_refused(&mut entries, BackendKind::Uring.is_available());
    if entries.is_empty() {
        return Err(Error::usage(format!("nothing is left to measure: {}", notes.join("; "))));
    }
    notes.iter().for_each(|note| output::note(note));
    let most = channel::most_pairs();
    if options.total == 0 || options.total > most {
        return Err(Error::usage(format!(
            "--total {} is not possible: give 1 to {most}, which is what the limit of {} \
             descriptors leaves",
            options.total,
            superpoll::limits::descriptors().1
        )));
    }
    if options.hot > options.total {
        return Err(Error::usage(format!(
            "--hot {} is more than --total {}: give at most as many",
            options.hot, options.total
        )));
    }
    let samples = options.samples.unwrap_or(if options.output.quick { 80 } else { 300 });
    if samples == 0 {
        return Err(Error::usage("--samples 0 measures nothing: give 1 or more"));
    }
    let blocks = samples.div_ceil(BLOCK);
    let progress = Progress::new("wake", blocks * entries.len() * kinds.len());
    let processors = process::processors();
    let pinned = processors.len() > 1 && process::pin(&processors[..1]).is_ok();
    let mut rows = Vec::new();
    let mut environment = None;
    for kind in kinds {
        let pairs = Pairs::open(kind, options.total)?;
        let writer = Writer::start(&pairs, if pinned { &processors[1..2] } else { &[] })?;
        let _second = options.output.second_thread.then(crate::second_thread::SecondThread::start);
        environment.get_or_insert_with(|| Environment {
            // Pinned to one of them by now.
            cores: processors.len(),
            ..Environment::here()
        });
        let suitable: Vec<Entry> =
            entries.iter().filter(|entry| entry.suits(&pairs)).copied().collect();
        let busy = Load::constant(Placement::Spread.choose(options.total, options.hot));
        let mut random = Random::new(options.output.seed);
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); suitable.len()];
        for block in 0..blocks {
            let targets: Vec<usize> = (0..BLOCK.min(samples - block * BLOCK))
                .map(|_| random.below(options.total))
                .collect();
            for turn in 0..suitable.len() {
                let place = (turn + block) % suitable.len();
                progress.step(format!("{kind} {}", suitable[place].name));
                wake_up(&pairs, &suitable[place], &busy, &writer, &targets, &mut times[place])?;
            }
        }
        drop(writer);
        let epoll = suitable
            .iter()
            .zip(&times)
            .filter(|(entry, _)| ["raw-epoll-lt", "epoll-lt"].contains(&entry.name))
            .map(|(_, times)| statistics::median(times))
            .min_by(f64::total_cmp);
        rows.extend(suitable.iter().zip(&times).map(|(entry, times)| Row {
            kind: kind.name().to_owned(),
            total: options.total,
            hot: options.hot,
            subject: entry.name.to_owned(),
            samples: times.len(),
            wake_ns_min: statistics::minimum(times),
            wake_ns_p50: statistics::median(times),
            wake_ns_p90: statistics::quantile(times, 0.9),
            p50_ratio: epoll.map(|epoll| statistics::median(times) / epoll),
        }));
    }
    if pinned {
        // Back to where we may run; failing leaves us on one processor, which is no error.
        let _ = process::pin(&processors);
    }
    drop(progress);
    let parameters = [
        ("samples", json!(samples)),
        ("notes", json!(notes)),
        ("busy_rounds_first", json!(BUSY.0)),
        ("busy_rounds", json!(BUSY.1)),
        ("quiet_ns", json!([QUIET.0, QUIET.0 + QUIET.1])),
        ("writer", json!("a child process")),
        ("pinned", json!(pinned)),
        ("quick", json!(options.output.quick)),
        ("second_thread", json!(options.output.second_thread)),
        ("seed", json!(options.output.seed)),
    ];
    Ok(Record::new("wake", environment.unwrap_or_default(), parameters, rows))
}

/// Drops those that need io_uring where there is none, and says why.
fn leave_out_refused(entries: &mut Vec<Entry>, rings: bool) -> Vec<String> {
    let out: Vec<Entry> = entries.extract_if(.., |entry| entry.rings && !rings).collect();
    let names: Vec<&str> = out.iter().map(|entry| entry.name).collect();
    let note = || format!("{} left out: {}", names.join(", "), probe::why_no_uring());
    (!names.is_empty()).then(note).into_iter().collect()
}

/// The child that writes on command.
pub(crate) struct Writer {
    _child: process::Child,
    commands: std::os::fd::OwnedFd,
    written_at: SharedNumbers,
}

impl Writer {
    /// Forks it. It keeps to these processors, if any are given.
    pub(crate) fn start(pairs: &Pairs, processors: &[usize]) -> Result<Writer> {
        let failed = |source| Error::system("starting the writing process", source);
        let written_at = SharedNumbers::new(1).map_err(failed)?;
        let (receiver, commands) = descriptor::pipe().map_err(failed)?;
        descriptor::set_blocking(receiver.as_raw_fd(), true).map_err(failed)?;
        let parents_end = commands.as_raw_fd();
        let child = process::fork(|| {
            // The child must see the end of the commands when the parent is gone.
            descriptor::close_number(parents_end);
            if !processors.is_empty() {
                // Without it the scheduler chooses, which is slower but no failure.
                let _ = process::pin(processors);
            }
            while let Some(command) = descriptor::read_word(receiver.as_raw_fd()) {
                let (pair, delay, byte) = unpack(command);
                process::sleep(delay);
                written_at[0].store(process::now(), Ordering::Release);
                descriptor::write_byte(pairs.writers()[pair], byte);
            }
        })
        .map_err(failed)?;
        Ok(Writer { _child: child, commands, written_at })
    }

    /// Has it write a byte to a pair, after so many nanoseconds.
    pub(crate) fn order(&self, pair: usize, delay: u64, byte: u8) -> Result<()> {
        if descriptor::write_word(self.commands.as_raw_fd(), pack(pair, delay, byte)) {
            Ok(())
        } else {
            Err(Error::last("giving the writing process a command"))
        }
    }

    /// When it last wrote, by the monotonic clock; the byte that it wrote has been read.
    pub(crate) fn written_at(&self) -> u64 {
        self.written_at[0].load(Ordering::Acquire)
    }
}

/// A command in one word: which pair, after how long, which byte.
fn pack(pair: usize, delay: u64, byte: u8) -> u64 {
    delay << 32 | (pair as u64 & 0xff_ffff) << 8 | u64::from(byte)
}

fn unpack(command: u64) -> (usize, u64, u8) {
    ((command >> 8 & 0xff_ffff) as usize, command >> 32, command as u8)
}

fn wake_up(
    pairs: &Pairs,
    entry: &Entry,
    busy: &Load,
    writer: &Writer,
    targets: &[usize],
    times: &mut Vec<f64>,
) -> Result<()> {
    let mut subject = entry.build(pairs)?;
    let mut ledger = Ledger::new(pairs.len());
    let rounds = |subject: &mut dyn crate::subject::Subject, ledger: &mut Ledger, count: usize| {
        let rounds = if busy.round(0).is_empty() { 0 } else { count };
        (0..rounds)
            .try_for_each(|n| measure::run_round(pairs, entry, subject, busy, n, ledger).map(drop))
    };
    process::watch(entry.name);
    rounds(&mut *subject, &mut ledger, BUSY.0)?;
    for (number, &pair) in targets.iter().enumerate() {
        process::watch(entry.name);
        rounds(&mut *subject, &mut ledger, BUSY.1)?;
        let delay = QUIET.0 + QUIET.1 * number as u64 / targets.len() as u64;
        writer.order(pair, delay, number as u8)?;
        let active = [pair as u32];
        measure::whole_round(&mut *subject, &active, &mut ledger)?;
        let woken_at = process::now();
        ledger.close(entry.name, &active, number as u8)?;
        pairs.answer(&active)?;
        times.push(woken_at.saturating_sub(writer.written_at()) as f64);
    }
    process::unwatch();
    Ok(())
}

/// What is printed: a line per kind and subject.
pub fn table(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["kind", "subject", "p50", "p90", "least", "p50 / epoll", "wake-ups"]).names(2);
    for row in rows {
        table.row([
            row.kind.clone(),
            row.subject.clone(),
            table::time(row.wake_ns_p50),
            table::time(row.wake_ns_p90),
            table::time(row.wake_ns_min),
            table::ratio(row.p50_ratio),
            row.samples.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_is_left_out_with_a_reason_where_there_is_none() {
        let mut entries = options::subjects(None, &DEFAULTS).unwrap();
        let all = entries.clone();
        assert!(all.iter().any(|entry| entry.name == "uring"));
        assert!(leave_out_refused(&mut entries, true).is_empty() && entries == all);
        let notes = leave_out_refused(&mut entries, false);
        assert!(notes.len() == 1 && notes[0].starts_with("uring left out: "), "{notes:?}");
        assert!(entries.len() + 1 == all.len() && entries.iter().all(|entry| !entry.rings));
    }

    #[test]
    fn a_command_survives_packing() {
        for command in [(0, 0, 0), (999, 5_000_000, 255), (0xff_ffff, 0xffff_ffff, 7)] {
            assert_eq!(unpack(pack(command.0, command.1, command.2)), command);
        }
    }
}
