use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method, Version};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat, openat};
use serde_json::Value;
use superpoll_test_support::until;

use super::*;

fn at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_321_211_250)
}

/// How long a request, or a connection, has taken.
const TOOK: Duration = Duration::from_micros(5390);

/// The client's end of a connection with TLS 1.3.
fn client() -> ClientEnd {
    let address = Some("[::ffff:192.0.2.7]:4711".parse().unwrap());
    ClientEnd { address, proxy: None, cipher: 0x1301, server_name: Some("a.test".into()) }
}

fn record() -> RequestRecord {
    let uri = "/a?b=\"c".parse().unwrap_or_else(|_| "/a".parse().unwrap());
    let mut record = RequestRecord::new(client(), Method::GET, uri, Version::HTTP_11);
    record.at = at();
    record.host = Some(HeaderValue::from_static("a.test"));
    record.agent = Some(HeaderValue::from_bytes(b"x\"y\xff\\\t").unwrap());
    (record.status, record.bytes, record.is_whole) = (200, 6, true);
    record
}

/// The way to the second server that was tried.
fn upstream() -> Box<UpstreamEnd> {
    let mut upstream = UpstreamEnd::new(Some("app".into()));
    upstream.tries(1, &"10.0.0.1:8000".into());
    upstream.connect = Some(Duration::from_secs(9));
    upstream.tries(2, &"10.0.0.2:8000".into());
    // Another connection to the same server.
    upstream.tries(2, &"10.0.0.2:8000".into());
    (upstream.is_reused, upstream.status) = (false, Some(200));
    upstream.connect = Some(Duration::from_micros(310));
    upstream.first_byte = Some(Duration::from_micros(4250));
    upstream.total = Some(Duration::from_micros(5100));
    Box::new(upstream)
}

fn complete() -> RequestRecord {
    let mut record = record();
    record.uri = "https://a.test/api/orders?token=secret&page=2".parse().unwrap();
    (record.method, record.version) = (Method::POST, Version::HTTP_2);
    record.referer = Some(HeaderValue::from_static("https://a.test/"));
    record.agent = Some(HeaderValue::from_static("curl/8.14.1"));
    (record.bytes, record.bytes_in, record.head_bytes_in) = (5120, 412, 187);
    record.first_byte = Some(Duration::from_micros(4580));
    record.number = 3;
    (record.route, record.user) = ("/api".into(), Some("ada".into()));
    record.upstream = Some(upstream());
    record
}

