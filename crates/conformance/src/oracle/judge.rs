//! Compares a poller's reports with those of `poll(2)`.
//!
//! The kernel is asked before and after each wait. Conditions that it reports both times hold
//! during the wait and must be reported; conditions that it reports neither time must not be. A
//! level is reported so in each wait. A one-shot is reported in the first wait that has any of its
//! conditions, and then nothing is. Of an edge, the conditions that are new since the step before
//! are due, and at some point nothing is reported any more although nothing has changed. In
//! [`Mode::Auto`] as much is due as of an edge, and not more is allowed than of a level, except
//! that a back-end may report an arrival whose bytes have all been read.
//!
//! The judge waits for due events that do not come at once, since the kernel wakes a waiter a
//! little after the state has changed. An event that must not come is a difference the first time.

use std::io;
use std::time::{Duration, Instant};

use superpoll::{Interest, Key, Mode, Readiness, Watch};

use super::{Findings, Scene, state};
use crate::bench::{Bench, Capabilities};
use crate::rig::Rig;

/// The number of waits of each step whose events are compared.
const ROUNDS: usize = 2;

/// An edge may come in this many waits after the last step, in case the kernel wakes several times
/// for one arrival.
const ECHOES: usize = 200;

/// How long an event that is due may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A descriptor, as it is watched.
struct Watched {
    key: Key,
    is_armed: bool,
    /// The conditions that the kernel reported after the step before.
    past: Readiness,
}

/// One wait: the conditions that were delivered for a descriptor, and those that the kernel
/// reported before and after.
#[derive(Clone, Copy)]
struct Look {
    got: Readiness,
    before: Readiness,
    after: Readiness,
}

const KNOWN: [Readiness; 6] = [
    Readiness::READABLE,
    Readiness::WRITABLE,
    Readiness::PRIORITY,
    Readiness::READ_CLOSED,
    Readiness::HANG_UP,
    Readiness::ERROR,
];

/// Returns the conditions for which `holds` is true.
fn those(holds: impl Fn(Readiness) -> bool) -> Readiness {
    KNOWN.into_iter().filter(|&one| holds(one)).fold(Readiness::NONE, |all, one| all | one)
}

fn less(found: Readiness, minus: Readiness) -> Readiness {
    those(|one| found.contains(one) && !minus.contains(one))
}

impl Look {
    /// Returns the conditions that held all the time.
    fn surely(&self) -> Readiness {
        those(|one| self.before.contains(one) && self.after.contains(one))
    }

    /// Returns the conditions that were reported and did not hold at either end.
    fn invented(&self) -> Readiness {
        less(self.got, self.before | self.after)
    }
}

/// Returns the conditions that a back-end does not promise to report for this interest.
fn not_promised(caps: Capabilities, interest: Interest) -> Readiness {
    if caps.read_closed_alone || interest.contains(Interest::READABLE) {
        return Readiness::NONE;
    }
    Readiness::HANG_UP | Readiness::ERROR
}

struct Trial<'a> {
    watch: Watch,
    caps: Capabilities,
    rig: Rig,
    watched: Vec<Watched>,
    scene: &'a Scene,
    patience: Duration,
}

