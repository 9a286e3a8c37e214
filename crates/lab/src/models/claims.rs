//! The claims about the four models, and the verdict of a sweep on them.
//!
//! The claims are those of a well-known comparison of 2017. Trying keeps a processor busy and is
//! not practical. Signals exist, but as Linux sends them they are next to useless. Asking is simple
//! but expensive by its nature, because each call goes through all descriptors, joins their wait
//! queues and leaves them again; epoll only lessens this. So the future is to tell the kernel
//! beforehand which operations the program wants.

use crate::atr::{cost, loop_time};
use crate::grouping;
use crate::models::Row;
use crate::record::{Account, Figures};

/// The rows of a sweep.
struct Sweep<'a>(&'a [&'a Row]);

impl Sweep<'_> {
    fn at(&self, subject: &str, active: usize) -> Option<&Figures> {
        let row = self.0.iter().find(|row| row.subject == subject && row.active == active)?;
        Some(&row.figures)
    }

    /// The numbers of active descriptors, ascending.
    fn points(&self) -> Vec<usize> {
        grouping::ascending(self.0, |row| row.active).into_keys().collect()
    }

    /// The ratio of one subject's cost to another's, at each point at which both were measured.
    fn ratios(&self, subject: &str, to: &str, of: Account) -> Vec<f64> {
        let ratio = |active| Some(of(self.at(subject, active)?)? / of(self.at(to, active)?)?);
        self.points().into_iter().filter_map(ratio).collect()
    }

    /// Describes these ratios at the ends of the sweep, by both accounts if both are known.
    fn against(&self, subject: &str, to: &str) -> Option<String> {
        if subject == to {
            return None;
        }
        let ends = |of: Account| {
            let ratios = self.ratios(subject, to, of);
            let (first, last) = (*ratios.first()?, *ratios.last()?);
            Some(match ratios.len() {
                1 => format!("{first:.2}"),
                _ => format!("{first:.2} to {last:.2}"),
            })
        };
        let alone = ends(loop_time)?;
        let writers = ends(cost).map_or_else(String::new, |cost| format!(", {cost} with writers"));
        Some(format!("{subject} takes {alone} times as long as {to}{writers}"))
    }

    /// Describes at how many points a subject was the cheapest including the writers' share, if
    /// that is known.
    fn won(&self, subject: &str) -> Option<String> {
        let won = self.0.iter().filter(|row| {
            let figures = &row.figures;
            row.subject == subject && figures.cost().or(figures.loop_part()) == Some(1.0)
        });
        let of = self.points().len();
        self.has(subject)
            .then(|| format!("{subject} is the cheapest at {} of {of} ratios", won.count()))
    }

    fn quiet(&self, subject: &str) -> Option<String> {
        let share = self.0.iter().find(|row| row.subject == subject)?.quiet_processor_share?;
        Some(format!("{subject} takes {:.1} % of a processor while nothing happens", share * 100.0))
    }

    /// Describes how many reads of a round found nothing, at the point where they were most, if
    /// there were any.
    fn empty_reads(&self, subject: &str) -> Option<String> {
        let own = self.0.iter().filter(|row| row.subject == subject);
        let each = own.map(|row| {
            let figures = &row.figures;
            let rounds = (figures.rounds + figures.preempted).max(1);
            figures.empty_reads as f64 / rounds as f64
        });
        let most = each.max_by(f64::total_cmp).filter(|most| *most > 0.0)?;
        Some(format!("{subject} reads up to {most:.0} descriptors of a round in vain"))
    }

    fn has(&self, subject: &str) -> bool {
        self.0.iter().any(|row| row.subject == subject)
    }

    fn overflows(&self, subject: &str) -> Option<String> {
        let own = self.0.iter().filter(|row| row.subject == subject);
        let counts: Option<u64> = own.map(|row| row.figures.overflows).sum();
        Some(match counts.filter(|_| self.has(subject))? {
            0 => format!("the queue of {subject} was never full"),
            1 => format!("the queue of {subject} was full once, and everything was polled"),
            count => {
                format!("the queue of {subject} was full {count} times, and everything was polled")
            }
        })
    }
}

/// The well-known epoll loop, with which all models are compared.
const KNOWN: &str = "raw-epoll-lt";

