//! `superpoll upgrade`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use super::reload_aside::{put_fifo, reads};
use super::{Stage, begin, refusal, refused, status};
use crate::stage::{Running, Server, accept, get, has_ended, kill, lines, run, stop, until};
use superpoll_test_support::program::program;

/// Connections become idle soon.
const SOON: &str = "[timeouts]\npark = \"50ms\"\n";

/// A server whose program is a link, so that a test can replace it, with a keeper.
struct Upgraded {
    stage: Stage,
    program: PathBuf,
    keeper: Option<Running>,
}

impl Upgraded {
    /// Without a keeper there is nothing that connections could go on with.
    fn without_keeper() -> Upgraded {
        let stage = Stage::new();
        let program = stage.site.path("superpoll");
        symlink(env!("CARGO_BIN_EXE_superpoll"), &program).unwrap();
        stage.configure("", SOON);
        Upgraded { stage, program, keeper: None }
    }

    fn new() -> Upgraded {
        let upgraded = Upgraded::without_keeper();
        let keeper = upgraded.stage.site.path("keeper");
        let mut command = crate::superpoll();
        command.arg("keep").arg("--listen").arg(&keeper).stdout(Stdio::null());
        let running = Running(command.stderr(Stdio::null()).spawn().unwrap());
        until("the keeper listens", || keeper.exists());
        Upgraded { keeper: Some(running), ..upgraded }
    }

    fn start(&self, more: &[&str]) -> Server {
        let mut command = program(self.program.to_str().unwrap());
        command.args(["serve", "-c"]).arg(self.stage.site.path("server.toml")).args(more);
        if self.keeper.is_some() {
            command.arg("--keeper").arg(self.stage.site.path("keeper"));
        }
        Server::of(command, 1)
    }

    fn upgrade(&self, arguments: &[&str]) -> Command {
        self.stage.command("upgrade", arguments)
    }

    /// Replaces the program by one that never takes over, begins an upgrade, and returns the
    /// command and the number of the process that it has started.
    fn hang(&self) -> (Child, u32) {
        let pid = self.stage.site.path("pid");
        self.replace(&format!("echo $$ >'{}'; exec sleep 600", pid.display()));
        let asking = begin(self.upgrade(&[]));
        let successor = || fs::read_to_string(&pid).unwrap_or_default();
        until("the successor runs", || successor().ends_with('\n'));
        (asking, successor().trim().parse().unwrap())
    }

    /// Replaces the program by a script that checks the configuration as the program does.
    fn replace(&self, script: &str) {
        let text = format!(
            "#!/bin/sh\ncase \" $* \" in *\" --check \"*) exec '{}' \"$@\";; esac\n{script}\n",
            env!("CARGO_BIN_EXE_superpoll")
        );
        put(&self.program, &text);
    }

    fn restore(&self) {
        let _ = fs::remove_file(&self.program);
        symlink(env!("CARGO_BIN_EXE_superpoll"), &self.program).unwrap();
    }
}

/// Puts a script in the place of a program.
fn put(path: &Path, text: &str) {
    let aside = path.with_extension("new");
    // Another process writes the script: a program that another thread of this one starts would
    // have the file open for writing for a moment, and a file that is open for writing cannot be
    // executed.
    let mut writing = Command::new("sh");
    writing.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(&aside).stdin(Stdio::piped());
    let mut writing = writing.spawn().unwrap();
    writing.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writing.wait().unwrap().success());
    fs::rename(aside, path).unwrap();
}

/// A request to reopen them may have reached the process before after this one had opened them.
#[test]
fn a_successor_reopens_its_logs_when_it_serves() {
    let upgraded = Upgraded::new();
    let logs = "[access_log]\npath = \"access.log\"\n[log]\npath = \"error.log\"";
    upgraded.stage.configure("", logs);
    let server = upgraded.start(&[]);
    run(&mut upgraded.upgrade(&[]));
    let path = |name| upgraded.stage.site.path(name);
    let told = format!("reopened the log {}", path("access.log").display());
    until("it is reopened", || fs::read_to_string(path("error.log")).unwrap().contains(&told));
    run(&mut upgraded.stage.command("drain", &[]));
    assert!(server.ended().0.success());
}