fn relayed() -> RelayRecord {
    let mut record = RelayRecord::new(client().address, ":5432".into(), BrokenBy::Server);
    (record.at, record.up, record.down) = (at(), 812, 20_480);
    (record.is_connected, record.broken_by) = (true, Some(BrokenBy::Timeout));
    record.upstream = Some(upstream());
    record.upstream(None).first_byte = None;
    record.upstream(None).total = None;
    record
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

fn json(record: &RequestRecord) -> Value {
    let line = text(|out| line::object(out, &Field::ALL, record, TOOK));
    assert_eq!(line.matches('\n').count(), 1, "{line:?}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn combined(record: &RequestRecord) -> String {
    text(|out| line::combined(out, record))
}

fn config(path: &Path, format: LogFormat) -> AccessLog {
    AccessLog { path: path.to_path_buf(), syslog: None, format, fields: Field::usual() }
}

#[test]
fn lines_of_each_format_say_the_same() {
    let line = combined(&record());
    let expected = "192.0.2.7 - - [22/Nov/2026:04:20:11 +0000] \"GET /a";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with(" HTTP/1.1\" 200 6 \"-\" \"x\\x22y\\xFF\\x5C\\x09\"\n"), "{line}");
    let value = json(&record());
    assert_eq!(value["time"], "2026-11-22T04:20:11.250Z");
    assert_eq!(value["client"], "192.0.2.7:4711");
    assert_eq!(value["seconds"], 0.00539);
    assert_eq!((&value["status"], &value["bytes"]), (&200.into(), &6.into()));
    assert_eq!((&value["tls_version"], &value["sni"]), (&"TLSv1.3".into(), &"a.test".into()));
    for field in ["referer", "user", "route", "upstream", "broken_by", "head_bytes_in", "relay"] {
        assert!(value.get(field).is_none(), "{field}");
    }
    let line = combined(&complete());
    assert!(line.starts_with("192.0.2.7 - ada ["), "{line}");
}

#[test]
fn a_client_of_a_trusted_proxy_is_logged_with_the_proxy() {
    let mut record = record();
    assert_eq!(json(&record).get("proxy"), None);
    record.client.proxy = record.client.address.map(Box::new);
    for (address, shown, ip) in [
        ("203.0.113.9:0", "203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:80", "203.0.113.9:80", "203.0.113.9"),
        ("[2001:db8::9]:0", "2001:db8::9", "2001:db8::9"),
        ("[2001:db8::9]:80", "[2001:db8::9]:80", "2001:db8::9"),
    ] {
        record.client.address = Some(address.parse().unwrap());
        let value = json(&record);
        let addresses = (&value["client"], &value["proxy"]);
        assert_eq!(addresses, (&shown.into(), &"192.0.2.7:4711".into()));
        assert!(combined(&record).starts_with(&format!("{ip} - - [")), "{}", combined(&record));
    }
}

/// docs/logs.md is compared with the code: its lines, and its table of fields.
#[test]
fn the_documented_fields_and_lines_are_the_real_ones() {
    let page = include_str!("../../../../docs/logs.md");
    let usual = Field::usual();
    for line in [
        text(|out| line::object(out, &usual, &complete(), TOOK)),
        text(|out| line::relay_object(out, &usual, &relayed(), TOOK)),
        combined(&complete()),
        text(|out| line::relay_combined(out, &relayed())),
    ] {
        assert!(page.contains(&line), "docs/logs.md lacks {line}");
    }
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let named: Vec<&str> = rows.map(|(name, _)| name).collect();
    assert_eq!(named, Field::ALL.map(Field::name), "the fields in docs/logs.md");
    // A name in the configuration is that in the line.
    for field in Field::ALL {
        let read: Field = serde_json::from_value(field.name().into()).unwrap();
        assert_eq!(read, field);
    }
}

#[test]
fn a_line_has_the_listed_fields_in_their_order() {
    let fields = [Field::Status, Field::Referer, Field::Time, Field::UpstreamTries];
    let line = text(|out| line::object(out, &fields, &record(), TOOK));
    assert_eq!(line, "{\"status\":200,\"time\":\"2026-11-22T04:20:11.250Z\"}\n");
    let line = text(|out| line::object(out, &fields[3..], &complete(), TOOK));
    assert_eq!(line, "{\"upstream_tries\":2}\n");
}

#[test]
fn each_cipher_suite_has_its_version_and_registered_name() {
    for (cipher, expected) in [
        (0x1301, Some(("TLSv1.3", "TLS_AES_128_GCM_SHA256"))),
        (0x1303, Some(("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"))),
        (0xc02b, Some(("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))),
        (0xfe00, Some(("TLSv1.2", "0xFE00"))),
        (0, None),
    ] {
        let mut record = record();
        record.client.cipher = cipher;
        let value = json(&record);
        let found = value["tls_version"].as_str().zip(value["tls_cipher"].as_str());
        assert_eq!(found, expected);
    }
}

#[test]
fn invalid_requests_are_logged_verbatim() {
    for (raw, expected, [method, target, protocol]) in [
        (&b"GET /a b HTTP/1.1"[..], "\"GET /a b HTTP/1.1\"", ["GET", "/a b", "HTTP/1.1"]),
        (b"\x16\x03\x01\"\x1b[2J\xff", "\"\\x16\\x03\\x01\\x22\\x1B[2J\\xFF\"", ["", "", ""]),
        (b"GET /", "\"GET /\"", ["GET", "/", ""]),
        (b"", "\"\"", ["", "", ""]),
    ] {
        let record = RequestRecord {
            raw: Some(Box::new(Bytes::copy_from_slice(raw))),
            status: 400,
            ..record()
        };
        let line = combined(&record);
        assert!(line.contains(&format!("] {expected} 400 6 ")), "{line}");
        let value = json(&record);
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
    let raw = Box::new(Bytes::from_static(b"GET /c?token=hunter2 HTTP/3.7"));
    let known = RequestRecord { uri, referer: Some(page), ..record() };
    let refused = RequestRecord { raw: Some(raw), ..known.clone() };
    // A text that is cut where the value is.
    let long = format!("/c?x={}&token=hunter2hunter2", "y".repeat(super::secrets::LONGEST - 15));
    let cut = RequestRecord { uri: long.parse().unwrap(), ..known.clone() };
    for (record, target) in
        [(known, "/c?after=1&token=***&wait=9"), (refused, "/c?token=***"), (cut, "/c?x=yy")]
    {
        for line in [combined(&record), json(&record).to_string()] {
            assert!(!line.contains("hunter") && line.contains(target), "{line}");
            assert!(line.contains("https://a.test/chat?token=***"), "{line}");
        }
    }
}

#[test]
fn no_line_has_a_secret_of_a_refused_request_or_the_password_of_a_url() {
    let raw = |text: &'static str| RequestRecord {
        raw: Some(Box::new(Bytes::from_static(text.as_bytes()))),
        ..record()
    };
    let host = Some(HeaderValue::from_static("joe:hunter2@a.test"));
    let of =
        |uri: &str| RequestRecord { uri: uri.parse().unwrap(), host: host.clone(), ..record() };
    for record in [
        raw("GET /c?token=\"hunter2\" HTTP/1.1"),
        raw("GET /c?token=a hunter2 HTTP/1.1"),
        raw("GET /c?token=a hunter2"),
        raw("/c?token=a hunter2 HTTP/1.1"),
        raw("GET http://joe:hunter2@a.test/ b HTTP/1.1"),
        of("http://joe:hunter2@a.test/"),
        of("joe:hunter2@a.test:443"),
        of("/c?%74oken=hunter2"),
    ] {
        for line in [combined(&record), json(&record).to_string()] {
            assert!(!line.contains("hunter"), "{line}");
        }
        if record.raw.is_none() {
            assert_eq!(json(&record)["host"], "a.test");
        }
    }
}

/// The number that docs/logs.md names.
const LONGEST_LINE: usize = 128 << 10;

#[test]
fn a_line_is_bounded_whatever_a_client_sends() {
    for byte in [b'"', b'\\', b'\t', b'x', 0x80, 0xff] {
        let huge = vec![byte; 60_000];
        let field = || Some(HeaderValue::from_bytes(&huge).unwrap());
        let mut record = complete();
        (record.host, record.referer, record.agent) = (field(), field(), field());
        // A token may have any text in its subject.
        record.user = Some("\u{1}".repeat(60_000).into());
        record.method = Method::from_bytes(&[b'M'; 60_000]).unwrap();
        record.uri = format!("/{}", "%".repeat(60_000)).parse().unwrap();
        record.client.server_name = Some("\u{1}".repeat(255).into());
        for raw in [None, Some(Box::new(Bytes::from(vec![byte; 1024])))] {
            let record = RequestRecord { raw, ..record.clone() };
            let line = text(|out| line::object(out, &Field::ALL, &record, TOOK));
            assert!(line.len() <= LONGEST_LINE, "{} bytes for {byte}", line.len());
            assert!(combined(&record).len() <= LONGEST_LINE);
        }
        let value = json(&record);
        assert!(value["user_agent"].as_str().unwrap().ends_with("..."));
    }
    let page = include_str!("../../../../docs/logs.md");
    assert!(page.contains("128 KiB"));
}

/// The fields of a combined line, as analysers take them apart.
fn fields_of(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut until) = (Vec::new(), String::new(), ' ');
    for character in line.trim_end_matches('\n').chars() {
        match (until, character) {
            (' ', '"') if field.is_empty() => until = '"',
            (' ', '[') if field.is_empty() => until = ']',
            (end, character) if end == character => {
                fields.push(std::mem::take(&mut field));
                // The blank after the quote begins an empty field, which is taken out below.
                until = ' ';
            }
            (_, character) => field.push(character),
        }
    }
    fields.push(field);
    fields.retain(|field| !field.is_empty());
    fields
}

proptest! {
    /// No value ends a field or a line, forges another field, or commands a terminal.
    #[test]
    fn hostile_values_stay_in_their_fields(
        agent in prop::collection::vec(any::<u8>(), 0..80),
        raw in prop::option::of(prop::collection::vec(any::<u8>(), 0..80)),
        user in prop::option::of(any::<String>()),
        name in any::<String>(),
    ) {
        let mut record = record();
        record.agent = HeaderValue::from_bytes(&agent).ok();
        record.referer = record.agent.clone();
        record.raw = raw.map(|raw| Box::new(Bytes::from(raw)));
        record.user = user.map(Into::into);
        record.client.server_name = Some(name.into());
        let line = combined(&record);
        prop_assert!(line.is_ascii());
        prop_assert!(line.bytes().filter(|byte| byte.is_ascii_control()).eq(*b"\n"), "{line:?}");
        let fields = fields_of(&line);
        let is_empty = |bytes: Option<&[u8]>| bytes.is_some_and(<[u8]>::is_empty);
        let empty = usize::from(is_empty(record.raw.as_ref().map(|raw| &raw[..])))
            + 2 * usize::from(is_empty(record.agent.as_ref().map(HeaderValue::as_bytes)));
        prop_assert_eq!(fields.len() + empty, 9, "{:?}", fields);
        prop_assert_eq!(&fields[3], "22/Nov/2026:04:20:11 +0000");
        let value = json(&record);
        let line = text(|out| line::object(out, &Field::ALL, &record, TOOK));
        let is_hidden = |character: char| character.is_control() && character != '\n';
        prop_assert!(!line.contains(is_hidden), "{line:?}");
        prop_assert_eq!(&value["status"], 200);
        let keys = value.as_object().unwrap().keys();
        prop_assert!(keys.clone().all(|key| Field::ALL.iter().any(|field| field.name() == key)));
        if let Some(agent) = record.agent.as_ref().and_then(|agent| agent.to_str().ok()) {
            let expected = String::from_utf8_lossy(&secrets::leave_out(agent.as_bytes())).into_owned();
            prop_assert_eq!(value["user_agent"].as_str(), Some(&*expected));
        }
    }
}

fn opened(path: &Path, format: LogFormat) -> Arc<AccessLogSink> {
    let report = |failure: &LogFailure| panic!("{failure}");
    Arc::new(AccessLogSink::open(&config(path, format), None, report).unwrap())
}

#[test]
fn all_lines_are_written_by_the_end_and_a_log_that_is_there_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    for round in 1..=2 {
        let log = opened(&path, LogFormat::Combined);
        let runtime = superpoll_rt::Runtime::new().unwrap();
        let writing = log.clone();
        runtime.block_on(async move {
            let access_log = AccessLogWriter::new(writing);
            for _ in 0..3000 {
                drop(Entry::new(access_log.clone(), record()));
            }
        });
        drop((runtime, log));
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 3000 * round);
    }
}

/// As when a request lasts beyond the rotation of the log.
#[test]
fn a_request_that_began_under_another_log_is_written_to_the_present_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let report = |failure: &LogFailure| panic!("{failure}");
    let first = opened(&at("first"), LogFormat::Combined);
    first.begin();
    let access_log = AccessLogWriter::new(first.clone());
    let (early, late) = (Entry::new(access_log.clone(), record()), record());
    let late = Entry::new(access_log.clone(), late);
    drop(early);
    for name in ["refused", "second"] {
        let next = config(&at(name), LogFormat::Json);
        let next = Arc::new(AccessLogSink::open(&next, Some(&first), report).unwrap());
        if name == "second" {
            next.begin();
            drop(late);
            drop(access_log);
            drop(next);
            break;
        }
    }
    drop(first);
    let lines = |name| std::fs::read_to_string(at(name)).unwrap();
    assert!(lines("first").starts_with("192.0.2.7 - - [") && lines("first").lines().count() == 1);
    assert!(lines("second").starts_with("{\"time\":") && lines("second").lines().count() == 1);
    assert_eq!(lines("refused"), "");
}

