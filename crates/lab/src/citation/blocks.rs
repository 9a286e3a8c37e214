//! The blocks that documents cite. Each block is Markdown made from a report, or `None` if its
//! experiment was not run.

use std::fmt::Write as _;

use crate::citation::short;
use crate::claims::{self, Verdict};
use crate::document::Document;
use crate::record::Figures;
use crate::statistics::{self, Estimate, Ratio};
use crate::{echo, experiments, herd, ring, sweep, table, threads, timers};

/// A function that makes a block.
pub(super) type Block = fn(&Document) -> Option<String>;

/// All blocks, by name.
pub(super) const BLOCKS: [(&str, Block); 25] = [
    ("origin", origin),
    ("follows", follows),
    ("claims", all_claims),
    ("advice", advice),
    ("atr", active_of_total),
    ("mix", mixed),
    ("models", four_models),
    ("threads", threads_and_events),
    ("registrations", coming_and_going),
    ("ring", rings),
    ("echo", echoes),
    ("timers", sleeps),
    ("servers", servers),
    ("zombies", silent),
    ("idle", idle),
    ("fanout", deliveries),
    ("herd", herds),
    ("short: peers", short::peers),
    ("short: call", short::call),
    ("short: placement", short::placement),
    ("short: idle", short::idle_cost),
    ("short: threads", short::thread_each),
    ("short: accept", short::accept),
    ("short: runtime", short::runtime),
    ("short: restart", short::restart),
];

/// Formats a table as Markdown; `None` without rows.
pub(super) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Option<String> {
    let mut rows = rows.into_iter().peekable();
    rows.peek()?;
    let mut text = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(N));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    Some(text)
}

/// Formats a ratio; a dash for none.
pub(super) fn ratio(ratio: Option<f64>) -> String {
    crate::table::ratio(ratio)
}

/// Formats the headline of a ratio with its interval.
pub(super) fn spread(ratio: Option<Ratio>) -> String {
    interval(ratio.map(Ratio::headline))
}

/// Formats a ratio with its interval; without an interval if there was one round, or if the subject
/// is the yardstick itself.
pub(super) fn interval(ratio: Option<Estimate>) -> String {
    ratio.map_or_else(String::new, |Estimate { value, low, high }| {
        let range = if low < high { format!(" ({low:.2} to {high:.2})") } else { String::new() };
        format!("{value:.2}{range}")
    })
}

/// A ratio to a peer's cost, and the peer's name.
type Compared = (Option<Ratio>, &'static str);

/// Formats a ratio to a peer, with the peer's name; empty for none.
fn beside((ratio, peer): Compared) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{} of {peer}", spread(Some(ratio))))
}

/// Formats the second column of a ratio: the median of the turns' own ratios.
fn median(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
}

/// Formats a cost that has no turns' ratios: the ratio of lowest deciles with its interval. Older
/// records have the ratio of medians alone.
fn of_deciles(deciles: Option<Estimate>, medians: Option<f64>) -> String {
    if deciles.is_some() { interval(deciles) } else { ratio(medians) }
}

/// Returns the median of some ratios, with the least and the greatest of them.
fn range(ratios: &[f64]) -> Option<String> {
    let (least, most) = (statistics::minimum(ratios), statistics::maximum(ratios));
    let middle = statistics::median(ratios);
    (!ratios.is_empty()).then(|| format!("{middle:.2} ({least:.2} to {most:.2})"))
}

/// Returns the words for descriptors of a kind, for use in a sentence.
fn many(kind: &str) -> &str {
    match kind {
        "pipe" => "pipes",
        "unix" => "Unix sockets",
        "tcp" => "TCP",
        other => other,
    }
}

