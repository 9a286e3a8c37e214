//! The blocks that documents cite. Each block is Markdown made from a report, or `None` if its
//! experiment was not run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::citation::short;
use crate::claims::{self, Verdict};
use crate::document::Document;
use crate::record::Figures;
use crate::statistics::{self, Estimate, Ratio};
use crate::sweep::Row;
use crate::table::time;
use crate::{echo, experiments, lookup, mix, table, threads};

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
pub(super) fn table(
    heading: &[&str],
    rows: impl IntoIterator<Item = impl AsRef<[String]>>,
) -> Option<String> {
    let mut rows = rows.into_iter().peekable();
    rows.peek()?;
    let mut text = format!("| {} |\n|{}\n", heading.join(" | "), "---|".repeat(heading.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.as_ref().join(" | "));
    }
    Some(text)
}

/// A column: its heading, and the cell of a row in it.
type Column<'a, Row> = (&'a str, &'a dyn Fn(&Row) -> String);

/// Rows that are cited in a table.
pub(super) trait Cited: IntoIterator + Sized {
    /// Formats the rows in these columns; `None` without rows.
    fn cited(self, columns: &[Column<'_, Self::Item>]) -> Option<String> {
        let heading: Vec<&str> = columns.iter().map(|column| column.0).collect();
        let cells = |row| columns.iter().map(|column| column.1(&row)).collect::<Vec<String>>();
        table(&heading, self.into_iter().map(cells))
    }
}

impl<Rows: IntoIterator> Cited for Rows {}

/// Formats a ratio; a dash for none.
pub(super) fn ratio(ratio: Option<f64>) -> String {
    table::ratio(ratio)
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
    let own = experiments::rows(&document.records.models)
        .filter(|row| (&*row.kind, &*row.placement) == ("pipe", "end"))
        .filter(|row| row.model.as_deref() != Some("none"));
    let total = own.clone().map(|row| row.total).max()?;
    let own: Vec<&Row> = own.filter(|row| row.total == total).collect();
    let at = |own: &[&Row], share: f64| {
        let active = ((total as f64 * share) as usize).max(1);
        let figures = &own.iter().find(|row| row.active == active)?.figures;
        figures.cost().or(figures.loop_part())
    };
    let quiet = |own: &Vec<&Row>| own[0].quiet_processor_share;
    table::subjects(&own, |row| &row.subject, |row| row.active).cited(&[
        ("model", &|own| own[0].model.clone().unwrap_or_default()),
        ("loop", &|own| own[0].subject.clone()),
        (&format!("1 of {total} active"), &|own| ratio(at(own, 0.0))),
        ("a tenth", &|own| ratio(at(own, 0.1))),
        ("all", &|own| ratio(at(own, 1.0))),
        ("processor while quiet", &|own| {
            quiet(own).map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share))
        }),
    ])
}

fn threads_and_events(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.threads);
    let [clock, cost] = threads::ACCOUNTS;
    rows.filter(|row| row.family == "threads" && row.kind == "pipe").cited(&[
        ("processors", &|row| row.processors.clone()),
        ("active", &|row| format!("{} of {}", row.active, row.total)),
        ("threads / best loop, by the clock", &|row| spread((clock.ratio)(row))),
        ("median", &|row| median(row.clock_ratio)),
        ("processor time", &|row| spread((cost.ratio)(row))),
        ("median", &|row| median(row.cost_ratio)),
    ])
}

fn coming_and_going(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.registrations);
    let most = rows.clone().map(|row| row.batch).max()?;
    let own = rows.filter(|row| row.kind == "pipe" && row.subject != "raw-epoll");
    own.filter(|row| [1, 16, most].contains(&row.batch)).cited(&[
        ("way to watch", &|row| row.subject.clone()),
        ("at a time", &|row| row.batch.to_string()),
        ("/ `epoll_ctl`", &|row| spread(row.ratio)),
        ("median", &|row| median(row.ratio)),
        ("system calls", &|row| format!("{:.2}", row.calls)),
    ])
}

