//! Servers that answer with errors are left out for a while (outlier ejection).
//!
//! A server is ejected when its last `errors` errors came `within` a time and were at least a
//! `share` of what it has answered since the first of them. An error is a response of 5xx, or a
//! request that has failed. So a busy server may have some errors among many good answers, and one
//! that fails each request is out at once. The memory is one pair of numbers for each counted
//! error; good answers only count up.
//!
//! An ejection takes a server from the others only as long as enough are left: at most a share of
//! the servers is ejected at once, and none if no other server is up. The decision is made under a
//! lock of the group, as two engines could each eject one of the last two servers. A server that is
//! ejected all the same for want of better ones is used, like any that is left out for a while.
//!
//! After the time for which it is ejected, a server begins with a clean record. If it is ejected
//! again before it was back for as long as an ejection takes, the next one takes longer: twice,
//! three times, up to ten times.
//!
//! Health checks do not end an ejection: a server that answers checks and fails requests is the one
//! that ejection is for.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use superpoll_config::Ejection;

use super::group::{Group, ServerList};
use super::server::GroupServer;
use crate::log::{Event, Level};

/// Whether a server may be ejected next to those that are ejected.
fn may_eject(list: &ServerList, server: &GroupServer, rule: &Ejection, now: u64) -> bool {
    let others = || list.iter().filter(|other| other.id != server.id);
    let ejected = others().filter(|other| other.ejected_until() > now).count();
    let most = list.len() * usize::from(rule.most.hundredths()) / 100;
    let is_another_up = others().any(|other| other.share(|| now).is_some());
    ejected < most.max(1) && is_another_up
}

impl Group {
    /// Counts the outcome of a request to a server, and ejects the server if it has too many
    /// errors.
    pub(super) fn rate(&self, server: &GroupServer, is_error: bool) {
        if let Some(rule) = &self.config().eject {
            self.rate_at(server, is_error, rule, || self.clock.now());
        }
    }

    /// Counts an error in the place of an answer that has counted already.
    pub(super) fn rate_again(&self, server: &GroupServer) {
        if let Some(rule) = &self.config().eject {
            self.rate_again_at(server, rule, self.clock.now());
        }
    }

    fn rate_again_at(&self, server: &GroupServer, rule: &Ejection, now: u64) {
        self.note_error(server, rule, now, server.outcomes.load(Ordering::Relaxed));
    }

    fn rate_at(
        &self,
        server: &GroupServer,
        is_error: bool,
        rule: &Ejection,
        now: impl FnOnce() -> u64,
    ) {
        let outcomes = server.outcomes.fetch_add(1, Ordering::Relaxed) + 1;
        if is_error {
            self.note_error(server, rule, now(), outcomes);
        }
    }

    /// Notes an error of a server, the last of so many outcomes.
    fn note_error(&self, server: &GroupServer, rule: &Ejection, now: u64, outcomes: u64) {
        let mut errors = server.errors.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers to requests that were sent before say nothing new.
        if server.ejected_until() > now || !errors.note(rule, now, outcomes) {
            return;
        }
        let one_by_one = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        if !may_eject(&self.members(), server, rule, now) {
            return;
        }
        let until = errors.eject(rule, now);
        server.ejected_until.store(until, Ordering::Relaxed);
        server.ejections.fetch_add(1, Ordering::Relaxed);
        drop((one_by_one, errors));
        self.report_ejection(server, rule, Duration::from_millis(until - now));
    }

