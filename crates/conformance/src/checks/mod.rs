//! One check for each clause of the contract and each trap that other pollers have fallen into.
//!
//! A check is a function that builds a small situation, drives a poller through it and compares the
//! outcome with the expectation. It knows nothing of the back-end but its capabilities. No check is
//! decided by the time that something takes: where time matters, the assertion is one that holds on
//! the slowest machine (a wait that ends before its timeout is wrong, one that ends after it is
//! not), or a counter of system calls.

mod changes;
mod delivery;
mod fairness;
mod lasting;
mod lifetime;
mod nesting;
mod placement;
mod refusals;
mod time;
mod trouble;
mod waking;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bench::{Bench, Capabilities};
use crate::rig::{Batch, Rig};
use superpoll::{Key, Readiness};

/// The problem that a check found.
#[derive(Debug)]
pub struct Problem(pub String);

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Problem {
        Problem(format!("unexpected error: {error}"))
    }
}

/// The outcome of a check.
pub type Outcome = Result<(), Problem>;

/// A named check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name, which is that of its test.
    pub name: &'static str,
    /// Whether it concerns a back-end with these capabilities.
    pub applies: fn(&Capabilities) -> bool,
    /// Runs it.
    pub run: fn(&Bench) -> Outcome,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the check of this name.
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}

/// Ends a check with a problem unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::checks::Problem(format!($($message)+)));
        }
    };
}
use ensure;

static NUMBERS: Mutex<()> = Mutex::new(());

/// Locks out other checks that close a descriptor number and use it again: one at a time in a
/// process, because the descriptor of another check might come under the number in between.
fn numbers() -> MutexGuard<'static, ()> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

const ZERO: Option<Duration> = Some(Duration::ZERO);

/// Returns the events that are ready now, in the order of keys.
fn now(rig: &mut Rig) -> Result<Batch, Problem> {
    let mut batch = rig.wait(64, ZERO)?;
    batch.sort_by_key(|event| event.0);
    Ok(batch)
}

/// Expects exactly these events now.
fn expect(rig: &mut Rig, expected: &[(Key, Readiness)], when: &str) -> Outcome {
    let mut expected = expected.to_vec();
    expected.sort_by_key(|event| event.0);
    let found = now(rig)?;
    ensure!(found == expected, "{when}: expected {expected:?}, got {found:?}");
    Ok(())
}

const fn always(_: &Capabilities) -> bool {
    true
}

macro_rules! checks {
    ($($module:ident { $($name:ident if $applies:expr;)+ })+) => {
        /// All checks.
        pub const CHECKS: &[Check] = &[$($(
            Check { name: stringify!($name), applies: $applies, run: $module::$name },
        )+)+];

        /// Passes the names of all checks to a macro, to make a test of each.
        #[macro_export]
        macro_rules! each_check {
            ($callback:ident) => { $callback! { $($($name)+)+ } };
        }
    };
}

