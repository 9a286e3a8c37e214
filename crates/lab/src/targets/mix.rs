//! The targets of `superpoll-lab mix`.

use crate::mix::Row;
use crate::targets::{RINGS, Target, worst};

/// The targets that `superpoll-lab mix` measures.
pub fn of_mix(rows: &[Row]) -> Vec<Target> {
    let costs_of = |subject: &'static str,
                    family: &'static str,
                    kind: Option<&'static str>,
                    shifts: std::ops::Range<usize>| {
        rows.iter()
            .filter(move |row| row.subject == subject && row.family == family)
            .filter(move |row| kind.is_none_or(|kind| row.kind == kind))
            .filter(move |row| family != "shift" || shifts.contains(&row.shift_every))
            .filter_map(|row| Some((row.figures.cost_ratio?, format!("{} {}", row.kind, row.load))))
    };
    let costs = |family, kind, shifts| costs_of("adaptive", family, kind, shifts);
    let mut targets = Vec::new();
    for (kind, bound, slow_bound) in [("pipe", 0.80, 0.92), ("unix", 0.90, 1.0), ("tcp", 0.88, 1.0)]
    {
        let name = format!("mixed loads, {kind}: cost of adaptive / pure");
        targets.extend(worst(name, bound, costs("mixed", Some(kind), 0..1)));
        let name = format!("busy set moves every 100 or slower, {kind}: cost / pure");
        targets.extend(worst(name, slow_bound, costs("shift", Some(kind), 100..usize::MAX)));
    }
    let name = "busy set moves every 10 to 50: cost / pure";
    targets.extend(worst(name, 1.06, costs("shift", None, 0..100)));
    let name = "active at random, 0.1 to 0.75: cost / pure";
    targets.extend(worst(name, 1.08, costs("random", None, 0..1)));
    for subject in RINGS {
        for (kind, bound) in [("pipe", 0.68), ("unix", 0.66), ("tcp", 0.58)] {
            let name = format!("mixed loads, {kind}: cost of {subject} / pure");
            targets.extend(worst(name, bound, costs_of(subject, "mixed", Some(kind), 0..1)));
        }
        let name = format!("busy set moves every 10 to 1000: cost of {subject} / pure");
        targets.extend(worst(name, 0.88, costs_of(subject, "shift", None, 10..1001)));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figures;

    #[test]
    fn mixes_are_judged_by_family_kind_and_period() {
        let row = |kind: &str, family: &str, shift_every, ratio| Row {
            kind: kind.to_owned(),
            hot: 1,
            cold: 1,
            shift_every,
            subject: "adaptive".to_owned(),
            load: String::new(),
            family: family.to_owned(),
            mean_active: 1.0,
            figures: Figures { cost_ratio: Some(ratio), ..Figures::default() },
        };
        let targets = of_mix(&[
            row("pipe", "mixed", 0, 0.79),
            row("tcp", "mixed", 0, 0.95),
            row("pipe", "shift", 10, 1.05),
            row("pipe", "shift", 300, 0.91),
            row("pipe", "worst", 0, 9.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.79, true), (0.91, true), (0.95, false), (1.05, true)]);
        let ring = |kind: &str, family: &str, shift_every, ratio| Row {
            subject: "adaptive-uring".to_owned(),
            ..row(kind, family, shift_every, ratio)
        };
        let targets = of_mix(&[
            ring("pipe", "mixed", 0, 0.67),
            ring("tcp", "mixed", 0, 0.59),
            ring("pipe", "shift", 10, 0.89),
            ring("pipe", "shift", 5, 2.0),
            ring("pipe", "random", 0, 2.0),
        ]);
        let kept: Vec<(f64, bool)> = targets.iter().map(|t| (t.measured, t.is_kept())).collect();
        assert_eq!(kept, [(0.67, true), (0.59, false), (0.89, false)]);
    }
}