#[test]
fn another_process_takes_over_and_is_named_when_it_serves() {
    let upgraded = Upgraded::new();
    let server = upgraded.start(&[]);
    let first = server.child().id();
    let mut idle = server.connect();
    assert!(get(&mut idle, "/small").ends_with("0123456789"));
    let told = run(&mut upgraded.upgrade(&[]));
    let second: u32 = told.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(told.contains(&format!("has taken over from process {first} (")), "{told}");
    assert!(told.ends_with(": 1 connection goes on there, 0 end here\n"), "{told}");
    let now = status(&upgraded.stage.stats);
    assert_eq!((&now["process"], &now["state"]), (&second.into(), &"serving".into()), "{now}");
    assert_eq!(now["upgrade"], "done", "{now}");
    assert!(get(&mut idle, "/small").ends_with("0123456789"));
    until("the first one has ended", || has_ended(first));
    // The successor has a successor, and takes on configurations.
    let told = run(&mut upgraded.upgrade(&[]));
    assert!(told.contains(&format!("has taken over from process {second} (")), "{told}");
    upgraded.stage.configure("", "");
    assert!(run(&mut upgraded.stage.command("reload", &[])).contains(" took on "));
    run(&mut upgraded.stage.command("drain", &[]));
    assert!(TcpStream::connect(("127.0.0.1", upgraded.stage.port)).is_err());
    server.ended();
}

/// The first process still drains when its successor, which is its child, has handed over and ends.
#[test]
fn a_successor_that_has_a_successor_has_not_failed() {
    let upgraded = Upgraded::new();
    upgraded.stage.configure("", &format!("{SOON}header = \"10m\"\ndrain = \"10m\""));
    let server = upgraded.start(&[]);
    let mut busy = server.connect();
    busy.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").unwrap();
    until("it is counted", || status(&upgraded.stage.stats)["connections"] == 1);
    let told = run(&mut upgraded.upgrade(&[]));
    let second: u32 = told.split(' ').nth(1).unwrap().parse().unwrap();
    run(&mut upgraded.upgrade(&[]));
    // The first process has heard of its end.
    let folder = PathBuf::from(format!("/proc/{second}"));
    until("the second one has ended", || !folder.exists());
    busy.write_all(b"\r\n").unwrap();
    busy.read_to_end(&mut Vec::new()).unwrap();
    run(&mut upgraded.stage.command("drain", &[]));
    let (status, errors) = server.ended();
    assert!(status.success(), "{errors}");
    assert!(!errors.contains("was to take over"), "{errors}");
}

/// The successor reads the configuration by itself.
#[test]
fn an_upgrade_gives_up_a_reload_that_is_still_reading() {
    let upgraded = Upgraded::new();
    let server = upgraded.start(&[]);
    let path = upgraded.stage.site.path("server.toml");
    let text = put_fifo(&path);
    let waiting = begin(upgraded.stage.command("reload", &[]));
    let file = reads(&path);
    let aside = path.with_extension("text");
    fs::write(&aside, text).unwrap();
    fs::rename(aside, &path).unwrap();
    assert!(run(&mut upgraded.upgrade(&[])).contains("has taken over"));
    let line = refusal(&waiting.wait_with_output().unwrap());
    assert!(line.contains("another server has taken over"), "{line}");
    drop(file);
    assert!(run(&mut upgraded.stage.command("reload", &[])).contains(" took on "));
    run(&mut upgraded.stage.command("drain", &[]));
    assert!(server.ended().0.success());
}

