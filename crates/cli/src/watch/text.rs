//! A report as text.

use std::fmt::{self, Write};

use superpoll::diagnostics::Costs;
use superpoll_watch::{
    Counts, Key, Kind, Method, ProcessReport, Report, SetReport, bucket_bounds, findings, percent,
};

use crate::printable::printable;
use crate::quantity::count;

/// Formats a report and its verdict.
pub(super) fn of(report: &Report, costs: &Costs) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, report, costs);
    text
}

fn write(out: &mut String, report: &Report, costs: &Costs) -> fmt::Result {
    let whose = match report.method {
        Method::Bpf => "while this watched, each other system call of any process took",
        Method::Preload => "by a preloaded library: each wait of the program took",
        Method::Ptrace => "by ptrace: each system call of the program took",
    };
    writeln!(out, "{:.1} s; {whose} {} ns longer", report.seconds, report.overhead_ns)?;
    for process in &report.processes {
        write_process(out, process, report.seconds)?;
    }
    if !report.has_waits() {
        writeln!(
            out,
            "\nno wait has ended. Processes that were started before are watched by their own number; \
             pgrep -P PROCESS lists those of another"
        )?;
    }
    if report.method == Method::Preload && report.loaded == 0 {
        writeln!(
            out,
            "\nnot counted: the program has not loaded the library (LD_PRELOAD); it may have a \
             capability of its file, or another user's rights"
        )?;
    }
    if report.compat_calls > 0 {
        let calls = count(report.compat_calls, "call");
        writeln!(out, "\nnot counted: {calls} of 32-bit programs")?;
    }
    if report.overflow + report.unfollowed > 0 {
        writeln!(
            out,
            "\nnot counted: at least {}, and all calls of processes that a watched one has started: \
             {} (there is room for {} processes, sets and sizes of arrays at a time)",
            count(report.overflow, "call"),
            report.unfollowed,
            report.slots,
        )?;
    }
    if report.forgotten > 0 {
        writeln!(out, "\nnot shown: processes that have ended, of too many: {}", report.forgotten)?;
    }
    writeln!(out)?;
    let found = findings(report, costs);
    match (found.is_empty(), report.has_waits()) {
        (true, true) => writeln!(out, "verdict: nothing to gain")?,
        (true, false) => writeln!(out, "verdict: none, without a wait")?,
        (false, _) => {}
    }
    for finding in found {
        writeln!(
            out,
            "verdict: process {}: {} (at least {} of a processor)\n         remedy: {}",
            finding.process,
            finding.text,
            percent(finding.saves),
            finding.remedy
        )?;
    }
    if !costs.measured {
        writeln!(out, "(by assumed costs, as those of this machine cannot be measured)")?;
    }
    Ok(())
}

fn write_process(out: &mut String, process: &ProcessReport, seconds: f64) -> fmt::Result {
    let ProcessReport { process: number, name, processor, calls, sets } = process;
    // A process that only reads is none to judge.
    if sets.is_empty() {
        return Ok(());
    }
    // Any user chooses the name of a process of theirs.
    let name = printable(name);
    write!(out, "\n{name} [{number}]: {} of a processor", percent(*processor))?;
    if calls.reads() + calls.empty_reads() > 0 {
        write!(out, "; {}, {} EAGAIN", count(calls.reads(), "read"), calls.empty_reads())?;
    }
    if calls.accepts() + calls.empty_accepts() > 0 {
        write!(out, "; {}, {} EAGAIN", count(calls.accepts(), "accept"), calls.empty_accepts())?;
    }
    writeln!(out)?;
    sets.iter().try_for_each(|set| write_set(out, set, seconds))
}

/// Returns the name of a set, of arrays, or of a ring.
fn title(key: Key) -> String {
    let (least, most) = key.lengths();
    let lengths = if least == most { least.to_string() } else { format!("{least} to {most}") };
    match key.kind {
        Kind::Process => "process".to_owned(),
        Kind::Epoll => format!("epoll set {}", key.id),
        Kind::Poll => format!("poll of {lengths}"),
        Kind::Select => format!("select up to {lengths}"),
        Kind::Ring => format!("io_uring {}", key.id),
        Kind::RegisteredRing => {
            let (thread, number) = key.registration();
            format!("io_uring {number} of those that thread {thread} has registered")
        }
    }
}

