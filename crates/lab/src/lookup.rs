//! Look-ups in the records: of the figures that claims, promises and documents are about.

use crate::atr;
use crate::experiments::{self, Records};
use crate::record::Figures;
use crate::statistics;
use crate::statistics::{Estimate, Ratio};
use crate::{files, findings, herd, relay, ring, sweep, table, zombies};

/// A sweep of `superpoll-lab atr`: all rows of one kind, total and placement.
pub(crate) struct Sweep<'a> {
    /// The placement of the active descriptors.
    pub placement: &'a str,
    /// Descriptors watched.
    pub total: usize,
    rows: Vec<&'a sweep::Row>,
}

impl Sweep<'_> {
    /// Returns one loop's time as a multiple of another's, over the ratio of active to all
    /// descriptors, ascending.
    pub(crate) fn curve(&self, above: &str, below: &str) -> Vec<(f64, f64)> {
        self.curve_of(above, below, |figures| Some(figures.ns_per_round_median))
    }

    /// Returns the same curve by another account.
    pub(crate) fn curve_of(
        &self,
        above: &str,
        below: &str,
        of: impl Fn(&Figures) -> Option<f64>,
    ) -> Vec<(f64, f64)> {
        let mut curve = atr::curve(&self.rows, above, below, of);
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    }

    /// Returns the curve's value at a ratio, on a straight line between the neighbouring points.
    pub(crate) fn at(&self, above: &str, below: &str, atr: f64) -> Option<f64> {
        let curve = self.curve(above, below);
        let after = curve.iter().position(|&(x, _)| x >= atr - 1e-9)?;
        let (x1, y1) = curve[after];
        if after == 0 || (x1 - atr).abs() < 1e-9 {
            return ((x1 - atr).abs() < 1e-9).then_some(y1);
        }
        let (x0, y0) = curve[after - 1];
        Some(y0 + (y1 - y0) * (atr - x0) / (x1 - x0))
    }

    /// Returns the ratio at which a poll loop stops being slower than an epoll loop; both are C
    /// programmers' loops.
    pub(crate) fn break_even(&self) -> Option<f64> {
        statistics::break_even(&self.curve("raw-poll", "raw-epoll-lt"))
    }

    /// Returns the time of a round over the number of active descriptors, ascending.
    pub(crate) fn times(&self, subject: &str) -> Vec<(f64, f64)> {
        let mut times: Vec<(f64, f64)> = self
            .rows
            .iter()
            .filter(|row| row.subject == subject)
            .map(|row| (row.active as f64, row.figures.ns_per_round_median))
            .collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        times
    }
}

/// Returns the sweeps over pipes.
pub(crate) fn sweeps(records: &Records) -> Vec<Sweep<'_>> {
    let rows = records.atr.as_ref().map_or(&[][..], |record| &record.rows);
    let groups = table::groups(rows, |row| (&*row.kind, &*row.placement, row.total));
    let of_pipes = groups.into_iter().filter(|((kind, ..), _)| *kind == "pipe");
    of_pipes.map(|((_, placement, total), rows)| Sweep { placement, total, rows }).collect()
}

/// Returns the sweeps with the active ones at the end, as the first such test had them, smallest
/// first.
pub(crate) fn sweeps_at_the_end(records: &Records) -> Vec<Sweep<'_>> {
    let mut sweeps = sweeps(records);
    sweeps.retain(|sweep| sweep.placement == "end");
    sweeps.sort_by_key(|sweep| sweep.total);
    sweeps
}

/// Returns the smallest and the largest of these sweeps, if there is more than one.
pub(crate) fn smallest_and_largest(records: &Records) -> Option<[Sweep<'_>; 2]> {
    let mut sweeps = sweeps_at_the_end(records);
    let largest = sweeps.pop()?;
    Some([sweeps.into_iter().next()?, largest])
}

/// Returns the sweep with a thousand pipes, as the first such test had, or with the nearest number
/// to that.
pub(crate) fn sweep_of_a_thousand(records: &Records) -> Option<Sweep<'_>> {
    sweeps_at_the_end(records).into_iter().min_by_key(|sweep| sweep.total.abs_diff(1000))
}

