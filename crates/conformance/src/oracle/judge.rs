//! What a poller says beside what `poll(2)` says.
//!
//! The kernel is asked before and after each wait. What it says both times holds during the wait and has to be reported;
//! what it says neither time must not be. A level is reported so in each wait; a one-shot in the first one that has
//! anything of it, and then nothing is; of an edge what is new since the step before is due, and some time nothing is
//! told any more although nothing has changed. In [`Mode::Auto`] as much is due as of an edge, and not more is allowed
//! than of a level, except that a back-end may report an arrival of which nothing is left.
//!
//! What is due and does not come at once is waited for, since the kernel wakes a waiter a little after the state has
//! changed. What must not come is a difference the first time.

use std::io;
use std::time::{Duration, Instant};

use superpoll::{Interest, Key, Mode, Readiness, Watch};

use super::{Findings, Scene, state};
use crate::bench::{Bench, Capabilities};
use crate::rig::Rig;

/// Waits of each step whose events are compared.
const ROUNDS: usize = 2;

/// An edge may come in so many waits after the last step, in case that the kernel wakes several times for one arrival.
const ECHOES: usize = 200;

/// How long what is due may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// One descriptor, as it is watched.
struct Watched {
    key: Key,
    is_armed: bool,
    /// What the kernel said after the step before.
    past: Readiness,
}

/// One wait: what was delivered of a descriptor, and what the kernel said before and after.
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

/// Those conditions for which this holds.
fn those(holds: impl Fn(Readiness) -> bool) -> Readiness {
    KNOWN.into_iter().filter(|&one| holds(one)).fold(Readiness::NONE, |all, one| all | one)
}

fn less(found: Readiness, minus: Readiness) -> Readiness {
    those(|one| found.contains(one) && !minus.contains(one))
}

impl Look {
    /// What held all the time.
    fn surely(&self) -> Readiness {
        those(|one| self.before.contains(one) && self.after.contains(one))
    }

    /// What was said and did not hold at either end.
    fn invented(&self) -> Readiness {
        less(self.got, self.before | self.after)
    }
}

/// What a back-end does not promise to report to one with this interest.
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

    /// One wait, and what is said of each descriptor; or what the poller refuses.
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

    /// What has to come of it that has not; or what must not have come.
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

    /// The waits after one step. Returns what was wrong, with the number of the descriptor.
    fn compare(&mut self, checks: &mut usize) -> Result<(), (usize, String)> {
        for round in 0..ROUNDS {
            let since = Instant::now();
            let mut got_so_far = vec![Readiness::NONE; self.watched.len()];
            loop {
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
                    // Of an edge a part may come in each wait.
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
                    Some(problem) if since.elapsed() > self.patience => return Err(problem),
                    Some(_) => std::thread::yield_now(),
                }
            }
            *checks += self.watched.len();
        }
        if self.watch.mode == Mode::Edge { self.fall_silent() } else { Ok(()) }
    }

    /// Nothing happens any more, and some time no edge comes any more.
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

    /// Arms again what has fired, and notes what the kernel says now.
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

/// Tells a story to a new poller, and compares.
pub(super) fn tell(
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
    // Its other ends are the steps', which therefore stay to the end.
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