/// A server behind a proxy that changes the protocol, and then says nothing. Returns its address.
fn tunnels() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |mut stream: TcpStream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let answer =
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
        // Until the client ends.
        let _ = stream.write_all(answer).and_then(|()| stream.read_to_end(&mut Vec::new()));
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Idle connections go on, and all others end with their process. In the log and in the answer, the
/// two numbers together are all connections.
#[test]
fn the_connections_that_go_on_and_those_that_end_add_up() {
    for processes in [1, 2] {
        let upgraded = Upgraded::new();
        let (tunnels, relay) = (tunnels(), crate::stage::free_port());
        let more = format!(
            "[[hosts.routes]]\npath = \"/tunnel\"\nproxy = {{ upstream = \"raw\" }}\n\
             [upstreams.raw]\nservers = [{{ address = \"{tunnels}\" }}]\n\
             [[listeners]]\naddress = \"127.0.0.1:{relay}\"\nrelay = {{ to = \"{tunnels}\" }}\n\
             {SOON}header = \"10m\"\ndrain = \"10m\"\n"
        );
        upgraded.stage.configure(&format!("processes = {processes}"), &more);
        let mut command = program(upgraded.program.to_str().unwrap());
        command.args(["serve", "-c"]).arg(upgraded.stage.site.path("server.toml"));
        command.arg("--keeper").arg(upgraded.stage.site.path("keeper"));
        let server = Server::of(command, 2);
        if processes > 1 {
            until("all workers serve", || workers(&upgraded).len() == processes);
        }
        let mut idle: Vec<TcpStream> = (0..9).map(|_| server.connect()).collect();
        for stream in &mut idle {
            assert!(get(stream, "/small").ends_with("0123456789"));
        }
        let mut tunnel = server.connect();
        tunnel
            .write_all(
                b"GET /tunnel HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            )
            .unwrap();
        assert!(crate::stage::response(&mut tunnel).starts_with("HTTP/1.1 101 "));
        let mut pair = crate::stage::connect(([127, 0, 0, 1], relay).into());
        pair.write_all(b"\r\n\r\n").unwrap();
        assert!(crate::stage::response(&mut pair).starts_with("HTTP/1.1 101 "));
        let mut busy = server.connect();
        busy.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n").unwrap();
        until("all are counted", || status(&upgraded.stage.stats)["connections"] == 12);
        let told = run(&mut upgraded.upgrade(&[]));
        let numbers = "9 connections go on there, 3 end here";
        assert!(told.ends_with(&format!(": {numbers}\n")), "{told}");
        server.says(numbers);
        let now = status(&upgraded.stage.stats);
        if processes == 1 {
            server.says("superpoll: draining: 3 connections, 0 requests under way\n");
        } else {
            let expected = serde_json::json!({ "elsewhere": 9, "here": 3 });
            assert_eq!(now["handed_over"], expected, "{now}");
            assert_eq!(server.errors().matches("connections go on there").count(), 1);
        }
        // They are the next one's, and those that end do so in their own time.
        for stream in &mut idle {
            assert!(get(stream, "/small").ends_with("0123456789"));
        }
        busy.write_all(b"\r\n").unwrap();
        let mut answer = String::new();
        busy.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("0123456789"), "{answer}");
        drop((tunnel, pair));
        // Idle ones and nothing else.
        until("the one before has ended", || {
            let now = status(&upgraded.stage.stats);
            now["connections"] == 9
        });
        run(&mut upgraded.stage.command("drain", &[]));
        let (status, errors) = server.ended();
        assert!(status.success(), "{errors}");
    }
}