#[test]
fn an_entry_is_one_line_when_the_last_holder_lets_it_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = opened(&path, LogFormat::Json);
    let access_log = AccessLogWriter::new(log.clone());
    let unanswered = RequestRecord { status: 0, is_whole: false, ..record() };
    let entry = Entry::new(access_log.clone(), unanswered.clone());
    let tunnel = entry.clone();
    entry.answered(101);
    entry.sent(3);
    drop(entry);
    tunnel.sent(4);
    tunnel.received(5);
    tunnel.note(|record| record.is_whole = true);
    drop(tunnel);
    drop(Entry::new(access_log.clone(), unanswered.clone()));
    let void = Entry::new(access_log.clone(), unanswered);
    void.void();
    drop((void, access_log, log));
    let lines = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |line: &Value| {
        let number = |field| line[field].as_u64().unwrap();
        let by = line["broken_by"].as_str().map(str::to_owned);
        (number("status"), number("bytes"), number("bytes_in"), by, line["complete"] == true)
    };
    let all: Vec<_> = lines.iter().map(of).collect();
    assert_eq!(
        all,
        [(101, 13, 5, None, true), (499, 6, 0, Some("client".to_owned()), false)],
        "{lines:?}"
    );
}

#[test]
fn a_full_disk_is_reported_once_and_at_the_end_and_loses_only_log_lines() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = told.clone();
    let report = move |failure: &LogFailure| hears.lock().unwrap().push(failure.to_string());
    let full = config(Path::new("/dev/full"), LogFormat::Combined);
    let log = AccessLogSink::open(&full, None, report).unwrap();
    for _ in 0..5 {
        log.writer.hand_over(b"one\ntwo\n".to_vec());
    }
    drop(log);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    let expected = "writing the access log /dev/full: No space left on device (os error 28); ";
    assert!(told[0].starts_with(expected) && told[0].ends_with(" lost so far"), "{told:?}");
    // To the last one.
    assert_eq!(told[1], format!("{expected}10 lines were lost in all"));
}