/// Returns the table of echo servers, over the kind of socket that is closest to real servers and
/// the most connections.
fn echoes(document: &Document) -> Option<String> {
    let own = experiments::rows(&document.records.echo).filter(|row| row.kind == "tcp");
    let most = own.clone().map(|row| row.connections).max()?;
    let of = |row: &echo::Row| row.figures.cpu_ns_per_request_median;
    let mut own: Vec<&echo::Row> = own.filter(|row| row.connections == most).collect();
    own.sort_by(|a, b| of(a).total_cmp(&of(b)));
    own.cited(&[
        ("server", &|row| row.subject.clone()),
        (&format!("processor time, {most} connections"), &|row| time(of(row))),
        ("/ a loop on epoll", &|row| spread(row.raw_epoll_ratio)),
        ("median", &|row| median(row.raw_epoll_ratio)),
        ("/ tokio", &|row| spread(row.tokio_ratio)),
        ("median", &|row| median(row.tokio_ratio)),
    ])
}

fn sleeps(document: &Document) -> Option<String> {
    experiments::rows(&document.records.timers).cited(&[
        ("load", &|row| row.load.clone()),
        ("timers", &|row| row.timers.to_string()),
        ("runtime", &|row| row.subject.clone()),
        ("processor time of each", &|row| time(row.timer_ns_median)),
        ("/ tokio", &|row| of_deciles(row.to_tokio.tokio_decile, row.to_tokio.tokio_ratio)),
        ("medians", &|row| ratio(row.to_tokio.tokio_ratio)),
        ("late, p50 and p99", &|row| {
            let each = [row.late_ns_p50, row.late_ns_p99].into_iter().flatten().map(time);
            each.collect::<Vec<String>>().join(", ")
        }),
    ])
}

/// Returns, for each server in one process, the row with the most silent connections.
fn silent(document: &Document) -> Option<String> {
    let records = &document.records;
    let alone = experiments::rows(&records.zombies).filter(|row| row.workers <= 1);
    let servers =
        table::distinct(alone.filter(|row| row.zombies > 0).map(|row| row.subject.as_str()));
    servers.into_iter().filter_map(|server| lookup::most_zombies(records, server)).cited(&[
        ("server", &|row| row.subject.clone()),
        ("silent ones", &|row| row.zombies.to_string()),
        ("processor time of a request", &|row| time(row.figures.cpu_ns_per_request_median)),
        ("/ with none", &|row| spread(row.none_ratio)),
        ("median", &|row| median(row.none_ratio)),
    ])
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
        let own = document.claims.iter().filter(|one| one.text == source.text).cited(&[
            ("claim", &|one| one.claim.clone()),
            ("here", &|one| one.verdict.to_string()),
            ("measured", &|one| one.reason.clone()),
        ]);
        let _ = write!(text, "\n**{}**\n\n{}", source.title, own?);
    }
    let judged = document.claims.iter().any(|one| one.verdict != Verdict::NotMeasured);
    judged.then_some(text)
}

fn advice(document: &Document) -> Option<String> {
    let lines = claims::advice(&document.claims);
    (!lines.is_empty()).then(|| lines.iter().map(|line| format!("* {line}\n")).collect())
}

fn active_of_total(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.atr);
    let own = rows.filter(|row| (&*row.kind, row.total, &*row.placement) == ("pipe", 1000, "end"));
    let points: BTreeSet<usize> = own.map(|row| row.active).collect();
    let rounds = |active| Some((active, lookup::rounds(&document.records, active)?));
    points.into_iter().filter_map(rounds).cited(&[
        ("active/total", &|(active, _)| format!("{}", *active as f64 / 1000.0)),
        ("poll", &|(_, [poll, ..])| time(poll.ns_per_round_median)),
        ("epoll", &|(_, [_, epoll, _])| time(epoll.ns_per_round_median)),
        ("adaptive", &|(_, [.., own])| time(own.ns_per_round_median)),
        ("adaptive / best", &|(_, [.., own])| of_deciles(own.loop_ratio_decile, own.loop_ratio)),
        ("medians", &|(_, [.., own])| ratio(own.loop_ratio)),
        ("cost / best", &|(_, [.., own])| of_deciles(own.cost_ratio_decile, own.cost_ratio)),
        ("medians", &|(_, [.., own])| ratio(own.cost_ratio)),
    ])
}

fn mixed(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.mix);
    let reader = |row: &mix::Row| {
        let same = |other: &&mix::Row| {
            (&other.kind, &other.load, &*other.subject) == (&row.kind, &row.load, "adaptive-uring")
        };
        rows.clone().find(same).map(|row| row.figures.clone()).unwrap_or_default()
    };
    let cost = |of: &Figures| of_deciles(of.cost_ratio_decile, of.cost_ratio);
    rows.clone().filter(|row| row.family == "mixed" && row.subject == "adaptive").cited(&[
        ("busy/idle", &|row| format!("{}, {}/{}", row.kind, row.hot, row.cold)),
        ("`adaptive`", &|row| cost(&row.figures)),
        ("medians", &|row| ratio(row.figures.cost_ratio)),
        ("`BatchReader` on `uring`", &|row| cost(&reader(row))),
        ("medians", &|row| ratio(reader(row).cost_ratio)),
    ])
}

