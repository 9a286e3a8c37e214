//! Compares every kind of descriptor, interest, mode and back-end with `poll(2)` at the same
//! moment.
//!
//! Each [kind](kinds::KINDS) is a short story of descriptors: sockets that are reset, pipes whose
//! reader goes, terminals that hang up, files that cannot be waited for. After each step the oracle
//! asks the kernel with `poll(2)` for the state of the descriptors, and asks the poller to wait.
//! The mode determines how the two have to agree (`refresh_fast_path`). A story knows nothing of
//! interests, modes and back-ends, and so each is told with all of them.
//!
//! The complete product takes a while. [`examine`] takes a share of it, in turns: each turn has
//! every pair of a kind with a back-end, an interest or a mode, and of an interest with a mode, and
//! the [`TURNS`] turns together are the whole.
//!
//! Nothing waits for time to pass. A step that takes effect later names the condition that shows
//! its effect. If an event that must come is not there yet, the oracle looks again.

use std::fmt;
use std::io;

use superpoll::{Error, Interest, Mode, Readiness, Watch};

use crate::bench::{Bench, Capabilities};
use kinds::KINDS;

mod judge;
pub mod kinds;
mod scene;
mod sys;

pub use scene::{Scene, Step};

/// The interests, from the most common one to all.
pub const INTERESTS: [Interest; 7] = [
    Interest::READABLE,
    Interest::WRITABLE,
    Interest::READABLE.with(Interest::WRITABLE),
    Interest::PRIORITY,
    Interest::READ_CLOSED,
    Interest::READABLE.with(Interest::READ_CLOSED).with(Interest::PRIORITY),
    Interest::ALL,
];

/// The modes; [`Mode::Exclusive`] is left out, since it needs several pollers.
pub const MODES: [Mode; 4] = [Mode::Level, Mode::Auto, Mode::OneShot, Mode::Edge];

/// The number of turns that make up the whole product.
pub const TURNS: usize = INTERESTS.len() * MODES.len();

/// Differences that are left out: the kind, the back-ends that they concern, and the reason.
type Known = (&'static str, fn(&Capabilities) -> bool, &'static str);
const KNOWN: &[Known] = &[];

/// The results of an examination.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// How often a descriptor's events were compared with the kernel's state, or a refusal with the
    /// contract.
    pub checks: usize,
    /// The differences that were found, by kind, interest, mode and step; the first few.
    pub differences: Vec<String>,
    /// Kinds that were left out, and the reason.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl Findings {
    fn skip(&mut self, kind: &'static str, reason: &'static str) {
        if !self.skipped.contains(&(kind, reason)) {
            self.skipped.push((kind, reason));
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks, {} differ", self.checks, self.differences.len())?;
        self.differences.iter().try_for_each(|difference| write!(f, "\n  {difference}"))
    }
}

/// Examines a back-end with `turns` turns from `first` on, until there are `most` differences. Each
/// difference may have taken a wait.
///
/// # Errors
///
/// The system's error if a story cannot be told; that is no finding.
pub fn examine(bench: &Bench, first: usize, turns: usize, most: usize) -> io::Result<Findings> {
    let mut findings = Findings::default();
    for turn in first..first + turns {
        for (number, kind) in KINDS.iter().enumerate() {
            // Interests and modes repeat together only after all their pairs.
            let place = number + turn;
            let interest = INTERESTS[place % INTERESTS.len()];
            let mode = MODES[place % MODES.len()];
            let watch = Watch::new(interest).mode(mode);
            let caps = bench.capabilities();
            let known = KNOWN.iter().find(|(name, of, _)| *name == kind.name && of(&caps));
            if let Some((_, _, reason)) = known {
                findings.skip(kind.name, reason);
                continue;
            }
            let Some(scene) = (kind.make)()? else {
                findings.skip(kind.name, "this system does not have it");
                continue;
            };
            if is_refused(bench, watch) {
                refuse(bench, watch, kind.name, &scene, &mut findings);
            } else {
                judge::compare_scene(bench, watch, kind.name, scene, &mut findings)?;
            }
            if findings.differences.len() >= most {
                return Ok(findings);
            }
        }
    }
    Ok(findings)
}

/// Whether the contract says that the back-end refuses this.
fn is_refused(bench: &Bench, watch: Watch) -> bool {
    let caps = bench.capabilities();
    let in_band = Interest::READABLE | Interest::WRITABLE;
    let needs_readable = watch.interest - in_band;
    (watch.mode == Mode::Edge && !caps.edge)
        || (!caps.read_closed_alone
            && !needs_readable.is_empty()
            && !watch.interest.contains(Interest::READABLE))
}

fn refuse(bench: &Bench, watch: Watch, kind: &str, scene: &Scene, findings: &mut Findings) {
    let mut rig = bench.rig();
    for fd in &scene.watched {
        findings.checks += 1;
        let outcome = rig.register(fd, watch);
        if !matches!(outcome, Err(Error::Unsupported { .. })) {
            findings.differences.push(format!("{kind}, {watch:?}: not refused: {outcome:?}"));
        }
    }
}

/// Returns the kernel's state of a descriptor, masked for this interest.
fn state(fd: &impl std::os::fd::AsRawFd, interest: Interest) -> Readiness {
    let fd = fd.as_raw_fd();
    let mut slot = [libc::pollfd { fd, events: interest.poll_bits(), revents: 0 }];
    // With one slot and no timeout, only a signal can make the call fail.
    while crate::sys::poll(&mut slot, 0).is_err() {}
    Readiness::from_poll_bits(slot[0].revents)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_turn_has_every_pair_and_all_turns_are_everything() {
        let told = |turn: usize, kind: usize| {
            let place = kind + turn;
            (INTERESTS[place % INTERESTS.len()], MODES[place % MODES.len()])
        };
        let one: HashSet<_> = (0..KINDS.len()).map(|kind| told(3, kind)).collect();
        assert_eq!(one.len(), KINDS.len().min(TURNS));
        for kind in 0..KINDS.len() {
            let all: HashSet<_> = (0..TURNS).map(|turn| told(turn, kind)).collect();
            assert_eq!(all.len(), TURNS);
        }
    }
}
