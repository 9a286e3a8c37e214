//! Clients that come back to their servers by a cookie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, config};
use crate::origin::{Client, Origin, Reply};

const RULE: &str = "sticky = { cookie = \"srv\", secret = \"0123456789abcdef0123456789abcdef\" }";

fn ask(client: &mut Client, cookie: Option<&str>, more: &str) -> Reply {
    let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: x=y; {cookie}\r\n"));
    client.send(format!("GET / HTTP/1.1\r\nHost: a.example\r\n{cookie}{more}\r\n"));
    client.reply()
}

/// Returns the pair of the cookie that a response gives.
fn pair(reply: &Reply) -> Option<String> {
    let field = reply.field("set-cookie")?;
    Some(field.split(';').next().unwrap().to_owned())
}

#[test]
fn a_client_with_a_cookie_stays_with_its_server() {
    for backend in MOST {
        let origins = ["a", "b", "c"].map(Origin::named);
        let addresses = origins.each_ref().map(|origin| origin.address.as_str());
        let gateway = Gateway::start(backend, &config(&addresses, RULE, ""));
        let mut client = Client::connect(&gateway.address);
        let first = ask(&mut client, None, "");
        let (server, cookie) = (first.text().to_owned(), pair(&first).unwrap());
        let field = first.field("set-cookie").unwrap();
        assert_eq!(field, format!("{cookie}; Path=/; HttpOnly; SameSite=Lax"));
        for address in addresses {
            let port = address.rsplit_once(':').unwrap().1;
            assert!(!cookie.contains(address) && !cookie.contains(port) || port.len() < 4);
        }
        for _ in 0..7 {
            let again = ask(&mut client, Some(&cookie), "");
            assert_eq!((again.text(), pair(&again)), (server.as_str(), None));
        }
        // Others take turns, and a cookie that no server has is replaced.
        let mut seen: Vec<_> =
            (0..3).map(|_| ask(&mut client, None, "").text().to_owned()).collect();
        seen.sort();
        assert_eq!(seen, ["a", "b", "c"]);
        let forged = format!("srv={}", "A".repeat(22));
        assert!(pair(&ask(&mut client, Some(&forged), "")).is_some());
        // The cookie is the same on another gateway with the same secret.
        let other = Gateway::start(backend, &config(&addresses, RULE, ""));
        let mut client = Client::connect(&other.address);
        let there = ask(&mut client, Some(&cookie), "");
        assert_eq!((there.text(), pair(&there)), (server.as_str(), None));
    }
}

#[test]
fn a_client_of_a_server_that_is_down_gets_another_one_and_its_cookie() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = is_dead.clone();
    let a = Origin::start(move |line| {
        line.request()?;
        match dead.load(Ordering::SeqCst) {
            // The connection ends without an answer.
            true => Ok(()),
            false => {
                line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na")
            }
        }
    });
    let b = Origin::named("b");
    // Only a check would bring the server back, and the next one is far away.
    let rule = format!("{RULE}\nhealth = {{ interval = \"1h\", timeout = \"30s\" }}");
    let text = config(&[&a.address, &b.address], &rule, "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    let mut client = Client::connect(&gateway.address);
    let cookie = loop {
        let reply = ask(&mut client, None, "");
        if reply.text() == "a" {
            break pair(&reply).unwrap();
        }
    };
    is_dead.store(true, Ordering::SeqCst);
    // The first such requests are sent again to the other server.
    let mut last = String::new();
    for _ in 0..5 {
        let reply = ask(&mut client, Some(&cookie), "");
        assert_eq!(reply.text(), "b");
        last = pair(&reply).unwrap();
        assert_ne!(last, cookie);
    }
    assert_eq!(gateway.up(), [false, true]);
    // Once it is down, the server is not asked any more.
    let failures = gateway
        .call(|_, server| server.upstreams()["app"].members()[0].failures.load(Ordering::SeqCst));
    assert_eq!(failures, 3);
    let again = ask(&mut client, Some(&last), "");
    assert_eq!((again.text(), pair(&again)), ("b", None));
}

#[test]
fn the_cookie_is_for_encrypted_connections_where_the_client_has_one() {
    let a = Origin::named("a");
    let secure = "X-Forwarded-Proto: HTTPS, http\r\n";
    let is_secure = |rule: &str, proxy: &str, more: &str| {
        let gateway = Gateway::start(BackendKind::Epoll, &config(&[&a.address], rule, proxy));
        let reply = ask(&mut Client::connect(&gateway.address), None, more);
        reply.field("set-cookie").unwrap().ends_with("; Secure")
    };
    assert!(!is_secure(RULE, "", ""));
    // Only a proxy that is trusted is believed.
    assert!(!is_secure(RULE, "", secure));
    assert!(is_secure(RULE, ", trust_forwarded = true", secure));
    assert!(is_secure(&RULE.replace(" }", ", same_site = \"none\" }"), "", ""));
}