fn rings(document: &Document) -> Option<String> {
    let (_, mut own) = lookup::longest_rings(&document.records)?;
    own.sort_by(|a, b| a.ns_per_hop_median.total_cmp(&b.ns_per_hop_median));
    own.cited(&[
        ("runtime", &|row| row.subject.clone()),
        ("ns per pipe", &|row| format!("{:.0}", row.ns_per_hop_median)),
        ("/ tokio", &|row| of_deciles(row.to_tokio.tokio_decile, row.to_tokio.tokio_ratio)),
        ("medians", &|row| ratio(row.to_tokio.tokio_ratio)),
        ("system calls", &|row| {
            row.syscalls_per_hop.map_or_else(String::new, |calls| format!("{calls:.2}"))
        }),
    ])
}

/// Returns each work that servers of others do as well: the work, the server, and its processor
/// time next to that of two other servers.
fn compared_work(document: &Document) -> impl Iterator<Item = (String, &str, [Compared; 2])> {
    let files = experiments::rows(&document.records.files).map(|row| {
        let by =
            if row.protocol == "http" { String::new() } else { format!(" by {}", row.protocol) };
        let work = format!("a file of {} bytes{by}, {} connections", row.bytes, row.connections);
        let others = [(row.nginx_ratio, "nginx"), (row.hyper_ratio, "hyper on tokio")];
        (work, &*row.subject, others)
    });
    let relays = experiments::rows(&document.records.relay).map(|row| {
        let work = format!("relay, {}, {} connections", row.load, row.connections);
        let others = [(row.nginx_ratio, "nginx"), (row.haproxy_ratio, "HAProxy")];
        (work, &*row.subject, others)
    });
    files.chain(relays)
}

fn servers(document: &Document) -> Option<String> {
    let compared = compared_work(document).filter(|(_, server, [first, second])| {
        ["superpoll-epoll", "superpoll-adaptive"].contains(server)
            && (first.0.is_some() || second.0.is_some())
    });
    compared.cited(&[
        ("work", &|(work, ..)| work.clone()),
        ("server", &|(_, server, _)| (*server).to_owned()),
        ("processor time", &|(.., [first, _])| beside(*first)),
        ("median", &|(.., [first, _])| median(first.0)),
        ("", &|(.., [_, second])| beside(*second)),
        ("median", &|(.., [_, second])| median(second.0)),
    ])
}

fn idle(document: &Document) -> Option<String> {
    let rows = experiments::rows(&document.records.idle);
    rows.filter(|row| row.arrival == "one-by-one").cited(&[
        ("server", &|row| row.subject.clone()),
        ("connection", &|row| row.kind.clone()),
        ("bytes of its memory", &|row| format!("{:.0}", row.user_bytes_per_connection.median)),
    ])
}

fn deliveries(document: &Document) -> Option<String> {
    experiments::rows(&document.records.fanout).cited(&[
        ("subscribers", &|row| format!("{}, {}", row.transport, row.subscribers)),
        ("server", &|row| row.subject.clone()),
        ("CPU of a delivery", &|row| time(row.cpu_ns_per_delivery_median)),
        ("/ nchan", &|row| spread(row.nchan_ratio)),
        ("median", &|row| median(row.nchan_ratio)),
        ("all have it, p50", &|row| time(row.all_ns_p50)),
        ("p99", &|row| time(row.all_ns_p99)),
        ("KiB each", &|row| format!("{:.2}", row.pss_bytes_per_subscriber / 1024.0)),
        ("CPU of a connect", &|row| time(row.connect_cpu_ns_median)),
    ])
}

fn herds(document: &Document) -> Option<String> {
    let (most, own) = lookup::largest_herds(&document.records)?;
    own.cited(&[
        ("way to wait", &|row| row.subject.clone()),
        (&format!("`connect()` with {most} that wait"), &|row| time(row.connect_ns_median)),
        ("woken", &|row| format!("{:.1}", row.woken_per_connect)),
        ("fairness (Jain) / best possible", &|row| {
            format!("{:.2}", row.jain / row.jain_best.max(f64::MIN_POSITIVE))
        }),
    ])
}
