//! The claims of Marek Majkowski's text of 2017, and how each claim is evaluated.

use crate::claims::claim::{Claim, Evaluation, Source, Verdict, at_least, at_most, claim};
use crate::claims::measured::{herd, herd_growth, time};
use crate::experiments::{self, Records};
use crate::models;

pub(super) const SOURCE: Source = Source {
    text: "majkowski",
    title: "Marek Majkowski, “Select is fundamentally broken” (2017)",
    about: "Sorts what a program can do to learn what is ready into four models, and measures what thousands of \
            processes cost that wait for one listening socket.",
    claims: CLAIMS,
};

const CLAIMS: &[Claim] = &[
    claim("majkowski-trying-burns", "models", trying)
        .says("Trying every descriptor without blocking takes a whole processor and is not practical"),
    claim("majkowski-signals-useless", "models", signals)
        .says("Signals for each descriptor, as Linux sends them, are almost useless"),
    claim("majkowski-asking-walks", "models", asking)
        .says("select walks over all descriptors in each call, and so does poll"),
    claim("majkowski-epoll-avoids-registering", "models", epoll_avoids)
        .says("epoll avoids registering everything anew with each call"),
    claim("majkowski-register-is-the-way", "models", registering)
        .says("Registering interest with the kernel is the better model"),
    claim("majkowski-select-herd-linear", "herd", |records| grows(records, "select", 0.2, 0))
        .says("A connect() takes the longer the more processes wait for the listener with select, in proportion"),
    claim("majkowski-epoll-herd-linear", "herd", |records| grows(records, "epoll", 0.2, 0))
        .says("The same is true of epoll")
        .means(
            "Do not share a listener among processes with plain epoll: use EPOLLEXCLUSIVE, SO_REUSEPORT or a \
             blocking accept.",
            "Sharing a listener among your processes with plain epoll costs little here; measure with as many \
             as you run.",
        ),
    claim("majkowski-all-are-woken", "herd", all_woken)
        .says("One connection wakes all processes that wait, though one would do"),
    claim("majkowski-16k-takes-35-ms", "herd", sixteen_thousand)
        .says("With 16,000 processes in select a connect() takes 35 ms"),
    claim("majkowski-dups-multiply", "herd-dups", duplicates)
        .says("If each process waits for a thousand duplicates of the listener as well, it takes tens of times longer"),
    claim("majkowski-exclusive-helps", "herd", exclusive_helps)
        .says("EPOLLEXCLUSIVE, of Linux 4.5, helps: not all are woken"),
    claim("majkowski-exclusive-still-linear", "herd", |records| {
        grows(records, "epoll-exclusive", 0.25, 2)
    })
        .says("With EPOLLEXCLUSIVE the kernel's work for a connection still grows with the number of waiters"),
];

/// Returns the rows of a loop over pipes, the fewest active first.
fn of<'a>(records: &'a Records, subject: &str) -> Vec<&'a models::Row> {
    let mut rows: Vec<&models::Row> = experiments::rows(&records.models)
        .filter(|row| row.kind == "pipe" && row.placement == "end" && row.subject == subject)
        .collect();
    rows.sort_by_key(|row| row.active);
    rows
}

const EPOLL: &str = "raw-epoll-lt";

/// Returns a loop's time with writers as a multiple of the epoll loop's, with the fewest and the
/// most active pipes.
fn against_epoll(records: &Records, subject: &str) -> Option<[f64; 2]> {
    let (own, epoll) = (of(records, subject), of(records, EPOLL));
    let cost = |row: &models::Row| {
        row.figures.cost_ns_per_round.unwrap_or(row.figures.ns_per_round_median)
    };
    let ratio = |own: Option<&&models::Row>, epoll: Option<&&models::Row>| {
        own.zip(epoll)
            .filter(|(own, epoll)| own.active == epoll.active)
            .map(|(own, epoll)| cost(own) / cost(epoll))
    };
    Some([ratio(own.first(), epoll.first())?, ratio(own.last(), epoll.last())?])
}

fn trying(records: &Records) -> Evaluation {
    let share = of(records, "spin").first()?.quiet_processor_share?;
    let [few, all] = against_epoll(records, "spin")?;
    at_least(share, 0.7, 0.3).because(format!(
        "it takes {:.0} % of a processor while nothing happens; a round takes {few:.0} of epoll's time with the \
         fewest active, but {all:.2} with all",
        share * 100.0
    ))
}

