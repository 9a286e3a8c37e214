use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Version};
use superpoll_config::{AccessLog, Facility, Field, Log, LogFormat, MessageFormat};
use superpoll_test_support::until;

use super::super::{
    AccessLogSink, AccessLogWriter, ClientEnd, Entry, ErrorLog, Event, LogFailure, RequestRecord,
    lost_lines,
};
use super::*;

/// Protects from waiting indefinitely. No outcome depends on it.
const LIMIT: Duration = Duration::from_secs(60);

fn syslog(server: SyslogServer) -> Syslog {
    Syslog { server, facility: Facility::Local0, tag: "web".into() }
}

fn local(path: &Path) -> SyslogServer {
    SyslogServer::Unix(path.to_path_buf())
}

/// Returns the socket of a daemon.
fn daemon(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn received(socket: &UnixDatagram) -> String {
    let mut bytes = [0; LONGEST + 1024];
    let count = socket.recv(&mut bytes).unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

/// Returns the beginning of messages to a daemon of this machine.
fn beginning(severity: Severity) -> String {
    format!("<{}>web[{}]: ", 16 << 3 | severity as u8, std::process::id())
}

type Told = Arc<Mutex<Vec<String>>>;

/// Opens an access log, and returns it with its failures.
fn access_log(server: SyslogServer) -> (Arc<AccessLogSink>, Told) {
    let told = Told::default();
    let hears = told.clone();
    let report = move |failure: &LogFailure| hears.lock().unwrap().push(failure.to_string());
    let (format, fields) = (LogFormat::Combined, Field::usual());
    let config = AccessLog { path: "stderr".into(), syslog: Some(syslog(server)), format, fields };
    (Arc::new(AccessLogSink::open(&config, None, report).unwrap()), told)
}

/// Returns a log of events.
fn error_log(server: SyslogServer, format: MessageFormat) -> ErrorLog {
    let syslog = Some(syslog(server));
    ErrorLog::open(&Log { syslog, format, ..Log::default() }).unwrap()
}

#[test]
fn a_line_that_is_too_long_is_cut_between_characters_and_says_so() {
    let fits = "x".repeat(LONGEST);
    assert_eq!(&*message(fits.as_bytes()), fits.as_bytes());
    for before in 0..4 {
        let line = "x".repeat(before) + &"\u{20ac}".repeat(LONGEST);
        let message = message(line.as_bytes()).into_owned();
        assert!(message.len() <= LONGEST && message.len() > LONGEST - 4);
        let text = String::from_utf8(message).unwrap();
        let (kept, note) = text.split_once("...").unwrap();
        assert!(line.starts_with(kept));
        assert_eq!(note, format!(" ({} bytes cut)", line.len() - kept.len()));
    }
}

#[test]
fn a_message_to_the_network_has_the_header_of_rfc_5424() {
    let header = Header::new(&syslog(SyslogServer::Udp("a.test".into(), 514)));
    let mut out = Vec::new();
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_321_211_250);
    header.write(&mut out, Severity::Error, at, "upstream-down");
    let (host, process) = (host_name(), std::process::id());
    let expected = format!("<131>1 2026-11-22T04:20:11.250Z {host} web {process} upstream-down - ");
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert!(!host.is_empty() && !host.contains(' '));
}

#[test]
fn an_event_is_a_message_of_its_severity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = daemon(&path);
    let log = error_log(local(&path), MessageFormat::Text);
    for (level, severity) in [
        (Level::Info, Severity::Info),
        (Level::Notice, Severity::Notice),
        (Level::Warning, Severity::Warning),
        (Level::Error, Severity::Error),
    ] {
        log.write(&Event::new(level, "event", "text\n<0>forged \x1b[1m\r"));
        assert_eq!(received(&daemon), format!("{}text", beginning(severity)));
        let second = "<0>forged \u{fffd}[1m\u{fffd}";
        assert_eq!(received(&daemon), format!("{}{second}", beginning(severity)));
    }
    let log = error_log(local(&path), MessageFormat::Json);
    log.write(&Event::new(Level::Error, "event", "text\n<0>forged").with("status", 502));
    let message = received(&daemon);
    let object = message.strip_prefix(&beginning(Severity::Error)).unwrap();
    let object: serde_json::Value = serde_json::from_str(object).unwrap();
    assert_eq!((&object["message"], &object["status"]), (&"text\n<0>forged".into(), &502.into()));
}

