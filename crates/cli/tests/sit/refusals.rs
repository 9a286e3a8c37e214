//! What is refused, in one readable line.

use std::process::{Command, Stdio};

use crate::stage::{Site, connect, get};
use crate::succession::Nursery;

fn refused(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{command:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("superpoll: ") && said.trim_end().lines().count() == 1, "{said:?}");
    said
}

#[test]
fn a_second_server_needs_to_be_told_to_take_over() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let said = refused(&mut nursery.command(&[]));
    assert!(said.contains("is at work with this babysitter"), "{said}");
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_server_whose_successor_cannot_begin_goes_on_and_says_so() {
    let nursery = Nursery::new("");
    let server = nursery.server(&[]);
    let mut client = connect(nursery.at());
    get(&mut client, "/small");
    nursery.until_held(1);
    nursery.site.write("server.toml", "nonsense = true");
    server.signal("USR2");
    server.says("which was to take over, has ended");
    std::fs::rename(nursery.site.www(), nursery.site.path("elsewhere")).unwrap();
    nursery.configure("");
    server.signal("USR2");
    crate::stage::until("it says so again", || {
        server.errors().matches("which was to take over, has ended").count() == 2
    });
    std::fs::rename(nursery.site.path("elsewhere"), nursery.site.www()).unwrap();
    assert!(get(&mut client, "/small").ends_with("0123456789"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn what_cannot_be_is_said() {
    let site = Site::new();
    let superpoll = || Command::new(env!("CARGO_BIN_EXE_superpoll"));
    let said = refused(superpoll().args(["serve", "--listen", "127.0.0.1:0", "--upgrade"]));
    assert!(said.contains("--sit"), "{said}");
    let said = refused(superpoll().args(["sit", "--listen"]).arg(site.path("no/such/folder/sit")));
    assert!(said.contains("no/such/folder"), "{said}");
    let nursery = Nursery::new("");
    let said = refused(superpoll().args(["sit", "--listen"]).arg(nursery.site.path("sit")));
    assert!(said.contains("in use"), "{said}");
    // Somebody else's socket.
    let socket = site.path("other");
    let _other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = superpoll();
    command.args(["serve", "--listen", "127.0.0.1:0", "--sit"]).arg(&socket);
    refused(&mut command);
}
