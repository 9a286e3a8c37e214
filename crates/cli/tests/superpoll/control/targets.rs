//! Which server a command is for: by number, by path, or the only one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::refused;
use crate::stage::{Running, Server, Site, children, run, until};
use crate::superpoll;

/// A folder for the sockets of one test.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Returns a command that finds servers in a folder only.
fn find(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.args(arguments).env("XDG_RUNTIME_DIR", folder).env("TMPDIR", "/nonexistent");
    command
}

fn server(folder: &Path, site: &Site, name: &str, processes: usize) -> Server {
    let text = format!(
        "server.processes = {processes}
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = {{ root = \"www\" }}"
    );
    let path = site.write(name, &text);
    let mut command = find(folder, &["serve", "-c"]);
    command.arg(path);
    Server::of(command, 1)
}

#[test]
fn the_only_server_is_meant_and_several_are_listed_with_their_configurations() {
    let (site, home) = (Site::new(), folder());
    let at = home.path();
    for name in ["reload", "upgrade", "drain", "status"] {
        let line = refused(&mut find(at, &[name]));
        assert!(line.contains("no server of this user was found"), "{line}");
    }
    let one = server(at, &site, "one.toml", 1);
    assert!(run(&mut find(at, &["reload"])).contains("one.toml"));
    // A proxy has no configuration, and so it cannot be meant.
    let mut proxy = find(at, &["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"]);
    let proxy = Running(proxy.stdout(Stdio::null()).spawn().unwrap());
    let socket = at.join(format!("superpoll-{}.sock", proxy.0.id()));
    until("the proxy publishes", || UnixStream::connect(&socket).is_ok());
    assert!(run(&mut find(at, &["reload"])).contains("one.toml"));
    let line = refused(&mut find(at, &["status"]));
    assert!(line.contains("2 servers run") && line.contains("proxy, 127.0.0.1:"), "{line}");
    drop(proxy);

    let two = server(at, &site, "two.toml", 1);
    let numbers = [one.child().id(), two.child().id()];
    for name in ["reload", "upgrade", "drain", "status"] {
        let line = refused(&mut find(at, &[name]));
        assert_eq!(line.lines().count(), 1, "{line}");
        for (number, file) in numbers.iter().zip(["one.toml", "two.toml"]) {
            let file = site.path(file);
            let listed = format!("{number} ({})", file.display());
            assert!(line.contains(&listed), "{listed}: {line}");
        }
    }
    let text = run(&mut find(at, &["reload", &numbers[1].to_string()]));
    assert!(text.contains("two.toml"), "{text}");
    assert!(run(&mut find(at, &["drain", &numbers[1].to_string()])).contains("has ended"));
    assert!(two.ended().0.success());
    assert!(run(&mut find(at, &["reload"])).contains("one.toml"));
    one.signal("TERM");
    one.ended();
}

#[test]
fn a_wrong_number_says_why() {
    let (site, home) = (Site::new(), folder());
    let at = home.path();
    let several = server(at, &site, "several.toml", 2);
    let worker = {
        until("there is a worker", || !children(several.child().id()).is_empty());
        children(several.child().id())[0]
    };
    let own = std::process::id();
    for (number, expected) in [
        (4_294_967_295, "there is no process 4294967295".to_owned()),
        (own, format!("process {own} has no statistics socket in this user's folder")),
        (
            worker,
            format!(
                "process {worker} is a worker of process {}; name that one",
                several.child().id()
            ),
        ),
    ] {
        for name in ["reload", "upgrade", "drain", "status"] {
            let line = refused(&mut find(at, &[name, &number.to_string()]));
            assert!(line.lines().count() == 1 && line.contains(&expected), "{line}");
        }
    }
    several.signal("KILL");
    let number = several.child().id();
    several.ended();
    // Its socket is still there.
    let line = refused(&mut find(at, &["reload", &number.to_string()]));
    assert!(line.contains(&format!("there is no process {number}")), "{line}");
    let line = refused(&mut find(at, &["reload", "no/such/socket"]));
    assert!(line.contains("no/such/socket: No such file"), "{line}");
}

#[test]
fn a_server_is_named_in_the_same_two_ways_in_all_commands() {
    let (site, home) = (Site::new(), folder());
    let at = home.path();
    let servers = ["one.toml", "two.toml"].map(|name| server(at, &site, name, 1));
    let number = servers[0].child().id().to_string();
    let commands = [
        &["reload"][..],
        &["reopen-logs"],
        &["status"],
        &["upstream"],
        &["channels"],
        &["connections"],
        &["top", "--once"],
    ];
    for command in commands {
        let named = |more: &[&str]| find(at, &[command, more].concat());
        let line = refused(&mut named(&[]));
        assert!(line.contains("name one of them"), "{command:?}: {line}");
        run(&mut named(&[&number]));
        run(&mut named(&["--of", &number]));
        let output = named(&[&number, "--of", &number]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}");
    }
    for command in ["upgrade", "drain"] {
        let output = find(at, &[command, &number, "--of", &number]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}");
    }
    let [one, two] = servers;
    run(&mut find(at, &["drain", "--of", &number]));
    assert!(one.ended().0.success());
    two.signal("TERM");
    assert!(two.ended().0.success());
}
