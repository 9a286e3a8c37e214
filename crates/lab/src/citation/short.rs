//! Tables of a few rows, for README and GUIDE: each has the rows that a decision needs, of an
//! experiment whose full table is in `docs/measured`.

use crate::citation::blocks::{Cited, ratio, spread, table};
use crate::document::Document;
use crate::experiments::{self, Records};
use crate::record::Figures;
use crate::statistics::Ratio;
use crate::table::time;
use crate::{fanout, files, lookup, relay};

/// Compares Superpoll with nginx, HAProxy, hyper and mio: the table of the README.
pub(super) fn peers(document: &Document) -> Option<String> {
    let records = &document.records;
    let [file, nginx, hyper] = ["superpoll-adaptive", "nginx", "hyper-tokio"]
        .map(|subject| lookup::file(records, subject, "http", 1024));
    let [tcp, tcp_haproxy] =
        ["superpoll-adaptive", "haproxy"].map(|name| lookup::relay(records, name, "keep-alive"));
    let [http, http_haproxy] = ["superpoll-adaptive", "haproxy"]
        .map(|name| lookup::relay(records, name, "http-keep-alive"));
    let [bytes, nginx_bytes] =
        ["superpoll-keep-alive", "nginx-keep-alive"].map(|subject| bytes_of(records, subject));
    let [round, mio] = ["adaptive", "mio"].map(|subject| lookup::round(records, 100, subject));

    let row = |work: &str, ours: String, peer: &str, theirs: String, ratio: String| {
        [work.to_owned(), ours, format!("{peer}: {theirs}"), ratio]
    };
    let served = |work, row_of: &files::Row, peer, other: &files::Row, ratio: Option<Ratio>| {
        let [ours, theirs] = [row_of, other].map(|row| time(row.figures.cpu_ns_per_request_median));
        row(work, ours, peer, theirs, spread(ratio))
    };
    let passed_on = |work, row_of: &relay::Row, other: &relay::Row| {
        let [ours, theirs] = [row_of, other].map(|row| time(row.figures.cpu_ns_per_request_median));
        row(work, ours, "HAProxy", theirs, spread(row_of.haproxy_ratio))
    };
    let held = |peer, ours: f64, theirs: f64| {
        let [own, other] = [ours, theirs].map(|bytes| format!("{bytes:.0} bytes"));
        row("memory of an idle keep-alive connection", own, peer, other, ratio(Some(ours / theirs)))
    };
    let (file, tcp, http, bytes) = (file?, tcp?, http?, bytes?);
    let (round, mio) = (round?, mio?);
    // Both are relative to the same loop.
    let ours_to_mio = round.loop_part().zip(mio.loop_part()).map(|(ours, theirs)| ours / theirs);
    let fanned = |transport: &str, name: &str| -> Option<[String; 4]> {
        let [ours, theirs] =
            ["superpoll-adaptive", "nchan"].map(|subject| delivered(records, subject, transport));
        let (ours, theirs) = (ours?, theirs?);
        let work = format!(
            "CPU of a message to a subscriber by {name}, {} subscribers",
            thousands(ours.subscribers)
        );
        let [own, other] = [ours, theirs].map(|row| time(row.cpu_ns_per_delivery_median));
        Some(row(&work, own, "nginx with nchan", other, spread(ours.nchan_ratio)))
    };
    let fanned = [fanned("websocket", "WebSocket"), fanned("sse", "server-sent events")];
    let file_work = "CPU of a request for a file of 1 KiB";
    table(
        &["work", "Superpoll", "compared with", "ratio"],
        [
            served(file_work, file, "nginx", nginx?, file.nginx_ratio),
            served(file_work, file, "hyper on tokio", hyper?, file.hyper_ratio),
            passed_on("CPU of a request through the TCP proxy, keep-alive", tcp, tcp_haproxy?),
            passed_on("CPU of a request through the HTTP proxy, keep-alive", http, http_haproxy?),
            held("nginx", bytes, nginx_bytes?),
            row(
                "time of a round, 100 of 1,000 pipes active (poller)",
                time(round.ns_per_round_median),
                "mio",
                time(mio.ns_per_round_median),
                ratio(ours_to_mio),
            ),
        ]
        .into_iter()
        .chain(fanned.into_iter().flatten()),
    )
}