/// Returns the README's first reason to use it, a list item.
fn follows(document: &Document) -> Option<String> {
    let records = &document.records;
    let sweep = experiments::rows(&records.atr).filter(|row| {
        (&*row.subject, &*row.kind, row.total, &*row.placement) == ("adaptive", "pipe", 1000, "end")
    });
    let costs = |low: f64, high: f64| -> Vec<f64> {
        let within = sweep.clone().filter(|row| (low..=high).contains(&row.atr()));
        within.filter_map(|row| row.figures.cost()).collect()
    };
    let mixed = experiments::rows(&records.mix)
        .filter(|row| (&*row.family, &*row.subject) == ("mixed", "adaptive"));
    let mut kinds = Vec::new();
    for name in table::distinct(mixed.clone().map(|row| row.kind.as_str())) {
        let own = mixed.clone().filter(|row| row.kind == name);
        let own: Vec<f64> = own.filter_map(|row| row.figures.cost()).collect();
        kinds.push(format!("{} on {}", range(&own)?, many(name)));
    }
    Some(format!(
        "* **It follows the load.** On 1,000 pipes `adaptive` costs {} of the better of `poll` and\n  `epoll` \
         while 1 to 60 % are active, {} above that (median and range of the\n  points). With busy and idle \
         descriptors together: {}.",
        range(&costs(0.01, 0.6))?,
        range(&costs(0.61, 1.0))?,
        kinds.join(", "),
    ))
}

/// Returns the table of the four models' loops over a thousand pipes, with one, some and all of
/// them active.
fn four_models(document: &Document) -> Option<String> {
    let rows = &document.records.models.as_ref()?.rows;
    let own = rows.iter().filter(|row| {
        (&*row.kind, &*row.placement) == ("pipe", "end") && row.model.as_deref() != Some("none")
    });
    let total = own.clone().map(|row| row.total).max()?;
    let own: Vec<&sweep::Row> = own.filter(|row| row.total == total).collect();
    let at = |subject: &str, share: f64| -> Option<f64> {
        let active = ((total as f64 * share) as usize).max(1);
        let row = own.iter().find(|row| row.subject == subject && row.active == active)?;
        row.figures.cost().or(row.figures.loop_part())
    };
    let rows = table::distinct(own.iter().map(|row| row.subject.as_str())).into_iter().filter_map(
        |subject| {
            let row = own.iter().find(|row| row.subject == subject)?;
            let share = row.quiet_processor_share;
            Some([
                row.model.clone().unwrap_or_default(),
                subject.to_owned(),
                ratio(at(subject, 0.0)),
                ratio(at(subject, 0.1)),
                ratio(at(subject, 1.0)),
                share.map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share)),
            ])
        },
    );
    let one = format!("1 of {total} active");
    table(["model", "loop", &one, "a tenth", "all", "processor while quiet"], rows)
}

fn threads_and_events(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.threads);
    let own = rows.filter(|row| row.family == "threads" && row.kind == "pipe");
    let [clock, cost] = threads::ACCOUNTS;
    let rows = own.map(|row| {
        [
            row.processors.clone(),
            format!("{} of {}", row.active, row.total),
            spread((clock.ratio)(row)),
            median(row.clock_ratio),
            spread((cost.ratio)(row)),
            median(row.cost_ratio),
        ]
    });
    let clock = "threads / best loop, by the clock";
    table(["processors", "active", clock, "median", "processor time", "median"], rows)
}

fn coming_and_going(document: &Document) -> Option<String> {
    let rows = &document.records.registrations.as_ref()?.rows;
    let most = rows.iter().map(|row| row.batch).max()?;
    let own = rows.iter().filter(|row| {
        row.kind == "pipe" && row.subject != "raw-epoll" && [1, 16, most].contains(&row.batch)
    });
    let rows = own.map(|row| {
        [
            row.subject.clone(),
            row.batch.to_string(),
            spread(row.ratio),
            median(row.ratio),
            format!("{:.2}", row.calls),
        ]
    });
    table(["way to watch", "at a time", "/ `epoll_ctl`", "median", "system calls"], rows)
}

