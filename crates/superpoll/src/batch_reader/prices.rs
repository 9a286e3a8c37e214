//! The costs of reading with a ring, by each way of reading and with and without bytes, in
//! nanoseconds.
//!
//! Three decisions follow from them. Whether descriptors of a kind are read by a call each or
//! together: in line a call is cheap, and a short read from a pipe may cost less than an entry in a
//! ring. Up to how many due sources are read by calls although those are more expensive, because a
//! further call of the ring costs more still. And which descriptors are read without being watched
//! ([`speculation`](super::speculation)).
//!
//! The cost of watching is in [`RingCosts`]; the reads are measured by the same rules, once in a
//! process, in a few milliseconds. Values that cannot be measured, or make no sense, are assumed.

#[cfg(feature = "uring")]
use std::sync::OnceLock;

#[cfg(feature = "uring")]
use crate::costs::RingCosts;
use crate::costs::{Costs, Kind, KindCosts, RingKindCosts};

#[cfg(feature = "uring")]
mod measuring;

/// How many times more it costs to arm or to cancel a descriptor that was not touched for a while,
/// among a thousand, than to do so with the same few again and again, as the measurement does:
/// three times in rotating loads.
const COLD: f32 = 3.0;

/// More due reads than this are made together in any case.
const MOST_BY_CALL: f32 = 16.0;

/// A read of one byte.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Reads {
    /// By a call of its own.
    call: f32,
    /// The same, from a descriptor that has nothing.
    call_in_vain: f32,
    /// Together with more reads.
    together: f32,
    /// The same, from a descriptor that has nothing.
    together_in_vain: f32,
}

/// Prices of one kind.
#[derive(Clone, Copy, PartialEq, Debug)]
struct OfKind {
    reads: Reads,
    ring: RingKindCosts,
    enter: f32,
}

/// Prices of all kinds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Prices {
    pipe: OfKind,
    unix: OfKind,
    tcp: OfKind,
}

/// Stand-ins where measuring failed (Linux 6.18, one virtual core).
pub(super) const ASSUMED: Prices = Prices {
    pipe: OfKind {
        reads: Reads { call: 330.0, call_in_vain: 230.0, together: 340.0, together_in_vain: 170.0 },
        ring: RingKindCosts { arm: 200.0, event: 45.0, wake: 90.0, cancel: 430.0 },
        enter: 180.0,
    },
    unix: OfKind {
        reads: Reads { call: 930.0, call_in_vain: 340.0, together: 690.0, together_in_vain: 150.0 },
        ring: RingKindCosts { arm: 250.0, event: 50.0, wake: 150.0, cancel: 450.0 },
        enter: 180.0,
    },
    tcp: OfKind {
        reads: Reads { call: 660.0, call_in_vain: 360.0, together: 470.0, together_in_vain: 170.0 },
        ring: RingKindCosts { arm: 290.0, event: 55.0, wake: 200.0, cancel: 460.0 },
        enter: 180.0,
    },
};