/// The files of this process that are open at a path, by their links in /proc.
fn open_at(path: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|one| std::fs::read_link(one.path()).is_ok_and(|to| to == path)).count()
}

#[test]
fn a_log_that_was_moved_away_is_opened_again_and_the_former_file_closed_without_a_further_line() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
    let log = opened(&path, LogFormat::Combined);
    log.writer.hand_over(b"one\n".to_vec());
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(log.reopening().unwrap().run(), Ok(path.clone()));
    assert_eq!((open_at(&moved), open_at(&path)), (0, 1));
    log.writer.hand_over(b"two\n".to_vec());
    // The folder is gone: the log continues with the file that it has.
    let aside = folder.path().with_extension("aside");
    std::fs::rename(folder.path(), &aside).unwrap();
    let error = log.reopening().unwrap().run().unwrap_err();
    assert!(error.starts_with("reopening the access log ") && error.contains("No such"), "{error}");
    log.writer.hand_over(b"three\n".to_vec());
    drop(log);
    std::fs::rename(&aside, folder.path()).unwrap();
    let all = [&moved, &path].map(|path| std::fs::read_to_string(path).unwrap()).concat();
    assert_eq!(all, "one\ntwo\nthree\n");
    assert!(!std::fs::read_to_string(&moved).unwrap().contains("three"));
}

