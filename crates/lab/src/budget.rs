//! The time of a run: `--seconds` is kept, by rounds that begin only if they fit.
//!
//! A run visits points, and at each point all subjects take turns, a round after the other. What a
//! point takes with the fewest rounds (its set-up, these rounds, and the work after them) is
//! expected from the points before, in proportion to its size. The time that all remaining points
//! do not need is shared among them and goes into more rounds. A round begins if at least half of
//! it is expected to fit into the share of its point, by the measured length of the rounds before,
//! so that a run ends as often a little early as a little late.
//!
//! A point that is expected to end too late is left out, and so are the subjects whose turn has not
//! come when the time is over: a note says how many seconds all points need. Points that are left
//! out leave their time to those that fit. A block that is under way ends with the time, too. Only
//! the first turn of the first point ends however late it is: a run has a result. A run of the
//! default length has three rounds at
//! least at every point (two if quick) however late it is: with one turn each, a subject whose turn
//! comes while the machine is slow looks slow for good.
//!
//! An interrupt (`interrupt`) ends a run like the end of its time: after the round that is under
//! way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::error::Result;
use crate::options::Output;
use crate::run;

/// A quick run ends within this, in seconds.
const QUICK: f64 = 55.0;

/// The slack of `--seconds`: a point begins if the run is expected to last at most this many times
/// as long as it should, and no turn begins or goes on later. Taking down and writing come after.
const LATE: f64 = 1.1;

/// Time is reserved for a later point if it is expected to end before this part of the latest time.
/// A point for which time is reserved and that then begins to look too long leaves that time
/// unused; one without a reservation still begins if it fits.
const RESERVED: f64 = 0.85;

/// The most rounds of a point: more would show no more.
const MOST: usize = 1000;

/// Keeps the time of a run.
pub(crate) struct Budget {
    clock: Rc<dyn Fn() -> f64>,
    /// Seconds that the run should take.
    seconds: f64,
    /// When the run has to be over, if seconds were asked for or it is quick.
    latest: Option<f64>,
    /// Rounds of each point, if the options give a number.
    fixed: Option<usize>,
    /// The fewest rounds of a point.
    least: usize,
    /// The size of each point: the time that it takes with the fewest rounds, in comparison with
    /// the other points.
    sizes: Vec<usize>,
    /// How many points have begun.
    begun: usize,
    /// The size of the points that have had a round.
    measured: usize,
    /// The seconds that the measured points would have taken with the fewest rounds.
    needed: f64,
    /// The size of the points that are left out.
    size_left_out: usize,
    left_out: usize,
    /// How many subjects had no turn at their point.
    without_turn: Rc<Cell<usize>>,
    /// The most rounds of a point.
    most: usize,
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
    /// The seconds that it is expected to take from the end of the last round to its own end.
    rest: f64,
}

impl Point {
    /// Returns the seconds that it would have taken with this many rounds.
    fn needs(&self, least: usize, rest: f64) -> f64 {
        let rounds = self.rounds.unwrap_or(self.over);
        let round = (self.over - rounds) / self.done.max(1) as f64;
        (rounds - self.begun) + round * least.min(self.done) as f64 + rest
    }
}

impl Budget {
    /// Creates the budget of a run of this many points. `quick` and `full` are the seconds of a
    /// quick run and of another one, unless the options set a time.
    pub(crate) fn new(output: &Output, points: usize, quick: f64, full: f64) -> Budget {
        Budget::of_sizes(output, vec![1; points], quick, full)
    }

    /// Like [`new`](Budget::new), for points that differ: the size of each is the time that it
    /// takes with the fewest rounds, in comparison with the other points.
    pub(crate) fn of_sizes(output: &Output, sizes: Vec<usize>, quick: f64, full: f64) -> Budget {
        let started = Instant::now();
        Budget::by(output, sizes, quick, full, Rc::new(move || started.elapsed().as_secs_f64()))
    }

