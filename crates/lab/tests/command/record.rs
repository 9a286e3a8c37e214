//! Reads the files that experiments write.

use std::path::Path;

use serde_json::Value;

/// A field of every row, and a check of its value.
pub(crate) type Field = (&'static str, fn(&Value) -> bool);

/// The measured figures of rounds.
pub(crate) const FIGURES: [Field; 2] = [
    ("ns_per_round_median", positive),
    ("rounds", |v| v.as_u64().is_some_and(|rounds| rounds >= 1)),
];

/// Checks the fields that every record of every experiment has.
pub(crate) fn check_record(record: &Value, experiment: &str, fields: &[Field]) {
    let names: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["schema", "experiment", "environment", "parameters", "rows"]);
    assert_eq!(record["experiment"], experiment);
    assert!(record["schema"].is_u64() && record["parameters"].is_object());
    assert!(record["environment"]["kernel"].as_str().unwrap().contains('.'));
    let rows = record["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        for (field, fits) in fields {
            assert!(fits(&row[field]), "{field} of {row}");
        }
    }
}

/// Whether the value is a number above zero.
pub(crate) fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

/// Whether the value is a number of at least zero.
pub(crate) fn not_negative(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number >= 0.0)
}

/// Whether processor time was measured in a row. So little work may be lost while a virtual machine
/// does not run.
fn is_timed(row: &Value) -> bool {
    ["request", "delivery"].iter().any(|of| positive(&row[format!("cpu_ns_per_{of}_median")]))
}

/// Checks that processor time was measured in most rows.
pub(crate) fn check_times(rows: &[Value]) {
    let timed = rows.iter().filter(|row| is_timed(row)).count();
    assert!(2 * timed > rows.len(), "{timed} of {}: {rows:?}", rows.len());
}

/// Whether the processor time of a subject was measured at the point of a row, which these fields
/// name.
pub(crate) fn is_timed_at(rows: &[Value], subject: &str, row: &Value, point: &[&str]) -> bool {
    let is_it = |other: &Value| {
        other["subject"] == subject && point.iter().all(|field| other[field] == row[field])
    };
    rows.iter().any(|other| is_it(other) && is_timed(other))
}

/// Reads the document in a file.
pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
