//! The time of a run: `--seconds` is kept, by rounds that begin only if they fit.
//!
//! A run visits points, and at each point all subjects take turns, a round after the other. The
//! time that is left is divided among the points that are left. A round begins if at least half of it is
//! expected to fit into the share of its point, by the measured length of the rounds before, so
//! that a run ends as often a little early as a little late. The cost of setting up is a part of a
//! point and leaves less time for its rounds; so is the work after the last round, by the example
//! of the point before.
//!
//! A point has one round at least. Where even that takes longer than the time that was asked for,
//! the remaining points are left out, and a note says how many seconds all of them need. A run of
//! the default length has three rounds at least (two if quick) however late it is: with one turn
//! each, a subject whose turn comes while the machine is slow looks slow for good.
//!
//! An interrupt (`interrupt`) ends a run like the end of its time: after the round that is under
//! way.

use std::time::Instant;

use serde_json::{Value, json};

use crate::error::Result;
use crate::interrupt;
use crate::options::Output;

/// A quick run ends within this, in seconds.
const QUICK: f64 = 55.0;

/// A point begins if the run is expected to last at most this many times as long as it should.
const LATE: f64 = 1.15;

/// The most rounds of a point: more would show no more.
const MOST: usize = 1000;

/// Keeps the time of a run.
pub struct Budget {
    clock: Box<dyn Fn() -> f64>,
    /// Seconds that the run should take.
    seconds: f64,
    /// When the run has to be over, if seconds were asked for or it is quick.
    latest: Option<f64>,
    /// Rounds of each point, if the options give a number.
    fixed: Option<usize>,
    /// The fewest rounds of a point.
    least: usize,
    points: usize,
    begun: usize,
    /// The size of the points that have had a round.
    measured: usize,
    /// The seconds that the points need that are left out.
    needed_too: f64,
    left_out: usize,
    /// The seconds that the measured points would have taken with the fewest rounds.
    needed: f64,
    /// The most rounds of a point.
    most: usize,
    /// The seconds from the end of the last round of a point to its end.
    rest: f64,
    now: Point,
}

/// The point under way.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    begun: f64,
    /// When its rounds should be over.
    end: f64,
    /// When its first round began, if one has.
    rounds: Option<f64>,
    /// When its last round ended.
    over: f64,
    done: usize,
    size: usize,
}

impl Budget {
    /// Creates the budget of a run of this many points. `quick` and `full` are the seconds of a
    /// quick run and of another one, unless the options set a time.
    pub fn new(output: &Output, points: usize, quick: f64, full: f64) -> Budget {
        let started = Instant::now();
        Budget::by(output, points, quick, full, Box::new(move || started.elapsed().as_secs_f64()))
    }

    fn by(
        output: &Output,
        points: usize,
        quick: f64,
        full: f64,
        clock: Box<dyn Fn() -> f64>,
    ) -> Budget {
        let asked = output.seconds.is_some() && !output.paced;
        Budget {
            clock,
            seconds: output.budget(quick, full),
            fixed: output.repetitions,
            least: match (output.quick, asked) {
                (true, _) => 2,
                (false, true) => 1,
                (false, false) => 3,
            },
            latest: match (output.quick, asked) {
                (true, _) => Some(QUICK),
                (false, true) => Some(LATE * output.budget(quick, full)),
                (false, false) => None,
            },
            points,
            begun: 0,
            measured: 0,
            needed_too: 0.0,
            left_out: 0,
            needed: 0.0,
            most: 0,
            rest: 0.0,
            now: Point::default(),
        }
    }

    /// Creates the budget of a point with this many rounds, which has begun.
    pub fn of_rounds(rounds: usize) -> Budget {
        let output = Output { repetitions: Some(rounds), ..Output::default() };
        let mut budget = Budget::new(&output, 1, 1.0, 1.0);
        budget.point();
        budget
    }

    /// Lowers the fewest rounds of the points that follow, where a round is long.
    pub fn needs(&mut self, rounds: usize) {
        self.least = self.least.min(rounds);
    }

    /// Returns a result, and none instead of an error if the run is interrupted: a signal may end
    /// what is measured before it ends the run.
    pub fn keep<T>(&self, measured: Result<T>) -> Result<Option<T>> {
        match measured {
            Err(_) if interrupt::signal().is_some() => Ok(None),
            measured => measured.map(Some),
        }
    }

