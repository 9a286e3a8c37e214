//! `superpoll reload`.

use std::io::{Read, Write};
use std::path::Path;

use super::{Stage, begin, refusal, refused, status};
use crate::stage::{Server, get, kill, run, stop, until};

const MOVED: &str = "[[hosts.routes]]\npath = \"/small\"\nredirect = { to = \"/elsewhere\" }";

#[test]
fn a_good_file_is_taken_on_before_the_command_ends_and_a_wrong_one_is_named_by_line() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start(processes);
        let settings = format!("processes = {processes}");
        let number = server.child().id();
        assert_eq!(status(&stage.stats)["reload"], serde_json::Value::Null);
        let path = stage.configure(&settings, MOVED);
        let told = run(&mut stage.command("reload", &[]));
        let expected =
            format!("process {number} took on {}: 1 listener, 1 host, 2 routes\n", path.display());
        assert_eq!(told, expected);
        // By all workers.
        for _ in 0..4 * processes {
            assert!(get(&mut server.connect(), "/small").starts_with("HTTP/1.1 308"));
        }
        let before = status(&stage.stats);
        assert_eq!(before["reload"]["error"], serde_json::Value::Null, "{before}");

        stage.configure(&settings, "[nonsense]\nx = 1\n[timeouts]\nidle = 7");
        let line = refused(&mut stage.command("reload", &[]));
        let lines: Vec<&str> = line.lines().collect();
        assert!(lines[0].contains("server.toml:10:18: unknown key `nonsense`"), "{line}");
        assert!(lines[1].contains("server.toml:13:8: "), "{line}");
        assert_eq!(lines[2..], ["nothing has changed: still serving the previous configuration"]);
        for _ in 0..4 * processes {
            assert!(get(&mut server.connect(), "/small").starts_with("HTTP/1.1 308"));
        }
        let after = status(&stage.stats);
        assert_eq!(after["configured_at"], before["configured_at"]);
        assert!(after["reload"]["error"].as_str().unwrap().contains(":10:18: "), "{after}");

        stage.configure(&settings, "");
        run(&mut stage.command("reload", &[]));
        assert!(get(&mut server.connect(), "/small").starts_with("HTTP/1.1 200"));
        assert_eq!(status(&stage.stats)["reload"]["error"], serde_json::Value::Null);
        std::fs::remove_file(&path).unwrap();
        assert!(refused(&mut stage.command("reload", &[])).contains("cannot read"));
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

#[test]
fn included_files_are_read_again_with_the_file() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start(processes);
        let path = stage.configure(&format!("processes = {processes}"), "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("include = [\"sites/*.toml\"]\n{text}")).unwrap();
        std::fs::create_dir(stage.site.path("sites")).unwrap();
        let site =
            "[[hosts]]\nnames = [\"b.example\"]\nroutes = [{ redirect = { to = \"/b\" } }]\n";
        stage.site.write("sites/b.toml", site);
        let told = run(&mut stage.command("reload", &[]));
        assert!(told.contains("1 listener, 2 hosts, 2 routes"), "{told}");
        let asks_site = || {
            let mut client = server.connect();
            client
                .write_all(b"GET / HTTP/1.1\r\nhost: b.example\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 308"), "{answer}");
        };
        (0..4 * processes).for_each(|_| asks_site());
        stage.site.write("sites/c.toml", "[[hosts]]\nname = \"c\"\n");
        let line = refused(&mut stage.command("reload", &[]));
        assert!(
            line.contains("sites/c.toml:2:1: unknown key `name`, did you mean `names`"),
            "{line}"
        );
        (0..4 * processes).for_each(|_| asks_site());
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

