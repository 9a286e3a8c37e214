//! The cost of watching on this machine, in nanoseconds.
//!
//! The numbers differ by kernel, processor, mitigation and kind of descriptor by more than the
//! margins that placement works with, so none is built in: they are measured once per process
//! (see [`Costs::calibrated`]) and corrected while running. The defaults here stand in only where
//! measuring failed.

use std::fmt;
use std::sync::OnceLock;

pub(crate) mod calibrate;
mod comparison;
mod ring;

pub use comparison::{Comparison, Estimate, Load, MARGIN, WORST};
pub use ring::{RingCosts, RingKindCosts};

pub use crate::sys::descriptor::Kind;

/// The costs of one descriptor of a kind, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct KindCosts {
    /// One slot in a `poll` pass that does not block.
    pub scan: f32,
    /// By how much a slot that is ready costs more than one that is not.
    pub ready: f32,
    /// One slot in a `poll` that blocks, above `scan`: joining and leaving a wait queue.
    pub block: f32,
    /// One event through `epoll_wait`, edge-triggered.
    pub event: f32,
    /// By how much a level-triggered event costs more, if the descriptor is ready again in the
    /// next wait.
    pub level: f32,
    /// The second look, in the next wait, at a level-triggered descriptor that was reported and
    /// is not ready any more.
    pub recheck: f32,
    /// The writer's cost to wake a descriptor that epoll watches.
    pub wake: f32,
    /// The same if the descriptor is on epoll's ready list already, as a level-triggered one is
    /// that was reported in the last wait.
    pub queued_wake: f32,
    /// The writer's remaining cost if epoll knows the descriptor but is not interested.
    pub parked_wake: f32,
    /// `EPOLL_CTL_ADD`.
    pub add: f32,
    /// `EPOLL_CTL_MOD`.
    pub modify: f32,
    /// `EPOLL_CTL_DEL`.
    pub delete: f32,
}

/// The costs of watching here, by kind of descriptor and per call.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Costs {
    /// Pipes.
    pub pipe: KindCosts,
    /// Unix-domain sockets.
    pub unix: KindCosts,
    /// TCP sockets.
    pub tcp: KindCosts,
    /// A `poll` call that watches nothing but the epoll set, beyond an `epoll_wait` that finds
    /// nothing: the price of having a poll array at all, per pass, its slots not counted.
    pub pass: f32,
    /// A `poll` call without slots.
    pub poll_call: f32,
    /// An `epoll_wait` that finds nothing: paid on top of a pass when epoll has events as well.
    pub cold_wait: f32,
    /// Whether the numbers were measured here.
    pub measured: bool,
}

impl Costs {
    /// Stand-ins for a machine where measuring failed (Linux 6.18, one virtual core).
    pub const ASSUMED: Costs = Costs {
        pipe: KindCosts {
            scan: 28.0,
            ready: 2.0,
            block: 90.0,
            event: 89.0,
            level: 7.0,
            recheck: 44.0,
            wake: 124.0,
            queued_wake: 62.0,
            parked_wake: 65.0,
            add: 840.0,
            modify: 310.0,
            delete: 730.0,
        },
        unix: KindCosts {
            scan: 58.0,
            ready: 11.0,
            block: 100.0,
            event: 135.0,
            level: 7.0,
            recheck: 82.0,
            wake: 165.0,
            queued_wake: 83.0,
            parked_wake: 118.0,
            add: 880.0,
            modify: 360.0,
            delete: 750.0,
        },
        tcp: KindCosts {
            scan: 74.0,
            ready: 15.0,
            block: 100.0,
            event: 158.0,
            level: 8.0,
            recheck: 91.0,
            wake: 230.0,
            queued_wake: 115.0,
            parked_wake: 160.0,
            add: 930.0,
            modify: 380.0,
            delete: 770.0,
        },
        pass: 225.0,
        poll_call: 234.0,
        cold_wait: 150.0,
        measured: false,
    };