    /// Begins the next point; false if there is no time for it, or if the run was interrupted.
    pub fn point(&mut self) -> bool {
        self.point_of(1)
    }

    /// Begins the next point, which is expected to take as much time as its size says in comparison with
    /// the points before; false as for [`point`](Budget::point).
    pub fn point_of(&mut self, size: usize) -> bool {
        let now = (self.clock)();
        self.end_point(now);
        let left = self.points.saturating_sub(self.begun + self.left_out).max(1) as f64;
        let needs = self.needed / self.measured.max(1) as f64 * size as f64;
        let is_late = self.latest.is_some_and(|latest| now + needs > latest)
            && self.begun > 0
            && self.fixed.is_none();
        // The first point is measured in any case: a run that began has a result.
        if is_late || (interrupt::signal().is_some() && self.begun > 0) {
            self.left_out += 1;
            self.needed_too += needs;
            return false;
        }
        let share = (self.seconds - now).max(0.0) / left;
        self.begun += 1;
        self.now = Point { begun: now, end: now + share, size, ..Point::default() };
        true
    }

    fn end_point(&mut self, now: f64) {
        let Point { begun, rounds: Some(rounds), over, done, .. } = self.now else { return };
        self.now.rounds = None;
        if done == 0 {
            return;
        }
        self.rest = now - over;
        let round = (over - rounds) / done as f64;
        self.needed += (rounds - begun) + round * self.least.min(done) as f64 + self.rest;
        self.measured += self.now.size;
    }

    /// Returns whether another round begins at this point.
    pub fn round(&mut self) -> bool {
        let now = (self.clock)();
        let point = &mut self.now;
        if point.rounds.is_some() {
            point.done += 1;
            point.over = now;
        }
        let rounds = *point.rounds.get_or_insert(now);
        let Point { end, done, .. } = *point;
        self.most = self.most.max(done);
        if interrupt::signal().is_some() {
            return self.begun == 1 && done == 0;
        }
        if let Some(fixed) = self.fixed {
            return done < fixed;
        }
        let length = (now - rounds) / done.max(1) as f64;
        done < self.least || (done < MOST && now + length / 2.0 + self.rest <= end)
    }

    /// Returns the number of the round under way at this point, from zero.
    pub fn number(&self) -> usize {
        self.now.done
    }

    /// Returns the places of this many subjects in the order of the round under way. Each round begins
    /// with another subject, and every other round goes backwards, so that no subject has the same
    /// neighbour every time.
    pub fn turns(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let round = self.now.done;
        let turns = (0..count).map(move |turn| (turn + round / 2) % count);
        let (forwards, backwards) = match round % 2 {
            0 => (Some(turns), None),
            _ => (None, Some(turns.rev())),
        };
        forwards.into_iter().flatten().chain(backwards.into_iter().flatten())
    }

    /// Returns the seconds that are left for the rounds of this point.
    pub fn left(&self) -> f64 {
        (self.now.end - (self.clock)() - self.rest).max(0.0)
    }

    /// Returns the seconds for each of these blocks, of which each round has `subjects`, if this
    /// many rounds are wanted unless the options give a number.
    pub fn slot(&self, subjects: usize, rounds: usize) -> f64 {
        self.left() / (subjects * self.fixed.unwrap_or(rounds)).max(1) as f64
    }

    /// Returns the number of rounds that is wanted, unless the options give one.
    pub fn rounds(&self, wanted: usize) -> usize {
        self.fixed.unwrap_or(wanted)
    }

    /// Prints the difference from what was asked for, if there is any, and returns what the record
    /// says of the time.
    pub fn end(mut self) -> Vec<(&'static str, Value)> {
        self.end_point((self.clock)());
        self.note().iter().for_each(|note| crate::say::note(note));
        let mut parameters = vec![
            ("seconds", json!(self.seconds)),
            ("rounds_of_a_point", json!(self.most)),
            ("points_left_out", json!(self.left_out)),
        ];
        if let Some(signal) = interrupt::signal() {
            let note = format!("incomplete: interrupted by signal {signal}");
            parameters.push(("interrupted", json!(note)));
        }
        parameters
    }