/// A crash, or the end of a server whose disk was full, leaves the start of a line.
#[test]
fn a_file_that_ends_within_a_line_gets_a_line_break_first() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("log"), folder.path().join("other"));
    for (before, after) in [("", ""), ("zero\n", "zero\n"), ("zero", "zero\n")] {
        std::fs::write(&path, before).unwrap();
        std::fs::write(&other, before).unwrap();
        let log = opened(&path, LogFormat::Combined);
        log.writer.hand_over(b"one\n".to_vec());
        log.writer.hand_over(b"two\n".to_vec());
        until("the lines are written", || std::fs::read(&path).unwrap().ends_with(b"two\n"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{after}one\ntwo\n"));
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(log.reopening().unwrap().run(), Ok(path.clone()));
        log.writer.hand_over(b"three\n".to_vec());
        drop(log);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{after}three\n"));
    }
}

/// Without a further line: the server may have none for hours.
#[test]
fn lost_lines_are_reported_to_the_last_one_when_lines_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = told.clone();
    let report = move |failure: &LogFailure| hears.lock().unwrap().push(failure.to_string());
    let log = AccessLogSink::open(&config(&path, LogFormat::Combined), None, report).unwrap();
    log.writer.hand_over(b"one\n".to_vec());
    until("the failure is reported", || told.lock().unwrap().len() == 1);
    // They are lost, too, after the report, which is not repeated for each.
    log.writer.hand_over(b"two\nthree\n".to_vec());
    until("all lines are lost", || log.writer.lost() == 3);
    std::fs::remove_file(&path).unwrap();
    log.reopening().unwrap().run().unwrap();
    log.writer.hand_over(b"four\n".to_vec());
    until("the loss is reported", || told.lock().unwrap().len() == 2);
    let expected = "lines are written again; 3 lines were lost in all";
    assert!(told.lock().unwrap()[1].ends_with(expected), "{told:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "four\n");
    drop(log);
    assert_eq!(told.lock().unwrap().len(), 2, "nothing is reported twice");
}

/// A pipe that is full takes no lines, and more wait than there is room for.
#[test]
fn lines_that_find_no_room_are_counted_although_no_line_follows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let options = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = openat(CWD, &path, options, Mode::empty()).unwrap();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = told.clone();
    let report = move |failure: &LogFailure| hears.lock().unwrap().push(failure.to_string());
    let log = AccessLogSink::open(&config(&path, LogFormat::Json), None, report).unwrap();
    let line = [&[b'x'; 4096][..], b"\n"].concat();
    const LINES: usize = 1000;
    (0..LINES).for_each(|_| log.writer.hand_over(line.clone()));
    fcntl_setfl(&reader, OFlags::empty()).unwrap();
    let reading = std::thread::spawn(move || {
        let mut found = Vec::new();
        File::from(reader).read_to_end(&mut found).unwrap();
        found.iter().filter(|byte| **byte == b'\n').count()
    });
    let is_over = || told.lock().unwrap().last().is_some_and(|last| last.ends_with("in all"));
    until("the loss is reported", is_over);
    drop(log);
    let lost = LINES - reading.join().unwrap();
    let last = told.lock().unwrap().last().unwrap().clone();
    assert!(last.ends_with(&format!("; {lost} lines were lost in all")), "{last}, {lost}");
}

