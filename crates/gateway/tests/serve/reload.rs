//! Another configuration with many routes: engines go on with other work while they build them.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use superpoll_gateway::serve::Server;
use superpoll_gateway::{Config, Event};
use superpoll_rt::time::{sleep, timeout};
use superpoll_rt::{Runtime, blocking, next_turn, spawn};

/// Far more than an engine builds in one turn of its event loop.
const ROUTES: usize = 5_000;

fn config(hosts: usize, more: &str) -> Config {
    let mut text = format!("{more}[[listeners]]\naddress = \"127.0.0.1:0\"\n");
    for host in 0..hosts {
        text += &format!("[[hosts]]\nnames = [\"h{host}.test\"]\n");
        for route in 0..ROUTES / hosts {
            text +=
                &format!("[[hosts.routes]]\npath = \"/r{route}\"\nredirect = {{ to = \"/\" }}\n");
        }
    }
    Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Sends a request on a connection of its own, and returns the answer.
async fn ask(address: String) -> String {
    let ask = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    blocking::unblock(ask).await.unwrap()
}

/// Counts the turns of this engine.
fn count_turns() -> Rc<Cell<usize>> {
    let turns: Rc<Cell<usize>> = Rc::default();
    let counted = turns.clone();
    let counts = async move {
        loop {
            next_turn().await;
            counted.set(counted.get() + 1);
        }
    };
    spawn(counts).detach();
    turns
}

#[test]
fn an_engine_has_other_turns_while_it_takes_many_routes_on() {
    let runtime = Runtime::builder().workers(NonZeroUsize::MIN).build().unwrap();
    // With routes in many hosts, and in few.
    for hosts in [1, 1_000] {
        let report = |event: &Event| println!("{event}");
        let mut server = Server::start(&runtime, &config(hosts, ""), report).unwrap();
        runtime.block_on(async {
            let (turns, engine) = (count_turns(), thread::current().id());
            for more in ["timeouts.idle = \"7s\"\n", "timeouts.idle = \"8s\"\n"] {
                let (config, preparation) = (config(hosts, more), server.preparation());
                let prepare = move || (preparation.prepare(config), thread::current().id());
                let (prepared, by) = blocking::unblock(prepare).await.unwrap();
                assert_ne!(by, engine);
                let before = turns.get();
                server.take_on(&runtime, prepared.unwrap()).await.unwrap();
                let had = turns.get() - before;
                // A turn builds at most 64 routes and hosts.
                assert!(had >= (ROUTES + hosts) / 64, "{had} turns");
            }
        });
    }
}

#[test]
fn the_newest_of_two_changes_at_once_is_in_use() {
    let runtime = Runtime::builder().workers(NonZeroUsize::MIN).build().unwrap();
    let report = |event: &Event| println!("{event}");
    let mut server = Server::start(&runtime, &config(1, ""), report).unwrap();
    let small = |to: &str| {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\npath = \"/\"\nredirect = {{ to = \"/{to}\" }}"
        );
        Config::parse("test.toml", &text).unwrap()
    };
    runtime.block_on(async {
        // The engine is still building the first when it has the second.
        server.change(&runtime, &config(1, "")).unwrap();
        let address = server.listening().next().unwrap().to_string();
        let prepared = server.preparation().prepare(small("second")).unwrap();
        server.take_on(&runtime, prepared).await.unwrap();
        // The first is built by now, if it was not given up.
        for _ in 0..ROUTES {
            next_turn().await;
        }
        let answer = ask(address).await;
        assert!(answer.contains("/second"), "{answer}");
    });
}