    /// Returns the seconds that all points need with the fewest rounds, if that is more than there
    /// are.
    fn note(&self) -> Option<String> {
        let needed = self.needed + self.needed_too;
        let left_out = match self.left_out {
            0 => String::new(),
            count => format!("; {count} of {} points are left out", self.points),
        };
        let is_short = self.left_out > 0 || needed > self.seconds * LATE;
        let is_told = is_short && self.fixed.is_none() && interrupt::signal().is_none();
        let needed = needed.ceil();
        is_told.then(|| format!("at least {needed:.0} s are needed for these points{left_out}"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// The length of each part of a point, in seconds.
    #[derive(Clone, Copy)]
    struct Costs {
        set_up: f64,
        round: f64,
        rest: f64,
    }

    /// Runs points of these costs, and returns the rounds of each, the time, and the note.
    fn run(output: &Output, points: &[Costs]) -> (Vec<usize>, f64, Option<String>) {
        let time = Rc::new(Cell::new(0.0));
        let clock = time.clone();
        let mut budget =
            Budget::by(output, points.len(), 10.0, 30.0, Box::new(move || clock.get()));
        let mut rounds = Vec::new();
        for costs in points {
            if !budget.point() {
                continue;
            }
            time.set(time.get() + costs.set_up);
            let mut count = 0;
            while budget.round() {
                assert_eq!(budget.number(), count);
                time.set(time.get() + costs.round);
                count += 1;
            }
            time.set(time.get() + costs.rest);
            rounds.push(count);
        }
        budget.end_point(time.get());
        (rounds, time.get(), budget.note())
    }

    fn asked(seconds: f64) -> Output {
        Output { seconds: Some(seconds), ..Output::default() }
    }

    #[test]
    fn the_time_that_was_asked_for_is_kept_within_a_fifth() {
        let of = |set_up, round, rest| Costs { set_up, round, rest };
        let cheap = of(0.1, 0.05, 0.1);
        let uneven = [of(0.5, 0.2, 0.0), of(3.0, 1.0, 1.0), of(0.1, 0.01, 0.1), of(2.0, 2.0, 0.5)];
        for points in [&[cheap; 14][..], &[of(1.0, 0.9, 0.3); 4], &[of(0.0, 3.0, 0.0)], &uneven] {
            let (rounds, time, note) = run(&asked(20.0), points);
            assert!((16.0..24.0).contains(&time), "{time} s");
            assert_eq!((rounds.len(), note), (points.len(), None));
        }
    }

    #[test]
    fn points_for_which_there_is_no_time_are_left_out_and_a_note_says_what_they_need() {
        let (rounds, time, note) =
            run(&asked(20.0), &[Costs { set_up: 3.0, round: 2.0, rest: 1.0 }; 10]);
        assert_eq!((rounds.len(), time), (3, 18.0));
        let note = note.unwrap();
        assert_eq!(note, "at least 60 s are needed for these points; 7 of 10 points are left out");
        // One point is measured in any case.
        let (rounds, _, note) = run(&asked(1.0), &[Costs { set_up: 0.0, round: 9.0, rest: 0.0 }]);
        assert_eq!(
            (rounds, note.unwrap()),
            (vec![1], "at least 9 s are needed for these points".to_owned())
        );
    }

    #[test]
    fn a_run_of_the_default_length_has_three_rounds_however_late_it_is() {
        let slow = [Costs { set_up: 0.0, round: 7.0, rest: 0.0 }; 4];
        assert_eq!(run(&Output::default(), &slow).0, [3; 4]);
        assert_eq!(run(&Output { paced: true, ..asked(20.0) }, &slow).0, [3; 4]);
        let quick = Output { quick: true, ..Output::default() };
        let (rounds, time, _) = run(&quick, &[Costs { set_up: 0.0, round: 1.0, rest: 0.0 }; 4]);
        assert!(rounds.iter().all(|rounds| *rounds >= 2) && time <= 13.0, "{rounds:?} {time}");
    }

    #[test]
    fn a_number_of_rounds_is_kept_whatever_the_time() {
        let output = Output { repetitions: Some(2), ..asked(1.0) };
        assert_eq!(run(&output, &[Costs { set_up: 0.0, round: 5.0, rest: 0.0 }; 3]).0, [2; 3]);
    }

    #[test]
    fn each_round_begins_with_another_subject_and_changes_its_neighbours() {
        let mut budget = Budget::new(&asked(1.0), 1, 1.0, 1.0);
        let mut order = |round| {
            budget.now.done = round;
            budget.turns(3).collect::<Vec<_>>()
        };
        assert_eq!(
            [order(0), order(1), order(2), order(3)],
            [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]
        );
        assert_eq!(budget.turns(0).count(), 0);
    }
}
