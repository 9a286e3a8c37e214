//! The logs of a server that go to a syslog server.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use superpoll_test_support::free_port;
use superpoll_test_support::program::program;

use crate::stage::{PATIENCE, Running, Server, Site, children, get, signal, tool, until, wait};

/// Returns a configuration whose access log goes to one server, and whose events to another.
fn text(access: &str, events: &str) -> String {
    format!(
        "[[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [metrics]
        [access_log]
        syslog = {{ server = \"{access}\", tag = \"web\" }}
        [log]
        syslog = {{ server = \"{events}\", facility = \"daemon\" }}
        level = \"info\"\n"
    )
}

/// Binds the socket of a syslog daemon.
fn daemon(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Reads messages up to one with a text, and returns that one.
fn up_to(socket: &UnixDatagram, text: &str) -> String {
    let mut before = Vec::new();
    loop {
        let mut bytes = [0; 16384];
        let received = socket.recv(&mut bytes);
        let count = received.unwrap_or_else(|error| panic!("no {text}: {error}: {before:?}"));
        let message = String::from_utf8(bytes[..count].to_vec()).unwrap();
        if message.contains(text) {
            return message;
        }
        before.push(message);
    }
}

/// Reads the messages that have arrived.
fn drain(socket: &UnixDatagram) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 16]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}

/// Requests a path, on a connection of its own, which any worker may accept.
fn request(server: &Server, path: &str) {
    get(&mut server.connect(), path);
}

#[test]
fn workers_send_lines_through_a_restart_of_the_daemon_reloads_and_upgrades() {
    let site = Site::new();
    let path = site.path("socket");
    let server = format!("unix:{}", path.display());
    let configuration = format!("{}[server]\nprocesses = 2\n", text(&server, &server));
    let configuration = site.write("syslog.toml", &configuration);
    let mut socket = daemon(&path);
    let server = Server::configured(&configuration, 1);
    assert!(up_to(&socket, ": serving ").starts_with("<30>superpoll["));
    let before = server.workers(2);
    request(&server, "/first");
    let line = up_to(&socket, "\"GET /first HTTP/1.1\" 404 ");
    let process = line.strip_prefix("<190>web[").and_then(|line| line.split(']').next());
    assert!(before.contains(&process.unwrap().parse().unwrap()), "{line}");
    let steps = [("restart", ""), ("reload", "HUP"), ("upgrade", "USR2")];
    for (step, name) in steps {
        match name {
            "" => {
                drop(socket);
                fs::remove_file(&path).unwrap();
                socket = daemon(&path);
            }
            name => server.signal(name),
        }
        match step {
            "reload" => assert!(up_to(&socket, "reloaded").starts_with("<29>superpoll[")),
            "upgrade" => {
                until("both workers are others", || {
                    // Two servers say more than the socket holds.
                    drain(&socket);
                    let workers = children(server.child().id());
                    workers.len() == 2 && workers.iter().all(|worker| !before.contains(worker))
                });
            }
            _ => {}
        }
        request(&server, &format!("/{step}"));
        up_to(&socket, &format!("\"GET /{step} HTTP/1.1\" 404 "));
    }
    server.signal("TERM");
    up_to(&socket, ": ended");
    let (status, errors) = server.ended_aloud();
    assert!(status.success() && errors.is_empty(), "{status}: {errors}");
}

#[test]
fn a_server_serves_without_a_daemon_and_counts_the_lines() {
    let site = Site::new();
    let path = site.path("socket");
    let address = format!("unix:{}", path.display());
    let server = Server::configured(&site.write("syslog.toml", &text(&address, &address)), 1);
    // The log of events has no other place to say so.
    server.says("superpoll: writing the log syslog:unix:");
    let mut stream = server.connect();
    for _ in 0..3 {
        assert!(get(&mut stream, "/small").ends_with("0123456789"));
    }
    let lost = |log: &str| {
        let page = get(&mut server.connect(), "/metrics");
        let name = format!("superpoll_log_lines_lost_total{{log=\"{log}\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&*name));
        count.unwrap_or_else(|| panic!("{page}")).parse::<u64>().unwrap()
    };
    until("lines are lost", || lost("access_log") >= 3 && lost("log") >= 1);
    let socket = daemon(&path);
    get(&mut stream, "/now");
    // The access log has lines again, which is an event; and so has the log of events itself. They
    // come in any order.
    let again = |log: &str| format!("{log}{address}: lines are written again; ");
    let mut awaited = vec!["\"GET /now HTTP/1.1\" 404 ".to_owned()];
    awaited.extend(["the access log syslog:", "the log syslog:"].map(again));
    while !awaited.is_empty() {
        let message = up_to(&socket, "");
        awaited.retain(|text| !message.contains(text.as_str()));
    }
    server.signal("TERM");
    assert!(server.ended().0.success());
}

/// Starts rsyslog with a socket and two ports, and a file in which it writes an object for each
/// message. `None` if it is not installed.
fn rsyslog(site: &Site, port: u16) -> Option<Running> {
    let rsyslogd = tool("rsyslogd")?;
    let (socket, output) = (site.path("socket"), site.path("messages"));
    let properties =
        ["syslogfacility-text", "syslogseverity-text", "programname", "procid", "msgid"];
    let property = |name: &str| format!("\\\"{name}\\\":\\\"%{name}%\\\",");
    let properties: String = properties.into_iter().map(property).collect();
    let text = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")
        input(type=\"imuxsock\" Socket=\"{}\")
        module(load=\"imudp\")
        input(type=\"imudp\" port=\"{port}\" address=\"127.0.0.1\")
        module(load=\"imtcp\")
        input(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")
        template(name=\"object\" type=\"string\"
            string=\"{{{properties}\\\"msg\\\":\\\"%msg:::json%\\\"}}\\n\")
        *.* action(type=\"omfile\" file=\"{}\" template=\"object\")\n",
        socket.display(),
        output.display(),
    );
    let configuration = site.write("rsyslog.conf", &text);
    let mut command = program(rsyslogd.to_str().unwrap());
    command.arg("-n").arg("-f").arg(configuration).arg("-i").arg(site.path("pid"));
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("rsyslog listens", || {
        socket.exists() && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    Some(running)
}

#[test]
fn rsyslog_reads_the_messages_of_each_protocol() {
    let site = Site::new();
    let port = free_port();
    let Some(mut daemon) = rsyslog(&site, port) else { return };
    let socket = format!("unix:{}", site.path("socket").display());
    let [udp, tcp] = ["udp", "tcp"].map(|protocol| format!("{protocol}:localhost:{port}"));
    let all = || -> Vec<Value> {
        let text = fs::read_to_string(site.path("messages")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for (protocol, access) in [("unix", &socket), ("udp", &udp), ("tcp", &tcp)] {
        let configuration = site.write("syslog.toml", &text(access, &tcp));
        let server = Server::configured(&configuration, 1);
        let process = server.child().id().to_string();
        request(&server, &format!("/{protocol}"));
        server.finish_silently();
        let line = format!("\"GET /{protocol} HTTP/1.1\" 404 ");
        let mut found = Value::Null;
        until("rsyslog has the line", || {
            let has = |message: &Value| message["msg"].as_str().unwrap().contains(&line);
            found = all().into_iter().find(has).unwrap_or_default();
            !found.is_null()
        });
        let fields = ["syslogfacility-text", "syslogseverity-text", "programname", "procid"];
        assert_eq!(fields.map(|name| &found[name]), ["local7", "info", "web", &process]);
        // The form of syslog(3) has no such field.
        let kind = if protocol == "unix" { "-" } else { "access" };
        assert_eq!(found["msgid"], kind);
        until("rsyslog has the events", || {
            let all = all();
            ["serving", "draining", "ended"]
                .into_iter()
                .all(|event| all.iter().any(|it| it["msgid"] == event && it["procid"] == *process))
        });
    }
    let ended = all().into_iter().find(|message| message["msgid"] == "ended").unwrap();
    let fields = ["syslogfacility-text", "syslogseverity-text", "programname"];
    assert_eq!(fields.map(|name| &ended[name]), ["daemon", "notice", "superpoll"]);
    signal(&daemon.0, "TERM");
    assert!(wait(&mut daemon.0).expect("rsyslog does not end").success());
}
