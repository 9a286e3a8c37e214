//! Tables of a few rows, for README and GUIDE: each has the rows that a decision needs, of an
//! experiment whose full table is in `docs/measured`.

use crate::citation::blocks::{largest_herds, longest_rings, ratio, spread, table};
use crate::document::Document;
use crate::record::Figures;
use crate::statistics::Ratio;
use crate::table::time;
use crate::{experiments, fanout, files, findings, relay};

/// Compares Superpoll with nginx, HAProxy, hyper and mio: the table of the README.
pub(super) fn peers(document: &Document) -> Option<String> {
    let [file, nginx, hyper] = ["superpoll-adaptive", "nginx", "hyper-tokio"]
        .map(|subject| file_of(document, subject, 1024));
    let [tcp, tcp_haproxy] =
        ["superpoll-adaptive", "haproxy"].map(|subject| relayed(document, subject, "keep-alive"));
    let [http, http_haproxy] = ["superpoll-adaptive", "haproxy"]
        .map(|subject| relayed(document, subject, "http-keep-alive"));
    let [bytes, nginx_bytes] =
        ["superpoll-keep-alive", "nginx-keep-alive"].map(|subject| bytes_of(document, subject));
    let [round, mio] = ["adaptive", "mio"].map(|subject| round_of(document, 100, subject));

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
            ["superpoll-adaptive", "nchan"].map(|subject| delivered(document, subject, transport));
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
        ["work", "Superpoll", "compared with", "ratio"],
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
    let row = |active: usize| -> Option<[String; 5]> {
        let of = |subject| round_of(document, active, subject);
        let adaptive = of("adaptive")?;
        Some([
            format!("{active} of 1000"),
            time(of("poll")?.ns_per_round_median),
            time(of("epoll-lt")?.ns_per_round_median),
            time(adaptive.ns_per_round_median),
            ratio(adaptive.loop_part()),
        ])
    };
    let rows = [1, 100, 1000].into_iter().filter_map(row);
    table(["active", "`poll`", "`epoll`", "`adaptive`", "`adaptive` / the best"], rows)
}

/// Compares loops over busy descriptors among many idle ones, by the kind of descriptor.
pub(super) fn placement(document: &Document) -> Option<String> {
    let row = |(kind, name): (&str, &str)| -> Option<[String; 5]> {
        let of = |subject: &str| {
            experiments::rows(&document.records.mix)
                .filter(|row| row.family == "mixed" && row.kind == kind)
                .find(|row| (row.hot, row.cold, &*row.subject) == (200, 9600, subject))
                .map(|row| &row.figures)
        };
        let adaptive = of("adaptive")?;
        Some([
            name.to_owned(),
            time(of("poll")?.ns_per_round_median),
            time(of("epoll-lt")?.ns_per_round_median),
            time(adaptive.ns_per_round_median),
            ratio(adaptive.cost()),
        ])
    };
    let kinds = [("pipe", "pipes"), ("unix", "Unix sockets"), ("tcp", "TCP sockets")];
    let rows = kinds.into_iter().filter_map(row);
    let heading = "cost of `adaptive` / the best";
    table(["200 busy, 9,600 idle", "`poll`", "`epoll`", "`adaptive`", heading], rows)
}

/// Returns the costs of idle connections: memory of the server, and processor time of its busy
/// connections.
pub(super) fn idle_cost(document: &Document) -> Option<String> {
    let slowed = |subject: &str| {
        experiments::rows(&document.records.zombies)
            .filter(|row| row.subject == subject && row.workers <= 1)
            .max_by_key(|row| row.zombies)?
            .none_ratio
    };
    let row = |name: &str, memory: Option<&str>, busy: &str| -> Option<[String; 3]> {
        let memory = match memory {
            Some(subject) => format!("{:.0} bytes", bytes_of(document, subject)?),
            None => String::new(),
        };
        Some([name.to_owned(), memory, spread(Some(slowed(busy)?))])
    };
    let rows = [
        row("`superpoll serve`", Some("superpoll-keep-alive"), "gateway-adaptive")?,
        row("hyper on tokio", Some("hyper-keep-alive"), "hyper-tokio")?,
        row("a loop on `poll`", None, "superpoll-poll")?,
    ];
    let busy = "CPU of a busy request with 9,900 idle ones / with none";
    table(["server", "memory of an idle connection", busy], rows)
}

