//! Refusals, in one readable line.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::keep::succession::Nursery;
use crate::stage::{Site, connect, get};
use crate::superpoll;
use superpoll_test_support::program::program;

pub(crate) fn refused(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("superpoll: ") && said.trim_end().lines().count() == 1, "{said:?}");
    said
}

#[test]
fn a_second_server_is_refused_without_the_upgrade_option() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let said = refused(&mut nursery.command(&[]));
    assert!(said.contains("is at work with this keeper"), "{said}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_server_whose_successor_cannot_start_goes_on_and_reports_it() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    nursery.site.write("server.toml", "nonsense = true");
    server.signal("USR2");
    server.says("not upgrading: ");
    assert!(server.errors().contains("server.toml:1:1: unknown key `nonsense`"));
    std::fs::rename(nursery.site.www(), nursery.site.path("elsewhere")).unwrap();
    nursery.configure("");
    server.signal("USR2");
    crate::stage::until("it says so again", || {
        server.errors().matches("not upgrading: ").count() == 2
    });
    std::fs::rename(nursery.site.path("elsewhere"), nursery.site.www()).unwrap();
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn another_user_is_refused_by_permissions_and_by_name() {
    const NOBODY: u32 = 65534;
    if std::fs::metadata("/proc/self").unwrap().uid() == NOBODY {
        return eprintln!("skipped: these tests run as the user that the server would refuse");
    }
    let nursery = Nursery::new("");
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open(&nursery.site.path(""), 0o755);
    // The other user may not be able to write where this one has temporary files.
    let temporary = nursery.site.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    open(&temporary, 0o777);
    let superpoll = env!("CARGO_BIN_EXE_superpoll");
    let serve = || {
        let mut command = program(superpoll);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--keeper"])
            .arg(nursery.site.path("keeper"));
        command.uid(NOBODY).current_dir("/").env("TMPDIR", &temporary);
        command
    };
    match program(superpoll).arg("--version").uid(NOBODY).output() {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("skipped: cannot be run as another user: {other:?}"),
    }
    // The server cannot see the keeper, takes it for absent, and may not create one in its
    // place.
    let said = refused(&mut serve());
    assert!(said.contains("ermission denied") || said.contains("has ended at once"), "{said}");
    open(&nursery.site.path("keeper"), 0o666);
    let said = refused(&mut serve());
    assert!(said.contains("may speak to this keeper"), "{said}");
    let server = nursery.server(&[]);
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn impossible_options_are_refused_with_cause_and_remedy() {
    let site = Site::new();
    let said = refused(superpoll().args(["serve", "--listen", "127.0.0.1:0", "--upgrade"]));
    assert!(said.contains("--keeper"), "{said}");
    let said =
        refused(superpoll().args(["keep", "--listen"]).arg(site.path("no/such/folder/keeper")));
    assert!(said.contains("no/such/folder"), "{said}");
    let nursery = Nursery::new("");
    let said = refused(superpoll().args(["keep", "--listen"]).arg(nursery.site.path("keeper")));
    assert!(said.contains("in use") && said.contains("listens there"), "{said}");
    // A server that cannot start a keeper explains why: the path, the kernel's error, and the
    // remedy.
    std::fs::write(site.path("file"), "").unwrap();
    let long = "x".repeat(120);
    for (path, error, way_out) in [
        ("no/such/folder/keeper", "No such file or directory", "make it, or choose another path"),
        ("file", "in use", "remove it, or choose another path"),
        ("file/keeper", "Not a directory", "choose another path"),
        (&long, "too long", "choose a shorter one"),
    ] {
        let path = site.path(path);
        let mut command = superpoll();
        command.args(["serve", "--listen", "127.0.0.1:0", "--keeper"]).arg(&path);
        let said = refused(&mut command);
        for part in [path.to_str().unwrap(), error, way_out] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(site.path("file").exists());
    // Another program's socket.
    let socket = site.path("other");
    let _other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = superpoll();
    command.args(["serve", "--listen", "127.0.0.1:0", "--keeper"]).arg(&socket);
    refused(&mut command);
}