fn write_set(out: &mut String, set: &SetReport, seconds: f64) -> fmt::Result {
    let counts = &set.counts;
    write!(out, "  {}", title(set.key))?;
    match (set.key.kind, &set.registered) {
        (Kind::Epoll, registered) => {
            write!(out, ": {:.0} registered", set.present())?;
            if let Some(registered) = registered.as_ref().filter(|set| set.total() > 0) {
                let kinds = registered.kinds.iter().map(|(kind, count)| format!("{count} {kind}"));
                write!(out, " (at first {})", kinds.collect::<Vec<_>>().join(", "))?;
            }
            let share = ratio(set.active_ratio());
            write!(out, ", {:.1} active in a second, ratio {share}", set.active)?;
        }
        (Kind::Poll, _) => {
            write!(out, ": {:.1} descriptors, ratio {}", set.watched, ratio(set.ratio()))?
        }
        _ => {}
    }
    writeln!(out)?;
    if set.key.kind.is_ring() {
        let (waits, entries) = (count(counts.waits(), "wait"), counts.watched());
        return writeln!(
            out,
            "    {waits}, {} calls that only submit, {entries} entries submitted",
            counts.looks()
        );
    }
    if counts.waits() > 0 {
        write_waits(out, set, seconds)?;
    }
    if set.key.kind == Kind::Epoll && counts.controls() > 0 {
        writeln!(
            out,
            "    epoll_ctl: {} add, {} modify, {} delete, {} failed; {:.2} for each event",
            counts.added(),
            counts.changed(),
            counts.removed(),
            counts.refused(),
            counts.controls() as f64 / counts.events().max(1) as f64,
        )?;
    }
    if let Some(end) = set.registered_at_end.filter(|end| *end as f64 != set.watched) {
        writeln!(
            out,
            "    drift: {end} are registered at the end, {:.0} by counting (closed without \
             EPOLL_CTL_DEL, or changed by another process)",
            set.watched,
        )?;
    }
    Ok(())
}

fn write_waits(out: &mut String, set: &SetReport, seconds: f64) -> fmt::Result {
    let counts = &set.counts;
    writeln!(
        out,
        "    {} ({:.1}/s), {}: {:.2} a wait, p50 {}, p99 {}",
        count(counts.waits(), "wait"),
        counts.waits() as f64 / seconds,
        count(counts.events(), "event"),
        set.events_per_wait(),
        counts.events_at(0.5),
        counts.events_at(0.99),
    )?;
    writeln!(
        out,
        "    {} empty: {} ended by a timeout ({} below 10 ms, {} late by more than 1 ms), {} of {} \
         looks",
        counts.empty(),
        counts.timed_out(),
        counts.short_timeouts(),
        counts.late(),
        counts.empty_looks(),
        counts.looks(),
    )?;
    let asleep = Counts::asleep_ns(counts) as f64 / 1e9;
    write!(
        out,
        "    asleep {asleep:.2} s in {} of them; {} interrupted or failed",
        counts.sleeps(),
        counts.failed(),
    )?;
    if counts.room() > 0 {
        write!(out, "; {} with all {} events, {} cut", counts.full(), counts.room(), counts.cut())?;
    }
    writeln!(out)?;
    let buckets = counts.histogram().iter().enumerate().filter(|(_, waits)| **waits > 0);
    let buckets = buckets.map(|(bucket, waits)| {
        let (least, most) = bucket_bounds(bucket);
        if least == most { format!("{least}: {waits}") } else { format!("{least}-{most}: {waits}") }
    });
    writeln!(out, "    waits by events: {}", buckets.collect::<Vec<_>>().join(", "))
}

/// Formats a ratio, small ones with more digits.
fn ratio(value: f64) -> String {
    if value > 0.0 && value < 0.0095 { format!("{value:.4}") } else { format!("{value:.3}") }
}
