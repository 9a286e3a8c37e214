//! nginx and Redis from their start to their end: counts are those of `strace -c`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use superpoll_test_support::{Running, alone, find, start, until};
use superpoll_watch::{Counts, Kind, Subject};
use tempfile::TempDir;

use crate::{attach, sum};

/// Whether a program can be started here; prints the reason if it cannot.
fn is_there(program: &str, argument: &str) -> bool {
    match Command::new(program).arg(argument).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("skipped: {program}: {output:?}");
            false
        }
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            false
        }
    }
}

/// Calls and those of them that failed, by name, as `strace -c` has printed them.
fn table(text: &str) -> BTreeMap<String, (u64, u64)> {
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The share, the seconds, the time of a call, the calls, the errors if any, and the name.
        let errors = if words.len() == 6 { words[4].parse().ok()? } else { 0 };
        Some((words.last()?.to_string(), (words.get(3)?.parse().ok()?, errors)))
    });
    rows.collect()
}

/// Runs a server, which listens at a path, under `strace` and the watch. `talk` is one client, and
/// `end` ends the server.
fn compare(server: &[&str], folder: &Path, talk: impl Fn(UnixStream), end: impl Fn()) {
    let told = folder.join("told");
    let Some(watch) = attach(Subject::Children) else { return };
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-o"]).arg(&told).args(server);
    let mut tracer = Running(start(command.stdout(Stdio::null())));
    watch.end_of_children();
    let connect = || {
        assert!(tracer.0.try_wait().unwrap().is_none(), "it has ended");
        UnixStream::connect(folder.join("socket")).ok()
    };
    let mut connect = connect;
    talk(find("the server listens", &mut connect));
    for _ in 0..20 {
        talk(connect().unwrap());
    }
    end();
    let mut ended = None;
    until("the server has ended", || {
        ended = tracer.0.try_wait().unwrap();
        ended.is_some()
    });
    let text = fs::read_to_string(&told).unwrap();
    let table = table(&text);
    let traced = |names: &[&str]| {
        let rows = names.iter().filter_map(|name| table.get(*name));
        rows.fold((0, 0), |(calls, errors), row| (calls + row.0, errors + row.1))
    };
    let all = watch.counts();
    let own = tracer.0.id();
    let of = |kind| -> Vec<Counts> {
        let those = all.iter().filter(|(key, _)| key.kind == kind && key.process != own);
        those.map(|(_, counts)| counts.clone()).collect()
    };
    let (sets, process) = (of(Kind::Epoll), of(Kind::Process));
    let (waits, failed) = (sum(&sets, Counts::waits), sum(&sets, Counts::failed));
    assert_eq!((waits, failed), traced(&["epoll_wait", "epoll_pwait"]), "{text}{sets:?}");
    let (changes, refused) = (sum(&sets, Counts::controls), sum(&sets, Counts::refused));
    assert_eq!((changes, refused), traced(&["epoll_ctl"]), "{text}{sets:?}");
    assert!(waits > 20 && changes > 20, "{text}");
    for (names, found, empty) in [
        (
            &["read", "readv", "recvfrom", "recvmsg"][..],
            sum(&process, Counts::reads),
            sum(&process, Counts::empty_reads),
        ),
        (
            &["accept", "accept4"],
            sum(&process, Counts::accepts),
            sum(&process, Counts::empty_accepts),
        ),
    ] {
        let (calls, errors) = traced(names);
        assert_eq!(found, calls - errors, "{names:?}: {text}{process:?}");
        assert!(empty <= errors && found >= 20, "{names:?}: {text}{process:?}");
    }
}

/// Sends requests on a connection, one after another.
fn ask(mut stream: UnixStream, request: &[u8], answer: &[u8]) {
    for _ in 0..10 {
        stream.write_all(request).unwrap();
        let mut got = Vec::new();
        let mut room = [0; 4096];
        while !got.ends_with(answer) {
            match stream.read(&mut room) {
                Ok(count @ 1..) => got.extend(&room[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => panic!("{outcome:?} after {:?}", String::from_utf8_lossy(&got)),
            }
        }
    }
}

#[test]
fn counts_of_redis_are_those_of_strace() {
    if !is_there("strace", "--version") || !is_there("redis-server", "--version") {
        return;
    }
    alone(|| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().to_str().unwrap();
        let socket = folder.path().join("socket");
        let server = ["redis-server", "--port", "0", "--save", "", "--dir", path, "--unixsocket"];
        let server = [&server[..], &[socket.to_str().unwrap()]].concat();
        let talk = |stream| ask(stream, b"PING\r\n", b"+PONG\r\n");
        let end = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
            let _ = stream.read(&mut [0; 64]);
        };
        compare(&server, folder.path(), talk, end);
    });
}

#[test]
fn counts_of_nginx_are_those_of_strace() {
    if !is_there("strace", "--version") || !is_there("nginx", "-v") {
        return;
    }
    alone(|| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().display();
        let text = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/errors;\n\
             events {{ use epoll; }}\n\
             http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/p;\n\
             fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
             server {{ listen unix:{path}/socket; return 200 \"answer\"; }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, text).unwrap();
        let server = ["nginx", "-c", file.to_str().unwrap()];
        let talk = |stream| ask(stream, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"answer");
        let end = || {
            let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
            assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
        };
        compare(&server, folder.path(), talk, end);
    });
}