impl Prices {
    /// The prices of this machine.
    #[cfg(feature = "uring")]
    pub(super) fn calibrated() -> &'static Prices {
        static PRICES: OnceLock<Prices> = OnceLock::new();
        PRICES.get_or_init(|| {
            let Ok(ring) = RingCosts::calibrated() else { return ASSUMED };
            measuring::measure(ring, measuring::STOPS).unwrap_or(ASSUMED)
        })
    }

    /// Without a ring no price is asked for.
    #[cfg(not(feature = "uring"))]
    pub(super) fn calibrated() -> &'static Prices {
        &ASSUMED
    }

    fn of(&self, kind: Kind) -> &OfKind {
        match kind {
            Kind::Unknown | Kind::Pipe => &self.pipe,
            Kind::Unix => &self.unix,
            Kind::Tcp => &self.tcp,
        }
    }

    /// Whether descriptors of a kind are read by a call each, however many: if that is cheaper,
    /// unless it was decided by hand that they are read together, or that they are not.
    pub(super) fn by_call(&self, kind: Kind, together: Option<bool>) -> bool {
        let reads = &self.of(kind).reads;
        together.map_or(reads.call <= reads.together, |together| !together)
    }

    /// The number of reads of a kind up to which calls are used because a further call of the ring
    /// costs more, unless the way was chosen by hand.
    pub(super) fn few(&self, kind: Kind, together: Option<bool>) -> usize {
        if together.is_some() {
            return 0;
        }
        let OfKind { reads, enter, .. } = self.of(kind);
        let saved = (reads.call - reads.together).max(1.0);
        (enter / saved).clamp(1.0, MOST_BY_CALL) as usize
    }

    /// In the terms of the rule of placement, for reading in place of scanning. A pass there
    /// subtracts a scan, whatever it finds, so a read that has something adds it again. Nothing is
    /// parked, and a set of speculative reads has no price of its own.
    pub(super) fn terms(&self, together: Option<bool>) -> Costs {
        let terms = |kind| {
            let reads = &self.of(kind).reads;
            let by_call = self.by_call(kind, together);
            let miss = if by_call { reads.call_in_vain } else { reads.together_in_vain };
            self.terms_of(kind, miss, -miss)
        };
        let [pipe, unix, tcp] = Kind::MEASURED.map(terms);
        Costs { pipe, unix, tcp, pass: 0.0, poll_call: 0.0, cold_wait: 0.0, measured: false }
    }

    /// The same for a look before each read that finds which descriptors have something, at these
    /// prices of `poll`.
    pub(super) fn terms_of_looking(&self, costs: &Costs) -> Costs {
        let terms = |kind| {
            let KindCosts { scan, ready, .. } = *costs.of(kind);
            self.terms_of(kind, scan, ready)
        };
        let [pipe, unix, tcp] = Kind::MEASURED.map(terms);
        let pass = costs.poll_call;
        Costs { pipe, unix, tcp, pass, poll_call: pass, cold_wait: 0.0, measured: false }
    }

    fn terms_of(&self, kind: Kind, scan: f32, ready: f32) -> KindCosts {
        let ring = self.of(kind).ring;
        let move_of_two = COLD * (ring.arm + ring.cancel) / 2.0;
        KindCosts {
            scan,
            ready,
            block: 0.0,
            event: ring.event,
            level: f32::from(u16::MAX),
            recheck: 0.0,
            wake: ring.wake,
            queued_wake: ring.wake,
            parked_wake: 0.0,
            add: move_of_two,
            modify: move_of_two,
            delete: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheaper_way_is_taken_and_a_further_call_of_the_ring_must_pay() {
        let with = |call, together, enter| {
            let mut prices = ASSUMED;
            prices.unix.reads.call = call;
            prices.unix.reads.together = together;
            prices.unix.enter = enter;
            (prices.by_call(Kind::Unix, None), prices.few(Kind::Unix, None))
        };
        assert_eq!(with(900.0, 700.0, 500.0), (false, 2));
        assert_eq!(with(900.0, 700.0, 100.0), (false, 1));
        assert_eq!(with(701.0, 700.0, 500.0), (false, 16));
        assert_eq!(with(700.0, 700.0, 500.0), (true, 16));
        assert!(ASSUMED.by_call(Kind::Pipe, None) && ASSUMED.by_call(Kind::Unknown, None));
        assert!(!ASSUMED.by_call(Kind::Tcp, None));
        for kind in Kind::MEASURED {
            assert!(ASSUMED.by_call(kind, Some(false)) && !ASSUMED.by_call(kind, Some(true)));
            assert_eq!((ASSUMED.few(kind, Some(false)), ASSUMED.few(kind, Some(true))), (0, 0));
        }
    }

    #[test]
    fn the_rule_sees_the_read_that_is_made() {
        let terms = ASSUMED.terms(None);
        assert_eq!((terms.pipe.scan, terms.pipe.ready), (230.0, -230.0));
        assert_eq!((terms.unix.scan, terms.unix.event, terms.unix.wake), (150.0, 50.0, 150.0));
        assert_eq!(terms.tcp.add + terms.tcp.modify, COLD * (290.0 + 460.0));
        let misses = |together| Kind::MEASURED.map(|kind| ASSUMED.terms(together).of(kind).scan);
        assert_eq!(misses(None), [230.0, 150.0, 170.0]);
        assert_eq!(misses(Some(true)), [170.0, 150.0, 170.0]);
        assert_eq!(misses(Some(false)), [230.0, 340.0, 360.0]);
        let looking = ASSUMED.terms_of_looking(&Costs::ASSUMED);
        let KindCosts { scan, ready, .. } = Costs::ASSUMED.tcp;
        assert_eq!((looking.tcp.scan, looking.tcp.ready), (scan, ready));
        assert_eq!((looking.tcp.event, looking.tcp.add), (terms.tcp.event, terms.tcp.add));
        assert_eq!(looking.pass, Costs::ASSUMED.poll_call);
    }
}
