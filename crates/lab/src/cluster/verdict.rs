//! The verdict on a round: everything that publishers and subscribers report, together.

use std::collections::{BTreeMap, HashMap};

use crate::cluster::crowd::Report;
use crate::cluster::findings::Named;
use crate::cluster::ledger::Position;
use crate::cluster::publisher::Published;

/// The findings of a round.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The sum of all processes.
    pub total: Report,
    confirmed: u64,
    refused: u64,
}

impl Verdict {
    /// Judges a round. `checked` are the reports on lost messages; `destroys` says whether the
    /// fault may destroy confirmed messages.
    pub(super) fn new(
        published: &Published,
        reports: Vec<Report>,
        checked: Vec<Report>,
        destroys: bool,
    ) -> Verdict {
        let mut total = Report::default();
        let mut texts: HashMap<Position, String> = HashMap::new();
        for report in reports.into_iter().chain(checked) {
            for heard in report.messages {
                let text = texts.entry(heard.position).or_insert_with(|| heard.text.clone());
                if *text != heard.text {
                    total.reordered += 1;
                    let (at, other) = (heard.position, &heard.text);
                    total.complaints.push(format!("{text} and {other} are both at {at}"));
                }
            }
            total.lost += report.lost;
            total.doubled += report.doubled;
            total.reordered += report.reordered;
            total.missed += report.missed;
            total.reconnects += report.reconnects;
            total.silence_ns = total.silence_ns.max(report.silence_ns);
            total.complaints.extend(report.complaints);
            add(&mut total.reasons, report.reasons);
        }
        for confirmed in &published.confirmed {
            let (text, at) = (&confirmed.text, confirmed.position);
            match texts.get(&at) {
                Some(found) if found == text => {}
                Some(found) => {
                    total.reordered += 1;
                    total
                        .complaints
                        .push(format!("{text} was confirmed at {at}, {found} is there"));
                }
                None if destroys => {}
                None => {
                    total.lost += 1;
                    total
                        .complaints
                        .push(format!("{text} was confirmed at {at}, nothing is there"));
                }
            }
        }
        total.lost += published.given_up;
        let confirmed = published.confirmed.len() as u64;
        Verdict { total, confirmed, refused: published.refused }
    }

    /// Returns whether a promise was broken.
    pub(super) fn is_wrong(&self) -> bool {
        self.total.lost + self.total.doubled + self.total.reordered > 0
    }

    /// Returns the figures of the round.
    pub(super) fn figures(&self) -> [Named; 8] {
        let count = |name, number: u64| (name, "count", number as f64);
        [
            count("lost", self.total.lost),
            count("doubled", self.total.doubled),
            count("reordered", self.total.reordered),
            count("missed", self.total.missed),
            count("reconnects", self.total.reconnects),
            count("confirmed", self.confirmed),
            count("refused", self.refused),
            ("silence", "ns", self.total.silence_ns as f64),
        ]
    }
}

fn add(to: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    for (reason, count) in from {
        *to.entry(reason).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ledger::Heard;
    use crate::cluster::publisher::Confirmed;

    fn at(id: u64) -> Position {
        Position { epoch: 7, id }
    }

    fn heard(id: u64, text: &str) -> Heard {
        Heard { position: at(id), text: text.to_owned(), last_elsewhere_ns: 0 }
    }

    #[test]
    fn processes_and_publishers_are_compared_with_each_other() {
        let report = |messages| Report { messages, missed: 1, silence_ns: 5, ..Report::default() };
        let reports =
            || vec![report(vec![heard(1, "a"), heard(2, "b")]), report(vec![heard(2, "c")])];
        let confirm =
            |id, text: &str| Confirmed { text: text.to_owned(), position: at(id), begun_ns: 0 };
        let published = Published {
            confirmed: vec![confirm(1, "a"), confirm(2, "c"), confirm(3, "d")],
            refused: 4,
            ..Published::default()
        };
        let of = |destroys| Verdict::new(&published, reports(), Vec::new(), destroys);
        let verdict = of(false);
        let total = &verdict.total;
        assert_eq!((total.lost, total.reordered, total.missed), (1, 2, 2));
        assert!(verdict.is_wrong() && total.complaints.len() == 3);
        assert_eq!(of(true).total.lost, 0);
        assert_eq!(
            verdict.figures()[5..7],
            [("confirmed", "count", 3.0), ("refused", "count", 4.0)]
        );
    }
}
