//! `superpoll upstream`, `channels` and `connections`, and the admin listener, with one process and
//! with several.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Stage, refused, status};
use crate::stage::{Server, connect, free_port, get, kill, response, run, stop, succeeded, until};
use crate::superpoll;

/// A server of an upstream, which answers with its name.
struct Origin {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    fn new(name: &'static str) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<AtomicUsize> = Arc::default();
        let counted = requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), counted) = (stream, counted.clone()) else { continue };
                thread::spawn(move || answer(stream, name, &counted));
            }
        });
        Origin { address, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, name: &str, counted: &AtomicUsize) {
    let mut head = Vec::new();
    loop {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            counted.fetch_add(1, Ordering::SeqCst);
            let length = name.len();
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}");
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Runs an operation once. Returns its output, and its standard error if some processes have not
/// answered within the second that the server waits for them.
fn attempt(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let [told, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if !errors.contains("not answer") {
        succeeded(command, &output);
        return (told.into_owned(), String::new());
    }
    assert_eq!(output.status.code(), Some(1), "{told}{errors}");
    (told.into_owned(), errors.into_owned())
}

/// Repeats a command until all processes have answered it. Returns what each attempt has printed.
fn attempts(command: &mut Command) -> Vec<String> {
    let mut all = Vec::new();
    until(&format!("all processes answer {command:?}"), || {
        let begun = Instant::now();
        let (told, errors) = attempt(command);
        // Without an answer the server waits, and leaves out none that is connected.
        assert!(errors.is_empty() || begun.elapsed() >= Duration::from_secs(1), "{errors}");
        all.push(told);
        errors.is_empty()
    });
    all
}

/// Repeats an idempotent command until all processes have answered it, and returns that answer.
fn complete(command: &mut Command) -> String {
    attempts(command).pop().unwrap()
}

/// Checks that a connection ends, or has ended.
fn assert_closed(stream: &mut TcpStream) {
    match stream.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// A gateway with two servers, a channel and an admin listener.
struct Gateway {
    stage: Stage,
    admin: u16,
    origins: [Origin; 2],
}

impl Gateway {
    fn new() -> Gateway {
        let origins = [Origin::new("one"), Origin::new("other")];
        Gateway { stage: Stage::new(), admin: free_port(), origins }
    }

    fn configure(&self, processes: usize, more: &str) -> std::path::PathBuf {
        let [one, other] = self.origins.each_ref().map(|origin| origin.address);
        let admin = self.admin;
        self.stage.configure(
            &format!("processes = {processes}"),
            &format!(
                "[[hosts.routes]]
                path = \"/app\"
                proxy = {{ upstream = \"app\" }}
                [[hosts.routes]]
                path = \"/c\"
                channel = {{ publish = \"anyone\" }}
                [upstreams.app]
                servers = [{{ address = \"{one}\" }}, {{ address = \"{other}\" }}]
                [admin]
                address = \"127.0.0.1:{admin}\"
                {more}"
            ),
        )
    }

    fn start(&self, processes: usize) -> Server {
        let server = Server::configured(&self.configure(processes, ""), 2);
        if processes > 1 {
            until("all workers serve", || self.stage.serving() == processes);
        }
        server
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = superpoll();
        command.arg(name).args(arguments);
        command
    }

    /// Changes a server of the upstream in all processes.
    fn set(&self, arguments: &[&str]) -> String {
        let of = self.stage.stats.to_str().unwrap();
        complete(self.command("upstream", arguments).args(["--of", of]))
    }

    fn upstreams(&self) -> Value {
        let of = self.stage.stats.to_str().unwrap();
        let text = complete(&mut self.command("upstream", &[of, "--json"]));
        serde_json::from_str(&text).unwrap()
    }

    /// Requests a path of the admin listener.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = connect(format!("127.0.0.1:{}", self.admin).parse().unwrap());
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let text = response(&mut stream);
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap())
    }

    /// Repeats an idempotent request until exactly these processes are missing from the answer.
    fn ask_without(&self, missing: &[u32], method: &str, path: &str, body: &str) -> (u16, Value) {
        let expected = (!missing.is_empty()).then(|| Value::from(missing));
        let mut answer = (0, Value::Null);
        until(&format!("processes that do not answer {method} {path}: {missing:?}"), || {
            answer = self.ask(method, path, body);
            answer.1.get("missing_processes") == expected.as_ref()
        });
        answer
    }

    fn ask_all(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        self.ask_without(&[], method, path, body)
    }

    /// Makes a request of each of so many connections, and returns the names of the servers that
    /// have answered.
    fn answers(&self, server: &Server, count: usize) -> Vec<String> {
        let one = || {
            let text = get(&mut server.connect(), "/app");
            text.split("\r\n\r\n").nth(1).unwrap().to_owned()
        };
        (0..count).map(|_| one()).collect()
    }
}

#[test]
fn an_upstream_is_listed_and_its_servers_are_taken_out_and_weighed() {
    let gateway = Gateway::new();
    let server = gateway.start(1);
    let [one, other] = gateway.origins.each_ref().map(|origin| origin.address.to_string());
    let of = gateway.stage.stats.to_str().unwrap();
    let text = complete(&mut gateway.command("upstream", &[of]));
    let rows: Vec<_> = text.lines().skip(2).collect();
    assert!(rows.len() == 2 && rows[0].contains(&one) && rows[1].contains(&other), "{text}");
    let text = gateway.set(&["down", "app", &one]);
    let row = text.lines().find(|line| line.contains(&one)).unwrap();
    assert!(
        row.split_whitespace().eq(["app", &one, "down", "up", "1", "0", "0", "0", "0"]),
        "{text}"
    );
    assert!(gateway.answers(&server, 10).iter().all(|name| name == "other"));
    assert_eq!(gateway.origins[0].requests(), 0);
    assert!(run(&mut gateway.stage.command("reload", &[])).contains("took on"));
    assert!(gateway.answers(&server, 10).iter().all(|name| name == "other"));
    gateway.set(&["up", "app", &one]);
    let text = gateway.set(&["weight", "app", &one, "3"]);
    assert!(text.contains("3 (1)"), "{text}");
    let answers = gateway.answers(&server, 40);
    assert_eq!(answers.iter().filter(|name| *name == "one").count(), 30);
    gateway.set(&["weight", "app", &one, "configured"]);
    let listed = gateway.upstreams();
    assert_eq!(listed["upstreams"][0]["servers"][0]["weight"], 1, "{listed}");
    for (arguments, said) in [
        (["down", "ap", &one], "there is no upstream \"ap\", expected one of app"),
        (["down", "app", "x:1"], &*format!("no server \"x:1\", expected one of {one}, {other}")),
    ] {
        let line = refused(gateway.command("upstream", &arguments).args(["--of", of]));
        assert!(line.contains(said), "{line}");
    }
    let wrong = gateway.command("upstream", &["weight", "app", &one, "0"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    server.finish_with(&["an operator has set", "reloaded the configuration"]);
}

#[test]
fn all_workers_of_several_processes_have_what_is_set_also_those_that_begin_later() {
    let gateway = Gateway::new();
    let server = gateway.start(3);
    let [one, other] = gateway.origins.each_ref().map(|origin| origin.address.to_string());
    let servers = |listed: &Value| listed["upstreams"][0]["servers"].clone();
    // By the admin listener, in whichever worker the connection ends up.
    let path = format!("/api/upstreams/app/servers/{one}");
    let (status, told) = gateway.ask_all("PATCH", &path, "{\"state\":\"down\"}");
    assert_eq!((status, &servers(&told)[0]["processes"]), (200, &3.into()), "{told}");
    assert!(gateway.answers(&server, 60).iter().all(|name| name == "other"));
    assert_eq!(gateway.origins[0].requests(), 0);
    // A worker that is killed is replaced by one that knows it from its first request on.
    let workers = server.workers(3);
    for worker in &workers {
        kill(*worker, "KILL");
    }
    until("others are in their place", || {
        let now = crate::stage::children(server.child().id());
        now.len() == 3
            && now.iter().all(|one| !workers.contains(one))
            && gateway.stage.serving() == 3
    });
    assert!(gateway.answers(&server, 60).iter().all(|name| name == "other"));
    assert_eq!(gateway.origins[0].requests(), 0);
    let listed = gateway.upstreams();
    assert_eq!(servers(&listed)[0]["state"], "down", "{listed}");
    assert_eq!(servers(&listed)[1]["requests"], 60, "{listed}");
    // A reload keeps it, and so does an upgrade of the program.
    assert!(run(&mut gateway.stage.command("reload", &[])).contains("took on"));
    assert!(run(&mut gateway.stage.command("upgrade", &[])).contains("in place of"));
    assert!(gateway.answers(&server, 60).iter().all(|name| name == "other"));
    assert_eq!(gateway.origins[0].requests(), 0);
    gateway.set(&["up", "app", &one]);
    gateway.set(&["drain", "app", &other]);
    assert!(gateway.answers(&server, 30).iter().all(|name| name == "one"));
    for (path, status, said) in [
        ("/api/upstreams/ap/servers/x:1", 404, "expected one of app"),
        ("/api/upstreams/app/servers/x:1", 404, "expected one of 127.0.0.1"),
    ] {
        let (found, told) = gateway.ask("PATCH", path, "{\"state\":\"down\"}");
        assert_eq!(found, status, "{told}");
        assert!(told["error"].as_str().unwrap().contains(said), "{told}");
    }
    server.signal("TERM");
    server.ended();
}

#[test]
fn connections_and_channels_of_all_workers_are_listed_and_closed() {
    for processes in [1, 2] {
        let gateway = Gateway::new();
        let server = gateway.start(processes);
        let of = gateway.stage.stats.to_str().unwrap();
        let mut held: Vec<TcpStream> = (0..12).map(|_| server.connect()).collect();
        for stream in &mut held {
            assert!(get(stream, "/small").contains("0123456789"));
        }
        let list = |arguments: &[&str]| -> Value {
            let text = complete(gateway.command("connections", &[of, "--json"]).args(arguments));
            serde_json::from_str(&text).unwrap()
        };
        until("all are listed", || list(&[])["total"] == 12);
        let some = list(&["--limit", "5"]);
        assert_eq!(some["connections"].as_array().unwrap().len(), 5, "{some}");
        let text = complete(gateway.command("connections", &[of]).args(["--limit", "5"]));
        assert!(text.lines().count() == 8 && text.ends_with("and 7 more\n"), "{text}");
        let closes = |client: &str, expected: &str| {
            let arguments = [of, "--client", client, "--close"];
            let all = attempts(&mut gateway.command("connections", &arguments));
            // A worker that answers too late has closed its connections, but no attempt counts
            // them.
            assert!(all.len() > 1 || all[0] == expected, "{all:?}");
        };
        let mut one = held.remove(3);
        closes(&one.local_addr().unwrap().to_string(), "closed 1 connection\n");
        assert_closed(&mut one);
        until("the others are left", || list(&[])["total"] == 11);
        closes("127.0.0.1", "closed 11 connections\n");
        held.iter_mut().for_each(assert_closed);
        let (_, none) = gateway.ask_all("GET", "/api/connections?client=192.0.2.1", "");
        assert_eq!(none["total"], 0);

        let mut publisher = server.connect();
        publisher
            .write_all(b"POST /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")
            .unwrap();
        assert!(response(&mut publisher).starts_with("HTTP/1.1 201"));
        // A long-poll would end with the message where a worker has it a moment later.
        let mut streams: Vec<TcpStream> = (0..6).map(|_| server.connect()).collect();
        for stream in &mut streams {
            stream
                .write_all(
                    b"GET /c HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
                )
                .unwrap();
        }
        until("all subscribers are counted", || {
            let text = complete(&mut gateway.command("channels", &[of, "--json"]));
            let list: Value = serde_json::from_str(&text).unwrap();
            let channel = &list["channels"][0];
            assert_eq!((&channel["key"], &channel["last_id"]), (&"/c".into(), &1.into()), "{list}");
            channel["subscribers"] == 6
        });
        let (_, list) = gateway.ask_all("GET", "/api/channels", "");
        assert_eq!(list["channels"][0]["messages"], 1, "{list}");
        let text = complete(&mut gateway.command("channels", &[of]));
        assert_eq!(text.lines().count(), 3, "{text}");
        server.signal("TERM");
        server.ended();
    }
}

#[test]
fn the_level_of_the_log_is_changed_everywhere_and_taken_back() {
    for processes in [1, 2] {
        let gateway = Gateway::new();
        let path = gateway.configure(processes, "[log]\npath = \"log\"");
        let server = Server::configured(&path, 2);
        if processes > 1 {
            until("all workers serve", || gateway.stage.serving() == processes);
        }
        let log = || std::fs::read_to_string(gateway.stage.site.path("log")).unwrap();
        let one = gateway.origins[0].address.to_string();
        let lines = || log().matches("an operator has set").count();
        let (status, told) = gateway.ask("GET", "/api/log", "");
        let expected = serde_json::json!({ "level": "info", "configured": "info" });
        assert_eq!((status, told), (200, expected));
        let (_, told) = gateway.ask_all("PUT", "/api/log", "{\"level\":\"warning\"}");
        assert_eq!((&told["level"], &told["configured"]), (&"warning".into(), &"info".into()));
        let applied = told["applied_processes"].as_array().map_or(0, Vec::len);
        assert_eq!(applied, if processes > 1 { processes } else { 0 }, "{told}");
        gateway.set(&["down", "app", &one]);
        assert!(run(&mut gateway.stage.command("reload", &[])).contains("took on"));
        gateway.ask_all("PUT", "/api/log", "{\"level\":null}");
        // A worker that has the setting already logs nothing if this is repeated.
        gateway.set(&["up", "app", &one]);
        // Those of the change before would have come first.
        until("each worker has logged the second change", || lines() >= processes);
        assert_eq!(lines(), processes, "{}", log());
        server.signal("TERM");
        server.ended();
        assert!(!log().contains(" to down,"), "{}", log());
    }
}

#[test]
fn the_admin_listener_reloads_and_drains() {
    for processes in [1, 2] {
        let gateway = Gateway::new();
        let server = gateway.start(processes);
        let (code, told) = gateway.ask("GET", "/api/status", "");
        assert_eq!((code, &told["process"]), (200, &server.child().id().into()), "{told}");
        assert_eq!(
            told["processes"].as_array().unwrap().len() == processes,
            processes > 1,
            "{told}"
        );
        let (code, told) = gateway.ask("POST", "/api/reload", "");
        assert_eq!(code, 200, "{told}");
        assert!(told["message"].as_str().unwrap().contains("took on"), "{told}");
        gateway.configure(processes, "[nonsense]");
        let (code, told) = gateway.ask("POST", "/api/reload", "");
        assert_eq!(code, 409, "{told}");
        assert!(told["error"].as_str().unwrap().contains("unknown key `nonsense`"), "{told}");
        assert_eq!(status(&gateway.stage.stats)["state"], "serving");
        let (code, told) = gateway.ask("POST", "/api/drain", "");
        assert_eq!(code, 200, "{told}");
        server.ended();
    }
}

/// The program cannot answer once it is replaced, so it says before that this has begun.
#[test]
fn an_upgrade_of_a_supervisor_is_answered_before_its_program_is_replaced() {
    let gateway = Gateway::new();
    let server = gateway.start(2);
    for _ in 0..2 {
        let workers = server.workers(2);
        let (code, told) = gateway.ask("POST", "/api/upgrade", "");
        assert_eq!((code, &told["process"]), (202, &server.child().id().into()), "{told}");
        assert_eq!(told["is_under_way"], true, "{told}");
        until("all workers are new", || {
            let now = server.workers(2);
            now.iter().all(|worker| !workers.contains(worker))
        });
        until("the outcome is in the status", || {
            let mut status = gateway.command("status", &["--json"]);
            let output = status.arg(&gateway.stage.stats).output().unwrap();
            let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            told["upgrade"] == "done" && gateway.stage.serving() == 2
        });
    }
    server.signal("TERM");
    server.ended();
}

#[test]
fn a_proxy_has_nothing_to_list() {
    let gateway = Gateway::new();
    let to = gateway.origins[0].address.to_string();
    let stats = gateway.stage.stats.to_str().unwrap().to_owned();
    let mut command = superpoll();
    command.args(["proxy", "--listen", "127.0.0.1:0", "--to", &to, "--stats", &stats]);
    let child = crate::stage::Running(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    until("its socket is there", || gateway.stage.stats.exists());
    for name in ["upstream", "channels", "connections"] {
        let line = refused(&mut gateway.command(name, &[&stats]));
        assert!(line.contains("this program has no upstreams"), "{line}");
    }
    drop(child);
}

/// A worker that is stopped is named, by commands and by the API, and gets the changes when it goes
/// on.
#[test]
fn a_worker_that_does_not_answer_is_named_and_a_change_says_where_it_is_made() {
    let gateway = Gateway::new();
    let server = gateway.start(2);
    let of = gateway.stage.stats.to_str().unwrap();
    let [one, other] = gateway.origins.each_ref().map(|origin| origin.address.to_string());
    let path = format!("/api/upstreams/app/servers/{other}");
    let (_, told) = gateway.ask_all("PATCH", &path, "{\"weight\":2}");
    let mut applied: Vec<u64> =
        told["applied_processes"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    applied.sort_unstable();
    let workers = server.workers(2);
    assert_eq!(applied, workers.iter().map(|one| u64::from(*one)).collect::<Vec<_>>(), "{told}");
    assert_eq!(told.get("missing_processes"), None, "{told}");
    let (stopped, at_work) = (workers[0], workers[1]);
    stop(stopped);
    let silent = format!("process {stopped}, which does not answer");
    // Both are missing where the other one is away for a second.
    let are_missing = |text: &str| text.contains("do not answer");
    let said = |command: &mut Command| {
        let mut said = (String::new(), String::new());
        until(&format!("process {at_work} answers {command:?}"), || {
            said = attempt(command);
            !are_missing(&said.1)
        });
        said
    };
    // What the others have is listed, and the line says that this is not all.
    for name in ["upstream", "channels", "connections"] {
        let (told, errors) = said(&mut gateway.command(name, &[of, "--json"]));
        assert_eq!(errors, format!("superpoll: this is without {silent}\n"), "{name}");
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["missing_processes"], serde_json::json!([stopped]), "{told}");
    }
    let (told, _) = said(&mut gateway.command("upstream", &[of]));
    assert!(told.contains(&one) && told.contains(&other), "{told}");
    for path in ["/api/upstreams", "/api/upstreams/app", "/api/connections", "/api/channels"] {
        let (code, told) = gateway.ask_without(&[stopped], "GET", path, "");
        assert_eq!(code, 200, "{told}");
    }
    let mut text = String::new();
    until("the status has what the other one has", || {
        text = run(&mut gateway.stage.command("status", &[]));
        !are_missing(&text)
    });
    assert!(text.contains(&format!("without those of {silent}")), "{text}");
    assert!(text.contains(&format!(" {stopped}, serving, not answering\n")), "{text}");
    // A change is made, here and there.
    let path = format!("/api/upstreams/app/servers/{one}");
    let down = "{\"state\":\"down\"}";
    let (code, told) = gateway.ask_without(&[stopped], "PATCH", &path, down);
    assert_eq!(code, 202, "{told}");
    assert_eq!(told["applied_processes"], serde_json::json!([at_work]), "{told}");
    assert_eq!(told["upstreams"][0]["servers"][0]["state"], "down", "{told}");
    let (told, errors) = said(gateway.command("upstream", &["up", "app", &one]).args(["--of", of]));
    let made = format!("superpoll: the change is made in process {at_work}, and not in {silent}; ");
    assert!(errors.starts_with(&made) && told.contains(&one), "{told}{errors}");
    let none = "/api/connections?client=192.0.2.1";
    let (code, told) = gateway.ask_without(&[stopped], "DELETE", none, "");
    assert_eq!((code, &told["closed"]), (202, &0.into()), "{told}");
    // Connections are closed once.
    let closes = [of, "--client", "192.0.2.1", "--close"];
    let (_, errors) = said(&mut gateway.command("connections", &closes));
    let repeat = format!("and not in {silent}; repeat it when that goes on\n");
    assert!(errors.ends_with(&repeat), "{errors}");
    // Nobody answers, and the change is none the less made: it was refused before, and had effect.
    stop(at_work);
    let (_, errors) =
        attempt(gateway.command("upstream", &["down", "app", &one]).args(["--of", of]));
    assert!(
        errors.contains("the change is made in no process yet, and not in processes "),
        "{errors}"
    );
    kill(stopped, "CONT");
    kill(at_work, "CONT");
    let listed = gateway.upstreams();
    assert_eq!(listed["upstreams"][0]["servers"][0]["state"], "down", "{listed}");
    assert_eq!(listed["upstreams"][0]["servers"][0]["processes"], 2, "{listed}");
    assert!(gateway.answers(&server, 40).iter().all(|name| name == "other"));
    server.signal("TERM");
    server.ended();
}

/// Questions that a worker does not answer are bounded, and lists do not use up the room of an
/// order to close connections.
#[test]
fn lists_that_are_not_answered_leave_room_for_closing_connections() {
    let gateway = Gateway::new();
    let path = gateway.configure(2, "[timeouts]\nidle = \"10m\"");
    let server = Server::configured(&path, 2);
    until("all workers serve", || gateway.stage.serving() == 2);
    let mut held = server.connect();
    assert!(get(&mut held, "/small").contains("0123456789"));
    let client = format!("/api/connections?client={}", held.local_addr().unwrap());
    let mut listed = Value::Null;
    until("it is listed", || {
        listed = gateway.ask("GET", &client, "").1;
        listed["total"] == 1
    });
    let stopped = listed["connections"][0]["process"].as_u64().unwrap();
    let stopped = u32::try_from(stopped).unwrap();
    stop(stopped);
    // The admin listener has 64 connections at most.
    for _ in 0..5 {
        thread::scope(|scope| {
            for _ in 0..30 {
                scope.spawn(|| gateway.ask("GET", "/api/connections?limit=1", ""));
            }
        });
    }
    let (code, told) = gateway.ask_without(&[stopped], "DELETE", &client, "");
    assert_eq!(code, 202, "{told}");
    kill(stopped, "CONT");
    assert_closed(&mut held);
    server.signal("TERM");
    server.ended();
}

/// The settings of operators outlive an upgrade of one process and a crash, by the keeper.
#[test]
fn what_is_set_for_one_process_is_handed_to_the_next_one() {
    let gateway = Gateway::new();
    let keeper = gateway.stage.site.path("keeper");
    let mut command = superpoll();
    command.arg("keep").arg("--listen").arg(&keeper).stdout(std::process::Stdio::null());
    let _keeper =
        crate::stage::Running(command.stderr(std::process::Stdio::null()).spawn().unwrap());
    until("the keeper listens", || keeper.exists());
    let path = gateway.configure(1, "");
    let start = || {
        let mut command = superpoll();
        command.args(["serve", "-c"]).arg(&path).arg("--keeper").arg(&keeper);
        Server::of(command, 2)
    };
    let [one, other] = gateway.origins.each_ref().map(|origin| origin.address.to_string());
    let first = start();
    gateway.set(&["down", "app", &one]);
    gateway.set(&["weight", "app", &other, "7"]);
    let told = run(&mut gateway.stage.command("upgrade", &[]));
    let second: u32 = told.split(' ').nth(1).unwrap().parse().unwrap();
    let servers = || gateway.upstreams()["upstreams"][0]["servers"].clone();
    let found = servers();
    assert_eq!((&found[0]["state"], &found[1]["weight"]), (&"down".into(), &7.into()), "{found}");
    let answers = || {
        let mut stream = connect(format!("127.0.0.1:{}", gateway.stage.port).parse().unwrap());
        get(&mut stream, "/app").split("\r\n\r\n").nth(1).unwrap().to_owned()
    };
    assert!((0..20).all(|_| answers() == "other"));
    // A setting that is taken back is not there again.
    gateway.set(&["weight", "app", &other, "configured"]);
    kill(second, "KILL");
    until("it has ended", || crate::stage::has_ended(second));
    first.ended();
    let third = start();
    let found = servers();
    assert_eq!((&found[0]["state"], &found[1]["weight"]), (&"down".into(), &1.into()), "{found}");
    assert!((0..20).all(|_| answers() == "other"));
    gateway.set(&["up", "app", &one]);
    // A server that is ended leaves nothing.
    gateway.set(&["down", "app", &other]);
    third.signal("TERM");
    third.ended();
    let fourth = start();
    let found = servers();
    assert_eq!((&found[0]["state"], &found[1]["state"]), (&"up".into(), &"up".into()), "{found}");
    fourth.signal("TERM");
    fourth.ended();
}