    fn by(
        output: &Output,
        sizes: Vec<usize>,
        quick: f64,
        full: f64,
        clock: Rc<dyn Fn() -> f64>,
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
            sizes,
            begun: 0,
            measured: 0,
            needed: 0.0,
            size_left_out: 0,
            left_out: 0,
            without_turn: Rc::default(),
            most: 0,
            now: Point::default(),
        }
    }

    /// Creates the budget of a point with this many rounds, which has begun.
    pub(crate) fn of_rounds(rounds: usize) -> Budget {
        let output = Output { repetitions: Some(rounds), ..Output::default() };
        let mut budget = Budget::new(&output, 1, 1.0, 1.0);
        budget.point();
        budget
    }

    /// Lowers the fewest rounds of the points that follow, where a round is long.
    pub(crate) fn needs(&mut self, rounds: usize) {
        self.least = self.least.min(rounds);
    }

    /// Returns a result, and none instead of an error if the run is interrupted: a signal may end
    /// what is measured before it ends the run.
    pub(crate) fn keep<T>(&self, measured: Result<T>) -> Result<Option<T>> {
        match measured {
            Err(_) if run::signal().is_some() => Ok(None),
            measured => measured.map(Some),
        }
    }

    /// Begins the next point; false if there is no time for it, or if the run was interrupted.
    pub(crate) fn point(&mut self) -> bool {
        let now = (self.clock)();
        self.end_point(now);
        let size = self.sizes.get(self.begun + self.left_out).copied().unwrap_or(1);
        let needs = self.rate() * size as f64;
        let is_late = self.latest.is_some_and(|latest| now + needs > latest)
            && self.begun > 0
            && self.fixed.is_none();
        // The first point is measured in any case: a run that began has a result.
        if is_late || (run::signal().is_some() && self.begun > 0) {
            self.left_out += 1;
            self.size_left_out += size;
            return false;
        }
        let rest = self.now.rest;
        self.begun += 1;
        self.now = Point { begun: now, size, rest, ..Point::default() };
        self.now.end = self.share(needs, self.rate());
        true
    }

    /// Returns the seconds of a point of size one with the fewest rounds; zero before the first
    /// point has ended.
    fn rate(&self) -> f64 {
        self.needed / self.measured.max(1) as f64
    }

    /// Returns when the rounds of the point under way should be over, if it needs this many seconds
    /// and the points after it need `rate` by size: what is left of the time is shared with those
    /// that fit.
    fn share(&self, needs: f64, rate: f64) -> f64 {
        let Point { begun, rest, .. } = self.now;
        let latest = RESERVED * self.latest.unwrap_or(f64::INFINITY);
        let (mut reserved, mut points) = (needs, 1.0);
        for &size in self.sizes.iter().skip(self.begun + self.left_out) {
            let needs = rate * size as f64;
            if begun + reserved + needs <= latest {
                (reserved, points) = (reserved + needs, points + 1.0);
            }
        }
        let spare = (self.seconds - begun - reserved).max(0.0) / points;
        begun + needs + spare - rest
    }

    fn end_point(&mut self, now: f64) {
        let Point { rounds: Some(_), over, done, size, .. } = self.now else { return };
        if done > 0 {
            self.now.rest = now - over;
            self.needed += self.now.needs(self.least, self.now.rest);
            self.measured += size;
        }
        self.now.rounds = None;
    }

    /// Returns whether another round begins at this point.
    pub(crate) fn round(&mut self) -> bool {
        let now = (self.clock)();
        if self.now.rounds.is_some() {
            self.now.done += 1;
            self.now.over = now;
        }
        let rounds = *self.now.rounds.get_or_insert(now);
        let Point { done, size, rest, .. } = self.now;
        self.most = self.most.max(done);
        if run::signal().is_some() {
            return self.begun == 1 && done == 0;
        }
        if let Some(fixed) = self.fixed {
            return done < fixed;
        }
        if done > 0 {
            let needs = self.now.needs(self.least, rest);
            let rate = (self.needed + needs) / (self.measured + size).max(1) as f64;
            self.now.end = self.share(needs, rate);
        } else if self.is_over() {
            // Its set-up took longer than expected.
            self.begun -= 1;
            self.left_out += 1;
            self.size_left_out += size;
            return false;
        }
        let length = (now - rounds) / done.max(1) as f64;
        let fits = done < MOST && now + length / 2.0 <= self.now.end;
        (done < self.least && !self.is_over()) || fits
    }

    /// Returns whether the time is over before a subject has its turn: then the rest of the point
    /// is left out. The first point is set up however late it is.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_first_round() && self.alarm()()
    }

    /// Returns a function that tells whether the time is over, if there is a limit.
    pub(crate) fn alarm(&self) -> impl Fn() -> bool + use<> {
        let end = self.latest.filter(|_| self.fixed.is_none());
        let clock = Rc::clone(&self.clock);
        move || end.is_some_and(|end| clock() > end)
    }

    fn is_first_round(&self) -> bool {
        self.begun <= 1 && self.now.done == 0
    }

    /// Notes that a subject's first turn of this point was cut short.
    pub(crate) fn cut_short(&self) {
        if self.now.done == 0 {
            self.without_turn.set(self.without_turn.get() + 1);
        }
    }

    /// Returns the number of the round under way at this point, from zero.
    pub(crate) fn number(&self) -> usize {
        self.now.done
    }

    /// Returns the places of this many subjects in the order of the round under way. Each round
    /// begins with another subject, and every other round goes backwards, so that no subject has
    /// the same neighbour every time. The turns end early when the time is over.
    pub(crate) fn turns(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let round = self.now.done;
        let turns = (0..count).map(move |turn| (turn + round / 2) % count);
        let (forwards, backwards) = match round % 2 {
            0 => (Some(turns), None),
            _ => (None, Some(turns.rev())),
        };
        let (is_over, is_first) = (self.alarm(), self.is_first_round());
        let (mut had_turn, without_turn) = (0, Rc::clone(&self.without_turn));
        let turns = forwards.into_iter().flatten().chain(backwards.into_iter().flatten());
        turns.take_while(move |_| {
            let is_in_time = (is_first && had_turn == 0) || !is_over();
            if is_in_time {
                had_turn += 1;
            } else if round == 0 {
                without_turn.set(without_turn.get() + count - had_turn);
            }
            is_in_time
        })
    }

    /// Returns the seconds that are left for the rounds of this point.
    pub(crate) fn left(&self) -> f64 {
        (self.now.end - (self.clock)()).max(0.0)
    }

    /// Returns the seconds for each of these blocks, of which each round has `subjects`, if this
    /// many rounds are wanted unless the options give a number.
    pub(crate) fn slot(&self, subjects: usize, rounds: usize) -> f64 {
        self.left() / (subjects * self.fixed.unwrap_or(rounds)).max(1) as f64
    }

    /// Returns the number of rounds that is wanted, unless the options give one.
    pub(crate) fn rounds(&self, wanted: usize) -> usize {
        self.fixed.unwrap_or(wanted)
    }

    /// Prints the difference from what was asked for, if there is any, and returns what the record
    /// says of the time.
    pub(crate) fn end(mut self) -> Vec<(&'static str, Value)> {
        self.end_point((self.clock)());
        self.note().iter().for_each(|note| crate::say::note(note));
        let mut parameters = vec![
            ("seconds", json!(self.seconds)),
            ("rounds_of_a_point", json!(self.most)),
            ("points_left_out", json!(self.left_out)),
        ];
        if let Some(signal) = run::signal() {
            let note = format!("incomplete: interrupted by signal {signal}");
            parameters.push(("interrupted", json!(note)));
        }
        parameters
    }

    /// Returns the seconds that all points need with the fewest rounds, if that is more than there
    /// are.
    fn note(&self) -> Option<String> {
        let needed = self.needed + self.rate() * self.size_left_out as f64;
        let (points, subjects) = (self.left_out, self.without_turn.get());
        let points = (points > 0).then(|| format!("{points} of {} points", self.sizes.len()));
        let subjects = (subjects > 0).then(|| format!("{subjects} subjects of the last point"));
        let left_out: Vec<String> = points.into_iter().chain(subjects).collect();
        let is_short = !left_out.is_empty() || needed > self.seconds * LATE;
        let left_out = match left_out.is_empty() {
            true => String::new(),
            false => format!("; left out: {}", left_out.join(", ")),
        };
        let is_told = is_short && self.fixed.is_none() && run::signal().is_none();
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
        size: usize,
    }

    const fn of(set_up: f64, round: f64, rest: f64) -> Costs {
        Costs { set_up, round, rest, size: 1 }
    }

    /// Runs points of these costs, and returns the rounds of each, the time, and the note.
    fn run(output: &Output, points: &[Costs]) -> (Vec<usize>, f64, Option<String>) {
        let time = Rc::new(Cell::new(0.0));
        let clock = time.clone();
        let sizes = points.iter().map(|costs| costs.size).collect();
        let mut budget = Budget::by(output, sizes, 10.0, 30.0, Rc::new(move || clock.get()));
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
        let (rounds, time, note) = run(&asked(20.0), &[of(3.0, 2.0, 1.0); 10]);
        assert_eq!((rounds.len(), time), (2, 20.0));
        let note = note.unwrap();
        assert_eq!(note, "at least 60 s are needed for these points; left out: 8 of 10 points");
        // One point is measured in any case.
        let (rounds, _, note) = run(&asked(1.0), &[of(0.0, 9.0, 0.0)]);
        assert_eq!(
            (rounds, note.unwrap()),
            (vec![1], "at least 9 s are needed for these points".to_owned())
        );
    }

    #[test]
    fn the_time_of_points_that_do_not_fit_goes_into_more_rounds() {
        for costs in [of(11.0, 0.5, 1.0), of(9.0, 4.0, 0.0)] {
            let (rounds, time, note) = run(&asked(20.0), &[costs; 5]);
            assert!((16.0..24.0).contains(&time), "{rounds:?} {time} s");
            assert!(rounds.len() == 1 && note.unwrap().ends_with("left out: 4 of 5 points"));
        }
    }

    #[test]
    fn time_is_reserved_for_the_larger_points_that_follow() {
        let of_size = |size: usize| {
            let scale = size as f64;
            Costs { size, ..of(0.1 * scale, 0.1 * scale, 0.05 * scale) }
        };
        let sizes = [1, 1, 1, 1, 4, 30, 1, 20, 1];
        let (rounds, time, note) = run(&asked(20.0), &sizes.map(of_size));
        assert!((16.0..24.0).contains(&time), "{rounds:?} {time} s");
        assert_eq!((rounds.len(), note), (sizes.len(), None));
        // A point that is too large makes room for a smaller one.
        let (rounds, time, note) = run(&asked(10.0), &[1, 100, 8].map(of_size));
        assert!((8.0..12.0).contains(&time) && rounds.len() == 2, "{rounds:?} {time} s");
        assert!(note.unwrap().ends_with("left out: 1 of 3 points"));
    }

    #[test]
    fn the_turns_of_a_point_that_takes_unexpectedly_long_end_with_the_time() {
        let time = Rc::new(Cell::new(0.0));
        let clock = time.clone();
        let mut budget =
            Budget::by(&asked(10.0), vec![1, 1], 1.0, 1.0, Rc::new(move || clock.get()));
        let mut turns = Vec::new();
        for length in [3.0, 8.0] {
            assert!(budget.point());
            while budget.round() {
                for place in budget.turns(4) {
                    time.set(time.get() + length / 4.0);
                    turns.push(place);
                }
            }
        }
        budget.end_point(time.get());
        assert_eq!(turns[..4], [0, 1, 2, 3]);
        // So does the first round of the first point, after its first turn.
        let first = Rc::new(Cell::new(0.0));
        let now = Rc::clone(&first);
        let mut slow = Budget::by(&asked(1.0), vec![1], 1.0, 1.0, Rc::new(move || now.get()));
        assert!(slow.point() && slow.round() && !slow.alarm()());
        let had_turn = slow.turns(4).inspect(|_| first.set(first.get() + 9.0)).count();
        assert!(had_turn == 1 && slow.alarm()() && !slow.round());
        slow.end_point(first.get());
        assert!(slow.note().unwrap().ends_with("left out: 3 subjects of the last point"));
        assert!((9.0..13.1).contains(&time.get()), "{}", time.get());
        // A set-up that takes too long leaves its point out.
        assert!(
            !budget.point() || {
                time.set(12.0);
                !budget.round()
            }
        );
    }

    #[test]
    fn a_run_of_the_default_length_has_three_rounds_however_late_it_is() {
        let slow = [of(0.0, 7.0, 0.0); 4];
        assert_eq!(run(&Output::default(), &slow).0, [3; 4]);
        assert_eq!(run(&Output { paced: true, ..asked(20.0) }, &slow).0, [3; 4]);
        let quick = Output { quick: true, ..Output::default() };
        let (rounds, time, _) = run(&quick, &[of(0.0, 1.0, 0.0); 4]);
        assert!(rounds.iter().all(|rounds| *rounds >= 2) && time <= 13.0, "{rounds:?} {time}");
    }

    #[test]
    fn a_number_of_rounds_is_kept_whatever_the_time() {
        let output = Output { repetitions: Some(2), ..asked(1.0) };
        assert_eq!(run(&output, &[of(0.0, 5.0, 0.0); 3]).0, [2; 3]);
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