/// Returns an epoll loop's time as a multiple of a poll loop's, with all descriptors of a total
/// active. All placements are the same load then, so each measures the same ratio.
pub(crate) fn all_active(records: &Records, total: usize) -> Option<f64> {
    let mut sweeps = sweeps(records);
    sweeps.retain(|sweep| sweep.total == total);
    let ratios = sweeps.iter().filter_map(|sweep| sweep.at("raw-epoll-lt", "raw-poll", 1.0));
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| statistics::mean(&ratios))
}

/// Returns the median of the same figure over all totals, with its description.
pub(crate) fn all_active_of_any(records: &Records) -> Option<(f64, String)> {
    let mut totals: Vec<usize> = sweeps(records).iter().map(|sweep| sweep.total).collect();
    totals.sort_unstable();
    totals.dedup();
    let ratios: Vec<f64> = totals.iter().filter_map(|&total| all_active(records, total)).collect();
    let list = |values: Vec<String>| values.join(", ");
    let ratio = (!ratios.is_empty()).then(|| statistics::median(&ratios))?;
    let each = list(ratios.iter().map(|ratio| format!("{ratio:.2}")).collect());
    let totals = list(totals.iter().map(usize::to_string).collect());
    Some((ratio, format!("with all of {totals} pipes active epoll takes {each} of poll's time")))
}

/// Returns the slope of a curve in the logarithm of both axes, from the first to the last point: 1
/// where y grows in proportion to x.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let (&(x0, y0), &(x1, y1)) = (points.first()?, points.last()?);
    let run = x1.ln() - x0.ln();
    (run > 0.0 && y0 > 0.0 && y1 > 0.0).then(|| (y1.ln() - y0.ln()) / run)
}

/// Returns the rows of a way to wait, without duplicated descriptors, the fewest processes first.
pub(crate) fn herd<'a>(records: &'a Records, way: &str) -> Vec<&'a herd::Row> {
    let mut rows: Vec<&herd::Row> = experiments::rows(&records.herd)
        .filter(|row| row.subject == way && row.dups == 0)
        .collect();
    rows.sort_by_key(|row| row.processes);
    rows
}

/// Returns the most processes that waited, and the rows of so many, without duplicated descriptors.
pub(crate) fn largest_herds(records: &Records) -> Option<(usize, Vec<&herd::Row>)> {
    let own = experiments::rows(&records.herd).filter(|row| row.dups == 0);
    let most = own.clone().map(|row| row.processes).max()?;
    Some((most, own.filter(|row| row.processes == most).collect()))
}

/// Returns the growth of a connection's time from the fewest waiters to the most, the growth of the
/// number of waiters, and that number.
pub(crate) fn herd_growth(records: &Records, way: &str) -> Option<(f64, f64, usize)> {
    let rows = herd(records, way);
    let (first, last) = (rows.first()?, rows.last()?);
    (first.processes < last.processes).then(|| {
        (
            last.connect_ns_median / first.connect_ns_median,
            last.processes as f64 / first.processes as f64,
            last.processes,
        )
    })
}

/// Returns the row of a server of `superpoll-lab zombies` with the most zombies that were measured
/// in one process.
pub(crate) fn most_zombies<'a>(records: &'a Records, subject: &str) -> Option<&'a zombies::Row> {
    experiments::rows(&records.zombies)
        .filter(|row| row.workers <= 1 && row.subject == subject && row.zombies > 0)
        .max_by_key(|row| row.zombies)
}

/// Returns the row of a server of `superpoll-lab zombies` with this many zombies, in one process.
pub(crate) fn with_zombies<'a>(
    records: &'a Records,
    subject: &str,
    zombies: usize,
) -> Option<&'a zombies::Row> {
    experiments::rows(&records.zombies)
        .find(|row| row.workers <= 1 && row.subject == subject && row.zombies == zombies)
}

/// Returns the row of a server of files: of a protocol, and of files with so many bytes.
pub(crate) fn file<'a>(
    records: &'a Records,
    subject: &str,
    protocol: &str,
    bytes: usize,
) -> Option<&'a files::Row> {
    experiments::rows(&records.files)
        .find(|row| row.subject == subject && row.protocol == protocol && row.bytes == bytes)
}