    /// The costs of this machine: measured at the first call, in a few milliseconds, and the same
    /// for the rest of the process. Needs about forty descriptors for that time; if it cannot
    /// have them, or a measurement makes no sense, [`Costs::ASSUMED`] stands in for that kind.
    pub fn calibrated() -> &'static Costs {
        static COSTS: OnceLock<Costs> = OnceLock::new();
        COSTS.get_or_init(calibrate::measure)
    }

    /// The costs of a kind; those of a pipe, the cheapest to scan, for an unknown one.
    #[inline]
    pub fn of(&self, kind: Kind) -> &KindCosts {
        match kind {
            Kind::Unknown | Kind::Pipe => &self.pipe,
            Kind::Unix => &self.unix,
            Kind::Tcp => &self.tcp,
        }
    }
}

/// From which active/total ratio on a poll array is cheaper than epoll, for a large set of
/// descriptors of one kind whose ready ones are spread evenly. Infinite if it never is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BreakEven {
    /// Counting only the time of the loop itself.
    pub own: f32,
    /// Counting also the writers' cost to wake a descriptor that epoll watches.
    pub with_writers: f32,
}

impl Costs {
    /// Where a poll array and epoll cost the same.
    pub fn break_even(&self, kind: Kind) -> BreakEven {
        let costs = self.of(kind);
        let ratio = |event: f32| {
            let saved = event - costs.ready;
            if saved > 0.0 { costs.scan / saved } else { f32::INFINITY }
        };
        BreakEven { own: ratio(costs.event), with_writers: ratio(costs.event + costs.wake) }
    }
}

/// A table: one line per kind, then the prices of the calls.
impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ns      scan ready block event level recheck  wake queued parked   add modify delete  \
             break-even (with writers)"
        )?;
        for kind in Kind::MEASURED {
            let costs = self.of(kind);
            let even = self.break_even(kind);
            writeln!(
                f,
                "{:<6} {:>5.0} {:>5.0} {:>5.0} {:>5.0} {:>5.0} {:>7.0} {:>5.0} {:>6.0} {:>6.0} \
                 {:>5.0} {:>6.0} {:>6.0}  {:.2} ({:.2})",
                kind.name(),
                costs.scan,
                costs.ready,
                costs.block,
                costs.event,
                costs.level,
                costs.recheck,
                costs.wake,
                costs.queued_wake,
                costs.parked_wake,
                costs.add,
                costs.modify,
                costs.delete,
                even.own,
                even.with_writers,
            )?;
        }
        write!(
            f,
            "poll call {:.0}, epoll_wait {:.0}, price of an array {:.0} a pass{}",
            self.poll_call,
            self.cold_wait,
            self.pass,
            if self.measured { "" } else { " (assumed, not measured)" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_the_cost_of_a_scan_over_the_saving_of_an_event() {
        let even = Costs::ASSUMED.break_even(Kind::Pipe);
        assert_eq!(even.own, 28.0 / 87.0);
        assert_eq!(even.with_writers, 28.0 / 211.0);
        assert_eq!(Costs::ASSUMED.break_even(Kind::Unknown), even);
        let mut costs = Costs::ASSUMED;
        costs.tcp.event = costs.tcp.ready;
        assert_eq!(costs.break_even(Kind::Tcp).own, f32::INFINITY);
        assert!(costs.break_even(Kind::Tcp).with_writers.is_finite());
    }

    #[test]
    fn kinds_are_named_and_nothing_saved_is_never_even() {
        let names = [Kind::Unknown, Kind::Pipe, Kind::Unix, Kind::Tcp].map(Kind::name);
        assert_eq!(names, ["unknown", "pipe", "unix", "tcp"]);
        let mut costs = Costs::ASSUMED;
        (costs.unix.scan, costs.unix.event, costs.unix.ready) = (0.0, 11.0, 11.0);
        assert_eq!(costs.break_even(Kind::Unix).own, f32::INFINITY);
    }

    #[test]
    fn the_table_names_each_kind_and_marks_assumed_costs() {
        let table = Costs::ASSUMED.to_string();
        for word in ["pipe ", "unix ", "tcp ", "0.32 (0.13)", "assumed", "poll call 234"] {
            assert!(table.contains(word), "{word} in\n{table}");
        }
        assert!(!Costs { measured: true, ..Costs::ASSUMED }.to_string().contains("assumed"));
    }

    #[test]
    fn calibration_happens_once() {
        assert!(std::ptr::eq(Costs::calibrated(), Costs::calibrated()));
    }
}