#[test]
fn subscribers_stay_although_one_change_overtakes_another() {
    let runtime = Runtime::builder().workers(NonZeroUsize::MIN).build().unwrap();
    let report = |event: &Event| println!("{event}");
    let text = |routes: usize, more: &str| {
        let mut text = format!("[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n{more}");
        for route in 0..routes {
            text +=
                &format!("[[hosts.routes]]\npath = \"/r{route}\"\nredirect = {{ to = \"/\" }}\n");
        }
        Config::parse("test.toml", &text).unwrap()
    };
    let channel = "[[hosts.routes]]\npath = \"/c\"\nchannel = { publish = \"anyone\" }\n";
    let mut server = Server::start(&runtime, &text(1, ""), report).unwrap();
    let address = server.listening().next().unwrap().to_string();
    // The engine has built the first when half of the second is left.
    server.change(&runtime, &text(ROUTES / 2, channel)).unwrap();
    server.change(&runtime, &text(ROUTES, channel)).unwrap();
    let subscribe = move || loop {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream
            .write_all(b"GET /c HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")
            .unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        match &status {
            b"HTTP/1.1 200" => break stream,
            status => assert_eq!(status, b"HTTP/1.1 404"),
        }
    };
    runtime.block_on(async {
        let mut subscriber = blocking::unblock(subscribe).await.unwrap();
        // The second is built by now.
        for _ in 0..ROUTES {
            next_turn().await;
        }
        server.channel("", "/c").unwrap().publish("message").unwrap();
        let read = move || {
            let (mut all, mut room) = (Vec::<u8>::new(), [0; 1000]);
            while !all.windows(7).any(|window| window == b"message") {
                let count = subscriber.read(&mut room).unwrap();
                assert_ne!(count, 0, "the subscription ended");
                all.extend(&room[..count]);
            }
        };
        blocking::unblock(read).await.unwrap();
    });
}

#[test]
fn a_log_that_was_moved_away_while_a_configuration_was_prepared_is_not_written_to() {
    let runtime = Runtime::builder().workers(NonZeroUsize::MIN).build().unwrap();
    let report = |event: &Event| println!("{event}");
    let folder = tempfile::tempdir().unwrap();
    let (log, moved) = (folder.path().join("log"), folder.path().join("log.1"));
    let text = format!(
        "[access_log]\npath = {log:?}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\nredirect = {{ to = \"/\" }}"
    );
    let config = Config::parse("test.toml", &text).unwrap();
    let mut server = Server::start(&runtime, &config, report).unwrap();
    runtime.block_on(async {
        let prepared = server.preparation().prepare(config.clone()).unwrap();
        fs::rename(&log, &moved).unwrap();
        server.reopen_logs();
        server.take_on(&runtime, prepared).await.unwrap();
        let address = server.listening().next().unwrap().to_string();
        ask(address).await;
        let is_written = async {
            while fs::read(&log).is_ok_and(|lines| lines.is_empty()) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), is_written).await.expect("the new file has a line");
        assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1);
        assert_eq!(fs::read(&moved).unwrap(), b"");
    });
}

#[test]
fn the_next_configuration_may_listen_where_the_one_before_does_not() {
    let runtime = Runtime::builder().workers(NonZeroUsize::MIN).build().unwrap();
    let report = |event: &Event| println!("{event}");
    let folder = tempfile::tempdir().unwrap();
    let configured = |address: &str, is_relay: bool| {
        let serves = match is_relay {
            true => "relay = { to = \"127.0.0.1:9\" }",
            false => "[[hosts]]\n[[hosts.routes]]\nredirect = { to = \"/\" }",
        };
        let text = format!("[[listeners]]\naddress = {address:?}\n{serves}");
        Config::parse("test.toml", &text).unwrap()
    };
    let mut server = Server::start(&runtime, &configured("127.0.0.1:0", false), report).unwrap();
    let first = server.listening().next().unwrap().to_string();
    let second = format!("unix:{}", folder.path().join("socket").display());
    runtime.block_on(async {
        let all = [(&second, false), (&first, true), (&second, true), (&first, false)];
        for (address, is_relay) in all.into_iter().cycle().take(40) {
            let next = configured(address, is_relay);
            let prepared = server.preparation().prepare(next).unwrap();
            server.take_on(&runtime, prepared).await.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(server.listening().next().unwrap().to_string(), *address);
        }
    });
}
