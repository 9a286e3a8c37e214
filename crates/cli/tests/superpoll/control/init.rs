//! `superpoll init`.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::refused;
use crate::stage::{Server, accept, free_port, get, run};
use crate::superpoll;

fn init(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = superpoll();
    command.arg("init").args(arguments).current_dir(folder);
    command
}

/// Starts the command that was printed, on another port.
fn start(folder: &Path, told: &str) -> Server {
    let next = told.lines().last().unwrap().strip_prefix("superpoll: next: superpoll ").unwrap();
    let mut words: Vec<&str> = next.split(' ').collect();
    words.push("--check");
    assert!(run(superpoll().args(&words).current_dir(folder)).contains("configuration is right"));
    words.pop();
    let path = folder.join(words.last().unwrap());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"127.0.0.1:8080\""), "{text}");
    let port = free_port();
    fs::write(&path, text.replace("127.0.0.1:8080", &format!("127.0.0.1:{port}"))).unwrap();
    let mut command = superpoll();
    command.args(&words).args(["--stats", "off"]).current_dir(folder);
    Server::of(command, 1)
}

#[test]
fn each_kind_starts_as_it_is_and_serves_what_it_is_for() {
    let home = tempfile::tempdir().unwrap();
    let told = run(&mut init(home.path(), &[]));
    assert!(told.starts_with("superpoll: wrote superpoll.toml\nsuperpoll: wrote www/index.html\n"));
    let site = start(home.path(), &told);
    assert!(get(&mut site.connect(), "/").contains("<h1>It works</h1>"));
    site.finish();

    let told = run(&mut init(home.path(), &["chat", "a/chat"]));
    let chat = start(home.path(), &told);
    let page = get(&mut chat.connect(), "/");
    assert!(
        page.contains("superpoll(\"/chat\"") && page.contains("/_superpoll/client.js"),
        "{page}"
    );
    assert!(get(&mut chat.connect(), "/_superpoll/client.js").starts_with("HTTP/1.1 200"));
    let mut stream = chat.connect();
    let request = b"POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi";
    std::io::Write::write_all(&mut stream, request).unwrap();
    assert!(crate::stage::response(&mut stream).starts_with("HTTP/1.1 201"));
    assert!(get(&mut stream, "/chat?after=0").contains("\"data\":\"hi\""));
    drop(stream);
    chat.finish();

    let told = run(&mut init(home.path(), &["proxy", "proxy"]));
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = application.local_addr().unwrap().to_string();
    let path = home.path().join("proxy/superpoll.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("127.0.0.1:3000", &to, 1)).unwrap();
    let proxy = start(home.path(), &told);
    let answers = std::thread::spawn(move || {
        let mut stream = accept(&application);
        let mut head = [0; 4096];
        let count = std::io::Read::read(&mut stream, &mut head).unwrap();
        assert!(head[..count].starts_with(b"GET /hello HTTP/1.1\r\n"));
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\napp";
        std::io::Write::write_all(&mut stream, answer).unwrap();
    });
    assert!(get(&mut proxy.connect(), "/hello").ends_with("app"));
    answers.join().unwrap();
    proxy.finish();
}

#[test]
fn the_lines_that_are_commented_out_are_right_as_well() {
    let home = tempfile::tempdir().unwrap();
    for kind in ["site", "chat", "proxy"] {
        run(&mut init(home.path(), &[kind, kind]));
        let path = home.path().join(kind).join("superpoll.toml");
        let text = fs::read_to_string(&path).unwrap();
        // A comment has a blank after its mark.
        let all: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix('#').filter(|key| !key.starts_with(' ')).unwrap_or(line))
            .collect();
        fs::write(&path, all.join("\n")).unwrap();
        let mut check = superpoll();
        run(check.args(["serve", "--check", "-c"]).arg(&path));
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_half_done() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    fs::create_dir(at.join("www")).unwrap();
    fs::write(at.join("www/index.html"), "mine").unwrap();
    let line = refused(&mut init(at, &["chat"]));
    assert!(line.contains("not overwriting www/index.html"), "{line}");
    assert!(!at.join("superpoll.toml").exists());
    // A link to nowhere is something, too.
    std::os::unix::fs::symlink("nowhere", at.join("superpoll.toml")).unwrap();
    let line = refused(&mut init(at, &["proxy"]));
    assert!(line.contains("not overwriting superpoll.toml") && !at.join("nowhere").exists());
    fs::write(at.join("file"), "mine").unwrap();
    let line = refused(&mut init(at, &["site", "file"]));
    assert!(line.contains("writing file/superpoll.toml: "), "{line}");
    // The second file cannot be written.
    fs::create_dir(at.join("half")).unwrap();
    fs::write(at.join("half/www"), "mine").unwrap();
    let line = refused(&mut init(at, &["site", "half"]));
    assert!(line.contains("writing half/www/index.html: ") && line.contains("nothing was written"));
    assert!(!at.join("half/superpoll.toml").exists());
    let output = init(at, &["museum"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("museum"));
}
