//! `superpoll-lab statistics`.

use crate::start::{refused, succeed};

#[test]
fn the_lowest_decile_is_nearer_to_a_planted_difference_than_the_median() {
    let folder = tempfile::tempdir().unwrap();
    let text = succeed(folder.path(), &["statistics", "--blocks", "5", "--runs", "100"]);
    let off = |estimator: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with("busy") && line.contains(estimator));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        // The words before the wrong sign and the coverage, each with its unit.
        words[words.len() - 5].parse().unwrap()
    };
    assert!(
        off(" lowest decile ") < off(" median  ") && off(" median  ") < off(" mean  "),
        "{text}"
    );
    assert!(refused(&["statistics", "--blocks", "0"]).contains("--blocks 0"));
    assert!(refused(&["statistics", "--planted", "0"]).contains("--planted 0"));
}
