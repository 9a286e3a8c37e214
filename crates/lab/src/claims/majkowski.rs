//! The claims of Marek Majkowski's text of 2017, and how each claim is evaluated.

use crate::claims::{Claim, Evaluation, Source, Verdict, at_least, at_most, claim};
use crate::experiments::{self, Records};
use crate::lookup::{herd, herd_growth, relay, ring, spread};
use crate::sweep::Row;
use crate::table::time;

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
fn of<'a>(records: &'a Records, subject: &str) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = experiments::rows(&records.models)
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
    let cost = |row: &Row| row.figures.cost_ns_per_round.unwrap_or(row.figures.ns_per_round_median);
    let ratio = |own: Option<&&Row>, epoll: Option<&&Row>| {
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

// The claims of a merge request to GHC about its I/O managers, and how each claim is evaluated.

pub(super) const GHC: Source = Source {
    text: "ghc",
    title: "Duncan Coutts, GHC: “new epoll I/O manager”",
    about: "Passes a byte round a thousand pipes with a thread between each two, under each of the runtime's I/O managers.",
    claims: GHC_CLAIMS,
};

const GHC_CLAIMS: &[Claim] = &[
    claim("ghc-select-fails", "ring", select_fails)
        .says("With a thousand pipes select fails, as their descriptors are out of its range"),
    claim("ghc-poll-slow", "ring", poll_slow)
        .says("poll works and is very slow: six times epoll's time")
        .means(
            "A runtime with many tasks that wait one at a time belongs on epoll (or adaptive), never on poll.",
            "With so few descriptors in a ring poll is no slower here.",
        ),
    claim("ghc-one-thread-beats-threads", "ring", one_thread)
        .says("An epoll manager in the one thread that runs the tasks beats one with threads"),
    claim("ghc-no-registration-per-wait", "ring", call_saved)
        .says("A runtime that keeps registrations until close saves a system call for each wait"),
];

fn select_fails(records: &Records) -> Evaluation {
    let record = records.ring.as_ref()?;
    let most = record.rows.iter().map(|row| row.total).max()?;
    if most < 600 {
        return None;
    }
    let measured =
        record.rows.iter().any(|row| row.subject == "superpoll-rt-select" && row.total >= 600);
    let refusal = record
        .parameters
        .get("took_no_part")
        .and_then(|notes| notes.as_array())
        .into_iter()
        .flatten()
        .filter(|refusal| refusal["subject"] == "superpoll-rt-select")
        .find_map(|refusal| refusal["reason"].as_str());
    match (measured, refusal) {
        (true, _) => Verdict::DoesNotHold.because(format!("select took part with {most} pipes")),
        (false, Some(note)) => Verdict::Holds.because(note),
        (false, None) => None,
    }
}

fn poll_slow(records: &Records) -> Evaluation {
    let (poll, epoll) = (ring(records, "superpoll-rt-poll")?, ring(records, "superpoll-rt-epoll")?);
    let ratio = poll.ns_per_hop_median / epoll.ns_per_hop_median;
    at_least(ratio, 3.0, 1.3).because(format!(
        "a hop over {} pipes takes {} on poll, {} on epoll: {ratio:.1} times as long",
        poll.total,
        time(poll.ns_per_hop_median),
        time(epoll.ns_per_hop_median)
    ))
}

fn one_thread(records: &Records) -> Evaluation {
    let (one, threads) = (ring(records, "superpoll-rt-epoll")?, ring(records, "tokio-multi")?);
    let ratio = one.ns_per_hop_min / threads.ns_per_hop_min;
    at_most(ratio, 0.92, 1.15).because(format!(
        "a hop takes {} on one thread and {} on tokio's runtime with threads, each in its best \
         round: {ratio:.2}",
        time(one.ns_per_hop_min),
        time(threads.ns_per_hop_min)
    ))
}

fn call_saved(records: &Records) -> Evaluation {
    let ours = ring(records, "superpoll-rt-epoll")?;
    let calls = ours.syscalls_per_hop?;
    let others = ring(records, "smol");
    let other = others.map_or_else(String::new, |other| {
        format!("; smol, which arms again for each wait, takes {}", time(other.ns_per_hop_median))
    });
    at_most(calls, 3.1, 3.5).because(format!(
        "{calls:.2} calls for a hop, read, write and wait: none to register; {}{other}",
        time(ours.ns_per_hop_median)
    ))
}

// The claims of a commit message of HAProxy about speculative I/O, and how each claim is
// evaluated.
//
// The message counts the system calls of 10,000 forwarded connections before and after speculative
// I/O was merged with polling. Here the calls of our own relay are counted with both merged and
// without any speculation. There is one connection at a time, so that each wait belongs to one
// request: with many connections, one wait would serve a dozen of them. A relay that never
// speculates has no fruitless reads, so it has nothing to save in reads; the reason says so.

pub(super) const HAPROXY: Source = Source {
    text: "haproxy",
    title: "Willy Tarreau, HAProxy: “merge speculative I/O into polled I/O”",
    about: "Tries to read and write before it waits, and asks the poller only where that fails; counts the calls saved.",
    claims: HAPROXY_CLAIMS,
};

const HAPROXY_CLAIMS: &[Claim] = &[
    claim("haproxy-fewer-epoll-ctl", "relay", |records| {
        calls_saved(records, "one-by-one", &["epoll_ctl"], 0.2)
    })
    .says("Trying first, and merging what is tried with what is polled, saves a fifth of the epoll_ctl calls of a \
           relay"),
    claim("haproxy-fewer-waits", "relay", |records| {
        calls_saved(records, "one-by-one", WAITS, 0.166)
    })
    .says("It saves a sixth of the epoll_wait calls"),
    claim("haproxy-fewer-recv", "relay", |records| {
        calls_saved(records, "one-by-one", READS, 0.2)
    })
    .says("It saves a fifth of the recv calls, those in vain"),
    claim("haproxy-faster", "relay", faster)
        .says("A relay of small TCP requests gains 1.6 % by it")
        .means(
            "In a proxy, try to read and write before you ask the poller (as superpoll proxy does).",
            "Trying before waiting does not pay for your proxy's load here; it saves calls, not time.",
        ),
    claim("haproxy-more-on-http", "relay", |records| {
        calls_saved(records, "http-connection", &["epoll_ctl"], 0.33)
    })
    .says("On HTTP it saves even more: a third of epoll_ctl"),
];

const WITH: &str = "superpoll-epoll";
const WITHOUT: &str = "superpoll-epoll-waits";
const WAITS: &[&str] = &["epoll_wait", "epoll_pwait", "epoll_pwait2"];
const READS: &[&str] = &["recv", "recvfrom", "read", "recvmsg", "readv"];

/// Judges how many calls of these names speculation saves per request: with half of the claimed
/// share the claim holds, with at least 2 % it holds partly.
fn calls_saved(records: &Records, load: &str, names: &[&str], claimed: f64) -> Evaluation {
    let (with, without) = (relay(records, WITH, load)?, relay(records, WITHOUT, load)?);
    let count = |row: &crate::relay::Row| -> Option<f64> {
        let calls = if row.strace_calls.is_empty() { &row.calls } else { &row.strace_calls };
        (!calls.is_empty()).then(|| names.iter().filter_map(|name| calls.get(*name)).sum::<f64>())
    };
    let (with, without) = (count(with)?, count(without)?);
    if without == 0.0 {
        return None;
    }
    let saved = 1.0 - with / without;
    let share = match saved >= 0.0 {
        true => format!("{:.0} % saved", saved * 100.0),
        false => format!("{:.0} % more", -saved * 100.0),
    };
    at_least(saved, claimed / 2.0, 0.02).because(format!(
        "{without:.2} by request of a relay that waits first become {with:.2}: {share}, of {:.0} % that were claimed \
         to be saved{}",
        claimed * 100.0,
        if names == READS { "; one that waits first reads nothing in vain" } else { "" }
    ))
}

fn faster(records: &Records) -> Evaluation {
    let ratio = relay(records, WITH, "connection")?.waits_ratio?;
    at_most(ratio.headline().value, 0.8, 1.2).because(format!(
        "with speculation a request takes {} of the processor time without (0.8 to 1.2 is partly: the gain that was \
         claimed is below what this can tell)",
        spread(ratio)
    ))
}
