//! The subjects in turn, block by block.

use serde_json::json;

use crate::budget::Budget;
use crate::channel::{self, Pairs};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::options::Output;
use crate::placement::Placement;
use crate::progress::Progress;
use crate::random::Random;
use crate::record::Record;
use crate::subject::{self, Entry};
use crate::wake::{Options, Row};
use crate::waking::{self, Busy, QUIET, WakeUp, Writer};
use crate::{options, rivals, say, statistics};

const DEFAULTS: [&str; 7] =
    ["raw-epoll-lt", "epoll-lt", "poll", "adaptive", "uring", "mio", "polling"];

/// The busy rounds before the wake-ups.
const BUSY: Busy = Busy { first_adaptive: 100, first: 100, between: 20 };

/// Wake-ups of one subject in a row.
const BLOCK: usize = 20;

/// Runs the experiment.
pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    options.output.check()?;
    let kinds = options::kinds(&options.kind)?;
    let (entries, mut notes) = waking::subjects(options.subjects.as_deref(), &DEFAULTS)?;
    notes.iter().for_each(|note| say::note(note));
    let most = channel::most_pairs();
    if options.total == 0 || options.total > most {
        return Err(Error::usage(format!(
            "--total {} is not possible: give 1 to {most}, as the limit of {} \
             descriptors leaves",
            options.total,
            superpoll::limits::nofile().1
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
    // A number of samples is kept unless only a time was asked for.
    let is_timed = options.samples.is_none() && options.output.seconds.is_some();
    let repetitions = options.output.repetitions.or((!is_timed).then_some(blocks));
    let output = Output { repetitions, ..options.output.clone() };
    let mut budget = Budget::new(&output, kinds.len(), 10.0, 60.0);
    let (mut rows, environment, pinned) = waking::apart(|writers, cores| {
        let (mut rows, mut environment) = (Vec::new(), None);
        for &kind in &kinds {
            if !budget.point() {
                continue;
            }
            let pairs = Pairs::open(kind, options.total)?;
            let writer = Writer::start(&pairs, writers)?;
            let _second =
                options.output.second_thread.then(crate::second_thread::SecondThread::start);
            // This thread is pinned to one of them by now.
            environment.get_or_insert_with(|| Environment { cores, ..Environment::here() });
            let suitable: Vec<Entry> =
                entries.iter().filter(|entry| entry.suits(&pairs)).copied().collect();
            let busy = Load::constant(Placement::Spread.choose(options.total, options.hot));
            let mut random = Random::new(options.output.seed);
            let mut targets = |round: usize| {
                let left = if is_timed { BLOCK } else { samples.saturating_sub(round * BLOCK) };
                (0..BLOCK.min(left)).map(|_| random.below(options.total)).collect()
            };
            let told = |entry: &Entry| progress.step(format!("{kind} {}", entry.name));
            let all = waking::take_turns(
                &pairs,
                &writer,
                &suitable,
                &busy,
                BUSY,
                &mut budget,
                &mut targets,
                told,
            );
            let Some(all) = budget.keep(all)? else { continue };
            let had_turn = all.iter().filter(|own| !own.is_empty()).count();
            rows.extend(related(kind.name(), options, &suitable, &all[..had_turn]));
        }
        Ok::<_, Error>((rows, environment, !writers.is_empty()))
    })?;
    drop(progress);
    for row in rows.extract_if(.., |row| row.samples == 0) {
        let note =
            format!("{} ({}) left out: it never slept while it waited", row.subject, row.kind);
        say::note(&note);
        notes.push(note);
    }
    let own = [
        ("samples", json!(samples)),
        ("rivals", rivals::versions(subject::ALL.iter().map(|entry| entry.name))),
        ("notes", json!(notes)),
        ("busy_rounds_first", json!(BUSY.first)),
        ("busy_rounds", json!(BUSY.between)),
        ("quiet_ns", json!([QUIET.0, QUIET.0 + QUIET.1])),
        ("writer", json!("a child process")),
        ("pinned", json!(pinned)),
    ];
    let parameters = options.output.parameters().into_iter().chain(own).chain(budget.end());
    Ok(Record::new("wake", environment.unwrap_or_default(), parameters, rows))
}

/// Returns the rows of one kind. A subject that was not asleep was not woken; its wake-up does not
/// count.
fn related(kind: &str, options: &Options, entries: &[Entry], all: &[Vec<WakeUp>]) -> Vec<Row> {
    let slept = |own: &Vec<WakeUp>| -> Vec<f64> {
        own.iter().filter(|one| one.slept).map(|one| one.ns as f64).collect()
    };
    let times: Vec<Vec<f64>> = all.iter().map(slept).collect();
    let each = || entries.iter().zip(&times);
    let epoll = each()
        .filter(|(_, times)| !times.is_empty())
        .filter(|(entry, _)| ["raw-epoll-lt", "epoll-lt"].contains(&entry.name))
        .map(|(_, times)| statistics::median(times))
        .min_by(f64::total_cmp);
    each()
        .map(|(entry, times)| Row {
            kind: kind.to_owned(),
            total: options.total,
            hot: options.hot,
            subject: entry.name.to_owned(),
            samples: times.len(),
            wake_ns_min: statistics::minimum(times),
            wake_ns_p50: statistics::median(times),
            wake_ns_p90: statistics::quantile(times, 0.9),
            p50_ratio: epoll.map(|epoll| statistics::median(times) / epoll),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_of_an_awake_loop_do_not_count() {
        let entries = options::subjects(Some("raw-epoll-lt,poll"), &[]).unwrap();
        let wake_up = |ns, slept| WakeUp { ns, slept };
        let all = [
            vec![wake_up(100, true), wake_up(5, false), wake_up(300, true)],
            vec![wake_up(1000, true)],
        ];
        let rows = related("pipe", &Options::default(), &entries, &all);
        assert_eq!((rows[0].samples, rows[0].wake_ns_min, rows[0].wake_ns_p50), (2, 100.0, 200.0));
        assert_eq!(rows[1].p50_ratio, Some(5.0));
        let awake = [vec![wake_up(5, false)], vec![wake_up(7, true)]];
        let rows = related("pipe", &Options::default(), &entries, &awake);
        assert_eq!((rows[0].samples, rows[1].samples, rows[1].p50_ratio), (0, 1, None));
    }
}
