//! The clients that may see the live page and the metrics.

use std::io::{BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use superpoll_gateway::Address;

use crate::stage::{BACKENDS, Client, PATIENCE, Stage};

const PROXY: &str = "PROXY TCP4 127.0.0.1 127.0.0.1 5 6\r\n";

fn text(folder: &std::path::Path, more: &str, public: bool) -> String {
    format!(
        "{more}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n\
         [[listeners]]\naddress = \"unix:{}\"\n[metrics]\npublic = {public}\n\
         [[hosts]]\nnames = [\"pub.test\"]\n[[hosts.routes]]\nredirect.to = \"/x\"\n",
        folder.join("socket").display()
    )
}

/// The status of a response whose connection ends with it.
fn ask(mut stream: impl Read + Write, before: &str, head: &str) -> u16 {
    stream.write_all(format!("{before}{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest.split(' ').nth(1).unwrap_or_else(|| panic!("{rest:?}")).parse().unwrap()
}

fn connect(stage: &Stage, index: usize) -> TcpStream {
    let Address::Tcp { host, port } = &stage.addresses[index] else { panic!("it is TCP") };
    let stream = TcpStream::connect((host.as_deref().unwrap(), *port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn only_a_program_on_this_machine_sees_them_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), "", false));
    // Page, metrics.
    for (version, fields, page, metrics) in [
        ("1.1", "Host: localhost", 200, 200),
        ("1.1", "Host: 127.0.0.1:8080", 200, 200),
        ("1.1", "Host: [::1]", 200, 200),
        // A page whose name was made to resolve to this machine, and a tunnel that passes the name
        // on.
        ("1.1", "Host: pub.test", 308, 403),
        ("1.1", "Host: evil.test", 421, 421),
        ("1.1", "Host: localhost.evil.test", 421, 421),
        // A proxy that has put its own name there.
        ("1.1", "Host: localhost\r\nX-Forwarded-For: 1.2.3.4", 421, 421),
        ("1.1", "Host: pub.test\r\nX-Forwarded-For: 127.0.0.1", 308, 403),
        ("1.1", "Host: localhost\r\nForwarded: for=1.2.3.4", 421, 421),
        ("1.1", "Host: localhost\r\nX-Real-IP: 1.2.3.4", 421, 421),
        ("1.1", "Host: localhost\r\nVia: 1.1 proxy", 421, 421),
        ("1.1", "Host: localhost\r\nCF-Ray: 1", 421, 421),
        ("1.0", "Host: localhost", 421, 421),
        ("1.1", "Host: u@localhost", 400, 400),
    ] {
        for (path, expected) in [("/_superpoll/", page), ("/metrics", metrics)] {
            let head = format!("GET {path} HTTP/{version}\r\n{fields}\r\n");
            assert_eq!(ask(connect(&stage, 0), "", &head), expected, "{head}");
        }
    }
    // Whatever host they name, clients of other listeners come by a proxy.
    for path in ["/_superpoll/", "/metrics"] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
        assert_eq!(ask(connect(&stage, 1), PROXY, &head), 421);
        let unix = UnixStream::connect(folder.path().join("socket")).unwrap();
        assert_eq!(ask(unix, "", &head), 421);
    }
}

#[test]
fn the_pages_socket_is_for_the_page_alone() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), "", false));
    for (fields, expected) in [
        ("Host: localhost", 101),
        ("Host: localhost\r\nOrigin: http://localhost", 101),
        ("Host: localhost:1\r\nOrigin: http://localhost:1", 101),
        ("Host: localhost\r\nOrigin: http://evil.test", 403),
        ("Host: localhost\r\nOrigin: null", 403),
        ("Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.test", 400),
        ("Host: evil.test\r\nOrigin: http://evil.test", 421),
        ("Host: localhost\r\nX-Forwarded-Host: evil.test\r\nOrigin: http://localhost", 421),
    ] {
        let mut client = Client(BufReader::new(connect(&stage, 0)));
        client.send(format!(
            "GET /_superpoll/live HTTP/1.1\r\n{fields}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        assert_eq!(client.answer().status, expected, "{fields}");
    }
}

#[test]
fn a_configuration_opens_them_to_all() {
    let folder = tempfile::tempdir().unwrap();
    let text = text(folder.path(), "[server]\npage = true\n", true);
    let stage = Stage::new(BACKENDS[2], 1, &text);
    for (path, fields, expected) in [
        ("/_superpoll/", "Host: pub.test\r\nX-Forwarded-For: 1.2.3.4", 200),
        ("/metrics", "Host: pub.test\r\nX-Forwarded-For: 1.2.3.4", 200),
        ("/metrics", "Host: localhost", 200),
        ("/metrics", "Host: evil.test", 421),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(ask(connect(&stage, 0), "", &head), expected, "{head}");
    }
    drop(stage);
    let closed = text.replace("page = true", "page = false");
    let stage = Stage::new(BACKENDS[2], 1, &closed);
    let head = "GET /_superpoll/ HTTP/1.1\r\nHost: localhost\r\n";
    assert_eq!(ask(connect(&stage, 0), "", head), 421);
}

/// Returns the address by which this machine reaches other machines, if it has one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn other_machines_do_not_see_them() {
    let Some(address) = own_address() else {
        println!("skipped: this machine has no address but the loopback one");
        return;
    };
    let text = "[[listeners]]\naddress = \"0.0.0.0:0\"\n[metrics]\n[[hosts]]\n[[hosts.routes]]\nredirect.to = \"/x\"\n";
    let stage = Stage::new(BACKENDS[2], 1, text);
    let Address::Tcp { port, .. } = stage.addresses[0] else { panic!("it is TCP") };
    for (path, expected) in [("/_superpoll/", 308), ("/metrics", 403)] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
        assert_eq!(ask(TcpStream::connect((address, port)).unwrap(), "", &head), expected);
    }
}

