//! A service manager: sockets that listen already, and notifications of the server's state.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{PATIENCE, Server, Site, accept, get, lines};
use crate::superpoll;
use superpoll_test_support::program::program;

/// Returns the command with `listeners` as the service manager passes them: descriptors from 3 on,
/// and the environment gives their number and the process they are for. A shell moves them there
/// from numbers at which a child can receive descriptors.
fn activated(listeners: [OwnedFd; 2], arguments: &[&str]) -> Command {
    passed("serve", 2, listeners, arguments)
}

/// The same for any command, with the first or both of them.
fn passed(name: &str, count: usize, listeners: [OwnedFd; 2], arguments: &[&str]) -> Command {
    let script = format!(
        "LISTEN_FDS={count} LISTEN_PID=$$ exec \"$0\" {name} \"$@\" 3<&0 4<&2 0</dev/null 2>&1"
    );
    let mut command = program("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_superpoll")]).args(arguments);
    let [first, second] = listeners;
    command.stdin(Stdio::from(first)).stderr(Stdio::from(second));
    command
}

/// Starts it, which [`Server`] cannot as it takes standard error for itself.
fn serve(site: &Site, arguments: &[&str]) -> (Vec<String>, u16) {
    use std::io::{BufRead, BufReader};
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let unix = UnixListener::bind(site.path("socket")).unwrap();
    // A client has connected before the server is there.
    let mut early = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut command = activated([tcp.into(), unix.into()], arguments);
    let mut child = crate::stage::Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let fronts: Vec<String> = lines.by_ref().take(2).map(Result::unwrap).collect();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(get(&mut early, "/small").ends_with("0123456789"));
    let mut other = UnixStream::connect(site.path("socket")).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut other, request).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut other, &mut answer).unwrap();
    assert!(answer.ends_with("0123456789"), "{answer}");
    crate::stage::signal(&child.0, "TERM");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let is_well = matches!(&rest[..], [first, last] if first.starts_with("superpoll: draining: ")
        && last == "superpoll: ended");
    assert!(is_well, "{rest:?}");
    assert!(child.0.wait().unwrap().success());
    (fronts, port)
}

#[test]
fn sockets_of_a_service_manager_are_listened_on() {
    let site = Site::new();
    let (fronts, port) = serve(&site, &[site.www().to_str().unwrap()]);
    let socket = site.path("socket");
    let expected = [
        format!("superpoll: serving http://127.0.0.1:{port}/"),
        format!("superpoll: serving HTTP on unix:{}", socket.display()),
    ];
    assert_eq!(fronts, expected);
    // The server must not remove it: the service manager goes on listening there.
    assert!(socket.exists());
}

/// For a time, each attempt to accept a connection is an error.
#[test]
fn a_listener_goes_on_after_an_error() {
    let site = Site::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = tcp.try_clone().unwrap();
    let unix = UnixListener::bind(site.path("socket")).unwrap();
    let mut command = activated([tcp.into(), unix.into()], &[site.www().to_str().unwrap()]);
    let mut child = crate::stage::Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = lines(child.0.stdout.take().unwrap());
    assert!(lines.by_ref().take(2).all(|line| line.starts_with("superpoll: serving")));
    // A socket that was shut down does not listen, and can be made to listen again, at another
    // port.
    socket2::SockRef::from(&ours).shutdown(std::net::Shutdown::Read).unwrap();
    let line = lines.next().unwrap();
    assert!(line.contains("Invalid argument") && line.contains("tried again"), "{line}");
    socket2::SockRef::from(&ours).listen(16).unwrap();
    let at = ours.local_addr().unwrap();
    for _ in 0..8 {
        let mut client = std::net::TcpStream::connect(at).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(get(&mut client, "/small").ends_with("0123456789"));
    }
    crate::stage::signal(&child.0, "TERM");
    assert!(lines.any(|line| line == "superpoll: ended"));
}

/// Returns two sockets that listen, and the address of the first.
fn two() -> ([OwnedFd; 2], String, String) {
    let sockets = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = sockets.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    (sockets.map(OwnedFd::from), first, second)
}

#[test]
fn a_socket_that_no_listener_has_is_refused_by_its_address() {
    let site = Site::new();
    let (to, www) = ("127.0.0.1:9", site.www().to_str().unwrap().to_owned());
    for (name, count, arguments, expected) in [
        ("serve", 2, vec![&*www, "--listen"], "no listener has that address"),
        ("proxy", 2, vec!["--to", to, "--listen"], "no listener has that address"),
        ("proxy", 2, vec!["--to", to], "a proxy listens on one socket"),
        ("proxy", 0, vec!["--to", to], "name an address with --listen"),
    ] {
        let (sockets, first, second) = two();
        let mut arguments = arguments;
        if arguments.last() == Some(&"--listen") {
            arguments.push(&first);
        }
        let mut command = passed(name, count, sockets, &arguments);
        let output = command.stdout(Stdio::piped()).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.starts_with("superpoll: ") && told.contains(expected), "{told}");
        assert!(count == 0 || told.contains(&second), "{told}");
    }
}

#[test]
fn a_proxy_relays_from_the_socket_that_it_is_given() {
    use std::io::{Read, Write};
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = upstream.local_addr().unwrap().to_string();
    for names in [false, true] {
        let (sockets, first, _) = two();
        let mut arguments = vec!["--to", &to, "--stats", "off"];
        if names {
            arguments.extend(["--listen", &first]);
        }
        let mut command = passed("proxy", 1, sockets, &arguments);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Only the process has the socket from here on.
        drop(command);
        let mut child = crate::stage::Running(child);
        let mut told = lines(child.0.stdout.take().unwrap());
        let line = told.next().unwrap();
        assert!(line.contains(&format!("relaying from {first} to {to}")), "{line}");
        let mut client = crate::stage::connect(first.parse().unwrap());
        client.write_all(b"hi").unwrap();
        let mut bytes = [0; 2];
        accept(&upstream).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hi");
    }
}

#[test]
fn a_descriptor_that_does_not_listen_is_refused_in_one_line() {
    let site = Site::new();
    let file = || OwnedFd::from(std::fs::File::open(site.path("www/small")).unwrap());
    let output = activated([file(), file()], &[]).stdout(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("superpoll: ") && told.contains("socket"), "{told}");
}

/// Returns the command that reports its state to a socket.
fn notifying(path: &Path, arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.arg("serve").args(arguments).env("NOTIFY_SOCKET", path);
    command
}

#[test]
fn a_service_manager_is_notified_of_start_reload_and_stop() {
    let site = Site::new();
    let socket = site.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut room = [0; 1000];
        let count = manager.recv(&mut room).unwrap();
        String::from_utf8(room[..count].to_vec()).unwrap()
    };
    let text = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = { root = \"www\" }";
    let config = site.write("notify.toml", text);
    let arguments = ["-c", config.to_str().unwrap()];
    let server = Server::of(notifying(&socket, &arguments), 1);
    assert_eq!(told().trim(), "READY=1");
    server.signal("HUP");
    let reloading = told();
    assert!(reloading.contains("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(told().trim(), "READY=1");
    server.says("reloaded the configuration ");
    // Requests at once may become one reload, which the manager hears the end of.
    for _ in 0..10 {
        server.signal("HUP");
        server.signal("HUP");
        while told().trim() != "READY=1" {}
    }
    server.signal("TERM");
    while told().trim() != "STOPPING=1" {}
    assert!(server.ended().0.success());

    // A manager that is gone does not keep it from serving.
    drop(manager);
    let server = Server::of(notifying(&socket, &arguments), 1);
    server.says("notifying the service manager: ");
    assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}
