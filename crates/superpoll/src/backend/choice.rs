//! The back-end that [`BackendKind::Auto`] stands for here, and why.
//!
//! The choice is made once per process: whether the kernel lets us have io_uring, and if it does,
//! whether watching with it is cheaper than with `poll` and epoll on this machine ([`Comparison`]).
//! If either is not so, the choice is `adaptive`, and not a single call is made differently than if
//! `adaptive` had been asked for by name.

use std::sync::OnceLock;

use crate::backend::BackendKind;
use crate::costs::{Comparison, Costs, RingCosts};
use crate::error::Error;

/// Which back-end was chosen, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The back-end.
    pub kind: BackendKind,
    /// The grounds for it.
    pub reason: Reason,
}

/// The grounds for the choice of a back-end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// There is no io_uring here, or it could not be measured.
    NoRing(&'static Error),
    /// The estimated costs.
    Costs(Comparison),
}

impl Choice {
    /// The choice of this process, made at the first call. That takes a few milliseconds, as it
    /// measures both [`Costs`] and [`RingCosts`].
    pub fn here() -> &'static Choice {
        static CHOICE: OnceLock<Choice> = OnceLock::new();
        // In this order: without io_uring there is nothing to compare.
        CHOICE.get_or_init(|| match RingCosts::calibrated() {
            Ok(ring) => Choice::by(Comparison::of(Costs::calibrated(), ring)),
            Err(error) => Choice { kind: BackendKind::Adaptive, reason: Reason::NoRing(error) },
        })
    }

    pub(crate) fn by(comparison: Comparison) -> Choice {
        let pays = comparison.uring_pays();
        let kind = if pays { BackendKind::Uring } else { BackendKind::Adaptive };
        Choice { kind, reason: Reason::Costs(comparison) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_is_a_back_end_that_works() {
        let choice = Choice::here();
        assert!(std::ptr::eq(choice, Choice::here()));
        assert!(BackendKind::ALL.contains(&choice.kind) && choice.kind.is_available());
        match &choice.reason {
            Reason::NoRing(_) => assert_eq!(choice.kind, BackendKind::Adaptive),
            Reason::Costs(comparison) => {
                assert_eq!(choice.kind == BackendKind::Uring, comparison.uring_pays());
            }
        }
    }

    #[test]
    fn it_follows_the_comparison() {
        let ring = RingCosts::calibrated();
        let Ok(ring) = ring else {
            eprintln!("skipped: no io_uring here");
            return;
        };
        let mut cheap = Comparison::of(&Costs::ASSUMED, ring);
        cheap.estimates.iter_mut().for_each(|one| one.uring = one.adaptive / 2.0);
        assert_eq!(Choice::by(cheap.clone()).kind, BackendKind::Uring);
        cheap.estimates.iter_mut().for_each(|one| one.uring = one.adaptive);
        assert_eq!(Choice::by(cheap).kind, BackendKind::Adaptive);
    }
}