/// An engine may hold the last reference to a log, and must not wait for its disk.
#[test]
fn a_log_whose_thread_is_kept_is_dropped_without_waiting_for_it() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let log = opened(Path::new(&path), LogFormat::Combined);
    drop(writer);
    // More than a pipe takes, and nothing is read yet.
    let line = [&[b'x'; 1 << 20][..], b"\n"].concat();
    log.writer.hand_over(line.clone());
    let thread = log.thread();
    drop(log);
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    drop(thread);
    assert!(found == line, "{} bytes", found.len());
}

/// As when the log of a server is rotated while its collector is stalled, and the server ends.
#[test]
fn stuck_logs_hold_up_neither_the_next_one_nor_the_end_and_lose_no_line_that_is_taken() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let line = [&[b'x'; 1 << 20][..], b"\n"].concat();
    let mut former = FormerLogs::default();
    for _ in 0..3 {
        let log = opened(Path::new(&path), LogFormat::Combined);
        log.writer.hand_over(line.clone());
        former.add(log.thread());
    }
    drop(writer);
    drop(former);
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    assert_eq!(found.len(), 3 * line.len());
}

#[test]
fn a_log_that_cannot_be_opened_says_why() {
    let report = |failure: &LogFailure| panic!("{failure}");
    let path = Path::new("/no/such/folder/access.log");
    let error = AccessLogSink::open(&config(path, LogFormat::Json), None, report).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

/// Opening it would wait for a reader for good.
#[test]
fn a_fifo_that_nothing_reads_is_refused_and_one_that_is_read_is_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let open = || {
        let report = |failure: &LogFailure| panic!("{failure}");
        AccessLogSink::open(&config(&path, LogFormat::Json), None, report)
    };
    let error = open().err().unwrap().to_string();
    assert!(error.contains("a FIFO that no process reads"), "{error}");
    let options = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = openat(CWD, &path, options, Mode::empty()).unwrap();
    let log = open().unwrap();
    // More than the kernel takes at once: the thread waits, which is no failure.
    let line = [&[b'x'; 1 << 20][..], b"\n"].concat();
    log.writer.hand_over(line.clone());
    let thread = log.thread();
    drop(log);
    fcntl_setfl(&reader, OFlags::empty()).unwrap();
    let mut found = Vec::new();
    File::from(reader).read_to_end(&mut found).unwrap();
    drop(thread);
    assert!(found == line, "{} bytes", found.len());
}
