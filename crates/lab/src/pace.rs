//! How long a run takes: fewer repetitions where it falls behind, and a firm end for quick runs.
//!
//! The number of rounds that fit into the time is computed beforehand, but a machine with other
//! work to do takes longer than that. A run that was promised to be short drops repetitions first,
//! and then points; its record lists the omissions.
//!
//! It never drops all repetitions but one, however late it is: subjects that have one turn each do
//! not take turns, and a machine that is slower for a second makes one of them look slower for
//! good. So a run may last longer than it should, and only a quick one, whose end is firm, leaves
//! out points.
//!
//! Where a round is as long as the time of a point allows, fewer rounds would end no sooner: there
//! all rounds stay and are shorter.

use std::time::Instant;

/// A quick run ends within this, in seconds.
const QUICK: f64 = 55.0;

/// The fewest repetitions of a run that has fallen behind, where more are wanted.
const LEAST: usize = 3;

/// The same for a quick run.
const LEAST_QUICK: usize = 2;

/// Keeps time over the points of a run.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    points: usize,
    done: usize,
    /// Seconds that measuring should take.
    budget: f64,
    /// Seconds in which all points should be done, if that was promised.
    limit: Option<f64>,
    firm: bool,
    longest: f64,
    point_started: f64,
}

impl Pace {
    /// Creates the pace for a run of this many points. `budget` is how long measuring should take;
    /// `promised` whether it is the default length rather than a requested number of seconds;
    /// `quick` whether the end is firm.
    pub fn new(points: usize, budget: f64, promised: bool, quick: bool) -> Pace {
        let limit = match (quick, promised) {
            (true, _) => Some((budget * 1.6).min(QUICK * 0.8)),
            (false, true) => Some(budget * 1.6),
            (false, false) => None,
        };
        Pace {
            started: Instant::now(),
            points,
            done: 0,
            budget,
            limit,
            firm: quick,
            longest: 0.0,
            point_started: 0.0,
        }
    }

    /// Returns how often to repeat the next point, at most `wanted` times; `None` if there is no
    /// time for it.
    pub fn next(&mut self, wanted: usize) -> Option<usize> {
        self.turn(wanted, self.started.elapsed().as_secs_f64())
    }

    fn turn(&mut self, wanted: usize, now: f64) -> Option<usize> {
        let least = if self.firm { LEAST_QUICK } else { LEAST };
        let late = self.begin(now)?;
        Some(if late { wanted.min(least) } else { wanted })
    }

    /// Returns how many nanoseconds the rounds of the next point may take together, where a round
    /// can be of any length; `None` if there is no time for it.
    pub fn time(&mut self) -> Option<f64> {
        self.share(self.started.elapsed().as_secs_f64())
    }

    fn share(&mut self, now: f64) -> Option<f64> {
        let late = self.begin(now)?;
        let share = self.budget * 1e9 / self.points.max(1) as f64;
        Some(if late { share / 2.0 } else { share })
    }

    /// Begins the next point, and returns whether the run has fallen behind; `None` if there is no
    /// time for the point.
    fn begin(&mut self, now: f64) -> Option<bool> {
        if self.done > 0 {
            self.longest = self.longest.max(now - self.point_started);
        }
        self.point_started = now;
        if self.firm && now + self.longest > QUICK {
            return None;
        }
        let share = self.done as f64 / self.points.max(1) as f64;
        self.done += 1;
        Some(self.limit.is_some_and(|limit| now > limit * share && self.done > 1))
    }
}

/// Prints a note that points are missing, if any are.
pub fn say_left_out(count: usize) {
    if count > 0 {
        crate::say::note(&format!(
            "{count} points are left out to keep a quick run below a minute: run without --quick, \
             or ask for fewer"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn a_run_that_falls_behind_repeats_less_but_has_its_subjects_take_turns() {
        let mut pace = Pace::new(4, 10.0, true, false);
        assert_eq!(pace.turn(5, 0.1), Some(5));
        assert_eq!(pace.turn(5, 2.0), Some(5));
        assert_eq!(pace.turn(5, 9.0), Some(3));
        assert_eq!(pace.turn(5, 9.5), Some(5));
        let mut late = Pace::new(2, 10.0, true, false);
        assert_eq!((late.turn(1, 0.1), late.turn(1, 99.0)), (Some(1), Some(1)));
        let mut pace = Pace::new(4, 10.0, false, false);
        assert!([0.0, 50.0, 5000.0].iter().all(|&now| pace.turn(5, now) == Some(5)));
    }

    #[test]
    fn rounds_of_any_length_are_shorter_in_a_run_that_falls_behind() {
        let mut pace = Pace::new(4, 10.0, true, false);
        assert_eq!(pace.share(0.1), Some(2.5e9));
        assert_eq!(pace.share(2.0), Some(2.5e9));
        assert_eq!(pace.share(9.0), Some(1.25e9));
        assert_eq!(pace.share(9.5), Some(2.5e9));
        let mut pace = Pace::new(10, 10.0, true, true);
        assert_eq!([0.0, 20.0, 56.0].map(|now| pace.share(now)), [Some(1e9), Some(5e8), None]);
    }

    #[test]
    fn a_quick_run_ends_before_a_point_that_would_be_late() {
        let mut pace = Pace::new(10, 15.0, true, true);
        assert_eq!(pace.turn(3, 0.0), Some(3));
        assert_eq!(pace.turn(3, 20.0), Some(2));
        assert_eq!(pace.turn(3, 34.0), Some(2));
        assert_eq!(pace.turn(3, 36.0), None);
    }
}
