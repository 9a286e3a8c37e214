//! The contract of [`superpoll`] as an executable suite.
//!
//! The suite judges an event poller in two ways. [`checks`] are named: one for each clause of the
//! contract and each trap that other pollers have fallen into. [`sequence`]s are random: operations
//! on pipes, sockets, eventfds and files, whose outcome is compared with a [model
//! kernel](subject::model), which is itself compared with the kernel's own `epoll` and `poll`. Both
//! drive a [`Rig`], in which a bug can be planted, and that is how the suite is tested: for each
//! [`Fault`] there is a check that fails.
//!
//! Authors of a back-end run the suite against it with [`check_all`].

#![cfg_attr(docsrs, feature(doc_cfg))]

use std::fmt;

pub mod bench;
pub mod chaos;
pub mod checks;
mod erratic_keeper;
pub mod oracle;
mod remote_keeper;
pub mod rig;
pub mod sequence;
pub mod subject;
pub mod sys;

pub use bench::{Bench, Capabilities};
pub use rig::{Fault, Rig};

use sequence::Limits;
use subject::poller::RigEngine;
use subject::real::Real;
use superpoll::Poller;

/// The checks and sequences that passed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Checks that passed.
    pub passed: Vec<&'static str>,
    /// Checks that were not run, since they concern capabilities that the back-end lacks.
    pub skipped: Vec<&'static str>,
    /// Random sequences that agreed with the model.
    pub sequences: u32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, skipped) = (self.passed.len(), self.skipped.len());
        let sequences = self.sequences;
        write!(f, "{passed} checks passed, {skipped} do not apply, {sequences} sequences agree")
    }
}

/// The first failure that the suite found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The name of the check, or `random sequences`.
    pub check: &'static str,
    /// The expected and the actual outcome.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.reason)
    }
}

impl std::error::Error for Failure {}

/// Runs the whole suite against the pollers that `make` makes: every check that applies to these
/// capabilities, and random sequences.
///
/// ```
/// use superpoll::{Poller, backend::Poll};
/// use superpoll_conformance::{Capabilities, check_all};
///
/// // In the place of `Poll` stands the back-end to be judged.
/// let make = || Poller::builder().custom(Poll::new()).build().unwrap();
/// let report = check_all(make, Capabilities::POLL).unwrap();
/// assert!(report.passed.contains(&"hang_up_after_one_shot_does_not_spin"));
/// assert!(report.skipped.contains(&"edge_is_reported_once_for_each_arrival"));
/// ```
///
/// # Errors
///
/// The first check that fails, or the shortest sequence found that differs from the model.
pub fn check_all(
    make: impl Fn() -> Poller + 'static,
    capabilities: Capabilities,
) -> Result<Report, Failure> {
    let name = make().backend();
    check_bench(&Bench::new(name, capabilities, make))
}

/// Runs the whole suite against a bench.
///
/// # Errors
///
/// The errors of [`check_all`].
pub fn check_bench(bench: &Bench) -> Result<Report, Failure> {
    let mut report = Report::default();
    for check in checks::CHECKS {
        if !(check.applies)(&bench.capabilities()) {
            report.skipped.push(check.name);
            continue;
        }
        (check.run)(bench)
            .map_err(|problem| Failure { check: check.name, reason: problem.to_string() })?;
        report.passed.push(check.name);
    }
    for limits in [Limits::Ample, Limits::Tight] {
        let make = || Real::new(RigEngine::new(bench));
        sequence::explore(bench.capabilities(), limits, sequence::CASES, make)
            .map_err(|reason| Failure { check: "random sequences", reason })?;
        report.sequences += sequence::CASES;
    }
    Ok(report)
}
