use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use http::{HeaderValue, Method, Version};

use super::*;

fn record() -> Record {
    Record {
        at: std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_321_211),
        client: Some("192.0.2.7:4711".parse().unwrap()),
        method: Method::GET,
        uri: "/a?b=\"c".parse().unwrap_or_else(|_| "/a".parse().unwrap()),
        version: Version::HTTP_11,
        host: Some(HeaderValue::from_static("a.test")),
        referer: None,
        agent: Some(HeaderValue::from_bytes(b"x\"y\xff\\\t").unwrap()),
        status: 200,
        bytes: 6,
        is_whole: true,
        took: Duration::from_millis(1500),
        raw: None,
        request_id: Some("a-1".to_owned()),
        trace_id: None,
    }
}

fn config(path: &Path, format: LogFormat) -> AccessLog {
    AccessLog { path: path.to_path_buf(), format }
}

#[test]
fn lines_of_each_format_say_the_same() {
    let mut out = Vec::new();
    line::write(&mut out, LogFormat::Combined, &record());
    let line = String::from_utf8(out).unwrap();
    let expected = "192.0.2.7 - - [22/Nov/2026:04:20:11 +0000] \"GET /a";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with(" HTTP/1.1\" 200 6 \"-\" \"x\\x22y\\xFF\\x5C\\x09\"\n"), "{line}");

    let mut out = Vec::new();
    line::write(&mut out, LogFormat::Json, &record());
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(value["time"], "2026-11-22T04:20:11.000Z");
    assert_eq!(value["client"], "192.0.2.7:4711");
    assert_eq!(value["seconds"], 1.5);
    assert_eq!((&value["status"], &value["bytes"]), (&200.into(), &6.into()));
    assert_eq!(value["referer"], serde_json::Value::Null);
    assert_eq!((&value["request_id"], value.get("trace_id")), (&"a-1".into(), None));
}

#[test]
fn invalid_requests_are_logged_verbatim() {
    for (raw, combined, [method, target, protocol]) in [
        (&b"GET /a b HTTP/1.1"[..], "\"GET /a b HTTP/1.1\"", ["GET", "/a b", "HTTP/1.1"]),
        (b"\x16\x03\x01\"\x1b[2J\xff", "\"\\x16\\x03\\x01\\x22\\x1B[2J\\xFF\"", ["", "", ""]),
        (b"GET /", "\"GET /\"", ["GET", "/", ""]),
        (b"", "\"\"", ["", "", ""]),
    ] {
        let record = Record { raw: Some(Bytes::copy_from_slice(raw)), status: 400, ..record() };
        let mut out = Vec::new();
        line::write(&mut out, LogFormat::Combined, &record);
        let line = String::from_utf8(out).unwrap();
        assert!(line.contains(&format!("] {combined} 400 6 ")), "{line}");
        let mut out = Vec::new();
        line::write(&mut out, LogFormat::Json, &record);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["method"], &value["protocol"]), (&method.into(), &protocol.into()));
        if raw.is_ascii() && raw.iter().all(|byte| !byte.is_ascii_control()) {
            assert_eq!(value["target"], target);
        }
    }
}

#[test]
fn no_line_has_the_token_of_a_url() {
    let page = HeaderValue::from_static("https://a.test/chat?token=hunter2");
    let uri = "/c?after=1&token=hunter2&wait=9".parse().unwrap();
    let raw = Bytes::from_static(b"GET /c?token=hunter2 HTTP/3.7");
    let known = Record { uri, referer: Some(page), ..record() };
    let refused = Record { raw: Some(raw), ..known.clone() };
    for (record, target) in [(known, "/c?after=1&token=***&wait=9"), (refused, "/c?token=***")] {
        for format in [LogFormat::Combined, LogFormat::Json] {
            let mut out = Vec::new();
            line::write(&mut out, format, &record);
            let line = String::from_utf8(out).unwrap();
            assert!(!line.contains("hunter2") && line.contains(target), "{line}");
            assert!(line.contains("https://a.test/chat?token=***"), "{line}");
        }
    }
}

#[test]
fn all_lines_are_written_by_the_end_and_a_log_that_is_there_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    for round in 1..=2 {
        let report = |failure: &LogFailure| panic!("{failure}");
        let log = Arc::new(Log::open(&config(&path, LogFormat::Combined), report).unwrap());
        let runtime = superpoll_rt::Runtime::new().unwrap();
        let writing = log.clone();
        runtime.block_on(async move {
            let access_log = AccessLogWriter::new(writing);
            for _ in 0..3000 {
                access_log.write(&record());
            }
        });
        drop((runtime, log));
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 3000 * round);
    }
}

#[test]
fn a_full_disk_is_reported_once_and_loses_only_log_lines() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = told.clone();
    let report = move |failure: &LogFailure| hears.lock().unwrap().push(failure.to_string());
    let log = Log::open(&config(Path::new("/dev/full"), LogFormat::Combined), report).unwrap();
    for _ in 0..5 {
        log.writer.hand_over(b"one\ntwo\n".to_vec());
    }
    drop(log);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    let expected = "writing the access log /dev/full: No space left on device";
    assert!(told[0].starts_with(expected) && told[0].contains("lines are lost"), "{told:?}");
}

#[test]
fn a_log_that_cannot_be_opened_says_why() {
    let report = |failure: &LogFailure| panic!("{failure}");
    let path = Path::new("/no/such/folder/access.log");
    let error = Log::open(&config(path, LogFormat::Json), report).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
