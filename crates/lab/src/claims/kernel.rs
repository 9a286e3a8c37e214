//! The claims of an article on poll and epoll in Linux 2.6, and how each claim is evaluated.

use crate::claims::{Claim, Evaluation, Source, Verdict, at_least, at_most, claim};
use crate::experiments::{self, Records};
use crate::lookup::{
    all_active_of_any, keep, most_zombies, spread, sweeps, sweeps_at_the_end, with_zombies,
};
use crate::statistics::{self, Estimate};
use crate::table::time;

pub(super) const SOURCE: Source = Source {
    text: "kernel",
    title: "“poll and epoll in the kernel”, an article on Linux 2.6.21",
    about: "Reads what the two do in the kernel, and measures a server with ten active clients next to more and more silent \
            ones.",
    claims: CLAIMS,
};

const CLAIMS: &[Claim] = &[
    claim("kernel-poll-linear", "zombies", poll_linear)
        .says("With ten active clients poll's time for a request grows linearly with the silent ones"),
    claim("kernel-epoll-flat", "zombies", epoll_flat)
        .says("epoll's time for a request hardly depends on how many connections are silent")
        .means(
            "Silent connections cost an epoll server nothing per request: only memory limits them.",
            "Silent connections slow your busy ones down even with epoll: spread them over processes.",
        ),
    claim("kernel-poll-first-without-zombies", "zombies", poll_first)
        .says("Without silent connections poll is a little quicker than epoll"),
    claim("kernel-many-idle-epoll", "zombies", far_better)
        .says("With many idle connections epoll is far more efficient than poll"),
    claim("kernel-all-active-no-gain", "atr", no_gain)
        .says("Where nearly all are active epoll is no more efficient than poll"),
    claim("kernel-few-active-gain", "atr", few_active)
        .says("Where few of many are active, epoll saves the walk over all of them"),
    claim("kernel-select-like-poll", "models", select_like_poll)
        .says("select and poll work alike, with no obvious difference in cost"),
    claim("kernel-edge-hardly-matters", "atr", edges)
        .says("Whether epoll reports edges or levels does not matter much for its performance")
        .means(
            "Choose between edges and levels by which your program gets right; the time is the same.",
            "Edges and levels differ in time here: measure both with your share of active connections.",
        ),
    claim("kernel-poll-joins-every-queue", "wake", joins_queues)
        .says("A poll that sleeps joins the wait queue of every descriptor and leaves it again: waking up takes the \
               longer the more there are"),
    claim("kernel-ctl-is-constant", "registrations", ctl_constant)
        .says("epoll_ctl takes the same time for each descriptor, however many are watched"),
    claim("kernel-batched-ctl", "registrations", batched_ctl)
        .says("If one epoll_ctl could change many descriptors, that would be a gain"),
    claim("kernel-hundred-thousand", "idle", hundred_thousand)
        .says("Memory alone limits how many epoll watches: about 100,000 in a gigabyte"),
    claim("kernel-epoll-maps", "models", maps)
        .says("epoll and the program share memory through mmap, so that events need not be copied"),
    claim("kernel-epoll-nests", "sit", nests)
        .says("An epoll set is a file and can be polled itself"),
];

fn poll_linear(records: &Records) -> Evaluation {
    let most = most_zombies(records, "superpoll-poll")?;
    let none = with_zombies(records, "superpoll-poll", 0)?;
    // The cost that each silent connection adds, at the most and at the fewest connections that
    // were measured.
    let few = experiments::rows(&records.zombies)
        .filter(|row| row.subject == "superpoll-poll" && row.zombies > 0)
        .min_by_key(|row| row.zombies)?;
    let ratio = most.none_ratio?.headline().value;
    if few.zombies == most.zombies {
        return None;
    }
    let added = |row: &crate::zombies::Row| {
        row.figures.cpu_ns_per_request_median - none.figures.cpu_ns_per_request_median
    };
    let (small, large) = (added(few), added(most));
    let slope = (large / small.max(1.0)).ln() / (most.zombies as f64 / few.zombies as f64).ln();
    let verdict = if ratio < 1.2 { Verdict::DoesNotHold } else { at_least(slope, 0.6, 0.2) };
    verdict.because(format!(
        "{} silent ones add {} to a request, {} add {}",
        few.zombies,
        time(small.max(0.0)),
        most.zombies,
        time(large.max(0.0))
    ))
}

