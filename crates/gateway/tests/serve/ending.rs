//! Servers that end, and servers that change.

use std::io::{Read, Write};

use crate::stage::{BACKENDS, Stage, folder};

#[test]
fn requests_under_way_finish_and_other_connections_close() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 2, folder.path());
        let mut parked = stage.connect();
        assert_eq!(parked.get("/small.txt").status, 200);
        stage.until(|engine| &engine.parked, 1);
        let mut busy = stage.connect();
        busy.send("GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n");
        stage.until(|engine| &engine.running, 1);
        stage.drain();
        assert!(parked.is_closed());
        assert_eq!(busy.answer().body.len(), 16 << 20);
        assert!(busy.is_closed());
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}

#[test]
fn another_configuration_takes_effect_on_connections_that_there_are() {
    let folder = folder();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("small.txt"), "other\n").unwrap();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 2, folder.path());
        let superpoll_gateway::Address::Tcp { port, .. } = stage.addresses[0] else { panic!() };
        let mut parked = stage.connect();
        assert_eq!(parked.get("/small.txt").body, b"hello\n");
        stage.until(|engine| &engine.parked, 1);
        let mut busy = stage.connect();
        // The answer that is under way stays the same.
        busy.send("GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n");
        stage.until(|engine| &engine.running, 1);
        stage.change(&format!(
            "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n[timeouts]\npark = \"40ms\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
            other.path()
        ));
        let end = std::time::Instant::now() + crate::stage::PATIENCE;
        while parked.get("/small.txt").body != b"other\n" {
            assert!(std::time::Instant::now() < end);
        }
        assert_eq!(busy.answer().body.len(), 16 << 20);
        assert_eq!(busy.get("/small.txt").body, b"other\n");
        assert_eq!(stage.connect().get("/small.txt").body, b"other\n");
        assert_eq!(stage.drained(), 0);
    }
}

#[test]
fn no_connection_is_refused_while_the_configuration_changes() {
    let folder = folder();
    let stage = Stage::of_files(BACKENDS[3], 2, folder.path());
    let superpoll_gateway::Address::Tcp { port, .. } = stage.addresses[0] else { panic!() };
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n\
         [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    for round in 0..200 {
        if round % 10 == 0 {
            stage.change(&text);
        }
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /small.txt HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"\r\n\r\nhello\n"), "{round}");
    }
}

#[test]
fn a_server_that_has_ended_leaves_nothing_on_its_engines() {
    use std::time::Duration;

    use superpoll_gateway::serve::Server;
    use superpoll_gateway::{Config, Event, Level};
    use superpoll_rt::{Runtime, Stats, time};

    let folder = folder();
    let text = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
        folder.path()
    );
    let config = Config::parse("test.toml", &text).unwrap();
    for backend in BACKENDS {
        let runtime = Runtime::builder().backend(backend).build().unwrap();
        let tasks = runtime.block_on(async {
            let before = Stats::current().unwrap();
            for _ in 0..5 {
                let report = |event: &Event| assert!(event.level() < Level::Error, "{event}");
                let mut server = Server::start(&runtime, &config, report).unwrap();
                time::sleep(Duration::from_millis(5)).await;
                server.stop();
                assert_eq!(server.drained(crate::stage::PATIENCE).await, 0);
            }
            let end = std::time::Instant::now() + crate::stage::PATIENCE;
            loop {
                let now = Stats::current().unwrap();
                if (now.tasks, now.sources) == (before.tasks, before.sources)
                    || std::time::Instant::now() >= end
                {
                    return (now.tasks - before.tasks, now.sources - before.sources);
                }
                time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert_eq!(tasks, (0, 0), "{backend:?}: tasks and descriptors");
    }
}

#[test]
fn a_request_whose_head_has_begun_to_come_is_answered() {
    let folder = folder();
    for backend in BACKENDS {
        let stage = Stage::of_files(backend, 1, folder.path());
        let (half, rest) = ("GET /small.txt HTTP/1.1\r\nho", "st: a\r\n\r\n");
        let whole = format!("{half}{rest}");
        // The first request of its connection, another one, and the beginning of one that has come
        // with the one before.
        let mut clients: Vec<_> = (0..3).map(|_| stage.connect()).collect();
        clients[0].send(half);
        clients[1].send(&whole);
        assert_eq!(clients[1].answer().status, 200);
        clients[1].send(half);
        clients[2].send(format!("{whole}{half}"));
        assert_eq!(clients[2].answer().status, 200);
        // None of it is parked once it was read; a client that has only been accepted is busy, too.
        let mut quiet = stage.connect();
        assert_eq!(quiet.get("/small.txt").status, 200);
        stage.until(|engine| &engine.parked, 1);
        stage.until(|engine| &engine.active, 3);
        stage.drain();
        assert!(quiet.is_closed(), "{backend:?}");
        for (index, client) in clients.iter_mut().enumerate() {
            client.send(rest);
            let answer = client.answer();
            assert_eq!((answer.status, &answer.body[..]), (200, &b"hello\n"[..]), "{index}");
            assert!(answer.head.to_lowercase().contains("connection: close"), "{}", answer.head);
            assert!(client.is_closed());
        }
        assert_eq!(stage.drained(), 0, "{backend:?}");
    }
}