fn signals(records: &Records) -> Evaluation {
    let best = ["sigio-wait", "sigio-fd"]
        .into_iter()
        .filter_map(|subject| Some((against_epoll(records, subject)?, subject)))
        .min_by(|a, b| a.0[1].total_cmp(&b.0[1]));
    let ([few, all], subject) = best?;
    let worst = few.max(all);
    // They do work, and with a signalfd not ten times as slowly.
    let verdict = if worst > 10.0 { Verdict::Holds } else { at_least(worst, f64::INFINITY, 1.2) };
    verdict.because(format!(
        "{subject}, the better of the two, works and takes {few:.2} of epoll's time with the fewest active, \
         {all:.2} with all; “useless” would be ten times"
    ))
}

fn asking(records: &Records) -> Evaluation {
    let [few, all] = against_epoll(records, "raw-poll")?;
    let select = against_epoll(records, "raw-select");
    let select = select.map_or_else(String::new, |[few, _]| format!(", select {few:.0}"));
    at_least(few, 10.0, 2.0).because(format!(
        "with the fewest active poll takes {few:.0} times epoll's time{select}; with all active it takes {all:.2}"
    ))
}

fn epoll_avoids(records: &Records) -> Evaluation {
    let rows = of(records, EPOLL);
    let (first, last) = (rows.first()?, rows.last()?);
    if first.active * 20 > first.total {
        return None;
    }
    let shrinks = last.figures.ns_per_round_median / first.figures.ns_per_round_median;
    let active = last.active as f64 / first.active as f64;
    at_least(shrinks, 20.0, 3.0).because(format!(
        "its round takes {} with {} of {} active, {shrinks:.0} times as long with {active:.0} times as many",
        time(first.figures.ns_per_round_median),
        first.active,
        first.total
    ))
}

fn registering(records: &Records) -> Evaluation {
    let [few, all] = against_epoll(records, "uring-poll")?;
    at_most(few.max(all), 0.7, 1.5).because(format!(
        "io_uring's multishot poll takes {few:.2} of epoll's time with the fewest active, {all:.2} with all (0.7 \
         to 1.5 is no other league)"
    ))
}

/// Judges whether a connection's time grows in proportion to the processes that wait this way:
/// `partly` is the least slope that is growth; the factor has so many digits.
fn grows(records: &Records, way: &str, partly: f64, digits: usize) -> Evaluation {
    let (time, waiters, most) = herd_growth(records, way)?;
    let slope = time.ln() / waiters.ln();
    at_least(slope, 0.6, partly).because(format!(
        "{waiters:.0} times as many processes, {most} in the end, take {time:.digits$} times as long"
    ))
}

fn all_woken(records: &Records) -> Evaluation {
    let row = *herd(records, "epoll").last().filter(|row| row.processes >= 16)?;
    let share = row.woken_per_connect / row.processes as f64;
    let woken = row.woken_per_connect;
    at_least(share, 0.8, 0.2)
        .because(format!("{woken:.0} of {} that wait with epoll", row.processes))
}

fn sixteen_thousand(records: &Records) -> Evaluation {
    let row = *herd(records, "select").last().filter(|row| row.processes >= 10_000)?;
    let milliseconds = row.connect_ns_median / 1e6;
    let verdict = if (12.0..=105.0).contains(&milliseconds) {
        Verdict::Holds
    } else {
        at_least(milliseconds, f64::INFINITY, 3.0)
    };
    verdict.because(format!(
        "{milliseconds:.0} ms with {} (a third to three times 35 ms counts as 35)",
        row.processes
    ))
}

fn duplicates(records: &Records) -> Evaluation {
    let with = experiments::rows(&records.herd_dups)
        .filter(|row| row.subject == "select" && row.dups_of == "listener")
        .max_by_key(|row| row.processes)?;
    let without = *herd(records, "select").iter().find(|row| row.processes == with.processes)?;
    let ratio = with.connect_ns_median / without.connect_ns_median;
    // Tens of times for a thousand are a time for each hundred and more.
    let proportion = with.dups as f64 / 100.0;
    at_least(ratio, proportion.min(8.0), proportion.min(8.0) / 2.0).because(format!(
        "{} with {} processes and {} duplicates each, {ratio:.1} times as long as without",
        time(with.connect_ns_median),
        with.processes,
        with.dups
    ))
}

fn exclusive_helps(records: &Records) -> Evaluation {
    let row = *herd(records, "epoll-exclusive").last().filter(|row| row.processes >= 16)?;
    let (woken, all) = (row.woken_per_connect, row.processes);
    at_most(woken, 2.0, all as f64 / 4.0).because(format!("{woken:.1} of {all} are woken"))
}