#[test]
fn a_program_that_cannot_take_over_is_named_and_the_server_goes_on() {
    let upgraded = Upgraded::new();
    let server = upgraded.start(&[]);
    let number = server.child().id();
    let serves = || {
        assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
        assert_eq!(status(&upgraded.stage.stats)["process"], number);
    };
    // Its configuration has a mistake.
    upgraded.stage.configure("nonsense = 1", "");
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("server.toml:4:") && line.contains("nonsense"), "{line}");
    serves();
    upgraded.stage.configure("", SOON);
    // It ends at once.
    upgraded.replace("exit 3");
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("which was to take over, has ended: exit status: 3"), "{line}");
    assert!(status(&upgraded.stage.stats)["upgrade"]["failed"].is_string());
    serves();
    // There is none.
    fs::remove_file(&upgraded.program).unwrap();
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("No such file"), "{line}");
    serves();
    // It does not get anywhere: there is no second one meanwhile.
    let (asking, successor) = upgraded.hang();
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("an upgrade is under way"), "{line}");
    assert_eq!(status(&upgraded.stage.stats)["upgrade"], "under_way");
    kill(successor, "KILL");
    let line = super::refusal(&asking.wait_with_output().unwrap());
    assert!(line.contains("has ended: signal: 9"), "{line}");
    serves();
    upgraded.restore();
    run(&mut upgraded.upgrade(&[]));
    run(&mut upgraded.stage.command("drain", &[]));
    server.ended();
}

#[test]
fn without_a_keeper_one_process_is_not_upgraded() {
    let upgraded = Upgraded::without_keeper();
    let server = upgraded.start(&[]);
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("there is no keeper process"), "{line}");
    server.signal("TERM");
    server.ended();
}

/// Returns the numbers of the workers that serve.
fn workers(upgraded: &Upgraded) -> Vec<u64> {
    let status = status(&upgraded.stage.stats);
    let all = status["processes"].as_array().unwrap().iter();
    let serving = all.filter(|worker| worker["state"] == "serving");
    serving.map(|worker| worker["process"].as_u64().unwrap()).collect()
}

#[test]
fn a_supervisor_is_asked_for_the_outcome_after_its_program_was_replaced() {
    for upgraded in [Upgraded::without_keeper(), Upgraded::new()] {
        let server = upgraded.start(&["--processes", "2"]);
        let number = server.child().id();
        until("all workers serve", || workers(&upgraded).len() == 2);
        for _ in 0..2 {
            let before = workers(&upgraded);
            let told = run(&mut upgraded.upgrade(&[]));
            assert!(told.starts_with(&format!("process {number} is ")), "{told}");
            let after = workers(&upgraded);
            assert_eq!(after.len(), 2, "{told}");
            for worker in &after {
                assert!(!before.contains(worker) && told.contains(&worker.to_string()), "{told}");
            }
            let now = status(&upgraded.stage.stats);
            assert_eq!((&now["upgrade"], &now["process"]), (&"done".into(), &number.into()));
        }
        upgraded.stage.configure("processes = 2", SOON);
        assert!(run(&mut upgraded.stage.command("reload", &[])).contains(" took on "));
        run(&mut upgraded.stage.command("drain", &[]));
        let (status, errors) = server.ended();
        assert!(status.success(), "{errors}");
    }
}

#[test]
fn a_supervisor_whose_new_program_fails_says_why() {
    let upgraded = Upgraded::without_keeper();
    let server = upgraded.start(&["--processes", "2"]);
    until("all workers serve", || workers(&upgraded).len() == 2);
    let before = workers(&upgraded);
    let serves = || {
        assert_eq!(workers(&upgraded), before);
        assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
    };
    upgraded.stage.configure("nonsense = 1", "");
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("server.toml:4:") && line.contains("nonsense"), "{line}");
    assert!(status(&upgraded.stage.stats)["upgrade"]["failed"].is_string());
    serves();
    // Its workers cannot serve.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = format!("[[listeners]]\naddress = \"{}\"", taken.local_addr().unwrap());
    upgraded.stage.configure("", &listener);
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("the workers before go on"), "{line}");
    serves();
    upgraded.stage.configure("", SOON);
    // The new program ends in the process of the supervisor, and its workers with it.
    upgraded.replace("exit 3");
    let line = refused(&mut upgraded.upgrade(&[]));
    assert!(line.contains("has ended during the upgrade"), "{line}");
    assert_eq!(server.ended().0.code(), Some(3));
}

