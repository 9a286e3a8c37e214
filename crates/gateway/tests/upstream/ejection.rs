//! Servers that answer with errors are left out, and come back with a part of their weight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use superpoll_rt::BackendKind;

use crate::gateway::{GIVEN, Gateway, config, wait};
use crate::origin::{Client, Origin, get};

/// A server that answers with its name, or with an error as long as it fails.
fn failing(name: &'static str, fails: &Arc<AtomicBool>) -> Origin {
    let fails = fails.clone();
    Origin::start(move |line| {
        loop {
            line.request()?;
            match fails.load(Ordering::SeqCst) {
                true => line.send("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")?,
                false => line.answer(name)?,
            }
        }
    })
}

/// Counts the answers to a number of requests, by their text or status.
fn count(address: &str, requests: usize) -> BTreeMap<String, usize> {
    let mut client = Client::connect(address);
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let reply = client.get("/");
        let text = match reply.status {
            200 => reply.text().to_owned(),
            status => status.to_string(),
        };
        *counts.entry(text).or_default() += 1;
    }
    counts
}

fn of(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_server_that_answers_with_errors_is_left_out() {
    for lane in ["", GIVEN] {
        let fails = Arc::new(AtomicBool::new(true));
        let a = failing("a", &fails);
        let b = Origin::named("b");
        let rule = "eject = { errors = 3, within = \"1h\", for = \"1h\" }";
        let text = config(&[&a.address, &b.address], rule, lane);
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        assert_eq!(count(&gateway.address, 20), of(&[("500", 3), ("b", 17)]));
        assert_eq!(gateway.up(), [false, true]);
        let told = gateway.told();
        let ejected: Vec<_> = told.iter().filter(|event| event.0 == "upstream-ejected").collect();
        assert_eq!(ejected.len(), 1, "{told:?}");
        let what = format!("{} of app is left out for 1h: 3 errors within 1h", a.address);
        assert!(ejected[0].1.contains(&what), "{told:?}");
        let ejections = gateway.call(|_, server| {
            let members = server.upstreams()["app"].members();
            members.iter().map(|server| server.ejections.load(Ordering::SeqCst)).sum::<u64>()
        });
        assert_eq!(ejections, 1);
    }
}

/// A client can feign a loop, by writing the name of the server into `Via`.
#[test]
fn a_loop_is_no_error_of_the_server_that_has_found_it() {
    for lane in ["", GIVEN] {
        let a = Origin::start(|line| {
            loop {
                line.request()?;
                line.send("HTTP/1.1 508 Loop Detected\r\ncontent-length: 0\r\n\r\n")?;
            }
        });
        let b = Origin::named("b");
        let rule = "eject = { errors = 3, within = \"1h\", for = \"1h\" }";
        let text = config(&[&a.address, &b.address], rule, lane);
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        assert_eq!(count(&gateway.address, 20), of(&[("508", 10), ("b", 10)]));
        assert_eq!(gateway.up(), [true, true]);
    }
}

/// A server whose responses all break off behind their heads has no good answers.
#[test]
fn responses_that_break_off_are_errors_and_no_answers() {
    let rule = "eject = { errors = 3, within = \"1h\", share = \"100%\", for = \"1h\" }";
    for lane in ["", GIVEN] {
        let a = Origin::start(|line| {
            line.request()?;
            line.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")?;
            Err(std::io::ErrorKind::BrokenPipe.into())
        });
        let b = Origin::named("b");
        let text = config(&[&a.address, &b.address], rule, lane);
        let gateway = Gateway::start(BackendKind::Epoll, &text);
        let mut whole = 0;
        for _ in 0..20 {
            let mut client = Client::connect(&gateway.address);
            client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            let reply = client.reply_to("GET");
            whole += usize::from(reply.is_ok_and(|reply| reply.status == 200));
        }
        assert_eq!(whole, 17, "{lane}");
        assert_eq!(gateway.up(), [false, true], "{lane}");
        let members = gateway.call(|_, server| server.upstreams()["app"].members());
        assert_eq!(members[0].failures.load(Ordering::SeqCst), 3, "{lane}");
    }
}

#[test]
fn the_last_server_is_never_left_out() {
    let fails = Arc::new(AtomicBool::new(true));
    let (a, b) = (failing("a", &fails), failing("b", &fails));
    let rule = "eject = { errors = 1, for = \"1h\", most = \"100%\" }";
    let text = config(&[&a.address, &b.address], rule, "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    assert_eq!(count(&gateway.address, 20), of(&[("500", 20)]));
    assert_eq!(gateway.up().iter().filter(|up| **up).count(), 1);
}

#[test]
fn a_server_comes_back_when_its_time_is_over() {
    let fails = Arc::new(AtomicBool::new(true));
    let a = failing("a", &fails);
    let b = Origin::named("b");
    let rule = "eject = { errors = 1, for = \"10ms\" }";
    let gateway = Gateway::start(BackendKind::Epoll, &config(&[&a.address, &b.address], rule, ""));
    wait(|| get(&gateway.address, "/").status == 500);
    fails.store(false, Ordering::SeqCst);
    wait(|| get(&gateway.address, "/").text() == "a");
    assert_eq!(gateway.up(), [true, true]);
}

#[test]
fn a_server_that_is_up_again_begins_with_a_tenth_of_its_share() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let a = Origin::start(move |line| {
        loop {
            let is_check = line.request()?.line().contains("/health");
            match well.load(Ordering::SeqCst) || !is_check {
                true => line.answer("a")?,
                false => line.send("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")?,
            }
        }
    });
    let b = Origin::named("b");
    let rule = "slow_start = \"1000h\"\n\
                health = { path = \"/health\", interval = \"10ms\", timeout = \"10s\", fall = 1, rise = 1 }";
    let text = config(&[&a.address, &b.address], rule, "");
    let gateway = Gateway::start(BackendKind::Epoll, &text);
    gateway.wait_for(&[false, true]);
    assert_eq!(count(&gateway.address, 10), of(&[("b", 10)]));
    is_well.store(true, Ordering::SeqCst);
    gateway.wait_for(&[true, true]);
    assert_eq!(count(&gateway.address, 44), of(&[("a", 4), ("b", 40)]));
}
