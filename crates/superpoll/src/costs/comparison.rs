//! Whether io_uring pays here: estimates of an event's cost with it and with `poll` and epoll, by
//! calibrated costs.
//!
//! Neither is cheaper at every load, so a few stand for all ([`Load::ALL`]), each with every kind
//! of descriptor. An estimate counts the loop's cost for one event with its share of the calls, the
//! writer's cost to wake the loop, and the event's share of the registrations; not the read, which
//! is the same.
//!
//! *Adaptive* has everything that it can learn: busy descriptors that stay the same are in the
//! array or in epoll, whichever is cheaper, and the rest are in epoll. *Uring* takes each arrival
//! as an event, as it does in [`Mode::Auto`](crate::Mode::Auto), and in each call the kernel works
//! off twenty of the completions that are there. The other modes cost *uring* more, a second look
//! or an entry for each event, and are not compared here.
//!
//! io_uring pays if it costs less by [`MARGIN`], taken as the geometric mean over all loads and
//! kinds, and at none of them more by [`WORST`]. So a tie goes to `poll` and epoll, which every
//! kernel has, and so does a machine on which io_uring would make one load suffer for gains
//! elsewhere.

use crate::costs::{Costs, Kind, RingCosts};

crate::named! {
    /// A typical load.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    #[non_exhaustive]
    pub enum Load {
        /// A loop that sleeps until one descriptor wakes it.
        Woken = "woken for each",
        /// The same one of many is ready in each wait.
        One = "one ready",
        /// The same hundred are ready in each wait, of many more.
        Some = "100 ready, the same ones",
        /// A hundred are ready in each wait, different ones each time.
        Changing = "100 ready, changing",
        /// A thousand are ready in each wait, and none is idle.
        All = "1,000 ready, all there are",
        /// A hundred are ready in each wait, and each is registered for four events.
        Brief = "100 ready, for 4 events each",
    }
}

/// A load in numbers.
pub(super) struct Shape {
    /// Descriptors that are ready in a wait.
    pub ready: f32,
    /// Whether they are the same ones in the next.
    same: bool,
    /// Events for each registration; infinite if registrations do not count.
    events: f32,
    /// Whether the loop sleeps until they are ready.
    sleeps: bool,
}

impl Load {
    pub(super) const fn shape(self) -> Shape {
        let always = Shape { ready: 1.0, same: true, events: f32::INFINITY, sleeps: false };
        match self {
            Load::Woken => Shape { sleeps: true, ..always },
            Load::One => always,
            Load::Some => Shape { ready: 100.0, ..always },
            Load::Changing => Shape { ready: 100.0, same: false, ..always },
            Load::All => Shape { ready: 1_000.0, ..always },
            Load::Brief => Shape { ready: 100.0, same: false, events: 4.0, ..always },
        }
    }
}

/// The estimated cost of an event at a load, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Estimate {
    /// The kind of the descriptors.
    pub kind: Kind,
    /// The load.
    pub load: Load,
    /// With back-end `adaptive`.
    pub adaptive: f32,
    /// With back-end `uring`.
    pub uring: f32,
}

impl Estimate {
    /// The cost with io_uring as a fraction of the cost with `adaptive`.
    pub fn ratio(&self) -> f32 {
        self.uring / self.adaptive
    }
}

/// io_uring compared with `poll` and epoll, on this machine.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Comparison {
    /// An estimate for each kind and load.
    pub estimates: Vec<Estimate>,
}

/// By how much io_uring must be cheaper over all, since a choice between equals would be a coin
/// that is tossed at each start.
pub const MARGIN: f32 = 0.05;

/// By how much io_uring may be more expensive at a single load.
pub const WORST: f32 = 0.10;

/// Completions that a call works off, unless more are waited for (`IO_LOCAL_TW_DEFAULT_MAX`).
const AT_ONCE: f32 = 20.0;

impl Comparison {
    /// Estimates the costs of events, from calibrated costs alone.
    pub fn of(costs: &Costs, ring: &RingCosts) -> Comparison {
        let each = |kind| {
            Load::ALL.map(|load| Estimate {
                kind,
                load,
                adaptive: adaptive(costs, kind, &load.shape()),
                uring: uring(ring, kind, &load.shape()),
            })
        };
        Comparison { estimates: Kind::MEASURED.map(each).into_iter().flatten().collect() }
    }

    /// The cost with io_uring as a fraction of the cost with `adaptive` over all, as the geometric
    /// mean.
    pub fn mean(&self) -> f32 {
        let logarithms: f32 = self.estimates.iter().map(|one| one.ratio().ln()).sum();
        (logarithms / self.estimates.len().max(1) as f32).exp()
    }

    /// Where io_uring does worst.
    pub fn worst(&self) -> Option<&Estimate> {
        self.estimates.iter().max_by(|one, other| one.ratio().total_cmp(&other.ratio()))
    }

    /// Whether io_uring pays.
    pub fn uring_pays(&self) -> bool {
        self.mean() <= 1.0 - MARGIN && self.worst().is_some_and(|one| one.ratio() <= 1.0 + WORST)
    }
}

/// An event through the array or epoll.
pub(super) fn adaptive(costs: &Costs, kind: Kind, load: &Shape) -> f32 {
    let of = costs.of(kind);
    let cold = costs.cold_wait / load.ready + of.event + of.wake;
    let hot = (costs.pass + costs.cold_wait) / load.ready + of.scan + of.ready + of.parked_wake;
    let watching = if load.same && !load.sleeps { cold.min(hot) } else { cold };
    watching + (of.add + of.delete) / load.events
}

