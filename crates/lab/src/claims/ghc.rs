//! The claims of a merge request to GHC about its I/O managers, and how each claim is evaluated.

use crate::claims::claim::{Claim, Evaluation, Source, Verdict, at_least, at_most, claim};
use crate::claims::measured::{ring, time};
use crate::experiments::Records;

pub(super) const SOURCE: Source = Source {
    text: "ghc",
    title: "Duncan Coutts, GHC: “new epoll I/O manager”",
    about: "Passes a byte round a thousand pipes with a thread between each two, under each of the runtime's I/O managers.",
    claims: CLAIMS,
};

const CLAIMS: &[Claim] = &[
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