/// A line for each measured model. Times are given from the fewest active descriptors to the most.
pub(super) fn verdicts(rows: &[&Row]) -> Vec<String> {
    let sweep = Sweep(rows);
    let against = |subject: &str| sweep.against(subject, KNOWN);
    let trying = ["spin", KNOWN]
        .into_iter()
        .filter(|_| sweep.has("spin"))
        .map(|subject| sweep.quiet(subject))
        .chain([against("spin"), sweep.won("spin")]);
    let signals = ["sigio-plain", "sigio-wait", "sigio-fd"].into_iter().flat_map(|subject| {
        [against(subject), sweep.empty_reads(subject), sweep.overflows(subject)]
    });
    let asking = ["raw-select", "raw-poll", KNOWN, "raw-epoll-et"]
        .into_iter()
        .flat_map(|subject| [against(subject), sweep.won(subject)]);
    let registering = ["uring-poll", "uring-read", "aio-poll"]
        .into_iter()
        .flat_map(|subject| [against(subject), sweep.won(subject)]);
    let lines: [(&str, Vec<Option<String>>); 4] = [
        ("Trying is said to keep a processor busy and not to be practical", trying.collect()),
        ("Signals, as Linux sends them, are said to be of next to no use", signals.collect()),
        (
            "Asking is said to be heavy by nature, as each call joins and leaves all it waits for, and \
             less so with epoll",
            asking.collect(),
        ),
        ("Registering is said to be the way out", registering.collect()),
    ];
    lines
        .into_iter()
        .filter_map(|(claim, found)| {
            let found: Vec<String> = found.into_iter().flatten().collect();
            (!found.is_empty()).then(|| format!("{claim}. Measured: {}.", found.join("; ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(subject: &str, active: usize, ns: f64, best: f64, overflows: Option<u64>) -> Row {
        Row {
            total: 100,
            active,
            subject: subject.to_owned(),
            quiet_processor_share: Some(if subject == "spin" { 1.0 } else { 0.002 }),
            figures: Figures {
                ns_per_round_median: ns,
                cost_ns_per_round: Some(ns + 100.0),
                cost_ratio: Some((ns + 100.0) / (best + 100.0)),
                overflows,
                rounds: 8,
                preempted: 2,
                empty_reads: if subject == "sigio-plain" { 990 } else { 0 },
                ..Figures::default()
            },
            ..Row::default()
        }
    }

    #[test]
    fn each_model_that_was_measured_has_a_line_with_its_figures() {
        let rows = [
            row("spin", 1, 10_000.0, 1_000.0, None),
            row("sigio-wait", 1, 2_000.0, 1_000.0, Some(3)),
            row("sigio-plain", 1, 9_000.0, 1_000.0, None),
            row("raw-epoll-lt", 1, 1_000.0, 1_000.0, None),
            row("raw-epoll-et", 1, 900.0, 900.0, None),
            row("uring-read", 1, 500.0, 1_000.0, None),
            row("spin", 100, 40_000.0, 40_000.0, None),
            row("sigio-wait", 100, 100_000.0, 40_000.0, Some(4)),
            row("raw-epoll-lt", 100, 50_000.0, 40_000.0, None),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = verdicts(&rows);
        assert_eq!(lines.len(), 4, "{lines:?}");
        for part in [
            "spin takes 100.0 % of a processor",
            "raw-epoll-lt takes 0.2 %",
            "spin takes 10.00 to 0.80 times as long as raw-epoll-lt, 9.18 to 0.80 with writers",
            "the cheapest at 1 of 2 ratios",
        ] {
            assert!(lines[0].contains(part), "{part:?} in {}", lines[0]);
        }
        assert!(lines[1].contains("full 7 times"), "{}", lines[1]);
        assert!(lines[1].contains("takes 2.00 to 2.00 times"), "{}", lines[1]);
        assert!(lines[1].contains("sigio-plain reads up to 99 descriptors"), "{}", lines[1]);
        assert!(!lines[1].contains("queue of sigio-plain"), "{}", lines[1]);
        assert!(lines[2].contains("raw-epoll-et takes 0.90 times as long"), "{}", lines[2]);
        assert!(lines[2].contains("raw-epoll-et is the cheapest at 1 of 2 ratios"), "{}", lines[2]);
        assert!(lines[3].contains("uring-read takes 0.50 times as long"), "{}", lines[3]);
    }

    #[test]
    fn without_epoll_there_is_nothing_to_hold_against() {
        let rows = [row("raw-poll", 5, 1_000.0, 1_000.0, None)];
        let rows: Vec<&Row> = rows.iter().collect();
        let lines = verdicts(&rows);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("Measured: raw-poll is the cheapest at 1 of 1 ratios."));
    }
}
