//! The places of sockets: a folder of the user's, a path, another path after a reload, and the same
//! path with each successor.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{read_snapshot, refused, top};
use crate::stage::{Running, Server, Site, free_port, get, run, succeeded, until};
use crate::superpoll;

/// The folders for sockets: that of the session, and that for temporary files. Neither exists
/// unless a test sets it, so that a test finds no other servers of the same user.
const NOWHERE: [(&str, &str); 2] =
    [("XDG_RUNTIME_DIR", "no folder of a session"), ("TMPDIR", "/nonexistent")];

/// Starts a server whose user has this folder, as the variable says.
fn server(variable: &str, folder: &Path, site: &Site, arguments: &[&str]) -> Server {
    let mut command = superpoll();
    command.arg("serve").arg(site.www()).args(["--listen", "127.0.0.1:0"]).args(arguments);
    command.envs(NOWHERE).env(variable, folder);
    Server::of(command, 1)
}

fn find(variable: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = top(arguments);
    command.envs(NOWHERE).env(variable, folder);
    command
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn one_process_is_found_several_are_listed_and_a_stale_socket_is_removed() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let site = Site::new();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    let once = ["--once", "--json"];
    assert!(refused(&mut find(VARIABLE, folder, &once)).contains("no server of this user"));
    let first = server(VARIABLE, folder, &site, &[]);
    let number = first.child().id();
    let path = folder.join(format!("superpoll-{number}.sock"));
    assert_eq!(files(folder), std::slice::from_ref(&path));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = run(&mut find(VARIABLE, folder, &once));
    assert!(text.contains(&format!("\"process\":{number}")), "{text}");

    let second = server(VARIABLE, folder, &site, &[]);
    let other = second.child().id();
    let line = refused(&mut find(VARIABLE, folder, &once));
    for part in ["2 servers run", &format!("{number} ("), &format!("{other} (")] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let text = run(find(VARIABLE, folder, &once).arg(other.to_string()));
    assert!(text.contains(&format!("\"process\":{other}")), "{text}");

    first.signal("KILL");
    first.ended();
    assert!(path.exists());
    // No process listens there any more, so there is only one.
    let text = run(&mut find(VARIABLE, folder, &once));
    assert!(text.contains(&format!("\"process\":{other}")), "{text}");
    second.finish();
    assert_eq!(files(folder), [path]);
    let third = server(VARIABLE, folder, &site, &[]);
    assert_eq!(files(folder), [folder.join(format!("superpoll-{}.sock", third.child().id()))]);
    third.finish();
    assert!(files(folder).is_empty());
    server(VARIABLE, folder, &site, &["--stats", "off"]).finish();
    let quiet = server(VARIABLE, folder, &site, &["--stats", "off"]);
    assert!(files(folder).is_empty());
    quiet.finish();
}

#[test]
fn without_a_folder_of_the_session_there_is_one_of_the_users_alone_or_none() {
    const VARIABLE: &str = "TMPDIR";
    let site = Site::new();
    let home = tempfile::tempdir().unwrap();
    let first = server(VARIABLE, home.path(), &site, &[]);
    let all = files(home.path());
    let [folder] = &all[..] else { panic!("{all:?}") };
    assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("superpoll-"));
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    run(&mut find(VARIABLE, home.path(), &["--once", "--json"]));
    first.finish();
    // Another program was there first: the server goes on without, and says so.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::remove_dir(folder).unwrap();
    symlink(elsewhere.path(), folder).unwrap();
    let wary = server(VARIABLE, home.path(), &site, &[]);
    wary.says("it is a symbolic link");
    assert!(get(&mut wary.connect(), "/small").ends_with("0123456789"));
    wary.finish_with(&["not using the folder"]);
    fs::remove_file(folder).unwrap();
    fs::create_dir(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let wary = server(VARIABLE, home.path(), &site, &[]);
    wary.says("other users may open it (chmod 700)");
    wary.finish_with(&["not using the folder"]);
    assert!(files(elsewhere.path()).is_empty() && files(folder).is_empty());
}