/// Returns the table of echo servers, over the kind of socket that is closest to real servers and
/// the most connections.
fn echoes(document: &Document) -> Option<String> {
    let own = experiments::rows(&document.records.echo).filter(|row| row.kind == "tcp");
    let most = own.clone().map(|row| row.connections).max()?;
    let time = |row: &echo::Row| row.figures.cpu_ns_per_request_median;
    let mut own: Vec<&echo::Row> = own.filter(|row| row.connections == most).collect();
    own.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let rows = own.iter().map(|row| {
        [
            row.subject.clone(),
            crate::table::time(time(row)),
            spread(row.raw_epoll_ratio),
            median(row.raw_epoll_ratio),
            spread(row.tokio_ratio),
            median(row.tokio_ratio),
        ]
    });
    let processor = format!("processor time, {most} connections");
    let heading = ["server", &processor, "/ a loop on epoll", "median", "/ tokio", "median"];
    table(heading, rows)
}

fn sleeps(document: &Document) -> Option<String> {
    let late = |row: &timers::Row| {
        let each = [row.late_ns_p50, row.late_ns_p99];
        let each: Vec<String> = each.into_iter().flatten().map(crate::table::time).collect();
        each.join(", ")
    };
    let rows = experiments::rows(&document.records.timers).map(|row| {
        [
            row.load.clone(),
            row.timers.to_string(),
            row.subject.clone(),
            crate::table::time(row.timer_ns_median),
            of_deciles(row.to_tokio.tokio_decile, row.to_tokio.tokio_ratio),
            ratio(row.to_tokio.tokio_ratio),
            late(row),
        ]
    });
    let heading = [
        "load",
        "timers",
        "runtime",
        "processor time of each",
        "/ tokio",
        "medians",
        "late, p50 and p99",
    ];
    table(heading, rows)
}

/// Returns, for each server in one process, the row with the most silent connections.
fn silent(document: &Document) -> Option<String> {
    let alone = || {
        let rows = experiments::rows(&document.records.zombies);
        rows.filter(|row| row.workers <= 1 && row.zombies > 0)
    };
    let rows = table::distinct(alone().map(|row| row.subject.as_str())).into_iter().filter_map(
        |subject| {
            let own = alone().filter(|row| row.subject == subject);
            let row = own.max_by_key(|row| row.zombies)?;
            Some([
                subject.to_owned(),
                row.zombies.to_string(),
                crate::table::time(row.figures.cpu_ns_per_request_median),
                spread(row.none_ratio),
                median(row.none_ratio),
            ])
        },
    );
    let heading = ["server", "silent ones", "processor time of a request", "/ with none", "median"];
    table(heading, rows)
}

fn origin(document: &Document) -> Option<String> {
    let origin = experiments::ALL.iter().find_map(|one| (one.origin)(&document.records))?;
    let here = origin.environment;
    let run = document.run.as_ref().map_or_else(String::new, |run| match run.extent {
        crate::record::Extent::Quick => ", `superpoll-lab all --quick`".to_owned(),
        crate::record::Extent::Full => ", `superpoll-lab all`".to_owned(),
    });
    let commit = here.commit.as_deref().map_or_else(String::new, |id| format!(", commit {id}"));
    let elsewhere = experiments::ALL.iter().filter_map(|one| {
        let own = (one.origin)(&document.records)?.environment;
        if (&own.commit, &own.cpu) == (&here.commit, &here.cpu) {
            return None;
        }
        let commit = own.commit.as_deref().unwrap_or("an unknown commit");
        let machine =
            if own.cpu == here.cpu { String::new() } else { format!(" on {}", own.summary()) };
        Some(format!("; {} at {commit}{machine}", one.name))
    });
    let elsewhere = elsewhere.collect::<String>();
    Some(format!("Measured on {} on {}{commit}{run}{elsewhere}.", here.summary(), here.date))
}

