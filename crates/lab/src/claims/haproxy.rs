//! The claims of a commit message of HAProxy about speculative I/O, and how each claim is
//! evaluated.
//!
//! The message counts the system calls of 10,000 forwarded connections before and after speculative
//! I/O was merged with polling. Here the calls of our own relay are counted with both merged and
//! without any speculation. There is one connection at a time, so that each wait belongs to one
//! request: with many connections, one wait would serve a dozen of them. A relay that never
//! speculates has no fruitless reads, so it has nothing to save in reads; the reason says so.

use crate::claims::claim::{Claim, Evaluation, Source, at_least, at_most, claim};
use crate::claims::measured::{relay, spread};
use crate::experiments::Records;

pub(super) const SOURCE: Source = Source {
    text: "haproxy",
    title: "Willy Tarreau, HAProxy: “merge speculative I/O into polled I/O”",
    about: "Tries to read and write before it waits, and asks the poller only where that fails; counts the calls saved.",
    claims: CLAIMS,
};

const CLAIMS: &[Claim] = &[
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
