//! The output of `superpoll-lab registrations`: a table for each kind, and the answer to its
//! question.

use crate::grouping;
use crate::registrations::{BATCHED, Row};
use crate::table::{self, Table};

/// The kinds of descriptors that were measured, in their order.
pub(crate) fn kinds(rows: &[Row]) -> Vec<&str> {
    grouping::distinct(rows.iter().map(|row| row.kind.as_str()))
}

/// All rows of a kind, by batch.
pub(crate) fn of_kind(rows: &[Row], kind: &str) -> Table {
    table::of(
        rows.iter().filter(|row| row.kind == kind),
        1,
        &[
            ("registry", |row| row.subject.clone()),
            ("batch", |row| row.batch.to_string()),
            ("register", |row| format!("{:.0}", row.register_ns_median)),
            ("modify", |row| format!("{:.0}", row.modify_ns_median)),
            ("deregister", |row| format!("{:.0}", row.deregister_ns_median)),
            ("reg + dereg", |row| format!("{:.0}", row.both_ns_median)),
            ("least", |row| format!("{:.0}", row.both_ns_min)),
            ("wall", |row| format!("{:.0}", row.wall_ns_median)),
            ("calls", |row| format!("{:.2}", row.calls)),
            ("/ epoll_ctl", |row| table::ratio(row.headline().map(|ratio| ratio.value))),
            ("90 %", |row| row.headline().map_or_else(String::new, table::span)),
            ("median", |row| table::ratio(row.ratio)),
            ("wall", |row| table::ratio(row.wall_ratio)),
        ],
    )
}

/// The gain or loss of changing several descriptors of an epoll set in one call: a line for each
/// kind.
pub(crate) fn answers(rows: &[Row]) -> Vec<String> {
    let from_to = |rows: &[&Row], of: fn(&Row) -> Option<f64>| {
        let ratios: Vec<String> = rows.iter().map(|row| table::ratio(of(row))).collect();
        ratios.join(", ")
    };
    let mut answers = Vec::new();
    for kind in kinds(rows) {
        let batched: Vec<&Row> =
            rows.iter().filter(|row| row.kind == kind && row.subject == BATCHED).collect();
        if batched.is_empty() {
            continue;
        }
        let batches: Vec<String> = batched.iter().map(|row| row.batch.to_string()).collect();
        answers.push(format!(
            "{kind}: with {} in a batch, through a ring / one by one: ADD {}; MOD {}; DEL {}",
            batches.join(", "),
            from_to(&batched, |row| row.register_ratio),
            from_to(&batched, |row| row.modify_ratio),
            from_to(&batched, |row| row.deregister_ratio),
        ));
    }
    answers
}

/// The question to [`answers`].
pub(crate) const QUESTION: &str = "Several descriptors per call? Changes of an epoll set through a ring \
                            (IORING_OP_EPOLL_CTL), processor time";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registrations::YARDSTICK;

    #[test]
    fn the_question_is_answered_for_each_kind_if_it_was_asked() {
        let row = |kind: &str, subject: &str, batch, ratio| Row {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            batch,
            register_ratio: Some(ratio),
            modify_ratio: Some(ratio + 0.1),
            deregister_ratio: Some(ratio + 0.2),
            ..Row::default()
        };
        let rows = [
            row("pipe", YARDSTICK, 1, 1.0),
            row("pipe", BATCHED, 1, 1.2),
            row("pipe", BATCHED, 64, 0.7),
            row("tcp", YARDSTICK, 1, 1.0),
        ];
        let answers = answers(&rows);
        assert_eq!(answers.len(), 1);
        let parts = ["pipe: with 1, 64 in", "ADD 1.20, 0.70", "MOD 1.30, 0.80", "DEL 1.40, 0.90"];
        assert!(parts.iter().all(|part| answers[0].contains(part)), "{answers:?}");
        assert!(super::answers(&rows[3..]).is_empty());
    }
}
