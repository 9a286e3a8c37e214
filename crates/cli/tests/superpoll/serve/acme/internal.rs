//! The server's own authority.

use std::path::Path;

use crate::serve::acme::client::{curl, shown};
use crate::serve::acme::pebble::site;
use crate::stage::{Server, run, tool};
use crate::superpoll;

fn start(folder: &Path) -> Server {
    let mut command = superpoll();
    command.args(["serve", "--https", "localhost,*.localhost,127.0.0.1", "--state"]);
    command.arg(folder.join("state")).arg(site(folder));
    command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--stats", "off"]);
    Server::of(command, 2)
}

#[test]
fn clients_that_trust_the_root_reach_every_name_of_this_machine() {
    let (Some(_), Some(_)) = (tool("curl"), tool("openssl")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let root = folder.path().join("state/internal/root.pem");
    for name in ["localhost", "a.localhost", "b.a.localhost", "127.0.0.1"] {
        assert_eq!(curl(&root, server.at(0), name).as_deref(), Ok("hello\n"), "{name}");
    }
    let before = shown(server.at(0), "localhost").unwrap();
    // An unknown name gets an alert, not a certificate.
    assert_eq!(shown(server.at(0), "other.example"), None);
    let location = run(std::process::Command::new("curl")
        .args(["-s", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"])
        .args(["-H", "Host: localhost", &format!("http://{}/x?y=1", server.at(1))]));
    assert_eq!(location, format!("308 https://localhost:{}/x?y=1", server.at(0).port()));
    server.finish();
    // The root is the same after a restart, and certificates are new.
    let server = start(folder.path());
    assert_eq!(curl(&root, server.at(0), "localhost").as_deref(), Ok("hello\n"));
    assert_ne!(shown(server.at(0), "localhost").unwrap(), before);
    server.finish();
}

#[test]
fn a_configuration_has_them_as_well() {
    let (Some(_), Some(_)) = (tool("curl"), tool("openssl")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (site, state) = (site(folder.path()), folder.path().join("own"));
    let text = format!(
        "[server]\nstats = \"off\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\ntls = {{ internal = true, storage = {state:?} }}\n\
         [[hosts]]\nnames = [\"dev.localhost\"]\n\
         [[hosts.routes]]\nfiles = {{ root = {site:?} }}\n"
    );
    let file = folder.path().join("superpoll.toml");
    std::fs::write(&file, text).unwrap();
    let server = Server::configured(&file, 1);
    let root = state.join("internal/root.pem");
    assert_eq!(curl(&root, server.at(0), "dev.localhost").as_deref(), Ok("hello\n"));
    server.finish();
}
