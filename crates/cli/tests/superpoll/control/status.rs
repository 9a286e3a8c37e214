//! `superpoll status`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use super::{Stage, command, refused, status};
use crate::stage::{run, until};

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
    assert_eq!(status(&stage.stats)["policy"], "idle-server");
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
            // It has been sent a snapshot.
            assert_eq!(stream.read(&mut [0]).unwrap(), 1);
            stream
        })
        .collect();
    let line = refused(&mut command("top", &stage.stats, &["--once", "--json"]));
    assert!(line.contains("there are 8 clients already"), "{line}");
    assert_eq!(status(&stage.stats)["state"], "serving");
    assert!(run(&mut stage.command("reload", &[])).contains(" took on "));
    drop(viewers);
    server.signal("TERM");
    server.ended();
}

#[test]
fn a_server_that_does_not_know_commands_is_named_with_the_signal_that_it_knows() {
    let stage = Stage::new();
    let snapshot =
        "{\"schema\":1,\"program\":\"serve\",\"version\":\"0.0.9\\u001b[2J\",\"engines\":[]}\n";
    let own = std::process::id();
    for (name, answers, expected) in [
        (
            "reload",
            format!("{snapshot}{{\"schema\":1,\"error\":\"the line cannot be read\"}}\n"),
            format!(
                "is superpoll 0.0.9\\u{{1b}}[2J, which does not know the command reload; use kill -HUP {own}"
            ),
        ),
        (
            "status",
            format!("{snapshot}{{\"schema\":1,\"error\":\"the line cannot be read\"}}\n"),
            format!("does not know the command status; use superpoll top {own}"),
        ),
        ("reload", "{\"schema\":1,\"error\":\"8 clients\"}\n".to_owned(), "8 clients".to_owned()),
        (
            "drain",
            "{\"schema\":1,\"protocol\":2,\"finished\":true}\n".to_owned(),
            "it answers in version 2, and this program knows version 1".to_owned(),
        ),
        ("drain", "{\"schema\":2}\n".to_owned(), "statistics of version 2".to_owned()),
        ("reload", "SSH-2.0\n".to_owned(), "sends no statistics".to_owned()),
        (
            "reload",
            "{\"schema\":1,\"protocol\":1}\n".to_owned(),
            "its answer cannot be read".to_owned(),
        ),
    ] {
        let path = stage.site.path("other");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let speaks = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(answers.as_bytes()).unwrap();
            // Until the command has ended.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let line = refused(&mut command(name, &path, &[]));
        assert!(line.lines().count() == 1 && line.contains(&expected), "{name}: {line}");
        speaks.join().unwrap();
    }
}

#[test]
fn a_script_may_end_its_own_direction_and_a_client_that_goes_on_sending_is_dropped() {
    let stage = Stage::new();
    let server = stage.start(1);
    let command = b"{\"command\":\"reload\",\"protocol\":1}\n";
    let mut script = UnixStream::connect(&stage.stats).unwrap();
    script.write_all(command).unwrap();
    script.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    script.read_to_string(&mut answer).unwrap();
    let line = answer.lines().last().unwrap();
    assert!(line.contains("\"protocol\":1") && line.contains("\"done\":{"), "{answer}");
    server.signal("STOP");
    let mut noisy = UnixStream::connect(&stage.stats).unwrap();
    noisy.write_all(command).unwrap();
    noisy.write_all(&[b'x'; 64 << 10]).unwrap();
    server.signal("CONT");
    // Its answer, or nothing: it ends in any case.
    let _ = noisy.read_to_end(&mut Vec::new());
    assert_eq!(status(&stage.stats)["state"], "serving");
    server.signal("TERM");
    server.ended();
}
