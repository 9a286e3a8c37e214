//! The ratio of active connections, compared with what the clients have done: in each second of
//! the server's clock a known set of all connections is used. Tests of many connections run in
//! processes of their own: `select` cannot watch descriptors from 1,024 on.

use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use superpoll_gateway::telemetry::ratio::ActiveRatio;
use superpoll_rt::Runtime;
use superpoll_rt::hyper::{EngineExecutor, FuturesIo};
use superpoll_test_support::{alone, until};

use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, Client, PATIENCE, Stage, folder};

const SECOND: Duration = Duration::from_secs(1);

/// The seconds that are compared.
const ROUNDS: usize = 6;

fn read(stage: &Stage) -> Option<ActiveRatio> {
    ActiveRatio::read(stage.engines.iter().map(|engine| &engine.ratio))
}

/// Uses `busy` of `all` connections in each of some seconds, and compares.
fn compare(stage: &Stage, (busy, all): (usize, usize), mut round: impl FnMut(usize)) {
    // The beginnings of connections belong to an earlier second.
    stage.elapse(2 * SECOND);
    let before = read(stage).unwrap();
    for number in 0..ROUNDS {
        round(number);
        stage.elapse(SECOND);
        let ActiveRatio { last_second, .. } = read(stage).unwrap();
        assert_eq!(last_second.connections, all as f64);
    }
    let after = read(stage).unwrap();
    let (active, expected) = (after.active_seconds - before.active_seconds, ROUNDS * busy);
    // A second may end within a round: a connection that is in use just then has two.
    let most = expected + expected / 50;
    assert!((expected as u64..=most as u64).contains(&active), "{active}, expected {expected}");
    let seconds = (after.connection_seconds - before.connection_seconds) / all as u64;
    assert!(seconds >= ROUNDS as u64);
    stage.elapse(2 * SECOND);
    let last = read(stage).unwrap();
    assert_eq!((last.active_seconds, last.last_second.ratio), (after.active_seconds, Some(0.0)));
}

/// Returns the connections of a round: another set in each.
fn busy<T>(all: &mut [T], count: usize, round: usize) -> impl Iterator<Item = &mut T> {
    let first = (round * count) % (all.len() / count * count);
    all[first..first + count].iter_mut()
}

#[test]
fn of_http_1_connections_parked_or_with_a_task() {
    alone(|| {
        let folder = folder();
        for (backend, park) in BACKENDS.into_iter().zip(["40ms", "1h", "40ms", "1h", "40ms"]) {
            let text = format!(
                "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"{park}\"\nidle = \"1h\"\n\
                 [[hosts]]\n[[hosts.routes]]\nfiles.root = {:?}\n",
                folder.path()
            );
            let stage = Stage::new(backend, 1, &text);
            let mut clients: Vec<Client> = (0..300).map(|_| stage.connect()).collect();
            clients.iter_mut().for_each(|client| assert_eq!(client.get("/small.txt").status, 200));
            compare(&stage, (50, 300), |round| {
                for client in busy(&mut clients, 50, round) {
                    (0..3).for_each(|_| assert_eq!(client.get("/small.txt").body, b"hello\n"));
                }
            });
            let parked = stage.count(|engine| &engine.parked);
            assert_eq!(parked, if park == "40ms" { 300 } else { 0 });
            // An end is no activity, and the last second has the connections at its beginning.
            drop(clients);
            until("the connections are closed", || {
                stage.elapse(SECOND);
                read(&stage).unwrap().last_second.connections == 0.0
            });
            assert_eq!(read(&stage).unwrap().last_second.ratio, None);
        }
    });
}

#[test]
fn of_http_1_over_tls() {
    let folder = folder();
    let trust = Trust::new(&[b"http/1.1"]);
    let stage = Stage::new(BACKENDS[3], 1, &trust.text(folder.path()));
    let connect = |_| {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(trust.config.clone()), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port(&stage))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(client, stream)
    };
    let get = |stream: &mut StreamOwned<ClientConnection, TcpStream>| {
        stream.write_all(b"GET /small.txt HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\nhello\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            read.push(byte[0]);
        }
    };
    let mut clients: Vec<_> = (0..60).map(connect).collect();
    clients.iter_mut().for_each(get);
    compare(&stage, (30, 60), |round| busy(&mut clients, 30, round).for_each(get));
}

