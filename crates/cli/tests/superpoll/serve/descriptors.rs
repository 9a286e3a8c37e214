//! Few descriptors: excess connections are closed, the rest are served, and nothing spins.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::stage::{Server, Site, backends, get, ticks};
use superpoll_test_support::program::program;

/// Returns a connection that has been answered, unless it is closed at once.
fn reach(server: &Server) -> Option<TcpStream> {
    let mut stream = server.connect();
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"0123456789") {
        let mut room = [0; 1000];
        match stream.read(&mut room) {
            Ok(count @ 1..) => answer.extend_from_slice(&room[..count]),
            Ok(_) => {
                assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
                return None;
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("neither served nor closed: {error}"),
        }
    }
    Some(stream)
}

#[test]
fn clients_are_shed_nothing_spins_and_the_service_goes_on() {
    let site = Site::new();
    for backend in backends() {
        let mut command = program("sh");
        command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_superpoll")]);
        command.args(["serve", site.www().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        command.args(["--backend", backend.name()]);
        let server = Server::of(command, 1);
        let mut served = Vec::new();
        let mut shed = 0;
        for _ in 0..100 {
            match reach(&server) {
                Some(stream) => served.push(stream),
                None => shed += 1,
            }
        }
        assert!(served.len() >= 20 && shed >= 36, "{backend:?}: {} served", served.len());
        let before = ticks(server.child());
        std::thread::sleep(Duration::from_millis(500));
        assert!(ticks(server.child()) - before < 25, "{backend:?} spins");
        for stream in &mut served {
            // Connections that were parked meanwhile work as well.
            assert!(get(stream, "/small").ends_with("0123456789"), "{backend:?}");
        }
        drop(served);
        crate::stage::until("there is room again", || reach(&server).is_some());
        server.signal("TERM");
        let (status, errors) = server.ended();
        assert!(status.success(), "{backend:?}: {status}");
        assert!(errors.contains("at most 64 descriptors may be open"), "{backend:?}: {errors}");
        assert!(errors.lines().count() < 5, "{backend:?}: {errors}");
    }
}

#[test]
fn a_limit_of_connections_is_kept() {
    let site = Site::new();
    let text = "
        [[listeners]]
        address = \"127.0.0.1:0\"
        [[hosts]]
        [[hosts.routes]]
        files = { root = \"www\" }
        [limits]
        connections = 10
        connections_per_client = 5";
    let server = Server::configured(&site.write("limits.toml", text), 1);
    let served: Vec<TcpStream> = (0..30).filter_map(|_| reach(&server)).collect();
    assert_eq!(served.len(), 5);
    drop(served);
    crate::stage::until("there is room again", || reach(&server).is_some());
    server.finish_with(&["closing a new connection on "]);
}