/// Makes each worker that serves forward a request, which is not answered. Returns the connections
/// of the clients and of the workers.
fn ask_each(
    upgraded: &Upgraded,
    server: &Server,
    upstream: &TcpListener,
) -> Vec<(TcpStream, TcpStream)> {
    let all: Vec<u32> =
        workers(upgraded).into_iter().map(|worker| u32::try_from(worker).unwrap()).collect();
    let ask = |asked: &u32| {
        // Only one can accept.
        let others: Vec<u32> = all.iter().copied().filter(|other| other != asked).collect();
        others.iter().for_each(|other| stop(*other));
        let mut client = server.connect();
        client.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let forwarded = accept(upstream);
        others.iter().for_each(|other| kill(*other, "CONT"));
        (client, forwarded)
    };
    all.iter().map(ask).collect()
}

/// Workers that end with their requests stay through the next upgrade, which does not wait for
/// them, and count in a drain.
#[test]
fn workers_of_two_programs_before_are_counted_and_delay_no_upgrade() {
    let upgraded = Upgraded::without_keeper();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    let more = format!(
        "[[hosts.routes]]\npath = \"/slow\"\nproxy = {{ upstream = \"slow\" }}\n\
         [upstreams.slow]\nservers = [{{ address = \"{address}\" }}]\n\
         {SOON}response = \"10m\"\ndrain = \"10m\"\n"
    );
    upgraded.stage.configure("", &more);
    let server = upgraded.start(&["--processes", "2"]);
    until("all workers serve", || workers(&upgraded).len() == 2);
    let mut held = ask_each(&upgraded, &server, &upstream);
    for upgrades in 1..=2 {
        let told = run(&mut upgraded.upgrade(&[]));
        assert!(told.ends_with(": 0 connections go on there, 2 end here\n"), "{told}");
        until("it is logged", || {
            server.errors().matches("all workers are of the new program").count() == upgrades
        });
        assert!(!server.errors().contains("not answered"), "{}", server.errors());
        held.extend(ask_each(&upgraded, &server, &upstream));
    }
    let mut draining = begin(upgraded.stage.command("drain", &["--timeout", "60"]));
    let mut lines = lines(draining.stdout.take().unwrap());
    assert!(lines.any(|line| line.ends_with(": 6 connections, 6 requests under way")));
    // No request is made again elsewhere.
    drop(upstream);
    drop(held);
    assert!(lines.last().unwrap().ends_with(" has ended"));
    assert!(draining.wait().unwrap().success());
    server.ended();
}

/// A command in the moment in which the program is replaced is answered by the one before, or by
/// the next one.
#[test]
fn commands_during_an_upgrade_are_answered() {
    let upgraded = Upgraded::without_keeper();
    let server = upgraded.start(&["--processes", "2"]);
    until("all workers serve", || workers(&upgraded).len() == 2);
    upgraded.stage.configure("", SOON);
    let mut upgrading = begin(upgraded.upgrade(&[]));
    until("the upgrade has ended", || {
        let output = upgraded.stage.command("reload", &[]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // There is no socket for a moment.
        let is_away = errors.contains("connecting to the statistics socket");
        assert!(output.status.success() || is_away, "{errors}");
        upgrading.try_wait().unwrap().is_some()
    });
    let output = upgrading.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_server_that_ends_during_an_upgrade_says_so() {
    for (name, expected) in
        [("TERM", "the server is draining"), ("KILL", "has ended during the upgrade")]
    {
        let upgraded = Upgraded::new();
        let server = upgraded.start(&[]);
        let (asking, successor) = upgraded.hang();
        server.signal(name);
        let line = super::refusal(&asking.wait_with_output().unwrap());
        assert!(line.contains(expected), "{line}");
        // It has the standard error of the server.
        kill(successor, "KILL");
        server.ended();
    }
}