#[test]
fn settings_that_are_probably_not_meant_are_printed() {
    let stage = Stage::new();
    let server = stage.start(1);
    stage.site.certificate();
    // The proxy before the listener may have decrypted the requests that are redirected.
    let more = "[[hosts]]
        names = [\"a.example\"]
        https = \"always\"
        [[hosts.routes]]
        files = { root = \"www\" }
        [[listeners]]
        address = \"127.0.0.1:0\"
        tls = { certificate = \"cert.pem\", key = \"cert.key\" }
        [[listeners]]
        address = \"unix:socket\"
        proxy_protocol = true";
    stage.configure("", more);
    let output = stage.command("reload", &[]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.starts_with("superpoll: ") && errors.contains("server.toml:1"), "{errors}");
    assert!(errors.contains("all requests to unix:"), "{errors}");
    server.signal("TERM");
    server.ended();
}

#[test]
fn many_reloads_at_once_are_all_answered() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start(processes);
        stage.configure(&format!("processes = {processes}"), MOVED);
        let all: Vec<_> = (0..6).map(|_| begin(stage.command("reload", &[]))).collect();
        for one in all {
            let output = one.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("2 routes"), "{output:?}");
        }
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

#[test]
fn a_reload_waits_for_all_workers_and_one_that_overtakes_it_answers_both() {
    let stage = Stage::new();
    let server = stage.start(2);
    let stopped = server.workers(2)[0];
    stop(stopped);
    stage.configure("processes = 2", MOVED);
    let configured = status(&stage.stats)["reload"].clone();
    let mut first = begin(stage.command("reload", &[]));
    // The worker that is not stopped has read it.
    // The stopped one accepts no connection.
    until("one worker has it", || get(&mut server.connect(), "/small").starts_with("HTTP/1.1 308"));
    let line = refused(&mut stage.command("reload", &["--timeout", "0.2"]));
    assert!(line.contains("is not done within 0.2 s"), "{line}");
    // A wrong file does not end the reload that is under way, and has an answer at once.
    stage.site.write("server.toml", "[server]\nprocesses = 0\n");
    let line = refused(&mut stage.command("reload", &[]));
    assert!(line.contains("server.toml:2:"), "{line}");
    stage.configure("processes = 2", &format!("{MOVED}\n{}", MOVED.replace("small", "sub")));
    let mut second = begin(stage.command("reload", &[]));
    // Both wait before the worker goes on, or the first would be answered alone: the other worker
    // has the second file only after the calls are joined.
    until("one worker has the second one", || {
        get(&mut server.connect(), "/sub").to_ascii_lowercase().contains("location: /elsewhere")
    });
    assert!(first.try_wait().unwrap().is_none() && second.try_wait().unwrap().is_none());
    assert_ne!(status(&stage.stats)["reload"], configured);
    kill(stopped, "CONT");
    for one in [first, second] {
        let output = one.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && told.contains("3 routes"), "{output:?}");
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_server_without_a_file_has_nothing_to_read_again() {
    let stage = Stage::new();
    let stats = stage.stats.to_str().unwrap();
    for more in [&[][..], &["--processes", "2"]] {
        let mut arguments = vec!["--stats", stats];
        arguments.extend(more);
        let server = Server::folder(&stage.site.www(), &arguments);
        let line = refused(&mut stage.command("reload", &[]));
        assert!(line.contains("without a configuration file (-c)"), "{line}");
        server.finish();
    }
}

/// Whether a client has connected to a socket that its server has not accepted yet.
fn has_waiting_client(at: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let mut sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // The last fields are the number of the file, which is 0 until the server accepts, and the
    // path.
    sockets.any(|fields| matches!(fields[..], [.., "0", path] if Path::new(path) == at))
}

#[test]
fn a_server_that_ends_while_it_is_asked_is_reported() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start(processes);
        let number = server.child().id();
        stop(number);
        let asking = begin(stage.command("reload", &[]));
        // One that came too late would be refused.
        until("the command has connected", || has_waiting_client(&stage.stats));
        server.signal("KILL");
        server.ended();
        let line = refusal(&asking.wait_with_output().unwrap());
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(
            line.contains(&format!("process {number} has ended before it has answered")),
            "{line}"
        );
    }
}