fn epoll_flat(records: &Records) -> Evaluation {
    let row = most_zombies(records, "raw-epoll")?;
    let ratio = row.none_ratio?;
    at_most(ratio.headline().value, 1.12, 1.4).because(format!(
        "with {} of them it takes {} of the time without any",
        row.zombies,
        spread(ratio)
    ))
}

fn poll_first(records: &Records) -> Evaluation {
    let (poll, epoll) =
        (with_zombies(records, "superpoll-poll", 0)?, with_zombies(records, "superpoll-epoll", 0)?);
    let ratio = poll.figures.cpu_ns_per_request_median / epoll.figures.cpu_ns_per_request_median;
    at_most(ratio, 0.8, 1.25).because(format!(
        "with ten clients only a request takes {} with poll, {} with epoll: {ratio:.2} (between 0.8 \
         and 1.25 is partly: too close to call in every run)",
        time(poll.figures.cpu_ns_per_request_median),
        time(epoll.figures.cpu_ns_per_request_median)
    ))
}

fn far_better(records: &Records) -> Evaluation {
    let (poll, epoll) =
        (most_zombies(records, "superpoll-poll")?, most_zombies(records, "superpoll-epoll")?);
    if poll.zombies != epoll.zombies {
        return None;
    }
    let ratio = poll.figures.cpu_ns_per_request_median / epoll.figures.cpu_ns_per_request_median;
    at_least(ratio, 2.0, 1.2).because(format!(
        "next to {} idle ones poll takes {ratio:.1} times epoll's processor time",
        poll.zombies
    ))
}

fn no_gain(records: &Records) -> Evaluation {
    let (ratio, measured) = all_active_of_any(records)?;
    at_least(ratio, 0.97, 0.9).because(measured)
}

fn few_active(records: &Records) -> Evaluation {
    let sweep = sweeps_at_the_end(records).pop()?;
    let (share, ratio) = *sweep.curve("raw-poll", "raw-epoll-lt").first()?;
    let active = share * sweep.total as f64;
    if share > 0.02 {
        return None;
    }
    at_least(ratio, 5.0, 1.5).because(format!(
        "with {active:.0} of {} active poll takes {ratio:.0} times as long",
        sweep.total
    ))
}

fn select_like_poll(records: &Records) -> Evaluation {
    let rows = &records.models.as_ref()?.rows;
    let select = rows.iter().filter(|row| row.subject == "raw-select" && row.kind == "pipe");
    let ratios = select.filter_map(|row| {
        let same = |other: &&crate::sweep::Row| {
            (&*other.kind, &*other.placement, other.total, other.active, &*other.subject)
                == (&*row.kind, &*row.placement, row.total, row.active, "raw-poll")
        };
        let poll = rows.iter().find(same)?;
        Some(row.figures.ns_per_round_median / poll.figures.ns_per_round_median)
    });
    alike("select", "poll", &ratios.collect::<Vec<f64>>())
}

fn edges(records: &Records) -> Evaluation {
    let ratios = sweeps(records).into_iter().flat_map(|sweep| {
        sweep.curve("raw-epoll-et", "raw-epoll-lt").into_iter().map(|(_, ratio)| ratio)
    });
    alike("an edge-triggered epoll loop", "a level-triggered one", &ratios.collect::<Vec<f64>>())
}