#[test]
fn of_http_2_whose_streams_count_once() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = Stage::new(BACKENDS[3], 1, &trust.text(folder.path()));
    let connector = futures_rustls::TlsConnector::from(Arc::new(trust.config.clone()));
    let runtime = Runtime::new().unwrap();
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(runtime.block_on(async {
            let address = ("127.0.0.1", port(&stage));
            let stream = superpoll_rt::net::TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = FuturesIo::new(connector.connect(name, stream).await.unwrap());
            let (sender, connection) =
                hyper::client::conn::http2::handshake(EngineExecutor, stream).await.unwrap();
            superpoll_rt::spawn(connection).detach();
            sender
        }));
    }
    let get = |senders: Vec<&mut hyper::client::conn::http2::SendRequest<Empty<Bytes>>>| {
        runtime.block_on(async {
            for sender in senders {
                let mut requests = Vec::new();
                for _ in 0..4 {
                    let request = hyper::Request::get("https://localhost/small.txt");
                    let request = request.body(Empty::<Bytes>::new()).unwrap();
                    requests.push(sender.send_request(request));
                }
                for request in requests {
                    let response = request.await.unwrap();
                    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello\n");
                }
            }
        });
    };
    get(clients.iter_mut().collect());
    compare(&stage, (30, 60), |round| get(busy(&mut clients, 30, round).collect()));
}

#[test]
fn of_subscribers_that_are_sent_messages() {
    alone(|| {
        for backend in [BACKENDS[3], BACKENDS[4]] {
            let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\nidle = \"1h\"\n\
                        [[hosts]]\n[[hosts.routes]]\npath = \"/c\"\nchannel = {}\n\
                        [[hosts.routes]]\npath = \"/quiet\"\nchannel = {}\n";
            let stage = Stage::new(backend, 1, text);
            let subscribe = |number: usize| {
                let (mut client, path) =
                    (stage.connect(), if number < 50 { "/c" } else { "/quiet" });
                client.send(format!(
                    "GET {path} HTTP/1.1\r\nhost: a\r\naccept: text/event-stream\r\n\r\n"
                ));
                assert_eq!(client.head_only().status, 200);
                client
            };
            let mut clients: Vec<Client> = (0..300).map(subscribe).collect();
            stage.until(|engine| &engine.parked, 300);
            let hub = stage.channel.clone().unwrap();
            compare(&stage, (50, 300), |round| {
                let message = format!("message {round}.");
                hub.publish(message.clone());
                for client in &mut clients[..50] {
                    let mut line = String::new();
                    while !line.contains(&message) {
                        line.clear();
                        assert_ne!(client.0.read_line(&mut line).unwrap(), 0);
                    }
                }
            });
        }
    });
}

#[test]
fn of_relayed_pairs() {
    alone(|| {
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\nrelay = {{ to = \"{}\" }}\n",
            upstream.local_addr().unwrap()
        );
        for backend in [BACKENDS[1], BACKENDS[3]] {
            let stage = Stage::new(backend, 1, &text);
            let connect = |_| {
                let mut client = stage.connect();
                client.send("1");
                let (mut server, _) = upstream.accept().unwrap();
                server.set_read_timeout(Some(PATIENCE)).unwrap();
                server.read_exact(&mut [0]).unwrap();
                (client, server)
            };
            let mut pairs: Vec<(Client, TcpStream)> = (0..120).map(connect).collect();
            compare(&stage, (60, 120), |round| {
                for (client, server) in busy(&mut pairs, 60, round) {
                    client.send("2");
                    server.read_exact(&mut [0]).unwrap();
                    server.write_all(b"3").unwrap();
                    client.0.read_exact(&mut [0]).unwrap();
                }
            });
        }
    });
}
