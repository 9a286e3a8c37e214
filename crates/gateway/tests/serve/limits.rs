//! Who asks too much, too slowly, or too often.

use std::time::Duration;

use crate::stage::{BACKENDS, Stage, folder};

fn text(folder: &std::path::Path, more: &str) -> String {
    format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n{more}\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {folder:?}\n"
    )
}

#[test]
fn a_head_that_comes_drop_by_drop_is_not_waited_for() {
    let folder = folder();
    let text = text(folder.path(), "[timeouts]\nheader = \"300ms\"\npark = \"50ms\"");
    for backend in BACKENDS {
        let stage = Stage::new(backend, 1, &text);
        let mut good = stage.connect();
        let mut slow = stage.connect();
        slow.send("GET / HTTP/1.1\r\n");
        let begin = std::time::Instant::now();
        // Each byte is progress, and all of them are not a head.
        while begin.elapsed() < Duration::from_secs(10) {
            if std::io::Write::write_all(slow.0.get_mut(), b"a").is_err()
                || stage.count(|engine| &engine.timed_out) > 0
            {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let answer = slow.answer();
        assert_eq!(answer.status, 408, "{backend:?}");
        assert!(slow.is_closed());
        // Who has not said anything is closed as well, parked or not.
        assert!(good.is_closed());
        assert_eq!(stage.connect().get("/small.txt").status, 200);
    }
}

#[test]
fn an_idle_connection_is_closed_in_the_end() {
    let folder = folder();
    for park in ["10s", "50ms"] {
        let more = format!("[timeouts]\nidle = \"400ms\"\npark = \"{park}\"");
        let stage = Stage::new(BACKENDS[3], 1, &text(folder.path(), &more));
        let mut client = stage.connect();
        assert_eq!(client.get("/small.txt").status, 200);
        assert!(client.is_closed());
        stage.until(|engine| &engine.active, 0);
        stage.until(|engine| &engine.parked, 0);
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn who_does_not_read_is_not_waited_for() {
    let folder = folder();
    let stage = Stage::new(
        BACKENDS[2],
        1,
        &text(folder.path(), "[timeouts]\nbody = \"300ms\"\npark = \"50ms\""),
    );
    let mut clients: Vec<_> = (0..3).map(|_| stage.connect()).collect();
    for client in &mut clients {
        // More than the kernel's buffers hold on both sides.
        let request = "GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n";
        client.send(request.repeat(6));
    }
    stage.until(|engine| &engine.timed_out, 3);
    stage.until(|engine| &engine.active, 0);
    assert_eq!(stage.connect().get("/small.txt").status, 200);
}

#[test]
fn a_head_that_is_too_large_is_told_so() {
    let folder = folder();
    let stage =
        Stage::new(BACKENDS[2], 1, &text(folder.path(), "[limits]\nheader_bytes = \"8KiB\""));
    let mut client = stage.connect();
    let field = format!("x: {}\r\n", "y".repeat(1000));
    client.send(format!("GET /small.txt HTTP/1.1\r\nhost: a\r\n{}\r\n", field.repeat(6)));
    assert_eq!(client.answer().status, 200);
    client.send(format!("GET /small.txt HTTP/1.1\r\nhost: a\r\n{}\r\n", field.repeat(30)));
    assert_eq!(client.answer().status, 431);
    assert!(client.is_closed());
}

#[test]
fn one_client_has_so_many_connections_and_all_together_so_many() {
    let folder = folder();
    for (limit, most) in [("connections = 5", 5), ("connections_per_client = 3", 3)] {
        let stage = Stage::new(BACKENDS[2], 2, &text(folder.path(), &format!("[limits]\n{limit}")));
        let mut inside: Vec<_> = (0..most).map(|_| stage.connect()).collect();
        for client in &mut inside {
            assert_eq!(client.get("/small.txt").status, 200);
        }
        assert!(stage.connect().is_closed());
        assert_eq!(stage.count(|engine| &engine.refused), 1);
        // A place is free as soon as the server has seen that it is.
        drop(inside.pop());
        stage.until(|engine| &engine.active, most - 1);
        let mut next = stage.connect();
        next.send("GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(next.answer().status, 200);
    }
}

#[test]
fn a_response_arrives_though_the_request_goes_on() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[2], 1, folder.path());
    let mut client = stage.connect();
    client.send("POST /small.txt HTTP/1.1\r\nhost: a\r\ncontent-length: 400000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    assert_eq!(client.answer().status, 405);
    // What is not wanted is taken or the connection ends; it is never understood as a request.
    let _ = std::io::Write::write_all(
        client.0.get_mut(),
        "GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n".repeat(4000).as_bytes(),
    );
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.0, &mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}