checks! {
    delivery {
        level_is_reported_until_read if always;
        level_reports_directions_asked_for if always;
        edge_is_reported_once_for_each_arrival if |caps| caps.edge;
        edge_counts_an_arrival_while_still_readable if |caps| caps.edge;
        edge_reports_existing_readiness_when_added if |caps| caps.edge;
        edge_reports_existing_readiness_when_modified if |caps| caps.edge;
        one_shot_is_reported_once_until_modified if always;
        one_shot_may_be_modified_before_it_fires if always;
        exclusive_is_level if |caps| caps.exclusive;
        auto_reports_every_arrival if always;
        modes_can_be_changed if always;
        a_wait_replaces_the_events if always;
        regular_files_are_always_ready if always;
        regular_files_obey_their_mode if always;
        devices_that_cannot_be_waited_for_are_as_files if always;
        marked_readiness_is_delivered if always;
    }
    trouble {
        hang_up_is_reported_to_the_armed if always;
        hang_up_after_one_shot_does_not_spin if always;
        hang_up_of_the_disarmed_does_not_spin if always;
        hang_up_alone_reaches_an_idle_descriptor if always;
        error_rings_while_armed_and_only_then if always;
        read_closed_is_reported_if_asked_for if always;
        read_closed_needs_no_readable if |caps| caps.read_closed_alone;
        priority_needs_no_readable if |caps| caps.read_closed_alone;
    }
    lasting {
        a_lasting_error_costs_nothing if always;
        a_lasting_hang_up_costs_nothing if always;
        a_lasting_error_leaves_the_other_modes_alone if always;
        a_registration_with_a_lasting_error_ends_like_any_other if always;
    }
    refusals {
        zero_limit_is_refused if always;
        negative_descriptor_is_refused if always;
        closed_descriptor_is_refused if always;
        closed_before_the_wait_is_refused_there if always;
        closing_a_watched_descriptor_harms_no_other if always;
        duplicate_registration_is_refused if always;
        stale_key_is_refused if always;
        absent_key_removes_nothing if always;
        large_descriptor_is_refused_by_name if always;
        unsupported_modes_are_refused_by_name if always;
        exclusive_with_read_closed_is_refused if always;
        a_refused_change_changes_nothing if |caps| !caps.edge;
    }
    lifetime {
        no_event_after_deregister if always;
        no_event_after_deregister_within_a_batch if always;
        no_event_after_drop if always;
        a_reused_number_is_a_stranger if always;
        a_reused_number_after_drop_is_a_stranger if always;
        a_removal_is_not_overtaken if always;
        disowned_descriptor_stays_open if always;
        a_duplicate_keeps_no_registration_alive if always;
        an_idle_duplicate_is_forgotten_when_it_fires if always;
        two_duplicates_are_two_registrations if always;
        owner_dropped_on_another_thread if always;
        keys_do_not_repeat if always;
    }
    changes {
        a_change_undone_costs_nothing if always;
        an_unchanged_interest_costs_nothing if always;
        remove_and_add_is_one_change if |caps| caps.registers_with_epoll;
        register_and_deregister_costs_nothing if always;
        drop_costs_no_call if |caps| caps.registers_with_epoll;
        many_changes_are_one if |caps| caps.registers_with_epoll;
        disabling_is_lazy if |caps| caps.registers_with_epoll;
        a_lazily_disabled_direction_is_not_delivered if always;
        exclusive_is_replaced_not_modified if |caps| caps.exclusive;
        changes_cause_no_wake_up_traffic if always;
    }
    time {
        a_timeout_is_never_early if always;
        // With a keeper a wait ends now and then to find descriptors that may leave, and goes
        // on.
        short_timeouts_are_not_rounded_up if |caps| !caps.is_kept;
        zero_timeout_does_not_block if always;
        an_interruption_is_retried_with_the_deadline_kept if always;
        an_event_ends_a_wait_without_timeout if always;
        unwanted_events_do_not_end_a_wait if always;
    }
    waking {
        a_wake_before_a_wait_counts if always;
        a_wake_ends_a_wait if always;
        wakes_are_coalesced if always;
        wakes_of_the_awake_cost_nothing if always;
        wakes_from_many_threads_are_not_lost if always;
        a_wake_comes_with_events if always;
        a_wake_does_not_repeat if always;
        registrar_registers_while_the_poller_sleeps if always;
        registrar_works_from_many_threads if always;
        registrar_refusals_reach_the_wait if always;
        registrar_keys_and_own_keys_differ if always;
    }
    fairness {
        each_is_reported_within_its_share_of_waits if always;
        shares_hold_in_any_run_of_waits if always;
        fairness_covers_hot_cold_and_files if always;
        shares_hold_with_hot_cold_and_files if always;
        edges_survive_the_limit if |caps| caps.edge;
        one_shots_survive_the_limit if always;
        the_limit_is_kept if always;
        limits_may_change_between_waits if always;
    }
    nesting {
        nested_poller_is_readable_when_ready if |caps| caps.nest;
        nested_poller_shows_later_registrations if |caps| caps.nest;
        nested_poller_shows_wakes if |caps| caps.nest;
        nested_poller_shows_marked_readiness if |caps| caps.nest;
        nested_poller_shows_files if |caps| caps.nest;
        nested_poller_shows_a_drop_and_a_rebuild if |caps| caps.nest;
        nested_poller_shows_a_one_shot_that_was_passed_over if |caps| caps.nest;
        nesting_is_refused_without_epoll if |caps| !caps.nest;
    }
    placement {
        hints_lose_no_event if always;
        moves_lose_no_edge if always;
        moves_repeat_no_one_shot if always;
        steady_state_is_one_call_per_wait if |caps| !caps.moves_at_random;
        a_quiet_loop_waits_in_epoll_only if always;
        memory_per_descriptor_is_small if always;
        emptied_interest_is_rearmed if always;
        a_changed_mode_moves_the_descriptor if always;
    }
}
