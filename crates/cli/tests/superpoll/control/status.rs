//! `superpoll status`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use super::{Stage, command, refused, status};
use crate::stage::{run, speak, until};

#[test]
fn one_process_tells_its_configuration_listeners_and_connections() {
    let stage = Stage::new();
    let server = stage.start(1);
    let number = server.child().id();
    let _clients = [server.connect(), server.connect()];
    until("they are counted", || status(&stage.stats)["connections"] == 2);
    let told = status(&stage.stats);
    let path = stage.site.path("server.toml");
    for (name, expected) in [
        ("process", number.into()),
        ("state", "serving".into()),
        ("configuration", path.to_str().unwrap().into()),
        ("processes", serde_json::json!([])),
        ("listeners", serde_json::json!([format!("http://127.0.0.1:{}/", stage.port)])),
        ("upgrade", serde_json::Value::Null),
    ] {
        assert_eq!(told[name], expected, "{name}: {told}");
    }
    assert_eq!(told["engines"].as_array().unwrap().len(), 1, "{told}");
    let text = run(&mut stage.command("status", &[]));
    let first =
        format!("process       {number}, superpoll serve {}, serving", env!("CARGO_PKG_VERSION"));
    assert_eq!(text.lines().next(), Some(&*first), "{text}");
    for part in [path.to_str().unwrap(), "connections   2\n", "uptime"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    server.finish();
}

#[test]
fn a_policy_that_is_not_the_default_is_told() {
    let stage = Stage::new();
    let server = stage.start_with(1, "[engine]\npolicy = \"idle-server\"\n");
    assert_eq!(status(&stage.stats)["engines"][0]["policy"], "idle-server");
    let text = run(&mut stage.command("status", &[]));
    assert!(text.contains("engines       1, adaptive (idle-server), "), "{text}");
    server.finish();
}

#[test]
fn several_processes_are_one_server_with_its_workers() {
    let stage = Stage::new();
    let server = stage.start(3);
    let workers = server.workers(3);
    let told = status(&stage.stats);
    assert_eq!(told["process"], server.child().id(), "{told}");
    let listed = told["processes"].as_array().unwrap();
    let mut found: Vec<u64> = listed.iter().map(|one| one["process"].as_u64().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, workers.iter().map(|one| u64::from(*one)).collect::<Vec<_>>());
    assert!(listed.iter().enumerate().all(|(slot, one)| one["slot"] == slot), "{told}");
    until("all engines are told", || {
        status(&stage.stats)["engines"].as_array().unwrap().len() == 3
    });
    server.finish();
}

#[test]
fn a_server_that_is_stopped_is_reported_after_the_time_limit() {
    let stage = Stage::new();
    let server = stage.start(1);
    server.signal("STOP");
    for name in ["status", "reload", "drain", "upgrade"] {
        let line = refused(&mut stage.command(name, &["--timeout", "0.2"]));
        assert!(line.lines().count() == 1 && line.contains("within 0.2 s"), "{name}: {line}");
    }
    server.signal("CONT");
    server.signal("KILL");
    server.ended();
}

#[test]
fn commands_are_answered_though_there_are_as_many_viewers_as_there_may_be() {
    let stage = Stage::new();
    let server = stage.start(1);
    let viewers: Vec<UnixStream> = (0..8)
        .map(|_| {
            let mut stream = UnixStream::connect(&stage.stats).unwrap();
            stream.write_all(b"GET /api/snapshots HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
            stream
        })
        .collect();
    let line = refused(&mut command("top", &stage.stats, &["--once", "--json"]));
    assert!(line.contains("there are 8 viewers already"), "{line}");
    assert_eq!(status(&stage.stats)["state"], "serving");
    assert!(run(&mut stage.command("reload", &[])).contains(" took on "));
    drop(viewers);
    server.signal("TERM");
    server.ended();
}

#[test]
fn a_server_of_another_version_is_named_with_the_signal_that_it_knows() {
    let stage = Stage::new();
    let (own, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    // A version before the API sends lines.
    let line = "{\"schema\":1,\"program\":\"serve\",\"version\":\"0.0.9\\u001b[2J\"}\n";
    let other = |version: &str| {
        format!(
            "process {own} is superpoll {version}, which speaks another protocol; use the \
             `superpoll` of that process"
        )
    };
    let early = other("0.0.9\\u{1b}[2J");
    let answers = |status: &str, server: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nserver: {server}\r\n\r\n{body}")
    };
    let nothing = "{\"error\":\"there is nothing at this path\"}";
    let same = format!("superpoll/{version}");
    for (name, text, expected) in [
        ("reload", line.to_owned(), format!("{early}, or kill -HUP {own}\n")),
        ("drain", line.to_owned(), format!("{early}, or kill -TERM {own}\n")),
        ("status", line.to_owned(), format!("{early}\n")),
        (
            "drain",
            answers("404 Not Found", "superpoll/9.9.9", nothing),
            format!("there is nothing at this path; {}, or kill -TERM {own}\n", other("9.9.9")),
        ),
        ("drain", answers("404 Not Found", &same, nothing), "at this path\n".to_owned()),
        (
            "reload",
            answers("400 Bad Request", "superpoll/9.9.9", "{\"error\":\"unknown key\"}"),
            format!("unknown key; {}, or kill -HUP {own}\n", other("9.9.9")),
        ),
        (
            "reload",
            answers("200 OK", "superpoll/9.9.9", "{}"),
            format!("`message`; {}, or kill -HUP {own}\n", other("9.9.9")),
        ),
        ("reload", answers("503 Busy", &same, "{\"error\":\"a\\u001bb\"}"), "a\\u{1b}b".to_owned()),
        ("reload", answers("200 OK", "nginx", "{}"), "is no superpoll".to_owned()),
        ("reload", answers("200 OK", &same, "{}"), "its answer cannot be read".to_owned()),
        ("status", answers("200 OK", &same, "<a>"), "its answer is no JSON".to_owned()),
        ("reload", "{\"schema\":1,\"error\":\"8 clients\"}\n".to_owned(), "8 clients".to_owned()),
        ("reload", "SSH-2.0\n".to_owned(), "does not speak HTTP/1.1".to_owned()),
    ] {
        let path = stage.site.path("other");
        let speaks = speak(&path, [text]);
        let line = refused(&mut command(name, &path, &[]));
        assert!(line.lines().count() == 1 && line.contains(&expected), "{name}: {line}");
        speaks.join().unwrap();
    }
    // For an upgrade its version is asked for first.
    let path = stage.site.path("other");
    let speaks = speak(&path, [line.to_owned(), line.to_owned()]);
    let told = refused(&mut command("upgrade", &path, &[]));
    assert!(told.contains(&format!("{early}, or kill -USR2 {own}\n")), "{told}");
    speaks.join().unwrap();
    // It may take the request for a wrong line before it has said its version.
    let path = stage.site.path("other");
    let wrong = "{\"schema\":1,\"error\":\"the line cannot be read\"}\n";
    let speaks = speak(&path, [wrong.to_owned(), line.to_owned()]);
    let told = refused(&mut command("reload", &path, &[]));
    assert!(told.contains(&format!("{early}, or kill -HUP {own}\n")), "{told}");
    speaks.join().unwrap();
}

#[test]
fn a_script_may_end_its_own_direction_and_a_client_that_goes_on_sending_is_dropped() {
    let stage = Stage::new();
    let server = stage.start(1);
    let request = b"POST /api/reload HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut script = UnixStream::connect(&stage.stats).unwrap();
    script.write_all(request).unwrap();
    script.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    script.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("took on"), "{answer}");
    server.signal("STOP");
    let mut noisy = UnixStream::connect(&stage.stats).unwrap();
    noisy.write_all(request).unwrap();
    noisy.write_all(&[b'x'; 64 << 10]).unwrap();
    server.signal("CONT");
    // Its answer, or nothing: it ends in any case.
    let _ = noisy.read_to_end(&mut Vec::new());
    assert_eq!(status(&stage.stats)["state"], "serving");
    server.signal("TERM");
    server.ended();
}
