//! Counters, the costs of watching on this machine, and the reasons for the choice of a back-end:
//! for programs that measure a poller or report on it.

pub use crate::backend::choice::{Choice, Reason};
pub use crate::costs::{
    BreakEven, Comparison, Costs, Estimate, Kind, KindCosts, Load, MARGIN, RingCosts,
    RingKindCosts, WORST,
};
pub use crate::stats::{Calls, SetStats, Stats};
pub use crate::sys::returns::uses_return_stack_refill;
pub use crate::sys::set_timer_slack;