/// Compares a thread for each of a thousand pipes with the best loop.
pub(super) fn thread_each(document: &Document) -> Option<String> {
    let row = |active: usize| -> Option<[String; 3]> {
        let row = experiments::rows(&document.records.threads).find(|row| {
            (&*row.family, &*row.kind, &*row.processors) == ("threads", "pipe", "one")
                && (row.active, row.total) == (active, 1000)
        })?;
        let [clock, cost] = crate::threads::ACCOUNTS;
        Some([
            format!("{active} of 1000"),
            spread(Some((clock.ratio)(row)?)),
            spread(Some((cost.ratio)(row)?)),
        ])
    };
    let rows = [1, 100, 1000].into_iter().filter_map(row);
    table(["active", "time, threads / the best loop", "CPU, threads / the best loop"], rows)
}

/// Compares three ways to share a listener among the most processes that were measured.
pub(super) fn accept(document: &Document) -> Option<String> {
    let (most, own) = largest_herds(document)?;
    let row = |(subject, name): (&str, &str)| -> Option<[String; 3]> {
        let row = own.iter().find(|row| row.subject == subject)?;
        let woken = format!("{:.1}", row.woken_per_connect);
        Some([name.to_owned(), time(row.connect_ns_median), woken])
    };
    let ways = [
        ("epoll", "`epoll`"),
        ("epoll-exclusive", "`epoll` with `EPOLLEXCLUSIVE`"),
        ("reuseport", "a listener each, `SO_REUSEPORT`"),
    ];
    let rows = ways.into_iter().filter_map(row);
    let heading = format!("`connect()` while {most} processes wait");
    table(["way to wait", &heading, "processes woken"], rows)
}

/// Compares three runtimes, without the network's part and with it.
pub(super) fn runtime(document: &Document) -> Option<String> {
    let (most, own) = longest_rings(document)?;
    let row = |subject: &str| -> Option<[String; 4]> {
        let row = own.iter().find(|row| row.subject == subject)?;
        Some([
            subject.to_owned(),
            time(row.ns_per_hop_median),
            ratio(row.to_tokio.headline()),
            spread(echoed(document, subject)?.tokio_ratio),
        ])
    };
    let rows = ["superpoll-rt-adaptive", "tokio", "smol"].into_iter().filter_map(row);
    let ring = format!("a byte to the next of {most} tasks");
    table(["runtime", &ring, "/ tokio", "CPU of an echo over TCP / tokio"], rows)
}

/// Returns the effect of a restart on idle connections that a second process keeps.
pub(super) fn restart(document: &Document) -> Option<String> {
    let of = |subject: &str, figure: &str| -> Option<&findings::Row> {
        experiments::rows(&document.records.sit)
            .find(|row| (&*row.part, &*row.subject, &*row.figure) == ("restart", subject, figure))
    };
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
    table(["", "upgrade", "crash (`kill -9`)"], rows)
}

fn file_of<'a>(document: &'a Document, subject: &str, bytes: usize) -> Option<&'a files::Row> {
    experiments::rows(&document.records.files)
        .find(|row| row.subject == subject && row.bytes == bytes)
}

fn relayed<'a>(document: &'a Document, subject: &str, load: &str) -> Option<&'a relay::Row> {
    experiments::rows(&document.records.relay)
        .find(|row| row.subject == subject && row.load == load)
}

/// Returns the bytes of a server's memory for each idle connection, for connections that came one
/// at a time.
fn bytes_of(document: &Document, subject: &str) -> Option<f64> {
    let mut rows = experiments::rows(&document.records.idle);
    let row = rows.find(|row| row.subject == subject && row.arrival == "one-by-one")?;
    Some(row.user_bytes_per_connection.median)
}

/// Returns the row of a server's messages to the fewest subscribers of a kind.
fn delivered<'a>(
    document: &'a Document,
    subject: &str,
    transport: &str,
) -> Option<&'a fanout::Row> {
    experiments::rows(&document.records.fanout)
        .filter(|row| row.subject == subject && row.transport == transport)
        .min_by_key(|row| row.subscribers)
}

fn echoed<'a>(document: &'a Document, subject: &str) -> Option<&'a crate::echo::Row> {
    experiments::rows(&document.records.echo)
        .filter(|row| row.kind == "tcp" && row.connections == 1000)
        .find(|row| row.subject == subject)
}

/// Returns the figures of a round over a thousand pipes, with the active ones at the end of
/// `poll`'s array.
fn round_of<'a>(document: &'a Document, active: usize, subject: &str) -> Option<&'a Figures> {
    experiments::rows(&document.records.atr)
        .filter(|row| (&*row.kind, &*row.placement, row.total) == ("pipe", "end", 1000))
        .find(|row| (row.active, &*row.subject) == (active, subject))
        .map(|row| &row.figures)
}
