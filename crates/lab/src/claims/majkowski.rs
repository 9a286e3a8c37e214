//! The claims of Marek Majkowski's text of 2017, and how each claim is evaluated.

use crate::claims::claim::{Claim, Evaluation, Means, Source, Verdict, at_least, at_most};
use crate::claims::measured::{herd, herd_growth, time};
use crate::experiments::Records;
use crate::models;

pub(super) const SOURCE: Source = Source {
    text: "majkowski",
    title: "Marek Majkowski, “Select is fundamentally broken” (2017)",
    about: "Sorts what a program can do to learn what is ready into four models, and measures what thousands of \
            processes cost that wait for one listening socket.",
};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "majkowski-trying-burns",
        says: "Trying every descriptor without blocking takes a whole processor and is not practical",
        experiment: "models",
        evaluate: trying,
        means: None,
    },
    Claim {
        id: "majkowski-signals-useless",
        says: "Signals for each descriptor, as Linux sends them, are almost useless",
        experiment: "models",
        evaluate: signals,
        means: None,
    },
    Claim {
        id: "majkowski-asking-walks",
        says: "select walks over all descriptors in each call, and so does poll",
        experiment: "models",
        evaluate: asking,
        means: None,
    },
    Claim {
        id: "majkowski-epoll-avoids-registering",
        says: "epoll avoids registering everything anew with each call",
        experiment: "models",
        evaluate: epoll_avoids,
        means: None,
    },
    Claim {
        id: "majkowski-register-is-the-way",
        says: "Registering interest with the kernel is the better model",
        experiment: "models",
        evaluate: registering,
        means: None,
    },
    Claim {
        id: "majkowski-select-herd-linear",
        says: "A connect() takes the longer the more processes wait for the listener with select, in proportion",
        experiment: "herd",
        evaluate: select_linear,
        means: None,
    },
    Claim {
        id: "majkowski-epoll-herd-linear",
        says: "The same is true of epoll",
        experiment: "herd",
        evaluate: epoll_linear,
        means: Some(Means {
            holds: "Do not share a listener among processes with plain epoll: use EPOLLEXCLUSIVE, SO_REUSEPORT or a \
                    blocking accept.",
            fails: "Sharing a listener among your processes with plain epoll costs little here; measure with as many \
                    as you run.",
        }),
    },
    Claim {
        id: "majkowski-all-are-woken",
        says: "One connection wakes all processes that wait, though one would do",
        experiment: "herd",
        evaluate: all_woken,
        means: None,
    },
    Claim {
        id: "majkowski-16k-takes-35-ms",
        says: "With 16,000 processes in select a connect() takes 35 ms",
        experiment: "herd",
        evaluate: sixteen_thousand,
        means: None,
    },
    Claim {
        id: "majkowski-dups-multiply",
        says: "If each process waits for a thousand duplicates of the listener as well, it takes tens of times longer",
        experiment: "herd-dups",
        evaluate: duplicates,
        means: None,
    },
    Claim {
        id: "majkowski-exclusive-helps",
        says: "EPOLLEXCLUSIVE, of Linux 4.5, helps: not all are woken",
        experiment: "herd",
        evaluate: exclusive_helps,
        means: None,
    },
    Claim {
        id: "majkowski-exclusive-still-linear",
        says: "With EPOLLEXCLUSIVE the kernel's work for a connection still grows with the number of waiters",
        experiment: "herd",
        evaluate: exclusive_linear,
        means: None,
    },
];