/// Returns whether the median of some ratios is one, within the noise.
fn alike(one: &str, other: &str, ratios: &[f64]) -> Evaluation {
    if ratios.is_empty() {
        return None;
    }
    let middle = statistics::median(ratios);
    at_most(middle.ln().abs(), 1.12f64.ln(), 1.3f64.ln()).because(format!(
        "{one} takes {middle:.2} of the time of {other}, the middle of {} points from {:.2} to {:.2} (0.89 to 1.12 is \
         alike)",
        ratios.len(),
        statistics::minimum(ratios),
        statistics::maximum(ratios)
    ))
}

fn hundred_thousand(records: &Records) -> Evaluation {
    let row = experiments::rows(&records.idle)
        .filter(|row| row.subject == "superpoll-keep-alive" && row.arrival == "one-by-one")
        .max_by_key(|row| row.connections)?;
    let bytes = row.user_bytes_per_connection.median + row.slab_bytes_per_connection.median;
    let fit = (1u64 << 30) as f64 / bytes;
    at_least(fit, 80_000.0, 30_000.0).because(format!(
        "an idle connection takes {bytes:.0} bytes, those of the kernel at both of its ends included: {:.0} thousand \
         in a GiB",
        fit / 1e3
    ))
}

fn joins_queues(records: &Records) -> Evaluation {
    let of = |subject: &str| {
        experiments::rows(&records.wake).find(|row| row.kind == "pipe" && row.subject == subject)
    };
    let (poll, epoll) = (of("raw-poll").or(of("poll"))?, of("raw-epoll-lt").or(of("epoll-lt"))?);
    let ratio = poll.times.wake_ns_p50 / epoll.times.wake_ns_p50;
    at_least(ratio, 1.5, 1.1).because(format!(
        "woken after a sleep over {} descriptors, poll has read the byte after {}, epoll after {} (p50)",
        poll.total,
        time(poll.times.wake_ns_p50),
        time(epoll.times.wake_ns_p50)
    ))
}

fn ctl_constant(records: &Records) -> Evaluation {
    let own = || {
        experiments::rows(&records.registrations)
            .filter(|row| row.subject == "raw-epoll" && row.kind == "pipe")
    };
    let (first, last) = (own().min_by_key(|row| row.batch)?, own().max_by_key(|row| row.batch)?);
    if first.batch == last.batch {
        return None;
    }
    let ratio = last.both_ns_median / first.both_ns_median;
    at_most((ratio.ln()).abs(), 2.2f64.ln(), 5f64.ln()).because(format!(
        "to come and go takes {} one by one, {} with {} at a time",
        time(first.both_ns_median),
        time(last.both_ns_median),
        last.batch
    ))
}

fn batched_ctl(records: &Records) -> Evaluation {
    let row = experiments::rows(&records.registrations)
        .filter(|row| row.subject == "ring-epoll-ctl" && row.kind == "pipe")
        .max_by_key(|row| row.batch)?;
    let Estimate { value: ratio, low, high } = row.ratio?.headline();
    at_most(ratio, 0.8, 1.1).because(format!(
        "{} changes in one call through io_uring take {ratio:.2} ({low:.2} to {high:.2}) of the processor time of as many \
         epoll_ctl (0.8 to 1.1 is no clear gain)",
        row.batch
    ))
}

fn maps(records: &Records) -> Evaluation {
    let refused = records.models.as_ref()?.parameters.get("epoll_mmap")?;
    match refused.as_str() {
        None => Verdict::Holds.because("an epoll set can be mapped"),
        Some(error) => Verdict::DoesNotHold.because(format!(
            "mmap of an epoll set fails ({error}): each wait copies its events out"
        )),
    }
}

fn nests(records: &Records) -> Evaluation {
    let row = keep(records, "busy", "nested", "main")?;
    Verdict::Holds.because(format!(
        "poll watches ten busy connections and an epoll set with {} idle ones: {} for a request",
        row.number,
        time(row.median)
    ))
}
