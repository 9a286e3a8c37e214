//! The processor time that another way to wait would save, from the costs of watching here.
//!
//! Each finding has a threshold at which it is worth a look, and an estimate of what it would save,
//! as a share of one processor. A finding counts only if it would save a tenth of a percent of a
//! processor, and a two-hundredth of the processor time of its process. Most programs have none:
//! there is nothing to gain.
//!
//! The estimates are of the kernel's work alone, as `superpoll doctor` measures it. A wake that was
//! for nothing costs at least [`WAKE_NS`] more than its call: the thread is scheduled twice.

use superpoll::diagnostics::{Costs, KindCosts};

use crate::counters::{Counts, Kind};
use crate::process::Registered;
use crate::report::{ProcessReport, Report, SetReport};

/// What it costs at least to send a thread to sleep and to wake it, in nanoseconds. It is more on
/// most machines, and not among the costs that are measured.
const WAKE_NS: f64 = 1_500.0;

/// The least share of a processor that is worth a change.
const LEAST: f64 = 0.001;

/// The least share of the process's own processor time that is worth a change.
const LEAST_OF_PROCESS: f64 = 0.005;

/// Wakes for nothing, a second, that count however little they cost: they keep a processor from
/// sleeping deeply.
const RESTLESS: f64 = 100.0;

/// A kind of waste.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Waste {
    /// `poll` or `select` looks at many descriptors, and few are active.
    Scan,
    /// An epoll set most of whose descriptors are active: `poll` would be cheaper.
    BusySet,
    /// There are many `epoll_ctl` calls for each event.
    Changes,
    /// Many waits return nothing, as they do not wait or have a timeout of a few milliseconds.
    EmptyWaits,
    /// Waits return fewer events than there are, for shortage of room.
    Room,
    /// Reads find nothing.
    EmptyReads,
    /// Several threads or processes wake for one connection.
    Herd,
    /// A busy program gets one event per wait.
    Trickle,
}

impl Waste {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Waste::Scan => "scan",
            Waste::BusySet => "busy-set",
            Waste::Changes => "changes",
            Waste::EmptyWaits => "empty-waits",
            Waste::Room => "room",
            Waste::EmptyReads => "empty-reads",
            Waste::Herd => "herd",
            Waste::Trickle => "trickle",
        }
    }
}

/// Something that another way to wait would save.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The process.
    pub process: u32,
    /// The kind of waste.
    pub waste: Waste,
    /// The share of one processor that a change would save, at least.
    pub saves: f64,
    /// The finding in a sentence, with its figures.
    pub text: String,
    /// The remedy in a sentence.
    pub remedy: &'static str,
}

/// The time in which rates are taken.
struct Rates<'a> {
    seconds: f64,
    costs: &'a Costs,
}

/// Returns the changes that would save processor time, the largest saving first; none if there is
/// nothing to gain.
pub fn findings(report: &Report, costs: &Costs) -> Vec<Finding> {
    let rates = Rates { seconds: report.seconds.max(1e-3), costs };
    let mut found = Vec::new();
    for process in &report.processes {
        let mut of_process: Vec<Finding> = Vec::new();
        for set in &process.sets {
            of_process.extend(rates.scan(process, set));
            of_process.extend(rates.busy_set(process, set));
            of_process.extend(rates.changes(process, set));
            of_process.extend(rates.empty_waits(process, set));
            of_process.extend(rates.room(process, set));
            of_process.extend(rates.trickle(process, set));
        }
        of_process.extend(rates.empty_reads(process));
        let least = (process.processor * LEAST_OF_PROCESS).max(LEAST);
        let is_restless = process.sets.iter().map(|set| set.counts.short_timeouts()).sum::<u64>()
            as f64
            >= RESTLESS * rates.seconds;
        found.extend(of_process.into_iter().filter(|finding| {
            finding.saves >= least || finding.waste == Waste::EmptyWaits && is_restless
        }));
    }
    found.extend(rates.herd(report));
    found.sort_by(|one, other| other.saves.total_cmp(&one.saves));
    found
}