fn all_claims(document: &Document) -> Option<String> {
    let mut text = format!("{}.\n", claims::tally(&document.claims));
    for source in &claims::SOURCES {
        let own = document.claims.iter().filter(|one| one.text == source.text);
        let rows = own.map(|one| [one.claim.clone(), one.verdict.to_string(), one.reason.clone()]);
        let heading = ["claim", "here", "measured"];
        let _ = write!(text, "\n**{}**\n\n{}", source.title, table(heading, rows)?);
    }
    let judged = document.claims.iter().any(|one| one.verdict != Verdict::NotMeasured);
    judged.then_some(text)
}

fn advice(document: &Document) -> Option<String> {
    let lines = claims::advice(&document.claims);
    (!lines.is_empty()).then(|| lines.iter().map(|line| format!("* {line}\n")).collect())
}

fn active_of_total(document: &Document) -> Option<String> {
    let own: Vec<&sweep::Row> = experiments::rows(&document.records.atr)
        .filter(|row| (&*row.kind, row.total, &*row.placement) == ("pipe", 1000, "end"))
        .collect();
    let at = |active, subject: &str| -> Option<&Figures> {
        let row = own.iter().find(|row| row.active == active && row.subject == subject)?;
        Some(&row.figures)
    };
    let time = |figures: &Figures| crate::table::time(figures.ns_per_round_median);
    let mut points: Vec<usize> = own.iter().map(|row| row.active).collect();
    points.sort_unstable();
    points.dedup();
    let row = |active: usize| -> Option<[String; 8]> {
        let adaptive = at(active, "adaptive")?;
        Some([
            format!("{}", active as f64 / 1000.0),
            time(at(active, "poll")?),
            time(at(active, "epoll-lt")?),
            time(adaptive),
            of_deciles(adaptive.loop_ratio_decile, adaptive.loop_ratio),
            ratio(adaptive.loop_ratio),
            of_deciles(adaptive.cost_ratio_decile, adaptive.cost_ratio),
            ratio(adaptive.cost_ratio),
        ])
    };
    let heading = [
        "active/total",
        "poll",
        "epoll",
        "adaptive",
        "adaptive / best",
        "medians",
        "cost / best",
        "medians",
    ];
    table(heading, points.into_iter().filter_map(row))
}

fn mixed(document: &Document) -> Option<String> {
    let rows = &document.records.mix.as_ref()?.rows;
    let own = rows.iter().filter(|row| row.family == "mixed" && row.subject == "adaptive");
    let rows = own.map(|row| {
        let of = |subject: &str| {
            let same = |other: &&crate::mix::Row| {
                (&other.kind, &other.load, &*other.subject) == (&row.kind, &row.load, subject)
            };
            rows.iter().find(same).map(|row| &row.figures)
        };
        let costs = |figures: Option<&Figures>| {
            let medians = figures.and_then(|figures| figures.cost_ratio);
            let deciles = figures.and_then(|figures| figures.cost_ratio_decile);
            [of_deciles(deciles, medians), ratio(medians)]
        };
        let [own, own_medians] = costs(Some(&row.figures));
        let [reader, reader_medians] = costs(of("adaptive-uring"));
        let load = format!("{}, {}/{}", row.kind, row.hot, row.cold);
        [load, own, own_medians, reader, reader_medians]
    });
    let heading = ["busy/idle", "`adaptive`", "medians", "`BatchReader` on `uring`", "medians"];
    table(heading, rows)
}

/// Returns the most pipes of a ring, and the rows of rings of so many with one byte in flight.
pub(super) fn longest_rings(document: &Document) -> Option<(usize, Vec<&ring::Row>)> {
    let own = experiments::rows(&document.records.ring).filter(|row| row.in_flight == 1);
    let most = own.clone().map(|row| row.total).max()?;
    Some((most, own.filter(|row| row.total == most).collect()))
}