#[test]
fn a_place_that_was_chosen_and_cannot_be_had_is_an_error() {
    let site = Site::new();
    site.write("file", "mine");
    let long = "x".repeat(120);
    let used = site.path("used");
    let _listener = std::os::unix::net::UnixListener::bind(&used).unwrap();
    for (place, said) in [
        ("no/such/stats", "no/such/stats: No such file"),
        ("file", "file: Address already in use"),
        ("used", "used: Address already in use"),
        (&long, "path must be shorter than"),
        ("", "--stats"),
    ] {
        for arguments in [
            &["serve", "www", "--listen", "127.0.0.1:0"][..],
            &["proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"],
        ] {
            let mut command = superpoll();
            command.args(arguments).args(["--stats", place]).current_dir(site.path("."));
            let line = refused(&mut command);
            assert!(line.contains(said), "{arguments:?} {place}: {line}");
        }
    }
    assert_eq!(fs::read_to_string(site.path("file")).unwrap(), "mine");
}

#[test]
fn a_reload_goes_on_at_another_place_and_stays_where_that_cannot_be_had() {
    let site = Site::new();
    let write = |stats: &str| {
        let text = format!(
            "[server]\nstats = \"{stats}\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = \"www\"\n"
        );
        site.write("server.toml", &text)
    };
    let listens = |name: &str| UnixStream::connect(site.path(name)).is_ok();
    let server = Server::configured(&write("one"), 1);
    // Relative to the folder of the configuration.
    assert_eq!(read_snapshot(&site.path("one"))["process"], server.child().id());
    write("two");
    server.signal("HUP");
    until("it publishes at the other path", || listens("two") && !site.path("one").exists());
    assert_eq!(read_snapshot(&site.path("two"))["process"], server.child().id());
    write("no/such/place");
    server.signal("HUP");
    server.says("statistics stay at the previous socket");
    assert_eq!(read_snapshot(&site.path("two"))["process"], server.child().id());
    write("off");
    server.signal("HUP");
    until("it publishes nothing any more", || !site.path("two").exists());
    server.finish_with(&["reloaded the configuration", "listening for statistics at"]);
}

/// Returns whether a process has a connected Unix socket.
fn has_connected_socket(process: u32) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let own: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    // The sixth field is the state, of which 3 is connected; the seventh is the inode.
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(5) == Some(&"03") && own.contains(&format!("socket:[{}]", fields[6]))
    })
}

#[test]
fn a_successor_takes_over_the_statistics_socket_and_keeps_it() {
    let site = Site::new();
    let port = free_port();
    let (keeper, path) = (site.path("keeper"), site.path("stats"));
    let mut command = superpoll();
    command.arg("keep").arg("--listen").arg(&keeper);
    let _keeper = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until("the keeper listens", || keeper.exists());
    let serve = |upgrade: bool| {
        let mut command = superpoll();
        command.arg("serve").arg(site.www()).arg("--listen").arg(format!("127.0.0.1:{port}"));
        command.arg("--keeper").arg(&keeper).arg("--stats").arg(&path);
        if upgrade {
            command.arg("--upgrade");
        }
        Server::of(command, 1)
    };
    let first = serve(false);
    assert_eq!(read_snapshot(&path)["process"], first.child().id());
    // A viewer of the first server sees it until it exits.
    let mut watching = top(&["--once", "--interval", "60"]);
    let watching = watching.arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let watching = watching.unwrap();
    until("the viewer is connected", || has_connected_socket(watching.id()));
    let second = serve(true);
    let (status, errors) = first.ended();
    assert!(status.success() && errors.contains("another server takes over"), "{errors}");
    let line = super::refusal(&watching.wait_with_output().unwrap());
    assert!(line.contains("the server has ended"), "{line}");
    assert_eq!(read_snapshot(&path)["process"], second.child().id());
    // The program that a signal starts gets the same place.
    second.signal("USR2");
    let before = second.child().id();
    second.says("is to take over");
    until("the third server publishes", || {
        let output = top(&["--once", "--json"]).arg(&path).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("\"process\":")
            && !String::from_utf8_lossy(&output.stdout).contains(&format!("\"process\":{before},"))
    });
    let third = read_snapshot(&path)["process"].as_u64().unwrap();
    let mut command = Command::new("kill");
    let output = command.args(["-TERM", &third.to_string()]).output().unwrap();
    succeeded(&command, &output);
    until("the third one has removed its file", || !path.exists());
    // The third server inherits this standard error.
    let (status, errors) = second.ended();
    assert!(status.success(), "{errors}");
}
