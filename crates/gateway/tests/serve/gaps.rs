//! Tests that keep a connection alive by what they do now and then.
//!
//! The server of such a test ends the connection when nothing happens on it for a time. That is
//! right as well where the test wanted something to happen and this process was kept from running.
//! So the test notes its longest gap, and begins again if that may be the reason.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The longest gap between the turns of a test, each of which keeps a connection alive.
pub(crate) struct Gaps {
    /// The beginnings of the last two turns, the later one at the end.
    begun: [Instant; 2],
    longest: Duration,
}

impl Gaps {
    /// Begins a first turn.
    pub(crate) fn new() -> Gaps {
        Gaps { begun: [Instant::now(); 2], longest: Duration::ZERO }
    }

    /// Begins the next turn. Call it before the server is sent something, or is read from.
    pub(crate) fn turn(&mut self) {
        self.longest = self.longest();
        self.begun = [self.begun[1], Instant::now()];
    }

    /// Returns the longest time of two turns so far: the server may have noticed one turn at its
    /// beginning, and the next one at its end.
    pub(crate) fn longest(&self) -> Duration {
        self.longest.max(self.begun[0].elapsed())
    }

    /// Asserts that the server had a reason to end the connection: a gap this long.
    #[track_caller]
    pub(crate) fn assert_reached(&self, gap: Duration, what: impl Display) {
        let longest = self.longest();
        assert!(longest >= gap, "{what}, and the longest gap of the test was {longest:?}");
    }
}

/// Runs a test until it returns true. False says that this process was kept from running for so
/// long that the test says nothing about the server.
#[track_caller]
pub(crate) fn until_undisturbed(test: impl FnMut() -> bool) {
    const ATTEMPTS: usize = 10;
    let mut attempts = std::iter::repeat_with(test).take(ATTEMPTS);
    assert!(attempts.any(|is_valid| is_valid), "none of {ATTEMPTS} attempts was undisturbed");
}