fn rings(document: &Document) -> Option<String> {
    let (_, mut own) = longest_rings(document)?;
    own.sort_by(|a, b| a.ns_per_hop_median.total_cmp(&b.ns_per_hop_median));
    let rows = own.iter().map(|row| {
        [
            row.subject.clone(),
            format!("{:.0}", row.ns_per_hop_median),
            of_deciles(row.to_tokio.tokio_decile, row.to_tokio.tokio_ratio),
            ratio(row.to_tokio.tokio_ratio),
            row.syscalls_per_hop.map_or_else(String::new, |calls| format!("{calls:.2}")),
        ]
    });
    table(["runtime", "ns per pipe", "/ tokio", "medians", "system calls"], rows)
}

/// Returns each work that servers of others do as well: the work, the server, and its processor
/// time next to that of two other servers.
fn compared_work(document: &Document) -> impl Iterator<Item = (String, String, [Compared; 2])> {
    let files = experiments::rows(&document.records.files).map(|row| {
        let work = format!("a file of {} bytes, {} connections", row.bytes, row.connections);
        let others = [(row.nginx_ratio, "nginx"), (row.hyper_ratio, "hyper on tokio")];
        (work, row.subject.clone(), others)
    });
    let relays = experiments::rows(&document.records.relay).map(|row| {
        let work = format!("relay, {}, {} connections", row.load, row.connections);
        let others = [(row.nginx_ratio, "nginx"), (row.haproxy_ratio, "HAProxy")];
        (work, row.subject.clone(), others)
    });
    files.chain(relays)
}

fn servers(document: &Document) -> Option<String> {
    let ours = ["superpoll-epoll", "superpoll-adaptive"];
    let compared = compared_work(document).filter(|(_, server, [first, second])| {
        ours.contains(&&**server) && (first.0.is_some() || second.0.is_some())
    });
    let rows = compared.map(|(work, server, [first, second])| {
        [work, server, beside(first), median(first.0), beside(second), median(second.0)]
    });
    table(["work", "server", "processor time", "median", "", "median"], rows)
}

fn idle(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.idle)
        .filter(|row| row.arrival == "one-by-one")
        .map(|row| {
            [
                row.subject.clone(),
                row.kind.clone(),
                format!("{:.0}", row.user_bytes_per_connection.median),
            ]
        });
    table(["server", "connection", "bytes of its memory"], rows)
}

fn deliveries(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.fanout).map(|row| {
        [
            format!("{}, {}", row.transport, row.subscribers),
            row.subject.clone(),
            crate::table::time(row.cpu_ns_per_delivery_median),
            spread(row.nchan_ratio),
            median(row.nchan_ratio),
            crate::table::time(row.all_ns_p50),
            crate::table::time(row.all_ns_p99),
            format!("{:.2}", row.pss_bytes_per_subscriber / 1024.0),
            crate::table::time(row.connect_cpu_ns_median),
        ]
    });
    let heading = [
        "subscribers",
        "server",
        "CPU of a delivery",
        "/ nchan",
        "median",
        "all have it, p50",
        "p99",
        "KiB each",
        "CPU of a connect",
    ];
    table(heading, rows)
}

/// Returns the most processes that waited, and the rows of so many, without duplicated descriptors.
pub(super) fn largest_herds(document: &Document) -> Option<(usize, Vec<&herd::Row>)> {
    let own = experiments::rows(&document.records.herd).filter(|row| row.dups == 0);
    let most = own.clone().map(|row| row.processes).max()?;
    Some((most, own.filter(|row| row.processes == most).collect()))
}

fn herds(document: &Document) -> Option<String> {
    let (most, own) = largest_herds(document)?;
    let rows = own.iter().map(|row| {
        [
            row.subject.clone(),
            crate::table::time(row.connect_ns_median),
            format!("{:.1}", row.woken_per_connect),
            format!("{:.2}", row.jain / row.jain_best.max(f64::MIN_POSITIVE)),
        ]
    });
    let connect = format!("`connect()` with {most} that wait");
    table(["way to wait", &connect, "woken", "fairness (Jain) / best possible"], rows)
}
