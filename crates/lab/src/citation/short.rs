//! Tables of a few rows, for README and GUIDE: each has the rows that a decision needs, of an
//! experiment whose full table is in `docs/measured`.

use crate::citation::blocks::{Cited, ratio, spread, table};
use crate::document::Document;
use crate::experiments::{self, Records};
use crate::record::Figures;
use crate::table::time;
use crate::{fanout, files, lookup};

/// A row of the table of peers: the work, our cost, the peer and its cost, and the ratio.
type PeerRow = [String; 4];

fn compared(work: &str, ours: String, peer: &str, theirs: String, ratio: String) -> PeerRow {
    [work.to_owned(), ours, format!("{peer}: {theirs}"), ratio]
}

/// Compares Superpoll with nginx, HAProxy, hyper, Caddy and mio: the table of the README.
pub(super) fn peers(document: &Document) -> Option<String> {
    let records = &document.records;
    let [round, mio] = ["adaptive", "mio"].map(|subject| lookup::round(records, 100, subject));
    let (round, mio) = (round?, mio?);
    // Both are relative to the same loop.
    let ours_to_mio = round.loop_part().zip(mio.loop_part()).map(|(ours, theirs)| ours / theirs);
    let poller = compared(
        "time of a round, 100 of 1,000 pipes active (poller)",
        time(round.ns_per_round_median),
        "mio",
        time(mio.ns_per_round_median),
        ratio(ours_to_mio),
    );
    let fanned = |transport: &str, name: &str| -> Option<PeerRow> {
        let [ours, theirs] =
            ["superpoll-adaptive", "nchan"].map(|subject| delivered(records, subject, transport));
        let (ours, theirs) = (ours?, theirs?);
        let work = format!(
            "CPU of a message to a subscriber by {name}, {} subscribers",
            thousands(ours.subscribers)
        );
        let [own, other] = [ours, theirs].map(|row| time(row.cpu_ns_per_delivery_median));
        Some(compared(&work, own, "nginx with nchan", other, spread(ours.nchan_ratio)))
    };
    let fanned = [fanned("websocket", "WebSocket"), fanned("sse", "server-sent events")];
    let rows = [served(records), passed_on(records), held(records)].into_iter().flatten();
    table(
        &["work", "Superpoll", "compared with", "ratio"],
        rows.chain([poller]).chain(fanned.into_iter().flatten()),
    )
}

/// Compares servers of files.
fn served(records: &Records) -> Vec<PeerRow> {
    let work = "CPU of a request for a file of 1 KiB";
    let of = |work: &str, protocol: &str, [subject, peer]: [&str; 2], to: fn(&files::Row) -> _| {
        let [ours, theirs] = ["superpoll-adaptive", subject]
            .map(|subject| lookup::file(records, subject, protocol, 1024));
        let (ours, theirs) = (ours?, theirs?);
        let [own, other] = [ours, theirs].map(|row| time(row.figures.cpu_ns_per_request_median));
        Some(compared(work, own, peer, other, spread(to(ours))))
    };
    let nginx = ["nginx", "nginx"];
    let rows = [
        of(work, "http", nginx, |row| row.nginx_ratio),
        of(work, "http", ["hyper-tokio", "hyper on tokio"], |row| row.hyper_ratio),
        of(work, "http", ["caddy", "Caddy"], |row| row.caddy_ratio),
        of(&format!("{work} by HTTPS"), "https", nginx, |row| row.nginx_ratio),
        of(&format!("{work} by HTTP/2"), "h2", nginx, |row| row.nginx_ratio),
    ];
    rows.into_iter().flatten().collect()
}

/// Compares relays and proxies.
fn passed_on(records: &Records) -> Vec<PeerRow> {
    let of = |(load, work): (&str, &str)| {
        let [ours, theirs] =
            ["superpoll-adaptive", "haproxy"].map(|name| lookup::relay(records, name, load));
        let (ours, theirs) = (ours?, theirs?);
        let [own, other] = [ours, theirs].map(|row| time(row.figures.cpu_ns_per_request_median));
        Some(compared(work, own, "HAProxy", other, spread(ours.haproxy_ratio)))
    };
    let loads = [
        ("keep-alive", "CPU of a request through the TCP proxy, keep-alive"),
        ("http-keep-alive", "CPU of a request through the HTTP proxy, keep-alive"),
        ("h2", "CPU of a request through the HTTP proxy, HTTP/2 to HTTP/1"),
        ("https-full", "CPU of a TLS connection with one request through the HTTP proxy"),
        ("https-resumed", "the same, the TLS session resumed"),
    ];
    loads.into_iter().filter_map(of).collect()
}

/// Compares idle connections.
fn held(records: &Records) -> Vec<PeerRow> {
    let of = |(kind, name): (&str, &str)| {
        let [ours, theirs] =
            ["superpoll", "nginx"].map(|server| bytes_of(records, &format!("{server}-{kind}")));
        let (ours, theirs) = (ours?, theirs?);
        let [own, other] = [ours, theirs].map(|bytes| format!("{bytes:.0} bytes"));
        let work = format!("memory of an idle {name}connection");
        Some(compared(&work, own, "nginx", other, ratio(Some(ours / theirs))))
    };
    [("keep-alive", "keep-alive "), ("h2", "HTTP/2 ")].into_iter().filter_map(of).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::record::Record;
    use crate::server::trial::Figures;
    use crate::statistics::Ratio;

    #[test]
    fn servers_of_files_are_compared_by_what_a_report_has() {
        let row = |subject: &str, protocol: &str, us: f64| files::Row {
            subject: subject.to_owned(),
            protocol: protocol.to_owned(),
            bytes: 1024,
            figures: Figures { cpu_ns_per_request_median: 1e3 * us, ..Figures::default() },
            nginx_ratio: Some(Ratio { median: 0.5, low: 0.4, high: 0.6, decile: None }),
            ..files::Row::default()
        };
        let of = |rows: Vec<files::Row>| {
            let record = Record::new("files", Environment::here(), [], rows);
            served(&Records { files: Some(record), ..Records::default() })
        };
        let plain = vec![row("superpoll-adaptive", "http", 11.0), row("nginx", "http", 22.0)];
        let rows = of(plain.clone());
        assert_eq!(rows.len(), 1, "{rows:?}");
        let [work, ours, peer, ratio] = &rows[0];
        assert!(!work.contains("HTTP") && ours == "11.0 us" && peer == "nginx: 22.0 us", "{peer}");
        assert_eq!(ratio, "0.50 (0.40 to 0.60)");
        let more = [row("superpoll-adaptive", "h2", 12.0), row("nginx", "h2", 33.0)];
        let all = of([plain, more.to_vec(), vec![row("caddy", "http", 99.0)]].concat());
        let shown: Vec<_> = all.iter().map(|row| format!("{}, {}", row[0], row[2])).collect();
        let file = "CPU of a request for a file of 1 KiB";
        let expected = [", nginx: 22.0 us", ", Caddy: 99.0 us", " by HTTP/2, nginx: 33.0 us"];
        assert_eq!(shown, expected.map(|rest| format!("{file}{rest}")));
        assert!(of(Vec::new()).is_empty());
    }
}