#[test]
fn metrics_are_read_in_the_format_that_is_asked_for() {
    let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[metrics]\n[[hosts]]\n[[hosts.routes]]\nredirect.to = \"/x\"\n";
    let stage = Stage::new(BACKENDS[2], 1, text);
    let mut client = Client(BufReader::new(connect(&stage, 0)));
    let mut ask = |method: &str, accept: &str| {
        client.send(format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n"));
        client.answer()
    };
    let plain = ask("GET", "");
    assert!(plain.head.contains("content-type: text/plain; version=0.0.4;"), "{}", plain.head);
    let plain = String::from_utf8(plain.body).unwrap();
    assert!(plain.contains("# TYPE superpoll_connections_accepted_total counter\n"), "{plain}");
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
    // Each sample has the name that its help and its type have.
    for line in plain.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let told = |what: &str| plain.contains(&format!("# {what} {name} "));
        assert!(told("HELP") && told("TYPE"), "{line}");
    }
    let open =
        ask("GET", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.ends_with(b"# EOF\n"));
    for method in ["POST", "PUT", "DELETE"] {
        let answer = ask(method, "Content-Length: 0\r\n");
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: GET, HEAD\r\n"), "{}", answer.head);
    }
}

/// A trusted proxy on this machine has clients anywhere, whatever it says about them; a program
/// next to it is still one of this machine.
#[test]
fn nobody_is_on_this_machine_by_the_word_of_a_trusted_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let more = "[server]\ntrusted_proxies = [\"local\"]";
    let stage = Stage::new(BACKENDS[2], 1, &text(folder.path(), more, false));
    for index in [0, 1, 2] {
        let before = if index == 1 { PROXY } else { "" };
        for field in [
            "X-Forwarded-For: 127.0.0.1\r\n",
            "X-Forwarded-For: 203.0.113.1\r\n",
            "X-Forwarded-For: \r\n",
            "Forwarded: for=\"[::1]\"\r\n",
            "X-Forwarded-For: 127.0.0.1, 127.0.0.1\r\n",
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{field}");
            let status = match index {
                2 => ask(UnixStream::connect(folder.path().join("socket")).unwrap(), before, &head),
                _ => ask(connect(&stage, index), before, &head),
            };
            // The host has another name.
            assert_eq!(status, 421, "{index} {field}");
            let head = format!("GET /metrics HTTP/1.1\r\nHost: pub.test\r\n{field}");
            let status = match index {
                2 => ask(UnixStream::connect(folder.path().join("socket")).unwrap(), before, &head),
                _ => ask(connect(&stage, index), before, &head),
            };
            assert_eq!(status, 403, "{index} {field}");
        }
    }
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
    assert_eq!(ask(connect(&stage, 0), "", head), 200);
}
