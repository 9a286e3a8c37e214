//! Folders and files that the server must not use, and never replaces.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::serve::acme::authority::{Authority, Deed};
use crate::stage::{Server, tool, until};

/// Starts a server that must refuse, and returns its error.
fn refused(authority: &Authority) -> String {
    let output = authority.command("a.example.org").output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn files_that_are_damaged_or_open_to_others_are_errors_and_stay() {
    let Some(_) = tool("openssl") else { return };
    let authority = Authority::start(Arc::new(|_, _| Deed::Answer));
    let server = Server::of(authority.command("a.example.org"), 2);
    server.says("got a certificate for a.example.org");
    server.signal("TERM");
    assert!(server.ended().0.success());
    let store = authority.store();
    for (path, mode) in [("", 0o700), ("a.example.org.pem", 0o600), ("account.json", 0o600)] {
        let found = fs::metadata(store.join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
    for file in ["a.example.org.pem", "account.json"] {
        let path = store.join(file);
        let good = fs::read(&path).unwrap();
        for bad in [&b"garbage"[..], b"", &[0xff; 10], &good[..good.len() / 2]] {
            fs::write(&path, bad).unwrap();
            let error = refused(&authority);
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert!(error.contains("left as it is"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bad);
        }
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = refused(&authority);
        assert!(error.contains("expected chmod 600"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
    let error = refused(&authority);
    assert!(error.contains("expected chmod 700"), "{error}");
    fs::set_permissions(&store, Permissions::from_mode(0o700)).unwrap();
    Server::of(authority.command("a.example.org"), 2).finish();
}

#[test]
fn an_order_of_a_server_that_was_killed_goes_on_with_its_key() {
    let Some(_) = tool("openssl") else { return };
    let is_first = Arc::new(AtomicBool::new(true));
    let asked = is_first.clone();
    let authority = Authority::start(Arc::new(move |request, _| {
        let waits = request.path.starts_with("/certificate/");
        if waits && is_first.swap(false, Ordering::Relaxed) { Deed::Silence } else { Deed::Answer }
    }));
    let server = Server::of(authority.command("a.example.org"), 2);
    let record = authority.store().join("a.example.org.order.json");
    until("the order is stored", || record.exists());
    until("there is an order", || authority.orders.lock().unwrap().len() == 1);
    until("the server waits for the certificate", || !asked.load(Ordering::Relaxed));
    let before = fs::read_to_string(&record).unwrap();
    server.signal("KILL");
    server.ended();
    let server = Server::of(authority.command("a.example.org"), 2);
    server.says("got a certificate for a.example.org");
    let stored = fs::read_to_string(authority.store().join("a.example.org.pem")).unwrap();
    let key = before.split("\"key\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(stored.starts_with(&key.replace("\\n", "\n")));
    assert_eq!(authority.orders.lock().unwrap().len(), 1, "it was ordered twice");
    assert!(!record.exists());
    server.signal("TERM");
    assert!(server.ended().0.success());
    // A server that was killed between the certificate and the end of the record leaves both.
    fs::write(&record, before).unwrap();
    fs::set_permissions(&record, Permissions::from_mode(0o600)).unwrap();
    let server = Server::of(authority.command("a.example.org"), 2);
    until("the record is removed", || !record.exists());
    assert_eq!(authority.orders.lock().unwrap().len(), 1, "it was ordered twice");
    server.signal("TERM");
    assert!(server.ended().0.success());
}
