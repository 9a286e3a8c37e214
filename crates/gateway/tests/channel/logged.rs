//! WebSockets in the access log.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use superpoll_rt::BackendKind;
use superpoll_test_support::find;
use tungstenite::Message;

use crate::clients::{Events, next, socket, text, until_subscribers};
use crate::stage::{Answer, Stage};

/// Waits for this many lines.
fn lines(log: &Path, count: usize) -> Vec<Value> {
    find(&format!("there are {count} lines"), || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (text.lines().count() >= count).then(|| lines.collect())
    })
}

#[test]
fn a_websocket_is_one_line_at_its_end_with_its_bytes_parked_and_not() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let stage = logged(backend, &log);
        let (mut client, _) = socket(&stage, "");
        until_subscribers(&stage, 1);
        stage.until(|engine| &engine.parked, 1);
        // A frame of the server has two bytes before its text, and one of a client has six.
        let mut bytes = (0, 0);
        for number in 0..20 {
            let message = format!("message {number}");
            match number % 2 {
                0 => drop(stage.channel.as_ref().unwrap().publish(message.clone())),
                _ => {
                    client.send(Message::text(message.clone())).unwrap();
                    bytes.0 += 6 + message.len();
                }
            }
            assert_eq!(next(&mut client), message);
            bytes.1 += 2 + message.len();
        }
        // A request that ends meanwhile is the first in the log.
        assert_eq!(stage.connect().get("/c?wait=0").status, 204);
        assert_eq!(lines(&log, 1)[0]["status"], 204);
        client.close(None).unwrap();
        stage.elapse(Duration::from_secs(5));
        while client.read().is_ok() {}
        let all = lines(&log, 2);
        assert_eq!(all.len(), 2, "{all:?}");
        let line = &all[1];
        assert_eq!((&line["status"], &line["route"]), (&101.into(), &"/c".into()), "{line}");
        // And the frames of the end, which have two bytes more for a reason.
        let close = [6, 2];
        let found = [&line["bytes_in"], &line["bytes"]].map(|field| field.as_u64().unwrap());
        let least = [bytes.0 + close[0], bytes.1 + close[1]];
        for (found, least) in found.into_iter().zip(least) {
            let most = least + 2;
            assert!((least..=most).contains(&(found as usize)), "{backend:?}: {line} {least}");
        }
        assert_eq!((&line["parked"], &line["complete"]), (&true.into(), &true.into()), "{line}");
        assert_eq!(stage.drained(), 0);
        assert_eq!(lines(&log, 2).len(), 2);
    }
}

/// A log in JSON beside a channel.
fn logged(backend: BackendKind, log: &Path) -> Stage {
    logged_with(backend, log, "", "")
}

/// The same with options of the channel, and more tables.
fn logged_with(backend: BackendKind, log: &Path, options: &str, more: &str) -> Stage {
    let log = format!("[access_log]\npath = {log:?}\nformat = \"json\"\n");
    Stage::new(backend, 1, &format!("{}{log}{more}", text(options)))
}

#[test]
fn a_long_poll_counts_once_among_the_requests_of_its_connection() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let limits = "[limits]\nrequests_per_connection = 2\n";
        let stage = logged_with(backend, &log, "", limits);
        let mut client = stage.connect();
        client.send("GET /c?wait=60 HTTP/1.1\r\nhost: a\r\n\r\n");
        until_subscribers(&stage, 1);
        stage.channel.as_ref().unwrap().publish("news");
        let is_last = |answer: &Answer| answer.head.to_lowercase().contains("connection: close");
        let first = client.answer();
        assert_eq!((first.status, is_last(&first)), (200, false), "{backend:?}");
        let second = client.get("/c?wait=0");
        assert_eq!((second.status, is_last(&second)), (204, true), "{backend:?}");
        let numbers: Vec<_> =
            lines(&log, 2).iter().map(|line| line["request_number"].clone()).collect();
        assert_eq!(numbers, [1, 2].map(Value::from), "{backend:?}");
    }
}

#[test]
fn a_websocket_that_answers_no_ping_is_broken_by_its_client() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        // A ping after ten minutes, and the end after as many.
        let stage = logged_with(backend, &log, "poll = \"20m\"", "");
        let (client, _) = socket(&stage, "");
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(15 * 60));
        until_subscribers(&stage, 1);
        stage.elapse(Duration::from_secs(12 * 60));
        let line = &lines(&log, 1)[0];
        let found = (&line["status"], &line["complete"], &line["broken_by"]);
        assert_eq!(found, (&101.into(), &false.into(), &"client".into()), "{line}");
        drop(client);
    }
}

/// The stream has a task, as HTTP/1.0 has no chunks.
#[test]
fn a_stream_with_a_task_that_this_server_ends_in_order_is_complete() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let stage = logged(backend, &log);
        let (mut stays, _) = Events::by("1.0", &stage, "", "");
        stage.drain();
        assert_eq!(stays.next(), None);
        assert_eq!(stage.drained(), 0);
        let line = &lines(&log, 1)[0];
        assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None), "{line}");
    }
}

#[test]
fn requests_behind_a_rest_and_those_that_wait_were_parked() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let stage = logged(backend, &log);
        let mut client = stage.connect();
        assert_eq!(client.get("/c?wait=0").status, 204);
        stage.until(|engine| &engine.parked, 1);
        for _ in 0..2 {
            assert_eq!(client.get("/c?wait=0").status, 204);
        }
        client.send("GET /c?wait=60 HTTP/1.1\r\nhost: a\r\n\r\n");
        until_subscribers(&stage, 1);
        stage.channel.as_ref().unwrap().publish("news");
        assert_eq!(client.answer().status, 200);
        let lines = lines(&log, 4);
        let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
        assert_eq!(of("request_number"), [1, 2, 3, 4].map(Value::from), "{backend:?}");
        let parked = [false, true, lines[2]["parked"] == true, true].map(Value::from);
        assert_eq!(of("parked"), parked, "{lines:?}");
        assert!(of("complete").iter().all(|complete| *complete == true), "{lines:?}");
    }
}

#[test]
fn a_stream_that_this_server_ends_in_order_is_complete_and_one_that_its_client_leaves_is_not() {
    for backend in [BackendKind::Epoll, BackendKind::Adaptive] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let stage = logged(backend, &log);
        let (left, _) = Events::new(&stage, "", "");
        stage.until(|engine| &engine.parked, 1);
        drop(left);
        assert_eq!(lines(&log, 1)[0]["broken_by"], "client");
        let (mut stays, _) = Events::new(&stage, "", "");
        stage.until(|engine| &engine.parked, 1);
        stage.drain();
        assert_eq!(stays.next(), None);
        assert_eq!(stage.drained(), 0);
        let lines = lines(&log, 2);
        let line = &lines[1];
        assert_eq!((&line["complete"], line.get("broken_by")), (&true.into(), None), "{line}");
        assert_eq!((&line["parked"], &line["status"]), (&true.into(), &200.into()), "{line}");
    }
}
