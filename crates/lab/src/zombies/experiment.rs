//! The experiment `zombies`, for the command line and the report.

use crate::experiment::{Experiment, Figure, Run};
use crate::part::Part;
use crate::target::{Target, Targets};
use crate::zombies::{Options, Row, plot, table, trial};

/// Silent connections next to busy ones.
#[derive(Debug)]
pub(crate) struct Zombies;

impl Experiment for Zombies {
    type Options = Options;
    type Row = Row;
    const NAME: &'static str = "zombies";
    const TITLE: &'static str = "connections that are silent";
    const METHOD: &'static str = "A few clients ask and are answered; all other connections have asked once and keep silent. \
             Measured is the processor time of the server's processes by request, and the time on the clock \
             for all requests; “/ none” is the ratio to the same server, in as many processes, without \
             zombies, round by round. More zombies than one process may have are shared by several.";
    const QUICK: &'static str = "zombies --quick --seconds 20";
    const FULL: &'static str = "zombies --seconds 150";
    const MEASURED: &'static str =
        "processor time of a server for one request, next to silent connections";
    const RUN: Run<Self> = trial::run;

    fn parts(rows: &[Row]) -> Vec<Part> {
        let plots = ["echo", "web"].map(|family| {
            Part::plot(format!("zombies-{family}.svg"), plot::over_zombies(rows, family))
        });
        plots.into_iter().chain([Part::Table(table::servers(rows))]).collect()
    }

    /// The targets that `superpoll-lab zombies` measures, for servers that promise the same speed
    /// with zombies as without. They apply to one process with the largest measured number of
    /// zombies.
    fn targets(rows: &[Row]) -> Vec<Target> {
        let sparing = [
            "gateway-epoll",
            "gateway-adaptive",
            "gateway-uring",
            "superpoll-rt-epoll",
            "superpoll-rt-adaptive",
            "superpoll-rt-uring",
        ];
        let is_alone = |row: &Row| row.workers <= 1;
        let most = rows.iter().filter(|row| is_alone(row)).map(|row| row.zombies).max();
        let most = most.filter(|most| *most > 0);
        let applies = |row: &Row| is_alone(row) && Some(row.zombies) == most;
        let mut targets = Targets::new(rows, |row| format!("{} with {}", row.subject, row.zombies));
        for family in ["echo", "web"] {
            let ours = |row: &Row| row.family == family && sparing.contains(&&*row.subject);
            let name = format!("zombies, {family}: CPU of a request / that without any");
            let ratio = |row: &Row| Some(row.none_ratio?.headline().value);
            targets.add(name, 1.03, |row| applies(row) && ours(row), ratio);
        }
        targets.all
    }

    fn figure(row: &Row) -> Option<Figure> {
        let Row { subject, zombies, figures, .. } = row;
        Some(figures.compared(match row.workers {
            0 | 1 => format!("{zombies} zombies, {subject}"),
            several => format!("{zombies} zombies, {several} processes, {subject}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Ratio;

    #[test]
    fn servers_are_judged_with_most_zombies() {
        let row = |subject: &str, family: &str, zombies, median| Row {
            subject: subject.to_owned(),
            family: family.to_owned(),
            zombies,
            none_ratio: Some(Ratio { median, ..Ratio::default() }),
            ..Row::default()
        };
        let rows = [
            row("superpoll-rt-poll", "echo", 9900, 50.0),
            row("superpoll-rt-epoll", "echo", 9900, 1.02),
            row("superpoll-rt-adaptive", "echo", 100, 1.5),
            row("gateway-adaptive", "web", 9900, 1.05),
        ];
        let shared = Row { workers: 6, ..row("superpoll-rt-epoll", "echo", 102_400, 2.0) };
        let rows = [&rows[..], &[shared]].concat();
        let kept: Vec<(f64, bool)> =
            Zombies::targets(&rows).iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(1.02, true), (1.05, false)]);
        assert!(Zombies::targets(&[row("gateway-epoll", "web", 0, 1.0)]).is_empty());
    }
}
