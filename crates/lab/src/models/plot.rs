//! The plots of `superpoll-lab models`: each loop over the ratio of active to all, relative to the
//! best of the run.

use crate::models::{FLOOR, Row};
use crate::plot::{self, Plot};
use crate::record::Account;
use crate::record::Figures;

/// The ratio of each loop's time to the best, for the loop alone or including the writers' share;
/// none if there is only one point.
pub(crate) fn ratios(name: &str, rows: &[&Row], with_writers: bool) -> Option<Plot> {
    let (account, of): (&str, Account) = if with_writers {
        ("with the cost to writers", Figures::cost)
    } else {
        ("the loop alone", Figures::loop_part)
    };
    let curves = plot::curves(rows, |row| {
        let at = (row.subject != FLOOR).then(|| of(&row.figures)).flatten()?;
        Some((row.subject.as_str(), (row.atr(), at)))
    });
    Plot::of(
        format!("four models, {account} ({name})"),
        "active / total",
        "time / that of the best",
        curves,
    )
    .drawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    #[test]
    fn each_loop_has_a_curve_and_the_floor_none() {
        let row = |subject: &str, active, ratio| Row {
            total: 10,
            active,
            subject: subject.to_owned(),
            figures: Figures { cost_ratio: Some(ratio), ..Figures::default() },
            ..Row::default()
        };
        let rows = [row("spin", 10, 1.0), row("floor", 1, 0.1), row("spin", 1, 50.0)];
        let rows: Vec<&Row> = rows.iter().collect();
        let plot = ratios("pipe 10 end", &rows, true).unwrap();
        assert_eq!(plot.curves.len(), 1);
        assert_eq!(plot.curves[0].points, [(0.1, 50.0), (1.0, 1.0)]);
        assert!(plot.svg().unwrap().contains("with the cost to writers"));
        assert!(ratios("pipe 10 end", &rows, false).is_none());
        assert!(ratios("pipe 10 end", &rows[..1], true).is_none());
    }
}
