//! `--processes`: workers that are one server, and their supervisor.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use crate::stage::{
    Server, Site, backends, children, connect, free_port, get, has_ended, kill, response, run,
    stop, until,
};
use crate::superpoll;
use superpoll_test_support::program::program;
use superpoll_test_support::tokens::{SECRET, rule, with_claims};

fn text(backend: &str, processes: usize, ports: &[u16], more: &str) -> String {
    let listeners =
        ports.iter().map(|port| format!("[[listeners]]\naddress = \"127.0.0.1:{port}\"\n"));
    format!(
        "[server]
        backend = \"{backend}\"
        workers = 1
        processes = {processes}
        stats = \"stats\"
        {}
        [metrics]
        path = \"/metrics\"
        ready = \"/readyz\"
        [[hosts]]
        {more}
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/c\"
        channel = {{ publish = \"anyone\", history = 100 }}",
        listeners.collect::<String>()
    )
}

fn started(site: &Site, backend: &str, processes: usize, port: u16) -> (Server, PathBuf) {
    let path = site.write("server.toml", &text(backend, processes, &[port], ""));
    let server = Server::configured(&path, 1);
    server.workers(processes);
    // All of them listen.
    until("all workers are counted", || engines(&site.path("stats")) == processes);
    (server, path)
}

/// Publishes a message, and returns the answer.
fn publish(at: SocketAddr, message: &str) -> String {
    let mut stream = connect(at);
    let length = message.len();
    let head = format!("POST /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{message}").as_bytes()).unwrap();
    response(&mut stream)
}

/// Waits until a new connection gets these messages of the channel, with an id or as a text; its
/// worker may have them later than another one.
fn has_messages<T: PartialEq>(
    at: SocketAddr,
    expected: &[T],
    of: impl Fn(&serde_json::Value) -> Option<T>,
) {
    let mut stream = connect(at);
    until("the worker has the messages", || {
        let told = get(&mut stream, "/c?after=0");
        let body = told.split("\r\n\r\n").nth(1).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{told}"));
        let all = told["messages"].as_array().unwrap_or_else(|| panic!("{told}"));
        assert!(all.len() <= expected.len(), "{told}");
        all.iter().zip(expected).for_each(|(one, expected)| {
            assert!(of(one).as_ref() == Some(expected), "{told}");
        });
        all.len() == expected.len()
    });
}

fn snapshot(stats: &Path) -> serde_json::Value {
    serde_json::from_str(&run(superpoll().args(["top", "--once", "--json"]).arg(stats))).unwrap()
}

fn engines(stats: &Path) -> usize {
    snapshot(stats)["engines"].as_array().unwrap().len()
}

/// Returns the sum of a metric over all engines, and its value for each of them.
fn metric(at: SocketAddr, name: &str) -> (f64, BTreeMap<String, f64>) {
    let told = get(&mut connect(at), "/metrics");
    let lines = told.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let values = lines.filter_map(|line| {
        let (labels, value) = line.split_once("} ")?;
        Some((labels.to_owned(), value.parse().unwrap()))
    });
    let values: BTreeMap<String, f64> = values.collect();
    (values.values().sum(), values)
}

/// Whether all workers say that the last reload was a success, or that it was none.
fn says_reload(at: SocketAddr, is_successful: bool) -> bool {
    let name = "superpoll_config_last_reload_successful";
    let expected = format!("\n{name} {}\n", u8::from(is_successful));
    get(&mut connect(at), "/metrics").contains(&expected)
}

#[test]
fn workers_have_one_channel_one_sum_of_counters_and_one_page_for_top() {
    let site = Site::new();
    for backend in backends() {
        let port = free_port();
        let (server, _) = started(&site, backend.name(), 3, port);
        let at = server.at(0);
        for number in 0..20 {
            let told = publish(at, &format!("message {number}"));
            assert!(told.starts_with("HTTP/1.1 201"), "{backend:?}: {told}");
        }
        let ids: Vec<u64> = (1..=20).collect();
        for _ in 0..20 {
            has_messages(at, &ids, |told| told["id"].as_u64());
        }
        let (before, _) = metric(at, "superpoll_responses_total");
        for _ in 0..30 {
            assert!(get(&mut connect(at), "/small").ends_with("0123456789"));
        }
        let (after, by_engine) = metric(at, "superpoll_responses_total");
        // Those of the metrics before, too.
        assert_eq!(after - before, 31.0, "{backend:?}: {by_engine:?}");
        for slot in 0..3 {
            let label = format!("engine=\"{slot}.0\"");
            assert!(by_engine.keys().any(|labels| labels.contains(&label)), "{by_engine:?}");
        }
        let told = snapshot(&site.path("stats"));
        assert_eq!(told["process"], server.child().id(), "{told}");
        assert_eq!(told["backend"], backend.name(), "{told}");
        assert_eq!(told["engines"].as_array().map(Vec::len), Some(3), "{told}");
        let responses = |engine: &serde_json::Value| engine["connections"]["responses"].as_u64();
        let sum: u64 = told["engines"].as_array().unwrap().iter().filter_map(responses).sum();
        assert!(sum as f64 > after, "{backend:?}: {told}");
        server.finish();
    }
}

#[test]
fn workers_count_users_together() {
    let (site, port) = (Site::new(), free_port());
    let more = format!(
        "[[hosts.routes]]\npath = \"/crowd\"\n[hosts.routes.channel]\npresence = true\n\
         presence_grace = \"100ms\"\nsubscribe = \"token\"\n{}\n",
        rule("")
    );
    let path = site.write("server.toml", &text("adaptive", 2, &[port], &more));
    let server = Server::configured(&path, 1);
    server.workers(2);
    until("all workers are counted", || engines(&site.path("stats")) == 2);
    let at: SocketAddr = ([127, 0, 0, 1], port).into();
    let query = |name: &str| {
        let channels = serde_json::json!({ "subscribe": ["/crowd"] });
        let claims = serde_json::json!({ "sub": name, "superpoll": channels });
        format!("/crowd?token={}", with_claims(&claims, SECRET))
    };
    let enter = |name: &str| {
        let stream = TcpStream::connect(at).unwrap();
        tungstenite::client(format!("ws://{at}{}", query(name)), stream).unwrap().0
    };
    // Any of the workers may answer.
    let are = |expected: &[&str]| {
        let answer = get(&mut connect(at), &format!("{}&info=1&members=1", query("eve")));
        let Some((_, body)) = answer.split_once("\r\n\r\n") else { return false };
        let Ok(json) = serde_json::from_str::<serde_json::Value>(body) else { return false };
        let members = json["members"].as_array().unwrap().iter();
        members.map(|one| one["user"].as_str().unwrap()).eq(expected.iter().copied())
    };
    let mut tabs: Vec<_> = (0..12).map(|number| enter(["ada", "bob", "cid"][number % 3])).collect();
    until("all are listed", || (0..8).all(|_| are(&["ada", "bob", "cid"])));
    tabs.truncate(1);
    until("one is left", || (0..8).all(|_| are(&["ada"])));
    let mut events = Vec::new();
    while events.last().is_none_or(|last: &String| !last.ends_with("\"users\":1}"))
        || events.len() < 5
    {
        if let tungstenite::Message::Text(text) = tabs[0].read().unwrap() {
            events.push(text.to_string());
        }
    }
    // Each came once, and went once, wherever the tabs were.
    assert_eq!(events.len(), 5, "{events:?}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_killed_worker_is_replaced_and_nothing_of_the_channel_is_lost() {
    let site = Site::new();
    let (server, _) = started(&site, "epoll", 2, free_port());
    let at = server.at(0);
    publish(at, "before");
    let mut before = server.workers(2);
    for round in 0..4 {
        let victim = before[round % 2];
        let start = Instant::now();
        kill(victim, "KILL");
        until("another worker is there", || {
            let now = children(server.child().id());
            now.len() == 2 && !now.contains(&victim)
        });
        until("it serves", || engines(&site.path("stats")) == 2);
        println!("a worker is back after {:?}", start.elapsed());
        // No client is refused meanwhile, and none waits for a process that is not there.
        let told = publish(at, &format!("round {round}"));
        assert!(told.starts_with("HTTP/1.1 201"), "{told}");
        before = server.workers(2);
    }
    let expected = ["before", "round 0", "round 1", "round 2", "round 3"].map(str::to_owned);
    has_messages(at, &expected, |told| Some(told["data"].as_str()?.to_owned()));
    server.says("starting another one");
    server.finish_with(&["worker "]);
}

#[test]
fn a_reload_reaches_all_workers_and_changes_their_number() {
    let site = Site::new();
    let (port, other) = (free_port(), free_port());
    let (server, path) = started(&site, "adaptive", 2, port);
    let mut idle = server.connect();
    assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 200"));
    let before = server.workers(2);

    let moved = "[[hosts.routes]]\npath = \"/small\"\nredirect = { to = \"/elsewhere\" }";
    site.write("server.toml", &text("adaptive", 4, &[port, other], moved));
    server.signal("HUP");
    server.says("reloaded the configuration ");
    let after = server.workers(4);
    assert!(says_reload(server.at(0), true));
    assert!(before.iter().all(|worker| after.contains(worker)), "{before:?} {after:?}");
    until("all workers are counted", || engines(&site.path("stats")) == 4);
    let (_, by_process) = metric(server.at(0), "process_cpu_seconds_total");
    let expected = [0, 1, 2, 3].map(|slot| format!("process=\"{slot}\""));
    assert!(by_process.keys().eq(&expected), "{by_process:?}");
    assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 308"));
    for at in [port, other] {
        for _ in 0..12 {
            let mut stream = connect(([127, 0, 0, 1], at).into());
            assert!(get(&mut stream, "/small").starts_with("HTTP/1.1 308"));
        }
    }

    // A mistake is reported once, by its line, and changes nothing.
    site.write("server.toml", "[server]\nprocesses = 0\n");
    server.signal("HUP");
    server.says("still serving the previous configuration");
    assert!(server.errors().contains("server.toml:2:"), "{}", server.errors());
    assert_eq!(server.workers(4), after);
    assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 308"));
    until("the mistake is in the metrics", || says_reload(server.at(0), false));
    // The next worker has the configuration that is in use, whatever the file has by then.
    kill(after[1], "KILL");
    until("the worker is gone", || has_ended(after[1]));
    until("all workers are counted", || engines(&site.path("stats")) == 4);
    assert!(says_reload(server.at(0), false), "the new worker does not know of the mistake");

    site.write("server.toml", &text("adaptive", 1, &[port], ""));
    server.signal("HUP");
    server.workers(1);
    until("one engine is left", || engines(&site.path("stats")) == 1);
    until("the success is in the metrics", || says_reload(server.at(0), true));
    until("the other address is closed", || TcpStream::connect(("127.0.0.1", other)).is_err());
    assert!(get(&mut server.connect(), "/small").starts_with("HTTP/1.1 200"));
    drop((idle, path));
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success(), "{status}: {errors}");
    assert_eq!(errors.matches("reloaded the configuration").count(), 2, "{errors}");
}

#[test]
fn a_mistake_counts_though_the_reload_before_it_is_over_only_later() {
    let site = Site::new();
    let (port, other) = (free_port(), free_port());
    let (server, _) = started(&site, "epoll", 2, port);
    let workers = server.workers(2);
    stop(workers[0]);
    site.write("server.toml", &text("epoll", 2, &[port, other], ""));
    server.signal("HUP");
    until("the supervisor has read it", || TcpStream::connect(("127.0.0.1", other)).is_ok());
    site.write("server.toml", "[server]\nprocesses = 0\n");
    server.signal("HUP");
    server.says("still serving the previous configuration");
    assert!(!server.errors().contains("reloaded the configuration"), "{}", server.errors());
    kill(workers[0], "CONT");
    server.says("reloaded the configuration ");
    // The line may be there before each worker has heard of the mistake.
    until("the mistake is in the metrics", || says_reload(server.at(0), false));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn signals_end_all_workers_and_a_second_one_at_once() {
    let site = Site::new();
    let path = site.www();
    for name in ["TERM", "INT"] {
        let server = Server::folder(&path, &["--processes", "2", "--stats", "off"]);
        let workers = server.workers(2);
        let mut slow = server.connect();
        slow.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n").unwrap();
        server.signal(name);
        // Its head is not complete: its worker waits for it, and the other one ends.
        let [slowest] = server.workers(1)[..] else { unreachable!("there is one") };
        // A service manager may send it to all processes.
        kill(slowest, "TERM");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!has_ended(slowest));
        server.signal(name);
        let (status, errors) = server.ended();
        assert!(status.success(), "{status}: {errors}");
        let mut rest = Vec::new();
        let _ = slow.read_to_end(&mut rest);
        assert!(rest.is_empty());
        assert!(workers.iter().all(|worker| has_ended(*worker)));
    }
}

#[test]
fn workers_end_with_a_supervisor_that_is_killed() {
    let site = Site::new();
    let (server, _) = started(&site, "epoll", 3, free_port());
    let workers = server.workers(3);
    server.signal("KILL");
    // Their standard error is the same, and ends with the last of them.
    let (_, errors) = server.ended();
    assert_eq!(errors.matches("the supervisor has ended").count(), 3, "{errors}");
    until("they have ended", || workers.iter().all(|worker| has_ended(*worker)));
}

#[test]
fn an_upgrade_replaces_all_programs_and_keeps_process_addresses_and_messages() {
    let site = Site::new();
    let (server, path) = started(&site, "adaptive", 2, free_port());
    let at = server.at(0);
    publish(at, "before");
    for round in 0..2 {
        let before = server.workers(2);
        server.signal("USR2");
        until("all workers are new", || {
            // Signals wait while the program is replaced.
            server.signal("HUP");
            let now = children(server.child().id());
            now.len() == 2 && now.iter().all(|worker| !before.contains(worker))
        });
        until("they are counted", || engines(&site.path("stats")) == 2);
        let times = |what: &str| server.errors().matches(what).count();
        until("it says so", || times("all workers are of the new program") == round + 1);
        publish(at, &format!("round {round}"));
    }
    has_messages(at, &[1, 2, 3], |told| told["id"].as_u64());

    // A program that would not begin does not replace one that serves.
    let good = std::fs::read_to_string(&path).unwrap();
    site.write("server.toml", "[server]\nprocesses = 0\n");
    let before = server.workers(2);
    server.signal("USR2");
    server.says("not upgrading: ");
    assert!(server.errors().contains("server.toml:2:"), "{}", server.errors());
    assert_eq!(server.workers(2), before);
    // Nor do workers that cannot serve.
    let own = "[[hosts.routes]]\npath = \"/d\"\nfiles = { root = \"www\" }\n";
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    site.write("server.toml", &text("adaptive", 2, &[at.port(), port], own));
    server.signal("USR2");
    server.says("the workers before go on");
    assert_eq!(server.workers(2), before);
    assert!(publish(at, "after").starts_with("HTTP/1.1 201"));
    site.write("server.toml", &good);
    server.signal("HUP");
    server.says("reloaded the configuration");
    assert!(publish(at, "at the end").starts_with("HTTP/1.1 201"));
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success(), "{status}: {errors}");
}

