//! A reload reads the configuration aside: requests and other commands are answered meanwhile. A
//! FIFO in the place of the file makes the reading last as long as the test wants.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::{Stage, begin, refusal, status};
use crate::stage::{Server, get, run, succeeded, until};

const O_NONBLOCK: i32 = 0o4000;

/// Puts a FIFO in the place of the configuration. Returns the text that was there.
pub(crate) fn put_fifo(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let aside = path.with_extension("fifo");
    assert!(Command::new("mkfifo").arg(&aside).status().unwrap().success());
    std::fs::rename(&aside, path).unwrap();
    text
}

/// Waits until the server reads the FIFO, and returns its other end.
pub(crate) fn reads(path: &Path) -> File {
    let mut found = None;
    until("the server reads the file", || {
        // Without a reader this does not wait, and fails.
        found = OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path).ok();
        found.is_some()
    });
    found.unwrap()
}

fn is_answered(server: &Server, expected: &str) {
    for _ in 0..4 {
        let answer = get(&mut server.connect(), "/small");
        assert!(answer.starts_with(expected), "{answer}");
    }
}

const MOVED: &str = "[[hosts.routes]]\npath = \"/small\"\nredirect = { to = \"/elsewhere\" }";

fn told(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&succeeded(&Command::new("superpoll"), &output).stdout).into_owned()
}

fn stage(processes: usize) -> (Stage, Server, PathBuf, String, String) {
    let stage = Stage::new();
    let server = stage.start(processes);
    let settings = format!("processes = {processes}");
    let path = stage.configure(&settings, "");
    let plain = std::fs::read_to_string(&path).unwrap();
    stage.configure(&settings, MOVED);
    let moved = put_fifo(&path);
    (stage, server, path, plain, moved)
}

#[test]
fn requests_are_answered_while_the_file_is_read_and_later_commands_get_the_next_reading() {
    for processes in [1, 2] {
        let (stage, server, path, plain, moved) = stage(processes);
        let first = begin(stage.command("reload", &[]));
        let mut file = reads(&path);
        is_answered(&server, "HTTP/1.1 200");
        assert_eq!(status(&stage.stats)["state"], "serving");
        // Both come during the reading, and have one further reading in common.
        let later = [(); 2].map(|()| begin(stage.command("reload", &["--timeout", "120"])));
        server.signal("HUP");
        file.write_all(moved.as_bytes()).unwrap();
        drop(file);
        assert!(told(first).contains("2 routes"));
        is_answered(&server, "HTTP/1.1 308");
        // The further reading has begun, and the file is an ordinary one for any command that has
        // come even later.
        let mut file = reads(&path);
        let aside = path.with_extension("plain");
        std::fs::write(&aside, &plain).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        file.write_all(plain.as_bytes()).unwrap();
        drop(file);
        for one in later {
            assert!(told(one).contains("1 route"));
        }
        is_answered(&server, "HTTP/1.1 200");
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

#[test]
fn a_server_ends_although_a_reading_does_not_and_the_command_is_told() {
    for processes in [1, 2] {
        let (stage, server, path, ..) = stage(processes);
        let waiting = begin(stage.command("reload", &[]));
        let file = reads(&path);
        run(&mut stage.command("drain", &[]));
        let line = refusal(&waiting.wait_with_output().unwrap());
        assert!(line.contains("draining"), "{line}");
        assert!(server.ended().0.success());
        drop(file);
    }
}

/// Returns how many threads and descriptors a process has.
fn counts(process: u32) -> (usize, usize) {
    let count = |what: &str| {
        std::fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, std::iter::Iterator::count)
    };
    (count("task"), count("fd"))
}

#[test]
fn many_signals_leave_no_thread_and_no_descriptor() {
    let stage = Stage::new();
    let server = stage.start_with(1, "[access_log]\npath = \"access.log\"");
    run(&mut stage.command("reload", &[]));
    let process = server.child().id();
    let before = counts(process);
    for _ in 0..100 {
        server.signal("HUP");
        // Otherwise signals that come together are one.
        get(&mut server.connect(), "/small");
    }
    run(&mut stage.command("reload", &[]));
    // Far less than one for each; the pool of threads may have one more or less.
    until("nothing is left", || {
        let now = counts(process);
        now.0 <= before.0 + 3 && now.1 <= before.1 + 10
    });
    server.signal("TERM");
    assert!(server.ended().0.success());
}