#[test]
fn no_client_forges_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = daemon(&path);
    let (log, told) = access_log(local(&path));
    superpoll_rt::Runtime::new().unwrap().block_on(async {
        let access_log = AccessLogWriter::new(log.clone());
        for text in ["GET /\n<0>web[1]: forged\x1b[1m\r\0 HTTP/1.1", "GET /second HTTP/1.1"] {
            let (method, uri) = (Method::GET, "/".parse().unwrap());
            let mut record =
                RequestRecord::new(ClientEnd::default(), method, uri, Version::HTTP_11);
            record.raw = Some(Box::new(Bytes::from_static(text.as_bytes())));
            drop(Entry::new(access_log.clone(), record));
        }
    });
    let [first, second] = [received(&daemon), received(&daemon)];
    let start = format!("{}unix: - - [", beginning(Severity::Info));
    assert!(first.starts_with(&start) && second.starts_with(&start), "{first} {second}");
    let line = "\"GET /\\x0A<0>web[1]: forged\\x1B[1m\\x0D\\x00 HTTP/1.1\" 499 0 \"-\" \"-\"";
    assert!(first.ends_with(line), "{first}");
    assert!(second.contains("\"GET /second HTTP/1.1\""), "{second}");
    drop(log);
    assert!(told.lock().unwrap().is_empty(), "{told:?}");
}

#[test]
fn a_daemon_that_was_restarted_gets_the_further_lines_and_hears_of_the_lost_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = error_log(local(&path), MessageFormat::Text);
    let write = |text: &str| log.write(&Event::new(Level::Error, "event", text));
    let before = lost_lines()[0].1;
    // It is started after the server.
    write("lost");
    until("the line is lost", || lost_lines()[0].1 > before);
    let expected = |text: &str| format!("{}{text}", beginning(Severity::Error));
    let first = daemon(&path);
    write("first");
    assert_eq!(received(&first), expected("first"));
    let report = received(&first);
    let lost = format!("{}writing the log syslog:unix:", beginning(Severity::Warning));
    let end = ": lines are written again; 1 lines were lost in all";
    assert!(report.starts_with(&lost) && report.ends_with(end), "{report}");
    // The socket is another one at once: nothing is lost.
    drop(first);
    std::fs::remove_file(&path).unwrap();
    let second = daemon(&path);
    write("second");
    assert_eq!(received(&second), expected("second"));
}

#[test]
fn a_daemon_that_takes_nothing_costs_lines_and_no_time_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let daemon = daemon(&path);
    let (log, told) = access_log(local(&path));
    let before = lost_lines()[1].1;
    // More than the socket holds.
    const AT_ONCE: usize = 2000;
    log.writer.hand_over(b"line\n".repeat(AT_ONCE));
    let says = |text: &str| told.lock().unwrap().iter().any(|told| told.contains(text));
    until("the reason is reported", || says(": the server takes no messages; "));
    // More pieces than may wait. None of them waits for the daemon.
    const LINES: usize = 5000;
    for _ in 0..LINES / 10 {
        log.writer.hand_over(b"line\n".repeat(10));
    }
    daemon.set_nonblocking(true).unwrap();
    let mut taken = 0;
    until("lines are written again", || {
        while daemon.recv(&mut [0; 16]).is_ok() {
            taken += 1;
        }
        says(": lines are written again; ")
    });
    let lost = AT_ONCE + LINES - taken;
    assert!(says(&format!("; {lost} lines were lost in all")), "{lost}: {told:?}");
    assert!(lost_lines()[1].1 - before >= lost as u64);
}

