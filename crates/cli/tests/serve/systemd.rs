//! A service manager: sockets that listen already, and being told what the server is doing.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::{PATIENCE, Server, Site, get};

/// The command with `listeners` as the service manager passes them: descriptors from 3 on, and the environment says
/// how many and to whom. A shell moves them there from where a child can be given descriptors.
fn activated(listeners: [OwnedFd; 2], arguments: &[&str]) -> Command {
    let script = "LISTEN_FDS=2 LISTEN_PID=$$ exec \"$0\" serve \"$@\" 3<&0 4<&2 0</dev/null 2>&1";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_superpoll")]).args(arguments);
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
    // Somebody has come before the server is there.
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
    assert!(rest.is_empty(), "{rest:?}");
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
    // It is not the server's to remove: the service manager goes on listening there.
    assert!(socket.exists());
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

/// The command that tells a socket what it is doing.
fn notifying(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpoll"));
    command.arg("serve").args(arguments).env("NOTIFY_SOCKET", path);
    command
}

#[test]
fn a_service_manager_is_told_what_happens() {
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
    server.says("serving what ");
    server.signal("TERM");
    assert_eq!(told().trim(), "STOPPING=1");
    assert!(server.ended().0.success());

    // A manager that is gone does not keep it from serving.
    drop(manager);
    let server = Server::of(notifying(&socket, &arguments), 1);
    server.says("telling the service manager: ");
    assert!(get(&mut server.connect(), "/small").ends_with("0123456789"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}