/// Returns the rows of a loop over pipes, the fewest active first.
fn of<'a>(records: &'a Records, subject: &str) -> Vec<&'a models::Row> {
    let mut rows: Vec<&models::Row> = records
        .models
        .iter()
        .flat_map(|record| &record.rows)
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
    Some((
        at_least(share, 0.7, 0.3),
        format!(
            "it takes {:.0} % of a processor while nothing happens; a round takes {few:.0} of epoll's time with the \
             fewest active, but {all:.2} with all",
            share * 100.0
        ),
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
    Some((
        verdict,
        format!(
            "{subject}, the better of the two, works and takes {few:.2} of epoll's time with the fewest active, \
             {all:.2} with all; “useless” would be ten times"
        ),
    ))
}

fn asking(records: &Records) -> Evaluation {
    let [few, all] = against_epoll(records, "raw-poll")?;
    let select = against_epoll(records, "raw-select");
    let select = select.map_or_else(String::new, |[few, _]| format!(", select {few:.0}"));
    Some((
        at_least(few, 10.0, 2.0),
        format!(
            "with the fewest active poll takes {few:.0} times epoll's time{select}; with all active it takes {all:.2}"
        ),
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
    Some((
        at_least(shrinks, 20.0, 3.0),
        format!(
            "its round takes {} with {} of {} active, {shrinks:.0} times as long with {active:.0} times as many",
            time(first.figures.ns_per_round_median),
            first.active,
            first.total
        ),
    ))
}

fn registering(records: &Records) -> Evaluation {
    let [few, all] = against_epoll(records, "uring-poll")?;
    Some((
        at_most(few.max(all), 0.7, 1.5),
        format!(
            "io_uring's multishot poll takes {few:.2} of epoll's time with the fewest active, {all:.2} with all (0.7 \
             to 1.5 is no other league)"
        ),
    ))
}

fn grows(records: &Records, way: &str) -> Evaluation {
    let (time, waiters, most) = herd_growth(records, way)?;
    let slope = time.ln() / waiters.ln();
    Some((
        at_least(slope, 0.6, 0.2),
        format!(
            "{waiters:.0} times as many processes, {most} in the end, take {time:.0} times as long"
        ),
    ))
}

fn select_linear(records: &Records) -> Evaluation {
    grows(records, "select")
}

fn epoll_linear(records: &Records) -> Evaluation {
    grows(records, "epoll")
}

fn all_woken(records: &Records) -> Evaluation {
    let row = *herd(records, "epoll").last().filter(|row| row.processes >= 16)?;
    let share = row.woken_per_connect / row.processes as f64;
    Some((
        at_least(share, 0.8, 0.2),
        format!("{:.0} of {} that wait with epoll", row.woken_per_connect, row.processes),
    ))
}

fn sixteen_thousand(records: &Records) -> Evaluation {
    let row = *herd(records, "select").last().filter(|row| row.processes >= 10_000)?;
    let milliseconds = row.connect_ns_median / 1e6;
    let verdict = if (12.0..=105.0).contains(&milliseconds) {
        Verdict::Holds
    } else {
        at_least(milliseconds, f64::INFINITY, 3.0)
    };
    Some((
        verdict,
        format!(
            "{milliseconds:.0} ms with {} (a third to three times 35 ms counts as 35)",
            row.processes
        ),
    ))
}

fn duplicates(records: &Records) -> Evaluation {
    let rows = records.herd_dups.iter().flat_map(|record| &record.rows);
    let with = rows
        .filter(|row| row.subject == "select" && row.dups_of == "listener")
        .max_by_key(|row| row.processes)?;
    let without = *herd(records, "select").iter().find(|row| row.processes == with.processes)?;
    let ratio = with.connect_ns_median / without.connect_ns_median;
    // Tens of times for a thousand are a time for each hundred and more.
    let proportion = with.dups as f64 / 100.0;
    Some((
        at_least(ratio, proportion.min(8.0), proportion.min(8.0) / 2.0),
        format!(
            "{} with {} processes and {} duplicates each, {ratio:.1} times as long as without",
            time(with.connect_ns_median),
            with.processes,
            with.dups
        ),
    ))
}

fn exclusive_helps(records: &Records) -> Evaluation {
    let row = *herd(records, "epoll-exclusive").last().filter(|row| row.processes >= 16)?;
    Some((
        at_most(row.woken_per_connect, 2.0, row.processes as f64 / 4.0),
        format!("{:.1} of {} are woken", row.woken_per_connect, row.processes),
    ))
}

fn exclusive_linear(records: &Records) -> Evaluation {
    let (time, waiters, most) = herd_growth(records, "epoll-exclusive")?;
    let slope = time.ln() / waiters.ln();
    Some((
        at_least(slope, 0.6, 0.25),
        format!(
            "{waiters:.0} times as many processes, {most} in the end, take {time:.2} times as long"
        ),
    ))
}
