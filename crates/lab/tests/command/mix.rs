//! `superpoll-lab mix`.

use serde_json::Value;

use crate::record::{FIGURES, Field, check_record, json};
use crate::start::{SMALL, succeed};

#[test]
fn lab_mix_writes_its_record_and_the_report_keeps_earlier_records() {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec!["atr", "--total", "8", "--active", "2"];
    arguments.extend(SMALL);
    succeed(folder.path(), &arguments);
    let mut arguments = vec!["mix", "--size", "4/36", "--shift", "10,30"];
    arguments.extend(["--json", "mix.json"]);
    arguments.extend(SMALL);
    let text = succeed(folder.path(), &arguments);
    assert!(text.contains("4/36 shifting every 30") && text.contains("worst found"), "{text}");
    let record = json(&folder.path().join("mix.json"));
    let mut fields: Vec<Field> = vec![
        ("kind", |v| v == "pipe"),
        ("hot", Value::is_u64),
        ("cold", |v| v.as_u64().is_some_and(|cold| cold > 0)),
        ("shift_every", |v| [0, 10, 30].contains(&v.as_u64().unwrap())),
        ("subject", Value::is_string),
    ];
    fields.extend(FIGURES);
    // The figures of a mix are per block.
    check_record(&record, "mix", &fields);
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("<h2 id=\"atr\">") && page.contains("<h2 id=\"mix\">"));
    assert!(folder.path().join("superpoll-report/mix.svg").exists());
}