    fn report_ejection(&self, server: &GroupServer, rule: &Ejection, pause: Duration) {
        let (upstream, address) = (self.name(), server.address.to_string());
        let (errors, pause) = (rule.errors, humantime::format_duration(pause).to_string());
        let within = humantime::format_duration(rule.within);
        let message = format!(
            "the server {address} of {upstream} is left out for {pause}: {errors} errors within {within}"
        );
        let event = Event::new(Level::Warning, "upstream-ejected", message);
        let event = event.with("upstream", upstream).with("server", address);
        (self.report)(&event.with("for", pause));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use superpoll_config::Percentage;

    use super::super::error_record::millis;
    use super::super::group::tests::group_of;
    use super::*;

    /// The rule once more, from the whole history of a server.
    #[derive(Default, Clone)]
    struct Model {
        /// The outcomes since the last ejection has begun: the time, and whether it was an error.
        outcomes: Vec<(u64, bool)>,
        until: u64,
        times: u64,
    }

    impl Model {
        fn is_due(&self, rule: &Ejection, now: u64) -> bool {
            let errors = rule.errors.get() as usize;
            let is_error = |(_, outcome): &(usize, &(u64, bool))| outcome.1;
            let at: Vec<_> = self.outcomes.iter().enumerate().filter(is_error).collect();
            let Some(first) = at.len().checked_sub(errors).map(|skip| at[skip].0) else {
                return false;
            };
            let since = self.outcomes.len() - first;
            let is_near = now - self.outcomes[first].0 <= millis(rule.within);
            is_near && errors * 100 >= since * usize::from(rule.share.hundredths())
        }
    }

    proptest! {
        #[test]
        fn servers_are_ejected_as_a_model_says_and_never_all(
            servers in 1..6_usize,
            errors in 1..5_u32,
            share in 1..=100_u8,
            most in 1..=100_u8,
            within in 1..200_u64,
            duration in 1..400_u64,
            steps in proptest::collection::vec((0..6_usize, 0..100_u8, 0..60_u64), 1..300),
            often in 20..100_u8,
        ) {
            let rule = Ejection {
                errors: NonZeroU32::new(errors).unwrap(),
                within: Duration::from_millis(within),
                share: Percentage::new(share).unwrap(),
                duration: Duration::from_millis(duration),
                most: Percentage::new(most).unwrap(),
            };
            let group = group_of(servers, "");
            let list = group.members();
            let mut models = vec![Model::default(); servers];
            let mut now = 1;
            for (index, dice, later) in steps {
                let (index, is_error) = (index % servers, dice < often);
                now += later;
                // Some errors are answers that break off after their heads.
                let is_cut = is_error && dice % 2 == 1;
                group.rate_at(&list[index], is_error && !is_cut, &rule, || now);
                if is_cut {
                    group.rate_again_at(&list[index], &rule, now);
                }
                // A server that is left out keeps no record, whatever it answers.
                let is_out = models[index].until > now;
                if !is_out || !is_error || is_cut {
                    models[index].outcomes.push((now, is_error && !is_out));
                }
                if is_error && !is_out && models[index].is_due(&rule, now) {
                    let out = models.iter().filter(|model| model.until > now).count();
                    let is_allowed = out < (servers * usize::from(most) / 100).max(1);
                    let is_last = out + 1 == servers;
                    let model = &mut models[index];
                    if is_allowed && !is_last {
                        let is_soon = model.until > 0 && now - model.until <= duration;
                        model.times = if is_soon { (model.times + 1).min(10) } else { 1 };
                        model.until = now + duration * model.times;
                        model.outcomes.clear();
                    }
                }
                for (server, model) in list.iter().zip(&models) {
                    prop_assert_eq!(server.ejected_until(), model.until);
                    let is_up = server.share(|| now).is_some();
                    prop_assert_eq!(is_up, model.until <= now);
                }
                prop_assert!(list.iter().any(|server| server.share(|| now).is_some()));
            }
        }
    }

    #[test]
    fn the_last_server_that_is_up_is_not_ejected() {
        let group = group_of(3, "health = { fall = 1 }");
        let list = group.members();
        let rule = Ejection { most: Percentage::WHOLE, ..Ejection::default() };
        group.checked(&list[0], Err("no".to_owned()));
        for _ in 0..20 {
            for server in list.iter() {
                group.rate_at(server, true, &rule, || 1);
            }
        }
        let ejected: Vec<_> = list.iter().map(|server| server.ejected_until() > 1).collect();
        // The first one is down by its check, so it could be ejected as well, and the third one is
        // left.
        assert_eq!(ejected, [true, true, false]);
        assert!(list[2].share(|| 1).is_some());
    }
}
