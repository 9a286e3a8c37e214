//! The server that gets a request, and the servers that are left out.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use superpoll_rt::BackendKind;

use crate::gateway::{Gateway, MOST, config, wait, whole};
use crate::origin::{Client, Origin, get, refuses};

/// How often each server has answered.
fn tally(address: &str, requests: usize) -> BTreeMap<String, usize> {
    let mut client = Client::connect(address);
    let mut tally = BTreeMap::new();
    for _ in 0..requests {
        *tally.entry(client.get("/").text().to_owned()).or_default() += 1;
    }
    tally
}

fn of(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn turns_are_taken_by_weight() {
    for backend in MOST {
        let (a, b) = (Origin::named("a"), Origin::named("b"));
        let servers = format!(
            "servers = [{{ address = \"{}\", weight = 3 }}, {{ address = \"{}\" }}]",
            a.address, b.address
        );
        let gateway = Gateway::start(backend, &whole(&servers, "", ""));
        assert_eq!(tally(&gateway.address, 40), of(&[("a", 30), ("b", 10)]));
        // One connection each was enough.
        assert_eq!((a.connections(), b.connections()), (1, 1));
    }
}

#[test]
fn the_least_loaded_server_is_chosen() {
    for backend in MOST {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let a = Origin::start(move |line| {
            line.request()?;
            let _ = ended.lock().unwrap().recv();
            line.answer("a")
        });
        let b = Origin::named("b");
        let text = config(&[&a.address, &b.address], "balance = \"least-connections\"", "");
        let gateway = Gateway::start(backend, &text);
        let mut waiting = Client::connect(&gateway.address);
        waiting.send("GET /stay HTTP/1.1\r\nHost: a\r\n\r\n");
        wait(|| !a.seen().is_empty());
        assert_eq!(tally(&gateway.address, 10), of(&[("b", 10)]));
        drop(end);
        assert_eq!(waiting.reply().text(), "a");
    }
}

#[test]
fn a_client_keeps_its_server_until_that_goes() {
    for backend in MOST {
        let origins = [Origin::named("a"), Origin::named("b"), Origin::named("c")];
        let addresses: Vec<&str> = origins.iter().map(|origin| origin.address.as_str()).collect();
        let gateway = Gateway::start(backend, &config(&addresses, "balance = \"hash\"", ""));
        let counts = tally(&gateway.address, 10);
        assert_eq!(counts.len(), 1, "{counts:?}");
        let (name, _) = counts.into_iter().next().unwrap();
        let index = usize::from(name.as_bytes()[0] - b'a');
        let rest: Vec<&str> =
            addresses.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, a)| *a).collect();
        let fewer = Gateway::start(backend, &config(&rest, "balance = \"hash\"", ""));
        let without = tally(&fewer.address, 10);
        assert_eq!(without.len(), 1);
        assert!(!without.contains_key(&name));
    }
}

#[test]
fn checks_find_servers_down_and_up_again() {
    for backend in MOST {
        let is_well = Arc::new(AtomicBool::new(true));
        let well = is_well.clone();
        let a = Origin::start(move |line| {
            loop {
                let seen = line.request()?;
                if seen.line().starts_with("GET /health ") {
                    match well.load(Ordering::SeqCst) {
                        true => line.send("HTTP/1.1 204 No Content\r\n\r\n")?,
                        false => line.send("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")?,
                    }
                } else {
                    line.answer("a")?;
                }
            }
        });
        let b = Origin::named("b");
        let health = "health = { path = \"/health\", interval = \"10ms\", timeout = \"5s\", rise = 2, fall = 2 }";
        let gateway = Gateway::start(backend, &config(&[&a.address, &b.address], health, ""));
        assert_eq!(tally(&gateway.address, 10), of(&[("a", 5), ("b", 5)]));
        is_well.store(false, Ordering::SeqCst);
        gateway.wait_for(&[false, true]);
        assert_eq!(tally(&gateway.address, 10), of(&[("b", 10)]));
        is_well.store(true, Ordering::SeqCst);
        gateway.wait_for(&[true, true]);
        assert_eq!(tally(&gateway.address, 10), of(&[("a", 5), ("b", 5)]));
        let asked = a.seen().into_iter().find(|seen| seen.line().contains("/health")).unwrap();
        assert_eq!(asked.field("host"), Some(a.address.clone()));
    }
}

#[test]
fn if_all_servers_are_down_none_gets_a_request() {
    let a = Origin::start(|line| {
        loop {
            line.request()?;
            line.send("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")?;
        }
    });
    let health = "health = { interval = \"10ms\", rise = 3, fall = 1 }";
    let gateway = Gateway::start(BackendKind::Adaptive, &config(&[&a.address], health, ""));
    gateway.wait_for(&[false]);
    let reply = get(&gateway.address, "/");
    assert_eq!(reply.status, 503);
    assert_eq!(reply.field("retry-after").unwrap(), "1");
    assert!(!a.seen().iter().any(|seen| seen.field("x-forwarded-for").is_some()));
}

#[test]
fn failures_leave_a_server_out() {
    for backend in MOST {
        let (_gone, address) = crate::origin::refuses();
        let b = Origin::named("b");
        let gateway = Gateway::start(backend, &config(&[&address, &b.address], "", ""));
        // Each failure has its retry.
        assert_eq!(tally(&gateway.address, 20), of(&[("b", 20)]));
        assert_eq!(gateway.up(), [false, true]);
        let failures = gateway.call(|_, server| {
            let group = &server.upstreams()["app"];
            group.members()[0].failures.load(Ordering::SeqCst)
        });
        assert_eq!(failures, 3);
    }
}

#[test]
fn if_all_are_taken_to_be_down_one_is_tried() {
    let (gone, address) = crate::origin::refuses();
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&address], "", ""));
    for _ in 0..4 {
        assert_eq!(get(&gateway.address, "/").status, 502);
    }
    assert_eq!(gateway.up(), [false]);
    gone.listen(128).unwrap();
    let _back = Origin::at(gone.into(), |line| {
        line.request()?;
        line.answer("back")?;
        line.stream.flush()
    });
    assert_eq!(get(&gateway.address, "/").text(), "back");
    assert_eq!(gateway.up(), [true]);
}

/// A backup gets requests only while no other server is up.
#[test]
fn a_backup_steps_in() {
    let backup = Origin::named("backup");
    let (held, address) = refuses();
    let upstream = format!(
        "servers = [{{ address = \"{}\", backup = true }}, {{ address = \"{address}\" }}]\n\
         health = {{ interval = \"5ms\", rise = 1, fall = 1 }}\n",
        backup.address
    );
    let gateway = Gateway::start(BackendKind::Adaptive, &whole(&upstream, ", retries = 1", ""));
    gateway.wait_for(&[true, false]);
    assert_eq!(get(&gateway.address, "/").text(), "backup");
    held.listen(8).unwrap();
    let main = Origin::at(held.into(), |line| {
        loop {
            line.request()?;
            line.answer("main")?;
        }
    });
    gateway.wait_for(&[true, true]);
    for _ in 0..4 {
        assert_eq!(get(&gateway.address, "/").text(), "main");
    }
    drop(main);
}
