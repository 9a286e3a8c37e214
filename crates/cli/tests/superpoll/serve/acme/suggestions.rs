//! The time of a renewal, where the authority suggests it (RFC 9773).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::serve::acme::authority::{Authority, Deed};
use crate::serve::acme::client::shown;
use crate::stage::{Server, tool, until};

#[test]
fn a_certificate_whose_window_is_over_is_replaced_at_once() {
    let Some(_) = tool("openssl") else { return };
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let authority = Authority::start(Arc::new(move |request, response| {
        if request.path.starts_with("/renewal/") && count.fetch_add(1, Ordering::Relaxed) == 0 {
            // As for a certificate that the authority is about to revoke.
            response.body = response.body.replace("2050", "2000");
        }
        Deed::Answer
    }));
    let server = Server::of(authority.command("a.example.org"), 2);
    until("the certificate is replaced", || authority.orders.lock().unwrap().len() == 2);
    until("the second one is asked about", || asked.load(Ordering::Relaxed) == 2);
    let orders = authority.orders.lock().unwrap().clone();
    assert!(orders[0]["replaces"].is_null());
    let replaced = orders[1]["replaces"].as_str().unwrap();
    let (key, serial) = replaced.split_once('.').unwrap();
    assert!(!key.is_empty() && !serial.is_empty(), "{replaced}");
    assert!(shown(server.at(0), "a.example.org").is_some());
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success());
    assert_eq!(errors.matches("got a certificate").count(), 2, "{errors}");
    // The window of the second one is far away.
    assert!(errors.contains("to be renewed at"), "{errors}");
}

#[test]
fn an_authority_that_wants_every_certificate_renewed_at_once_is_not_obeyed_in_a_loop() {
    let Some(_) = tool("openssl") else { return };
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let authority = Authority::start(Arc::new(move |request, response| {
        if request.path.starts_with("/renewal/") {
            count.fetch_add(1, Ordering::Relaxed);
            response.body = response.body.replace("2050", "2000");
        }
        Deed::Answer
    }));
    let server = Server::of(authority.command("a.example.org"), 2);
    until("both have been asked about", || asked.load(Ordering::Relaxed) >= 2);
    // The third order would come after a minute.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(authority.orders.lock().unwrap().len(), 2);
    server.signal("TERM");
    assert!(server.ended().0.success());
}
