//! The back-end that is cheaper here for a program that reads from many sockets.

use std::sync::OnceLock;

use super::prices::Prices;
use crate::backend::BackendKind;
use crate::backend::choice::{Choice, Reason};
use crate::costs::{Comparison, Costs, RingCosts};

impl Choice {
    /// The choice of this process for a poller whose user reads from its sockets together
    /// ([`Poller::start_nonblocking`](crate::Poller::start_nonblocking)), as the engines of the
    /// runtime do: [`Choice::here`] with the costs of the reads, and without pipes. The first call
    /// takes some milliseconds more.
    pub fn for_reads() -> &'static Choice {
        static CHOICE: OnceLock<Choice> = OnceLock::new();
        CHOICE.get_or_init(|| match RingCosts::calibrated() {
            Ok(ring) => {
                let prices = Prices::calibrated();
                Choice::by(Comparison::of_reads(Costs::calibrated(), ring, |kind| {
                    prices.reads(kind)
                }))
            }
            Err(error) => Choice { kind: BackendKind::Adaptive, reason: Reason::NoRing(error) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_follows_its_estimates() {
        let choice = Choice::for_reads();
        assert!(std::ptr::eq(choice, Choice::for_reads()) && choice.kind.is_available());
        match &choice.reason {
            Reason::NoRing(_) => assert_eq!(choice.kind, BackendKind::Adaptive),
            Reason::Costs(comparison) => {
                assert_eq!(choice.kind == BackendKind::Uring, comparison.uring_pays());
            }
        }
    }
}
