//! A report as a document for programs.

use serde_json::{Value, json};
use superpoll::diagnostics::Costs;
use superpoll_watch::{Kind, Method, ProcessReport, Report, SetReport, bucket_bounds, findings};

/// The version of the document.
const SCHEMA: u32 = 1;

/// Returns the document of a report.
pub(super) fn of(report: &Report, costs: &Costs) -> Value {
    let found = findings(report, costs);
    let findings: Vec<Value> = found
        .iter()
        .map(|finding| {
            json!({
                "process": finding.process,
                "waste": finding.waste.name(),
                "saves_processors": finding.saves,
                "text": finding.text,
                "remedy": finding.remedy,
            })
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "seconds": report.seconds,
        "method": match report.method {
            Method::Bpf => "bpf",
            Method::Preload => "preload",
            Method::Ptrace => "ptrace",
        },
        "overhead_ns": report.overhead_ns,
        "loaded_processes": (report.method == Method::Preload).then_some(report.loaded),
        "uncounted_calls": report.overflow,
        "unfollowed_processes": report.unfollowed,
        "forgotten_processes": report.forgotten,
        "uncounted_32_bit_calls": report.compat_calls,
        "costs_measured": costs.measured,
        "nothing_to_gain": findings.is_empty() && report.has_waits(),
        "findings": findings,
        "processes": report.processes.iter().map(process).collect::<Vec<Value>>(),
    })
}

fn process(report: &ProcessReport) -> Value {
    let calls = &report.calls;
    json!({
        "process": report.process,
        "name": report.name,
        "processors": report.processor,
        "reads": calls.reads(),
        "empty_reads": calls.empty_reads(),
        "accepts": calls.accepts(),
        "empty_accepts": calls.empty_accepts(),
        "sets": report.sets.iter().map(set).collect::<Vec<Value>>(),
    })
}

fn set(set: &SetReport) -> Value {
    let (key, counts) = (set.key, &set.counts);
    let kind = match key.kind {
        Kind::Process => "process",
        Kind::Epoll => "epoll",
        Kind::Poll => "poll",
        Kind::Select => "select",
        Kind::Ring | Kind::RegisteredRing => "io_uring",
    };
    let registration = (key.kind == Kind::RegisteredRing).then(|| key.registration());
    let is_array = matches!(key.kind, Kind::Poll | Kind::Select);
    let (least, most) = key.lengths();
    let histogram: Vec<Value> = counts
        .histogram()
        .iter()
        .enumerate()
        .filter(|(_, waits)| **waits > 0)
        .map(|(bucket, waits)| {
            let (least, most) = bucket_bounds(bucket);
            json!([least, most, waits])
        })
        .collect();
    json!({
        "kind": kind,
        "descriptor": (!is_array && registration.is_none()).then_some(key.id),
        "registered_by_thread": registration.map(|(thread, _)| thread),
        "registered_as": registration.map(|(_, number)| number),
        "lengths": is_array.then_some([least, most]),
        "registered_at_first": set.registered.as_ref().map(|registered| &registered.kinds),
        "registered": set.present(),
        "registered_by_counting": set.watched,
        "active_per_second": set.active,
        "ratio": set.active_ratio(),
        "ratio_of_a_wait": set.ratio(),
        "waits": counts.waits(),
        "events": counts.events(),
        "events_per_wait": {
            "mean": set.events_per_wait(),
            "p50": counts.events_at(0.5),
            "p99": counts.events_at(0.99),
            "histogram": histogram,
        },
        "empty": counts.empty(),
        "failed": counts.failed(),
        "looks": counts.looks(),
        "empty_looks": counts.empty_looks(),
        "timed_out": counts.timed_out(),
        "short_timeouts": counts.short_timeouts(),
        "late": counts.late(),
        "lateness_ns": counts.lateness_ns(),
        "full": counts.full(),
        "cut": counts.cut(),
        "room": counts.room(),
        "sleeps": counts.sleeps(),
        "asleep_ns": counts.asleep_ns(),
        "added": counts.added(),
        "changed": counts.changed(),
        "removed": counts.removed(),
        "refused": counts.refused(),
        "watched": counts.watched(),
    })
}
