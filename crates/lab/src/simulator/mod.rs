//! Placement without a kernel: replays activity against a policy and adds up the cost it would
//! have.
//!
//! A [`Load`] says which descriptors are active in each round. A [`Machine`] does with a
//! [`Policy`](superpoll::backend::policy::Policy) what the adaptive back-end does, call for call,
//! and charges each step its cost from [`Costs`](superpoll::diagnostics::Costs), the writer's share
//! included. The yardsticks run on the same load: pure `poll`, pure `epoll` level- and
//! edge-triggered, a ring, and the best schedule in hindsight. Nothing is measured and nothing is
//! random but by seed, so the same load gives the same number everywhere, and [`worst_load`] can
//! search for the load that a policy likes least.
//!
//! The simulation omits caches, preemption, and the policy's own arithmetic. A run on real
//! descriptors decides; the simulator says where to look.

pub use machine::{Machine, Spent};
pub use run::{Outcome, Setting, play, play_adversary};

pub use crate::random::Random;
pub use crate::simulator::machine::{Group, Load, Pattern, Rounds};
pub use crate::simulator::run::{
    Adversary, Hindsight, Pure, Ring, Search, Tactic, Worst, worst_load,
};

mod machine;
mod run;
#[cfg(test)]
mod tests;
