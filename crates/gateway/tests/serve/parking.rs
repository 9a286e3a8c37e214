//! Connections between two requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};

use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};

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
fn the_beginning_of_a_record_is_not_parked_and_the_rest_is_not_waited_for() {
    let (folder, trust) = (folder(), Trust::new(&[b"http/1.1"]));
    let stage = Stage::new(BACKENDS[2], 1, &trust.text(folder.path()));
    let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(trust.config.clone()), name).unwrap();
    let mut client = StreamOwned::new(client, stream);
    let answer = |client: &mut StreamOwned<ClientConnection, TcpStream>, end: &str| {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut room = [0; 1000];
            let count = client.read(&mut room).unwrap();
            assert!(count > 0, "{text}");
            text += std::str::from_utf8(&room[..count]).unwrap();
        }
        text
    };
    let request = b"GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n";
    client.write_all(request).unwrap();
    answer(&mut client, "hello\n");
    for is_whole in [true, false] {
        stage.until(|engine| &engine.parked, 1);
        let mut record = Vec::new();
        client.conn.writer().write_all(request).unwrap();
        client.conn.write_tls(&mut record).unwrap();
        let (some, rest) = record.split_at(record.len() / 2);
        client.sock.write_all(some).unwrap();
        stage.until(|engine| &engine.parked, 0);
        stage.elapse(Duration::from_secs(1));
        assert_eq!(stage.count(|engine| &engine.parked), 0);
        if is_whole {
            client.sock.write_all(rest).unwrap();
            answer(&mut client, "hello\n");
        }
    }
    stage.elapse(Duration::from_secs(200));
    assert!(answer(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 408 "));
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
