//! Connections between two requests.

use std::time::Duration;

use crate::stage::{BACKENDS, Stage, folder};

#[test]
fn a_quiet_connection_is_parked_and_goes_on() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        let mut client = stage.connect();
        for round in 1..4 {
            assert_eq!(client.get("/small.txt").body, b"hello\n");
            stage.until(|engine| &engine.parked, 1);
            // The order of these changes is undefined.
            stage.until(|engine| &engine.parkings, round);
            stage.until(|engine| &engine.active, 0);
        }
        drop(client);
        stage.until(|engine| &engine.parked, 0);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn one_that_has_never_spoken_is_parked_as_well() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[2], 1, folder.path());
    let mut client = stage.connect();
    stage.until(|engine| &engine.parked, 1);
    assert_eq!(client.get("/small.txt").body, b"hello\n");
    stage.until(|engine| &engine.parked, 1);
}

#[test]
fn the_beginning_of_a_request_is_not_parked() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        // Together with the request before, and alone.
        let mut client = stage.connect();
        client.send("GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\nGET /sm");
        assert_eq!(client.answer().body, b"hello\n");
        let mut other = stage.connect();
        stage.until(|engine| &engine.parked, 1);
        other.send("GET /small.t");
        stage.until(|engine| &engine.parked, 0);
        stage.elapse(Duration::from_secs(1));
        assert_eq!(stage.count(|engine| &engine.parked), 0, "{backend:?}");
        client.send("all.txt HTTP/1.1\r\nhost: a\r\n\r\n");
        other.send("xt HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.answer().body, b"hello\n");
        assert_eq!(other.answer().body, b"hello\n");
        stage.until(|engine| &engine.parked, 2);
    }
}

#[test]
fn one_that_does_not_take_its_response_is_not_parked() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[3], 1, folder.path());
    let mut client = stage.connect();
    client.send("GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n");
    stage.until(|engine| &engine.active, 1);
    stage.elapse(Duration::from_secs(1));
    assert_eq!(stage.count(|engine| &engine.parked), 0);
    let answer = client.answer();
    assert_eq!(answer.body.len(), 16 << 20);
    assert!(answer.body.iter().all(|byte| *byte == 7));
    stage.until(|engine| &engine.parked, 1);
}
