//! A server that was stopped for longer than all of its limits: requests that have come meanwhile
//! are served.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::stage::{Server, Site, accept, backends, connect, get, stop};

/// The longest of its limits.
const LIMIT: Duration = Duration::from_secs(1);

fn read(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    match stream.read_exact(&mut bytes) {
        Ok(()) => String::from_utf8(bytes).unwrap(),
        Err(error) => error.to_string(),
    }
}

/// Runs one server; returns `None` if this process was too slow for it.
fn stopped(site: &Site, backend: &str) -> Option<Vec<String>> {
    let relayed = TcpListener::bind("127.0.0.1:0").unwrap();
    let app = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = site.write(
        &format!("{backend}.toml"),
        &format!(
            "[server]\nbackend = \"{backend}\"\nworkers = 1\nstats = \"off\"\n\
             [timeouts]\nheader = \"1s\"\nbody = \"1s\"\nidle = \"1s\"\nresponse = \"1s\"\n\
             park = \"100ms\"\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\n\
             [[listeners]]\naddress = \"127.0.0.1:0\"\n\
             relay = {{ to = \"{}\", idle = \"1s\" }}\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = \"www\"\n\
             [[hosts.routes]]\npath = \"/app\"\nproxy.upstream = \"app\"\n\
             [[hosts.routes]]\npath = \"/c\"\nchannel = {{}}\n\
             [upstreams.app]\nservers = [{{ address = \"{}\" }}]\n",
            relayed.local_addr().unwrap(),
            app.local_addr().unwrap(),
        ),
    );
    let server = Server::configured(&path, 2);
    let relay = server.fronts[1].split(',').next().unwrap().parse().unwrap();
    let begun = Instant::now();
    let mut pairs: Vec<_> = (0..10)
        .map(|_| {
            let mut client = connect(relay);
            client.write_all(b"hello").unwrap();
            let mut target = accept(&relayed);
            assert_eq!(read(&mut target, 5), "hello");
            (client, target)
        })
        .collect();
    let mut parked = server.connect();
    assert!(get(&mut parked, "/small").ends_with("0123456789"));
    let mut waits = server.connect();
    waits.write_all(b"GET /app HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut upstream = accept(&app);
    assert!(read(&mut upstream, 4).starts_with("GET "));
    let mut head = server.connect();
    head.write_all(b"GET /small HTTP/1.1\r\nho").unwrap();
    let mut body = server.connect();
    body.write_all(b"POST /c HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab").unwrap();
    // Long enough for it to wait, and for one connection to be parked.
    thread::sleep(Duration::from_millis(300));
    stop(server.child().id());
    for (client, target) in &mut pairs {
        client.write_all(b"again").unwrap();
        target.write_all(b"back").unwrap();
    }
    parked.write_all(b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").unwrap();
    head.write_all(b"st: a\r\n\r\n").unwrap();
    body.write_all(b"cde").unwrap();
    let is_in_time = begun.elapsed() < LIMIT * 9 / 10;
    if is_in_time {
        thread::sleep(LIMIT * 3 / 2);
    }
    server.signal("CONT");
    if !is_in_time {
        return None;
    }
    let mut got: Vec<String> = Vec::new();
    for (client, target) in &mut pairs {
        got.push(format!("{} {}", read(client, 4), read(target, 5)));
    }
    got.extend([parked, waits, head, body].map(|mut stream| read(&mut stream, 12)));
    Some(got)
}

#[test]
fn requests_that_arrived_during_a_pause_are_served() {
    let site = Site::new();
    let names: Vec<_> = backends().map(|backend| backend.name()).collect();
    thread::scope(|scope| {
        for name in names {
            let site = &site;
            scope.spawn(move || {
                let got =
                    (0..10).find_map(|_| stopped(site, name)).expect("the machine is too slow");
                let mut expected = vec!["back again"; 10];
                expected.extend(["HTTP/1.1 200"; 3]);
                expected.push("HTTP/1.1 201");
                assert_eq!(got, expected, "{name}");
            });
        }
    });
}