/// Formats a share of a processor.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// Returns the part of a whole; 0 for nothing of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Rates<'_> {
    /// Returns nanoseconds, spent so many times, as a share of a processor.
    fn processor(&self, times: f64, nanoseconds: f64) -> f64 {
        times * nanoseconds / self.seconds / 1e9
    }

    fn costs(&self, set: &SetReport) -> &KindCosts {
        let kind = set.registered.as_ref().map(Registered::cost_kind).unwrap_or_default();
        self.costs.of(kind)
    }

    fn scan(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        if !matches!(set.key.kind, Kind::Poll | Kind::Select) || set.counts.waits() == 0 {
            return None;
        }
        let costs = self.costs(set);
        let (events, waits) = (set.events_per_wait(), set.counts.waits() as f64);
        let sleeps = share(set.counts.sleeps(), set.counts.waits()) as f32;
        let slot = costs.scan + costs.block * sleeps;
        let now = set.present() * f64::from(slot) + f64::from(self.costs.poll_call);
        let epoll = events * f64::from(costs.event) + f64::from(self.costs.cold_wait);
        let name = if set.key.kind == Kind::Poll { "poll" } else { "select" };
        (now > 1.5 * epoll && set.present() >= 8.0).then(|| Finding {
            process: process.process,
            waste: Waste::Scan,
            saves: self.processor(waits, now - epoll),
            text: format!(
                "{name} looks at {:.0} descriptors for {events:.1} events: {:.1} us a wait; epoll \
                 would need {:.1} us",
                set.present(),
                now / 1e3,
                epoll / 1e3,
            ),
            remedy: "watch the idle descriptors with epoll, or all of them with superpoll, whose \
                     poll array has the busy ones alone",
        })
    }

    fn busy_set(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        let is_set = set.key.kind == Kind::Epoll && set.present() >= 2.0;
        let costs = self.costs(set);
        let even = f64::from(
            self.costs
                .break_even(set.registered.as_ref().map(Registered::cost_kind).unwrap_or_default())
                .own,
        );
        let ratio = set.ratio();
        if !is_set || ratio <= even || ratio > 1.0 {
            return None;
        }
        let events = set.events_per_wait();
        let now = events * f64::from(costs.event) + f64::from(self.costs.cold_wait);
        let poll = set.present() * f64::from(costs.scan)
            + events * f64::from(costs.ready)
            + f64::from(self.costs.poll_call);
        // Sleeping costs poll more than epoll.
        let sleeps = share(set.counts.sleeps(), set.counts.waits());
        let poll = poll + set.present() * f64::from(costs.block) * sleeps;
        (now > poll).then(|| Finding {
            process: process.process,
            waste: Waste::BusySet,
            saves: self.processor(set.counts.waits() as f64, now - poll),
            text: format!(
                "{events:.1} of {:.0} descriptors of epoll set {} are active in each wait, ratio \
                 {ratio:.2}: above the break-even of {even:.2}, from which poll is cheaper",
                set.present(),
                set.key.id,
            ),
            remedy: "watch the busy descriptors with poll, or all of them with superpoll, which \
                     moves them",
        })
    }

    fn changes(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        if set.key.kind != Kind::Epoll {
            return None;
        }
        let counts = &set.counts;
        let per_event = share(counts.changed(), counts.events());
        let costs = self.costs(set);
        (per_event > 0.5).then(|| Finding {
            process: process.process,
            waste: Waste::Changes,
            saves: self.processor(counts.changed() as f64, f64::from(costs.modify)),
            text: format!(
                "epoll set {} is changed {per_event:.2} times for each event (EPOLL_CTL_MOD), at \
                 {:.0} ns",
                set.key.id, costs.modify,
            ),
            remedy: "register once, level-triggered or edge-triggered, instead of one-shot with a \
                     change after each event",
        })
    }

    fn empty_waits(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        let counts = &set.counts;
        let (short, looks) = (counts.short_timeouts(), counts.empty_looks());
        let wasted = share(short + looks, counts.waits());
        let call = match set.key.kind {
            Kind::Epoll | Kind::Ring | Kind::RegisteredRing => f64::from(self.costs.cold_wait),
            _ => f64::from(self.costs.poll_call) + set.present() * f64::from(self.costs(set).scan),
        };
        // A short sleep wakes for nothing; a look costs its call alone.
        let saves =
            self.processor(short as f64, call + WAKE_NS) + self.processor(looks as f64, call);
        (wasted > 0.25).then(|| Finding {
            process: process.process,
            waste: Waste::EmptyWaits,
            saves,
            text: format!(
                "{} of {} waits find nothing: {:.0} a second end by a timeout below 10 ms, {:.0} \
                 do not wait at all",
                short + looks,
                counts.waits(),
                short as f64 / self.seconds,
                looks as f64 / self.seconds,
            ),
            remedy: "wait until the next timer is due, or indefinitely, and be woken by an eventfd",
        })
    }

    fn room(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        let counts = &set.counts;
        let cut = share(counts.cut(), counts.waits());
        // With more room, one wait in two or more would not be needed.
        (cut > 0.25).then(|| Finding {
            process: process.process,
            waste: Waste::Room,
            saves: self.processor(counts.cut() as f64, f64::from(self.costs.cold_wait)),
            text: format!(
                "{} of {} waits return the {} events that there is room for, with more to come",
                counts.cut(),
                counts.waits(),
                counts.room(),
            ),
            remedy: "give epoll_wait room for more events (maxevents), such as 256",
        })
    }

    fn trickle(&self, process: &ProcessReport, set: &SetReport) -> Option<Finding> {
        let counts = &set.counts;
        let events = set.events_per_wait();
        let waits = counts.waits() as f64 / self.seconds;
        // Whether more events would gather while it waits a little: it sleeps seldom as it is.
        let is_busy = process.processor > 0.7 && waits > 20_000.0;
        let has_room = counts.room() > 1 && share(counts.cut(), counts.waits()) <= 0.25;
        let sleeps = share(counts.sleeps(), counts.waits());
        let is_trickle = set.key.kind == Kind::Epoll && set.present() >= 8.0 && events > 0.5;
        (is_trickle && events < 1.5 && is_busy && has_room && sleeps > 0.25).then(|| Finding {
            process: process.process,
            waste: Waste::Trickle,
            saves: self.processor(
                counts.waits() as f64 * sleeps / 2.0,
                f64::from(self.costs.cold_wait) + WAKE_NS,
            ),
            text: format!(
                "{waits:.0} waits a second return {events:.2} events each, and {} of a processor is \
                 used",
                percent(process.processor),
            ),
            remedy: "let events gather for some 50 us before a wait, if that latency is acceptable",
        })
    }

    fn empty_reads(&self, process: &ProcessReport) -> Option<Finding> {
        let events: u64 = process.sets.iter().map(|set| set.counts.events()).sum();
        let per_event = share(process.calls.empty_reads(), events);
        // A read that finds nothing costs about as much as a wait that finds nothing.
        let call = f64::from(self.costs.cold_wait);
        (per_event > 0.3).then(|| Finding {
            process: process.process,
            waste: Waste::EmptyReads,
            saves: self.processor(process.calls.empty_reads() as f64, call),
            text: format!(
                "{per_event:.2} reads for each event find nothing (EAGAIN), at {call:.0} ns or more"
            ),
            remedy: "after a read that returned less than the buffer holds, wait instead of reading \
                     again (with EPOLLRDHUP where edge-triggered)",
        })
    }

    /// Judges all processes together, as a herd may be of processes.
    fn herd(&self, report: &Report) -> Option<Finding> {
        let mut calls = Counts::default();
        report.processes.iter().for_each(|process| calls.add(&process.calls));
        let (found, empty) = (calls.accepts(), calls.empty_accepts());
        let first = report.processes.iter().max_by_key(|process| process.calls.empty_accepts())?;
        let threads = (found + empty) as f64 / found.max(1) as f64;
        let finding = Finding {
            process: first.process,
            waste: Waste::Herd,
            saves: self.processor(empty as f64, f64::from(self.costs.cold_wait) + WAKE_NS),
            text: format!(
                "{empty} of {} accepts find no connection: at least {threads:.1} threads or \
                 processes wake for each",
                found + empty,
            ),
            remedy: "register the listening socket with EPOLLEXCLUSIVE, or give each thread a socket \
                     of its own (SO_REUSEPORT)",
        };
        // One that accepts until there is none has an empty accept after each that found one. In a
        // herd each thread that was woken tries once. The kernel sends most of a herd to sleep
        // again before they return, so a few empty ones stand for many wakes.
        let sets = report.processes.iter().flat_map(|process| &process.sets);
        let sets = sets.filter(|set| set.key.kind == Kind::Epoll && set.counts.events() > 0);
        let (waiting, events) =
            sets.fold((0, 0), |(sets, events), set| (sets + 1, events + set.counts.events()));
        let tries_once = waiting > 1 && 10 * empty > found && 10 * (found + empty) <= 11 * events;
        let is_frequent = empty as f64 >= RESTLESS * self.seconds;
        let counts = finding.saves >= LEAST || is_frequent;
        ((tries_once || empty > 2 * found) && counts).then_some(finding)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::counters::Key;

    /// A process of one set over a second, with a tenth of a processor.
    fn report(kind: Kind, watched: f64, words: &[(usize, u64)]) -> Report {
        let registered = Registered { kinds: BTreeMap::from([("tcp".to_owned(), watched as u64)]) };
        let set = SetReport {
            key: Key { process: 7, kind, id: 5 },
            counts: Counts::of_words(words),
            registered: (kind == Kind::Epoll).then_some(registered),
            watched,
            registered_at_end: None,
            active: 0.0,
        };
        let process = ProcessReport {
            process: 7,
            name: "program".to_owned(),
            processor: 0.1,
            calls: Counts::default(),
            sets: vec![set],
        };
        Report {
            seconds: 1.0,
            processes: vec![process],
            overflow: 0,
            unfollowed: 0,
            slots: 1024,
            forgotten: 0,
            compat_calls: 0,
            overhead_ns: 0,
            method: crate::Method::Bpf,
            loaded: 0,
        }
    }

    fn wastes(report: &Report) -> Vec<Waste> {
        findings(report, &Costs::ASSUMED).into_iter().map(|finding| finding.waste).collect()
    }

    /// The word of waits that have returned three events.
    const THREE: usize = crate::counters::HISTOGRAM + 3;

    #[test]
    fn a_scan_of_many_is_named_with_its_saving() {
        let report = report(Kind::Poll, 2000.0, &[(THREE, 1000)]);
        let found = findings(&report, &Costs::ASSUMED);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].waste, found[0].process), (Waste::Scan, 7));
        // 2,000 slots of 28 ns and the call, less three events of 89 ns and an epoll_wait.
        let expected: f64 = 1000.0 * (2000.0 * 28.0 + 234.0 - 3.0 * 89.0 - 150.0) / 1e9;
        assert!((found[0].saves - expected).abs() < 1e-9, "{found:?}");
        assert!(
            found[0].text.starts_with("poll looks at 2000 descriptors for 3.0 events: 56.2 us")
        );
    }

    #[test]
    fn a_few_waits_of_a_second_are_not_worth_a_change() {
        assert_eq!(wastes(&report(Kind::Poll, 2000.0, &[(THREE, 10)])), []);
        assert_eq!(wastes(&report(Kind::Poll, 4.0, &[(THREE, 10_000)])), []);
        assert_eq!(wastes(&report(Kind::Epoll, 300.0, &[(THREE, 10_000)])), []);
    }

    #[test]
    fn a_busy_set_is_named_above_the_break_even() {
        // 74 ns for a slot of tcp, and 143 ns more for an event than for a ready slot.
        assert_eq!(wastes(&report(Kind::Epoll, 4.0, &[(THREE, 100_000)])), [Waste::BusySet]);
        assert_eq!(wastes(&report(Kind::Epoll, 8.0, &[(THREE, 100_000)])), []);
    }

    #[test]
    fn wakes_for_nothing_are_named_though_they_cost_little() {
        use crate::counters::{HISTOGRAM, Word};
        let mut words = vec![(HISTOGRAM, 120), (Word::TimedOut as usize, 120)];
        assert_eq!(wastes(&report(Kind::Epoll, 4.0, &words)), []);
        words.push((Word::ShortTimeouts as usize, 120));
        assert_eq!(wastes(&report(Kind::Epoll, 4.0, &words)), [Waste::EmptyWaits]);
        words[2].1 = 90;
        assert_eq!(wastes(&report(Kind::Epoll, 4.0, &words)), []);
    }
}