/// Formats a number with a comma before its last three digits.
fn thousands(number: usize) -> String {
    match number {
        ..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

/// Compares loops with few, some and all of a thousand pipes active.
pub(super) fn call(document: &Document) -> Option<String> {
    let of = |active| Some((active, lookup::rounds(&document.records, active)?));
    [1, 100, 1000].into_iter().filter_map(of).cited(&[
        ("active", &|(active, _)| format!("{active} of 1000")),
        ("`poll`", &|(_, [poll, ..])| time(poll.ns_per_round_median)),
        ("`epoll`", &|(_, [_, epoll, _])| time(epoll.ns_per_round_median)),
        ("`adaptive`", &|(_, [.., own])| time(own.ns_per_round_median)),
        ("`adaptive` / the best", &|(_, [.., own])| ratio(own.loop_part())),
    ])
}

/// Compares loops over busy descriptors among many idle ones, by the kind of descriptor.
pub(super) fn placement(document: &Document) -> Option<String> {
    let of = |(kind, name): (&str, &'static str)| {
        let of = |subject: &str| {
            experiments::rows(&document.records.mix)
                .filter(|row| row.family == "mixed" && row.kind == kind)
                .find(|row| (row.hot, row.cold, &*row.subject) == (200, 9600, subject))
                .map(|row| &row.figures)
        };
        Some((name, [of("poll")?, of("epoll-lt")?, of("adaptive")?]))
    };
    let kinds = [("pipe", "pipes"), ("unix", "Unix sockets"), ("tcp", "TCP sockets")];
    kinds.into_iter().filter_map(of).cited(&[
        ("200 busy, 9,600 idle", &|(name, _): &(&str, [&Figures; 3])| (*name).to_owned()),
        ("`poll`", &|(_, [poll, ..])| time(poll.ns_per_round_median)),
        ("`epoll`", &|(_, [_, epoll, _])| time(epoll.ns_per_round_median)),
        ("`adaptive`", &|(_, [.., own])| time(own.ns_per_round_median)),
        ("cost of `adaptive` / the best", &|(_, [.., own])| ratio(own.cost())),
    ])
}

/// Returns the costs of idle connections: memory of the server, and processor time of its busy
/// connections.
pub(super) fn idle_cost(document: &Document) -> Option<String> {
    let records = &document.records;
    let row = |name: &str, memory: Option<&str>, busy: &str| -> Option<[String; 3]> {
        let memory = match memory {
            Some(subject) => format!("{:.0} bytes", bytes_of(records, subject)?),
            None => String::new(),
        };
        let slowed = lookup::most_zombies(records, busy)?.none_ratio?;
        Some([name.to_owned(), memory, spread(Some(slowed))])
    };
    let rows = [
        row("`superpoll serve`", Some("superpoll-keep-alive"), "gateway-adaptive")?,
        row("hyper on tokio", Some("hyper-keep-alive"), "hyper-tokio")?,
        row("a loop on `poll`", None, "superpoll-poll")?,
    ];
    let most = lookup::most_zombies(records, "gateway-adaptive")?.zombies;
    let busy = format!("CPU of a busy request with {} idle ones / with none", thousands(most));
    table(&["server", "memory of an idle connection", &busy], rows)
}

/// Compares a thread for each of a thousand pipes with the best loop.
pub(super) fn thread_each(document: &Document) -> Option<String> {
    let of = |active: usize| {
        experiments::rows(&document.records.threads).find(|row| {
            (&*row.family, &*row.kind, &*row.processors) == ("threads", "pipe", "one")
                && (row.active, row.total) == (active, 1000)
        })
    };
    let [clock, cost] = crate::threads::ACCOUNTS;
    [1, 100, 1000].into_iter().filter_map(of).cited(&[
        ("active", &|row| format!("{} of 1000", row.active)),
        ("time, threads / the best loop", &|row| spread((clock.ratio)(row))),
        ("CPU, threads / the best loop", &|row| spread((cost.ratio)(row))),
    ])
}

/// Compares three ways to share a listener among the most processes that were measured.
pub(super) fn accept(document: &Document) -> Option<String> {
    let (most, own) = lookup::largest_herds(&document.records)?;
    let ways = [
        ("epoll", "`epoll`"),
        ("epoll-exclusive", "`epoll` with `EPOLLEXCLUSIVE`"),
        ("reuseport", "a listener each, `SO_REUSEPORT`"),
    ];
    let of = |(subject, name)| Some((name, own.iter().find(|row| row.subject == subject)?));
    ways.into_iter().filter_map(of).cited(&[
        ("way to wait", &|(name, _): &(&str, _)| (*name).to_owned()),
        (&format!("`connect()` while {most} processes wait"), &|(_, row)| {
            time(row.connect_ns_median)
        }),
        ("processes woken", &|(_, row)| format!("{:.1}", row.woken_per_connect)),
    ])
}

/// Compares three runtimes, without the network's part and with it.
pub(super) fn runtime(document: &Document) -> Option<String> {
    let (most, own) = lookup::longest_rings(&document.records)?;
    let of = |subject| {
        let echoed = experiments::rows(&document.records.echo)
            .filter(|row| row.kind == "tcp" && row.connections == 1000)
            .find(|row| row.subject == subject)?;
        Some((*own.iter().find(|row| row.subject == subject)?, echoed))
    };
    ["superpoll-rt-adaptive", "tokio", "smol"].into_iter().filter_map(of).cited(&[
        ("runtime", &|(row, _)| row.subject.clone()),
        (&format!("a byte to the next of {most} tasks"), &|(row, _)| time(row.ns_per_hop_median)),
        ("/ tokio", &|(row, _)| ratio(row.to_tokio.headline())),
        ("CPU of an echo over TCP / tokio", &|(_, echoed)| spread(echoed.tokio_ratio)),
    ])
}

/// Returns the effect of a restart on idle connections that a second process keeps.
pub(super) fn restart(document: &Document) -> Option<String> {
    let of = |how: &str, figure: &str| lookup::keep(&document.records, "restart", how, figure);
    let row = |name: String, of: &dyn Fn(&str) -> Option<String>| -> Option<[String; 3]> {
        Some([name, of("upgrade")?, of("crash")?])
    };
    let connections = of("upgrade", "dropped")?.number;
    let rows = [
        row(format!("of {connections} idle connections dropped"), &|subject| {
            Some(format!("{:.0}", of(subject, "dropped")?.most))
        })?,
        row("messages lost, delivered twice".to_owned(), &|subject| {
            let [lost, doubled] = ["lost", "doubled"].map(|figure| of(subject, figure));
            Some(format!("{:.0}, {:.0}", lost?.most, doubled?.most))
        })?,
        row("from the new server's start to its first answer".to_owned(), &|subject| {
            let answer = of(subject, "first answer")?;
            let [median, least, most] =
                [answer.median, answer.least, answer.most].map(|ns| format!("{:.0}", ns / 1e6));
            Some(format!("{median} ms ({least} to {most})"))
        })?,
    ];
    table(&["", "upgrade", "crash (`kill -9`)"], rows)
}

/// Returns the bytes of a server's memory for each idle connection, for connections that came one
/// at a time.
fn bytes_of(records: &Records, subject: &str) -> Option<f64> {
    let mut rows = experiments::rows(&records.idle);
    let row = rows.find(|row| row.subject == subject && row.arrival == "one-by-one")?;
    Some(row.user_bytes_per_connection.median)
}

/// Returns the row of a server's messages to the fewest subscribers of a kind.
fn delivered<'a>(records: &'a Records, subject: &str, transport: &str) -> Option<&'a fanout::Row> {
    experiments::rows(&records.fanout)
        .filter(|row| row.subject == subject && row.transport == transport)
        .min_by_key(|row| row.subscribers)
}
