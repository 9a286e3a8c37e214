//! SIGHUP: another configuration without a connection being closed, unless it is wrong.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::stage::{Server, Site, backends, connect, free_port, get};

fn text(backend: &str, port: u16, more: &str) -> String {
    format!(
        "[server]
        backend = \"{backend}\"
        workers = 2
        [[listeners]]
        address = \"127.0.0.1:{port}\"
        [metrics]
        [[hosts]]
        {more}
        [[hosts.routes]]
        files = {{ root = \"www\" }}
        [[hosts.routes]]
        path = \"/c\"
        channel = {{}}"
    )
}

const MOVED: &str = "[[hosts.routes]]\npath = \"/small\"\nredirect = { to = \"/elsewhere\" }";

#[test]
fn another_configuration_takes_effect_on_connections_that_there_are() {
    let site = Site::new();
    let bytes = site.large();
    for backend in backends() {
        let name = backend.name();
        let port = free_port();
        let path = site.write("reload.toml", &text(name, port, ""));
        let server = Server::configured(&path, 1);
        let mut idle = server.connect();
        assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 200"));
        let mut slow = server.connect();
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut received = vec![0; 1000];
        slow.read_exact(&mut received).unwrap();
        let mut poll = server.connect();
        poll.write_all(b"GET /c?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();

        let other = free_port();
        let both = format!("[[listeners]]\naddress = \"127.0.0.1:{other}\"\n");
        site.write("reload.toml", &(both + &text(name, port, MOVED)));
        server.signal("HUP");
        server.says("reloaded the configuration ");
        assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 308"), "{backend:?}");
        let mut new = connect(([127, 0, 0, 1], other).into());
        assert!(get(&mut new, "/small").starts_with("HTTP/1.1 308"), "{backend:?}");
        slow.read_to_end(&mut received).unwrap();
        assert!(received.ends_with(&bytes), "{backend:?}: the download is broken");
        // A client that waited for a message before receives it.
        new.write_all(b"POST /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi")
            .unwrap();
        assert!(crate::stage::response(&mut new).starts_with("HTTP/1.1 201"), "{backend:?}");
        assert!(crate::stage::response(&mut poll).contains("\"data\":\"hi\""), "{backend:?}");

        // A listener that is not in the configuration any more stops listening; its connections go
        // on.
        site.write("reload.toml", &text(name, port, ""));
        server.signal("HUP");
        while TcpStream::connect(("127.0.0.1", other)).is_ok() {
            std::thread::yield_now();
        }
        assert!(get(&mut new, "/small").starts_with("HTTP/1.1 200"), "{backend:?}");
        assert!(get(&mut idle, "/small").starts_with("HTTP/1.1 200"), "{backend:?}");
        drop((idle, new, poll));
        server.signal("TERM");
        let (status, errors) = server.ended();
        assert!(status.success(), "{status}");
        assert_eq!(errors.lines().count(), 2, "{backend:?}: {errors}");
    }
}

#[test]
fn no_connection_is_refused_during_a_reload() {
    let site = Site::new();
    let path = site.write("reload.toml", &text("adaptive", 0, ""));
    let server = Server::configured(&path, 1);
    for round in 1..=10 {
        let more = if round % 2 == 0 { "" } else { MOVED };
        site.write("reload.toml", &text("adaptive", 0, more));
        server.signal("HUP");
        while server.errors().lines().count() < round {
            let mut stream = server.connect();
            let answer = get(&mut stream, "/text.txt");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    server.signal("TERM");
    let (status, errors) = server.ended();
    assert!(status.success());
    assert!(
        errors.lines().all(|line| line.starts_with("superpoll: reloaded the configuration ")),
        "{errors}"
    );
}

#[test]
fn a_wrong_configuration_changes_nothing_and_is_reported() {
    let site = Site::new();
    let path = site.write("reload.toml", &text("adaptive", 0, ""));
    let server = Server::configured(&path, 1);
    let mut stream = server.connect();
    let mut says_reload = |is_successful: bool| {
        let name = "superpoll_config_last_reload_successful";
        let expected = format!("\n{name} {}\n", u8::from(is_successful));
        get(&mut stream, "/metrics").contains(&expected)
    };
    assert!(says_reload(true));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|at| (taken, at.port())).unwrap();
    let cases = [
        ("nonsense = 1".to_owned(), "reload.toml:1:1: unknown key `nonsense`"),
        (text("adaptive", 0, MOVED).replace("www", "nowhere"), "cannot read the folder"),
        (text("adaptive", taken.1, MOVED), "in use"),
        (String::new(), "no listener"),
    ];
    for (wrong, said) in cases {
        let before = server.errors().len();
        site.write("reload.toml", &wrong);
        server.signal("HUP");
        crate::stage::until("it names the mistake", || {
            let errors = server.errors();
            let told = errors[before..].to_owned();
            told.contains(said) && told.contains("still serving the previous configuration\n")
        });
        let told = server.errors()[before..].to_owned();
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(says_reload(false), "{told}");
        assert!(get(&mut server.connect(), "/small").starts_with("HTTP/1.1 200"));
    }
    std::fs::remove_file(&path).unwrap();
    server.signal("HUP");
    server.says("cannot read the configuration");
    site.write("reload.toml", &text("adaptive", 0, ""));
    server.signal("HUP");
    crate::stage::until("the right one is taken on", || says_reload(true));
    // A server without a configuration has nothing to read again, and goes on.
    let plain = Server::folder(&site.www(), &[]);
    plain.signal("HUP");
    assert!(get(&mut plain.connect(), "/small").starts_with("HTTP/1.1 200"));
    plain.finish();
    drop(stream);
    server.signal("TERM");
    assert!(server.ended().0.success());
}