/// An event through a ring.
pub(super) fn uring(ring: &RingCosts, kind: Kind, load: &Shape) -> f32 {
    let of = ring.of(kind);
    let calls = (load.ready / AT_ONCE).ceil();
    let watching = ring.enter * calls / load.ready + of.event + of.wake;
    // An end is submitted at once, by a call of its own: the ring would hold the file open.
    watching + (of.arm + of.cancel + ring.enter) / load.events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::RingKindCosts;

    fn ring(enter: f32, event: f32) -> RingCosts {
        let of = RingKindCosts { arm: 200.0, event, wake: 110.0, cancel: 430.0 };
        RingCosts { pipe: of, unix: of, tcp: of, enter }
    }

    fn at(comparison: &Comparison, kind: Kind, load: Load) -> Estimate {
        let found = comparison.estimates.iter().find(|one| one.kind == kind && one.load == load);
        *found.unwrap()
    }

    #[test]
    fn an_event_costs_its_share_of_everything() {
        let comparison = Comparison::of(&Costs::ASSUMED, &ring(150.0, 40.0));
        let pipe = |load| {
            let one = at(&comparison, Kind::Pipe, load);
            (one.adaptive, one.uring)
        };
        // Pipes: scan 28, ready 2, event 89, wake 124, parked 65; an epoll_wait 150, an array 225
        // more.
        assert_eq!(pipe(Load::Woken), (150.0 + 89.0 + 124.0, 150.0 + 40.0 + 110.0));
        assert_eq!(pipe(Load::One), (363.0, 300.0));
        let many = 40.0 + 110.0;
        let (adaptive, uring) = pipe(Load::Some);
        assert!((adaptive - (375.0 / 100.0 + 30.0 + 65.0)).abs() < 0.01, "{adaptive}");
        assert!((uring - (many + 150.0 * 5.0 / 100.0)).abs() < 0.01, "{uring}");
        let (adaptive, same) = pipe(Load::Changing);
        assert!((adaptive - (1.5 + 89.0 + 124.0)).abs() < 0.01, "{adaptive}");
        assert_eq!(same, uring);
        let (adaptive, uring) = pipe(Load::All);
        assert!((adaptive - (0.375 + 95.0)).abs() < 0.01, "{adaptive}");
        assert!((uring - (many + 150.0 / 20.0)).abs() < 0.01, "{uring}");
        let (adaptive, uring) = pipe(Load::Brief);
        assert!((adaptive - (214.5 + 1_570.0 / 4.0)).abs() < 0.01, "{adaptive}");
        assert!((uring - (same + 780.0 / 4.0)).abs() < 0.01, "{uring}");
        assert_eq!(comparison.estimates.len(), 3 * Load::ALL.len());
        // The expensive kinds cost more with either.
        for load in Load::ALL {
            let [pipe, unix, tcp] = Kind::MEASURED.map(|kind| at(&comparison, kind, load).adaptive);
            assert!(pipe < unix && unix < tcp, "{load:?}");
        }
    }

    fn with(ratios: &[f32]) -> Comparison {
        let one = |&ratio: &f32| Estimate {
            kind: Kind::Pipe,
            load: Load::One,
            adaptive: 200.0,
            uring: 200.0 * ratio,
        };
        Comparison { estimates: ratios.iter().map(one).collect() }
    }

    #[test]
    fn it_must_pay_over_all_and_hurt_nowhere() {
        let cases: [(&[f32], bool); 9] = [
            (&[0.5, 0.5], true),
            (&[1.0, 1.0], false),
            (&[0.96, 0.96], false),
            (&[0.94, 0.94], true),
            // Twice the cost and half the cost are a tie.
            (&[2.0, 0.5], false),
            (&[0.3, 0.3, 1.09], true),
            (&[0.3, 0.3, 1.11], false),
            (&[0.3, f32::INFINITY], false),
            (&[], false),
        ];
        for (ratios, pays) in cases {
            assert_eq!(with(ratios).uring_pays(), pays, "{ratios:?}");
        }
        assert!((with(&[2.0, 0.5]).mean() - 1.0).abs() < 1e-6);
        assert_eq!(with(&[0.25, 1.25, 0.75]).worst().unwrap().uring, 250.0);
        // Costs that are no numbers choose nothing new.
        assert!(!with(&[f32::NAN, 0.5]).uring_pays());
    }

    #[test]
    fn cheap_rings_are_chosen_and_expensive_ones_are_not() {
        let pays = |ring| Comparison::of(&Costs::ASSUMED, &ring).uring_pays();
        assert!(!pays(ring(150.0, 40.0)), "busy pipes are cheaper in an array");
        assert!(!pays(ring(2_000.0, 400.0)));
        let mut costs = Costs::ASSUMED;
        for of in [&mut costs.pipe, &mut costs.unix, &mut costs.tcp] {
            (of.event, of.wake, of.parked_wake, of.scan) = (400.0, 400.0, 300.0, 100.0);
        }
        (costs.cold_wait, costs.poll_call) = (400.0, 200.0);
        assert!(Comparison::of(&costs, &ring(100.0, 40.0)).uring_pays());
    }
}