#[test]
fn lines_to_a_closed_port_are_lost_and_counted() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let address = socket.local_addr().unwrap();
    let (log, told) = access_log(SyslogServer::Udp("localhost".into(), address.port()));
    log.writer.hand_over(b"one\ntwo\n".to_vec());
    let received = |socket: &UdpSocket| {
        let mut bytes = [0; 100];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    };
    assert_eq!([received(&socket), received(&socket)], ["one", "two"]);
    drop(socket);
    // The answer to the last one of them comes with the next one.
    log.writer.hand_over(b"lost\n".repeat(5));
    until("lines are lost", || log.writer.lost() == 4);
    let refused = "Connection refused (os error 111); ";
    assert!(told.lock().unwrap().iter().any(|told| told.contains(refused)), "{told:?}");
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    log.writer.hand_over(b"three\n".to_vec());
    log.writer.hand_over(b"four\n".to_vec());
    assert_eq!([received(&socket), received(&socket)], ["three", "four"]);
    let expected = "lines are written again; 5 lines were lost in all";
    until("the loss is reported", || told.lock().unwrap().last().unwrap().ends_with(expected));
}

/// Returns the message of the next frame; `None` at the end, which may be within one.
fn frame(stream: &mut impl BufRead) -> Option<String> {
    let mut length = Vec::new();
    stream.read_until(b' ', &mut length).unwrap();
    let length = String::from_utf8(length).unwrap();
    let length: usize = length.strip_suffix(' ')?.parse().unwrap();
    let mut message = vec![0; length];
    stream.read_exact(&mut message).ok()?;
    Some(String::from_utf8(message).unwrap())
}

#[test]
fn frames_of_tcp_are_whole_on_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (log, told) = access_log(SyslogServer::Tcp("127.0.0.1".into(), port));
    let accepted = || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        BufReader::new(stream)
    };
    log.writer.hand_over(b"one\ntwo three\n".to_vec());
    let mut first = accepted();
    assert_eq!(
        [frame(&mut first), frame(&mut first)],
        [Some("one".into()), Some("two three".into())]
    );
    // The server is restarted between two lines.
    drop(first);
    log.writer.hand_over(b"four\n".to_vec());
    let mut second = accepted();
    assert_eq!(frame(&mut second).as_deref(), Some("four"));
    // It takes nothing any more: the connection ends within a frame, and the next one begins with a
    // whole one.
    const LINES: usize = 4000;
    let line = [&[b'x'; LONGEST][..], b"\n"].concat();
    log.writer.hand_over(line.repeat(LINES));
    until("lines are lost", || log.writer.lost() > 0);
    let mut taken = 0;
    while let Some(message) = frame(&mut second) {
        assert_eq!(message.len(), LONGEST);
        taken += 1;
    }
    assert_eq!(log.writer.lost() as usize, LINES - taken);
    let says = |text: &str| told.lock().unwrap().iter().any(|told| told.contains(text));
    until("the reason is reported", || says(": the server takes no messages; "));
    log.writer.hand_over(b"five\n".to_vec());
    assert_eq!(frame(&mut accepted()).as_deref(), Some("five"));
}

#[test]
fn a_name_without_an_address_and_a_server_that_is_away_are_reported() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (server, expected) in [
        (SyslogServer::Tcp("127.0.0.1".into(), closed), "Connection refused (os error 111)"),
        (SyslogServer::Udp("no-such-name.invalid".into(), 514), "failed to lookup address"),
        (SyslogServer::Unix("/no/such/socket".into()), "No such file or directory (os error 2)"),
    ] {
        let (log, told) = access_log(server);
        log.writer.hand_over(b"line\n".to_vec());
        until("the failure is reported", || !told.lock().unwrap().is_empty());
        let told = told.lock().unwrap()[0].clone();
        assert!(told.contains(expected) && told.ends_with("; 1 lines are lost so far"), "{told}");
    }
}