/// A signal that the program before has taken and not acted on would be lost with it.
#[test]
fn a_signal_in_the_moment_of_an_upgrade_is_not_lost() {
    const ROUNDS: u32 = 30;
    let site = Site::new();
    let mut moment = None;
    for round in 0..ROUNDS {
        let (server, _) = started(&site, "epoll", 2, free_port());
        server.signal("USR2");
        let begun = Instant::now();
        match moment {
            None => {
                server.says("upgrading: ");
                moment = Some(begun.elapsed());
            }
            // From a while before the program is replaced until a while after it.
            Some(moment) => std::thread::sleep(moment * (ROUNDS / 2 + round) / ROUNDS),
        }
        server.signal("TERM");
        until("it has ended", || has_ended(server.child().id()));
        let (status, errors) = server.ended();
        assert!(status.success(), "{status}: {errors}");
    }
}

#[test]
fn sockets_of_a_service_manager_are_shared_by_all_workers() {
    let site = Site::new();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = tcp.local_addr().unwrap();
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve \"$@\" 3<&0 0</dev/null";
    let mut command = program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_superpoll")]).arg(site.www());
    command
        .args(["--processes", "2", "--stats", "off"])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(tcp)));
    let server = Server::of(command, 1);
    assert_eq!(server.at(0), at);
    let before = server.workers(2);
    for _ in 0..10 {
        assert!(get(&mut connect(at), "/small").ends_with("0123456789"));
    }
    // The next program has them from this one.
    server.signal("USR2");
    until("all workers are new", || {
        let now = children(server.child().id());
        now.len() == 2 && now.iter().all(|worker| !before.contains(worker))
    });
    server.says("all workers are of the new program");
    for _ in 0..10 {
        assert!(get(&mut connect(at), "/small").ends_with("0123456789"));
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn arguments_behind_two_dashes_are_those_of_all_processes() {
    let site = Site::new();
    let www = site.www();
    let options = ["--processes", "2", "--listen", "127.0.0.1:0", "--stats", "off", "--"];
    let server = Server::start(&[&options[..], &[www.to_str().unwrap()]].concat());
    server.workers(2);
    assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
    server.signal("USR2");
    server.says("all workers are of the new program");
    assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Runs the command, which must refuse, and returns its one line.
fn refused(arguments: &[&str]) -> String {
    let output = superpoll().arg("serve").args(arguments).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.status.code().is_some(), "{line}");
    assert!(line.starts_with("superpoll: ") && line.lines().count() == 1, "{line}");
    assert!(output.stdout.is_empty(), "{line}");
    line
}

#[test]
fn what_several_processes_cannot_have_is_refused_in_one_line() {
    let site = Site::new();
    let www = site.www();
    let www = www.to_str().unwrap();
    for (number, expected) in [("0", "expected 1 to 1024"), ("many", "\"auto\"")] {
        assert!(refused(&[www, "--processes", number]).contains(expected));
    }
    let hub = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
               path = \"/.well-known/mercure\"\nmercure = { subscriptions = true }\n";
    let path = site.write("hub.toml", hub);
    let line = refused(&["-c", path.to_str().unwrap(), "--processes", "2"]);
    assert!(line.contains("--processes 2: ") && line.contains("no subscriptions at /"), "{line}");
    let keeper = site.path("keeper");
    let keeper = keeper.to_str().unwrap();
    let arguments = ["--processes", "2", "--keeper", keeper, "--upgrade"];
    assert!(refused(&[&[www], &arguments[..]].concat()).contains("SIGUSR2"));
    let https = ["--https", "example.org", "--acme", "https://127.0.0.1:1/", "--processes", "2"];
    assert!(refused(&[&[www], &https[..]].concat()).contains("no acme"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = refused(&[www, "--processes", "2", "--listen", &address]);
    assert!(line.contains("end the program that listens there"), "{line}");
    // What only a worker finds out is said by its supervisor.
    let absent = site.path("absent/keeper");
    let arguments = ["--listen", "127.0.0.1:0", "--processes", "2", "--keeper"];
    let line = refused(&[&[www], &arguments[..], &[absent.to_str().unwrap()]].concat());
    assert!(line.contains("does not exist: make it, or choose another path"), "{line}");
    // A program that cannot read the state of the one at work says so before it replaces that.
    let line = refused(&[www, "--check", "--takes-over", "0"]);
    assert!(line.contains("cannot take over the state"), "{line}");
    let long = format!("/tmp/{}", "x".repeat(100));
    let line = refused(&[&[www], &arguments[..], &[&long]].concat());
    assert!(line.contains("expected at most 102 bytes"), "{line}");
}
