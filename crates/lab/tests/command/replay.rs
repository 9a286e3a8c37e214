//! `superpoll-lab replay`.

use std::fs;

use superpoll_watch::{End, Key, Kind, RecordingWriter, Wait};

use crate::start::{refused, succeed};

/// A recording of a set with one busy descriptor of ten.
fn recording() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), 1 << 20).unwrap();
    writer.set(Key { process: 4242, kind: Kind::Epoll, id: 5 }, 0).unwrap();
    (0..10).for_each(|member| writer.join(0, member).unwrap());
    for round in 0..1_000 {
        let at_ns = round * 1_000_000;
        let wait = Wait { set: 0, at_ns, took_ns: Some(900_000), timeout_ns: -1, ready: vec![7] };
        writer.wait(&wait).unwrap();
    }
    let end = End {
        duration_ns: 1_000_000_000,
        lost_waits: 12,
        uncounted_calls: 34,
        compat_calls: 56,
        ..End::default()
    };
    writer.end(&end).unwrap()
}

#[test]
fn a_recording_is_judged_and_what_it_lacks_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waits");
    fs::write(&path, recording()).unwrap();
    let name = path.to_str().unwrap();
    let text = succeed(folder.path(), &["replay", name]);
    for part in [
        "1.0 s; the recording lacks 12 waits",
        "; it lacks 34 calls, as there were too many processes",
        "; it lacks 56 calls of 32-bit programs",
        "process 4242: epoll set 5: 1000 waits, 1000 events, at most 10 descriptors (not known",
        "epoll, edge-triggered",
        "adaptive, idle-server",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let text = succeed(folder.path(), &["replay", "--json", name]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["schema"], &document["lost_waits"]), (&1.into(), &12.into()));
    let set = &document["sets"][0];
    assert_eq!((&set["blocked_waits"], &set["descriptor"]), (&1_000.into(), &5.into()));
    let cost = |way: &str| {
        let ways = set["ways"].as_array().unwrap();
        let found = ways.iter().find(|one| one["way"] == way);
        found.unwrap_or_else(|| panic!("{document:#}"))["ns_per_event"].as_f64().unwrap()
    };
    // Each wait sleeps, with ten descriptors and one event.
    assert!(cost("poll") > cost("epoll, edge-triggered"), "{document:#}");
    assert!(cost("adaptive") < 1.5 * cost("epoll, edge-triggered"), "{document:#}");
}

#[test]
fn files_that_are_no_recording_are_refused_and_one_that_was_cut_off_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waits");
    let name = path.to_str().unwrap();
    let whole = recording();
    let mut newer = whole.clone();
    newer[16] = 9;
    for (bytes, part) in [
        (&b"{}"[..], "it is no recording"),
        (&newer, "version 9"),
        (&[&whole[..], b"x"].concat(), "more after the end"),
    ] {
        fs::write(&path, bytes).unwrap();
        let line = refused(&["replay", name]);
        assert!(line.contains(name) && line.contains(part), "{line}");
    }
    // The watch was killed: what is there is judged.
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let text = succeed(folder.path(), &["replay", name]);
    assert!(text.contains("the recording was cut off") && text.contains("epoll set 5"), "{text}");
    fs::remove_file(&path).unwrap();
    assert!(refused(&["replay", name]).contains("No such file"));
}
