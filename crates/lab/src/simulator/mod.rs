//! Placement without a kernel: replays activity against a policy and adds up what it would cost.
//!
//! A [`Load`] says which descriptors are active in each round. A [`Machine`] does with a
//! [`Policy`](superpoll::backend::policy::Policy) what the adaptive back-end does, call for call, and
//! charges each step what [`Costs`](superpoll::diagnostics::Costs) says it costs, the writer's share
//! included. Beside it run the yardsticks: pure `poll`, pure `epoll` level- and edge-triggered, and
//! the best schedule in hindsight. Nothing is measured and nothing is random but by seed, so the
//! same load gives the same number everywhere, and [`worst_load`] can search for the load that
//! a policy likes least.
//!
//! What is left out: caches, preemption, and the policy's own arithmetic. A run on real descriptors
//! decides; the simulator says where to look.

mod adversary;
mod load;
mod machine;
mod run;
mod search;
mod yardstick;

pub use crate::random::Random;
pub use adversary::{Adversary, Tactic};
pub use load::{Group, Load, Pattern, Rounds};
pub use machine::{Machine, Spent};
pub use run::{Outcome, Setting, play, play_adversary};
pub use search::{Search, Worst, worst_load};
pub use yardstick::{Hindsight, Pure};

#[cfg(test)]
mod tests;
