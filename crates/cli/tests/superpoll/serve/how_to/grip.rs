//! The pages about connections that applications hold, with the libraries that these use.
//!
//! The libraries are those in `target/grip`, where `.ci/run` installs them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use super::page::{Page, curl, status};
use crate::serve::php::php;
use crate::stage::{Running, Server, connect, free_port, run, tool, until};

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Returns a folder with libraries, if there is one.
fn libraries(name: &str, how: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/grip").join(name);
    if folder.is_dir() {
        return Some(folder.canonicalize().unwrap());
    }
    println!("skipped: no libraries in target/grip/{name} ({how})");
    None
}

/// Gives a page its key and the port that the application publishes at. Returns the value of
/// `GRIP_URL` on the page, for that port.
fn prepare(page: &mut Page) -> (u16, String) {
    let port = free_port();
    page.put("127.0.0.1:5561", &format!("127.0.0.1:{port}"));
    page.set("GRIP_KEY", KEY);
    (port, format!("http://127.0.0.1:{port}/?iss=app&key={KEY}"))
}

/// Starts an application, and waits until it listens.
fn start(command: &mut Command, port: u16) -> Running {
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut running = Running(child);
    until("the application listens", || {
        let ended = running.0.try_wait().unwrap();
        assert!(ended.is_none(), "the application ended: {ended:?}");
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    running
}

/// Reads until a text has come.
fn until_read(stream: &mut TcpStream, text: &str) -> String {
    let (mut read, mut room) = (Vec::new(), [0; 1024]);
    loop {
        let found = String::from_utf8_lossy(&read).into_owned();
        if found.contains(text) {
            return found;
        }
        let count = stream.read(&mut room).unwrap();
        assert_ne!(count, 0, "{text}: {found}");
        read.extend_from_slice(&room[..count]);
    }
}

fn stream(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
    let head = until_read(&mut stream, "event: open\ndata:\n\n").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(!head.contains("grip-"), "{head}");
    stream
}

/// Holds a stream, a long-poll and a WebSocket, and publishes to all of them.
fn check(server: &Server) {
    let mut stream = stream(server.at(0));
    let url = format!("ws://{}/chat?name=joe", server.at(0));
    let (mut socket, _) = tungstenite::connect(url).unwrap();
    socket.send("hello".into()).unwrap();
    assert_eq!(socket.read().unwrap().into_text().unwrap(), "joe: hello");
    let poll = {
        let url = server.url("/poll");
        thread::spawn(move || curl(&url, &[]))
    };
    // The long-poll may come after the first item.
    let mut count = 0;
    until("an item answers the long-poll", || {
        count += 1;
        assert_eq!(status(&curl(&server.url("/say"), &["--data", "It rains"]).0), 200);
        poll.is_finished()
    });
    let (head, body) = poll.join().unwrap();
    assert_eq!((status(&head), body.trim()), (200, "[\"It rains\"]"));
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(!head.contains("grip-"), "{head}");
    until_read(&mut stream, "data: \"It rains\"\n\n");
    for _ in 0..count {
        assert_eq!(socket.read().unwrap().into_text().unwrap(), "It rains");
    }
    socket.close(None).unwrap();
    let end = std::iter::from_fn(|| socket.read().ok()).last();
    assert!(end.is_none_or(|message| message.is_close()));
    // A client that ends without a word.
    let (socket, _) = tungstenite::connect(format!("ws://{}/chat", server.at(0))).unwrap();
    drop(socket);
}

/// Asks an application without a server that could hold the connection.
fn check_direct(port: u16) {
    let (head, _) = curl(&format!("http://127.0.0.1:{port}/events"), &[]);
    assert_eq!(status(&head), 501);
}

/// Publishes to a stream that is held since before a restart of the application.
fn check_restart(server: &Server, app: Running, again: impl FnOnce() -> Running) {
    let mut stream = stream(server.at(0));
    drop(app);
    let _app = again();
    assert_eq!(status(&curl(&server.url("/say"), &["--data", "again"]).0), 200);
    until_read(&mut stream, "data: \"again\"\n\n");
}

/// Ends the server of an application that was restarted. That may have been just when it heard of
/// the end of a WebSocket, which the log then tells.
fn finish(server: Server) {
    server.signal("TERM");
    let (status, errors) = server.ended();
    let is_known = |line: &str| {
        line.starts_with("superpoll: forwarding a request below / to 127.0.0.1:")
            || line.starts_with("superpoll: the application of /: ")
    };
    assert!(status.success() && errors.lines().all(is_known), "{status}: {errors}");
}

#[test]
fn django_with_grip() {
    let (Some(_), Some(python)) = (tool("curl"), tool("python3")) else { return };
    let Some(folder) = libraries("python", "pip install --target") else { return };
    let mut page = Page::read("grip-django.md");
    let port = free_port();
    page.put("127.0.0.1:8000", &format!("127.0.0.1:{port}"));
    let (_, url) = prepare(&mut page);
    page.write("app.py", &page.block("python"));
    let server = page.start(2);
    let app = || {
        let mut command = Command::new(&python);
        command.args(["app.py", "runserver", "--noreload", &format!("127.0.0.1:{port}")]);
        command.current_dir(page.path(".")).stderr(Stdio::null());
        start(command.env("PYTHONPATH", &folder).env("GRIP_URL", &url), port)
    };
    let running = app();
    check(&server);
    check_direct(port);
    check_restart(&server, running, app);
    finish(server);
}

#[test]
fn express_with_grip() {
    let (Some(_), Some(node)) = (tool("curl"), tool("node")) else { return };
    let Some(folder) = libraries("node/node_modules", "npm install --prefix") else { return };
    let version = run(Command::new(&node).arg("--version"));
    let major = version.trim_start_matches('v').split('.').next().unwrap().parse().unwrap_or(0);
    if major < 18 {
        return println!("skipped: Express needs Node 18, and this is {version}");
    }
    let mut page = Page::read("grip-express.md");
    let port = free_port();
    page.put("127.0.0.1:3000", &format!("127.0.0.1:{port}"));
    let (_, url) = prepare(&mut page);
    page.write("app.mjs", &page.block("javascript"));
    std::os::unix::fs::symlink(&folder, page.path("node_modules")).unwrap();
    let server = page.start(2);
    let app = || {
        let mut command = Command::new(&node);
        command.arg("app.mjs").current_dir(page.path("."));
        start(command.env("PORT", port.to_string()).env("GRIP_URL", &url), port)
    };
    let running = app();
    check(&server);
    check_direct(port);
    check_restart(&server, running, app);
    finish(server);
}

#[test]
fn php_with_grip() {
    let Some(_) = tool("curl") else { return };
    let mut page = Page::read("grip-php.md");
    let Some((_php, socket)) = php(&page.path(""), 2) else { return };
    let (port, _) = prepare(&mut page);
    page.put("/srv/app", "app");
    page.put("/run/php/php-fpm.sock", &socket.display().to_string());
    let script = page.block("php");
    assert!(script.contains("127.0.0.1:5561"), "{script}");
    page.write("app/index.php", &script.replace("127.0.0.1:5561", &format!("127.0.0.1:{port}")));
    let server = page.start(2);
    check(&server);
    assert_eq!(status(&curl(&server.url("/elsewhere"), &[]).0), 404);
    server.finish();
}