/// Returns the row of a relay under a load.
pub(crate) fn relay<'a>(records: &'a Records, subject: &str, load: &str) -> Option<&'a relay::Row> {
    experiments::rows(&records.relay).find(|row| row.subject == subject && row.load == load)
}

/// Returns the most pipes of a ring, and the rows of rings of so many with one byte in flight.
pub(crate) fn longest_rings(records: &Records) -> Option<(usize, Vec<&ring::Row>)> {
    let own = experiments::rows(&records.ring).filter(|row| row.in_flight == 1);
    let most = own.clone().map(|row| row.total).max()?;
    Some((most, own.filter(|row| row.total == most).collect()))
}

/// Returns the row of a runtime on the ring with one byte in flight, and the most pipes that were
/// measured.
pub(crate) fn ring<'a>(records: &'a Records, subject: &str) -> Option<&'a ring::Row> {
    experiments::rows(&records.ring)
        .filter(|row| row.subject == subject && row.in_flight == 1)
        .max_by_key(|row| row.total)
}

/// Returns a figure of `superpoll-lab keep`, with the most descriptors.
pub(crate) fn keep<'a>(
    records: &'a Records,
    part: &str,
    subject: &str,
    figure: &str,
) -> Option<&'a findings::Row> {
    experiments::rows(&records.sit)
        .filter(|row| (&*row.part, &*row.subject, &*row.figure) == (part, subject, figure))
        .max_by_key(|row| row.number)
}

/// Returns the figures of a round over a thousand pipes, with the active ones at the end of
/// `poll`'s array.
pub(crate) fn round<'a>(records: &'a Records, active: usize, subject: &str) -> Option<&'a Figures> {
    experiments::rows(&records.atr)
        .filter(|row| (&*row.kind, &*row.placement, row.total) == ("pipe", "end", 1000))
        .find(|row| (row.active, &*row.subject) == (active, subject))
        .map(|row| &row.figures)
}

/// Returns the figures of such a round with `poll`, `epoll` and `adaptive`.
pub(crate) fn rounds(records: &Records, active: usize) -> Option<[&Figures; 3]> {
    let of = |subject| round(records, active, subject);
    Some([of("poll")?, of("epoll-lt")?, of("adaptive")?])
}

/// Formats a ratio with its spread, in words.
pub(crate) fn spread(ratio: Ratio) -> String {
    let Estimate { value, low, high } = ratio.headline();
    format!("{value:.2} ({low:.2} to {high:.2})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_proportional_and_flat_curves() {
        assert_eq!(slope(&[(1.0, 5.0), (10.0, 50.0)]), Some(1.0));
        assert_eq!(slope(&[(1.0, 5.0), (10.0, 5.0)]), Some(0.0));
        assert_eq!(slope(&[(1.0, 5.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn a_curve_is_read_between_its_points_and_not_outside() {
        let row = |active, subject: &str, ns| sweep::Row {
            kind: "pipe".to_owned(),
            placement: "end".to_owned(),
            total: 10,
            active,
            subject: subject.to_owned(),
            figures: Figures { ns_per_round_median: ns, ..Figures::default() },
            ..sweep::Row::default()
        };
        let rows = [
            row(1, "raw-poll", 300.0),
            row(1, "raw-epoll-lt", 100.0),
            row(5, "raw-epoll-lt", 200.0),
            row(5, "raw-poll", 200.0),
            row(10, "raw-poll", 320.0),
            row(10, "raw-epoll-lt", 400.0),
        ];
        let sweep = Sweep { placement: "end", total: 10, rows: rows.iter().collect() };
        let at = |atr| sweep.at("raw-poll", "raw-epoll-lt", atr);
        assert_eq!((at(0.1), at(0.5), at(1.0)), (Some(3.0), Some(1.0), Some(0.8)));
        assert!((at(0.3).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!((at(0.05), sweep.break_even()), (None, Some(0.5)));
        assert_eq!(sweep.times("raw-poll")[2], (10.0, 320.0));
    }
}