impl Trial<'_> {
    fn states(&self) -> Vec<Readiness> {
        self.scene.watched.iter().map(|fd| state(fd, self.watch.interest)).collect()
    }

    /// Waits once, and returns the reports on each descriptor, or the refusal of the poller.
    fn look(&mut self) -> Result<Vec<Look>, String> {
        let before = self.states();
        let told = self.rig.wait(64, Some(Duration::ZERO)).map_err(|error| error.to_string())?;
        if let Some((key, error)) = self.rig.refusals().first() {
            return Err(format!("{key:?} is refused: {error}"));
        }
        let after = self.states();
        let mut looks = Vec::new();
        for (place, watched) in self.watched.iter().enumerate() {
            let mut of_it = told.iter().filter(|(key, _)| *key == watched.key);
            let got = of_it.next().map_or(Readiness::NONE, |&(_, found)| found);
            if of_it.next().is_some() {
                return Err(format!("{:?} is reported twice in one wait", watched.key));
            }
            looks.push(Look { got, before: before[place], after: after[place] });
        }
        Ok(looks)
    }

    /// Returns the conditions that are due and were not reported, or those that must not have been
    /// reported.
    fn missing(&self, place: usize, look: Look, round: usize) -> Result<Readiness, Readiness> {
        let watched = &self.watched[place];
        let mode = self.watch.mode;
        if mode == Mode::OneShot && !watched.is_armed {
            return if look.got.is_empty() { Ok(Readiness::NONE) } else { Err(look.got) };
        }
        let may_be_over = mode == Mode::Auto && self.caps.reports_arrivals;
        if !look.invented().is_empty() && !may_be_over {
            return Err(look.invented());
        }
        let due = match mode {
            Mode::Level | Mode::OneShot => look.surely(),
            _ if round == 0 => less(look.surely(), watched.past),
            _ => Readiness::NONE,
        };
        let due = less(due, not_promised(self.caps, self.watch.interest));
        Ok(less(due, look.got))
    }

    /// Compares the waits after one step. Returns the problem, with the number of the descriptor.
    fn compare(&mut self, checks: &mut usize) -> Result<(), (usize, String)> {
        for round in 0..ROUNDS {
            let since = Instant::now();
            let mut got_so_far = vec![Readiness::NONE; self.watched.len()];
            loop {
                // Asked before the look: a thread that was stopped after it looks once more.
                let is_over = since.elapsed() > self.patience;
                let looks = self.look().map_err(|text| (0, text))?;
                let mut late = None;
                for (place, mut look) in looks.into_iter().enumerate() {
                    let fresh = look.got;
                    let failed = |what: &str, bits: Readiness| {
                        let (before, after) = (look.before, look.after);
                        let says = format!("poll(2) says {before:?}, then {after:?}");
                        (place, format!("{what} {bits:?} in {fresh:?}, round {round}: {says}"))
                    };
                    if let Err(bits) = self.missing(place, look, round) {
                        return Err(failed("must not come:", bits));
                    }
                    // An edge may come in parts, in several waits.
                    if matches!(self.watch.mode, Mode::Edge | Mode::Auto) {
                        got_so_far[place] |= look.got;
                        look.got = those(|one| {
                            look.got.contains(one)
                                || (got_so_far[place].contains(one) && look.surely().contains(one))
                        });
                    }
                    let missing = self.missing(place, look, round).unwrap_or(Readiness::NONE);
                    if !missing.is_empty() {
                        late = Some(failed("does not come:", missing));
                    }
                    if self.watch.mode == Mode::OneShot && !fresh.is_empty() {
                        self.watched[place].is_armed = false;
                    }
                }
                match late {
                    None => break,
                    Some(problem) if is_over => return Err(problem),
                    Some(_) => std::thread::yield_now(),
                }
            }
            *checks += self.watched.len();
        }
        if self.watch.mode == Mode::Edge { self.fall_silent() } else { Ok(()) }
    }

    /// Checks that edges stop coming once nothing happens any more.
    fn fall_silent(&mut self) -> Result<(), (usize, String)> {
        let mut loud = None;
        for _ in 0..ECHOES {
            let looks = self.look().map_err(|text| (0, text))?;
            loud = looks.iter().position(|look| !look.got.is_empty());
            if loud.is_none() {
                return Ok(());
            }
        }
        Err((loud.unwrap_or(0), "an edge comes again and again".to_owned()))
    }

    /// Arms one-shots that have fired again, and notes the present state in the kernel.
    fn go_on(&mut self) -> superpoll::Result<()> {
        let states = self.states();
        for (watched, past) in self.watched.iter_mut().zip(states) {
            watched.past = past;
            if !watched.is_armed {
                self.rig.modify(watched.key, self.watch.interest)?;
                watched.is_armed = true;
            }
        }
        Ok(())
    }
}

/// Runs a scene with a new poller, and compares.
pub(super) fn compare_scene(
    bench: &Bench,
    watch: Watch,
    kind: &str,
    mut scene: Scene,
    findings: &mut Findings,
) -> io::Result<()> {
    let mut steps = std::mem::take(&mut scene.steps);
    let mut rig = bench.rig();
    let mut watched = Vec::new();
    for fd in &scene.watched {
        match rig.register(fd, watch) {
            Ok(key) => watched.push(Watched { key, is_armed: true, past: Readiness::NONE }),
            Err(error) => {
                findings.differences.push(format!("{kind}, {watch:?}: {error}"));
                return Ok(());
            }
        }
    }
    let patience = PATIENCE.min(bench.patience());
    let caps = bench.capabilities();
    let mut trial = Trial { watch, caps, rig, watched, scene: &scene, patience };
    let mut name = "the start";
    // The other ends of the descriptors belong to the steps, which therefore stay to the end.
    let mut next = steps.iter_mut();
    loop {
        if let Err((place, problem)) = trial.compare(&mut findings.checks) {
            let what = format!("{kind}, {:?}, {:?}, after {name}", watch.mode, watch.interest);
            findings.differences.push(format!("{what}, descriptor {place}: {problem}"));
            return Ok(());
        }
        trial.go_on().map_err(io::Error::from)?;
        let Some(step) = next.next() else { return Ok(()) };
        name = step.name;
        step.take(&trial.scene.watched)?;
    }
}
