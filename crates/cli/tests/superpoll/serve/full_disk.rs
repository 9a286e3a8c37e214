//! A full disk: a server whose logs are on a file system of its own, with room for 256 KiB.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::stage::{PATIENCE, Server, Site, response, tool, until};
use superpoll_test_support::program::program;

/// Mounts the file system at `$0`, where only this process and its children see it, and becomes the
/// command.
const MOUNTED: &str = "mount -t tmpfs -o size=256k tmpfs \"$0\" && exec \"$@\"";

/// The file that takes the room from the logs.
const FILLER: &str = "filler";

/// Returns a command that runs the arguments that are added to it with a small disk at `disk`.
fn on_a_small_disk(site: &Site) -> Option<Command> {
    tool("unshare")?;
    tool("mount")?;
    let disk = site.path("disk");
    fs::create_dir(&disk).unwrap();
    let command = || {
        let mut command = program("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNTED]).arg(&disk);
        command
    };
    let output = command().arg("true").output().unwrap();
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        eprintln!("skipped: no file system can be mounted: {}", reason.trim());
        return None;
    }
    Some(command())
}

/// A server whose logs are on a small disk.
struct Stage {
    server: Server,
    disk: PathBuf,
    access: File,
    events: File,
    stream: TcpStream,
    /// Requests so far, each of which was answered.
    requests: usize,
    since: Instant,
}

impl Stage {
    /// Starts it; `prepare` is a command that runs on the disk before.
    fn new(site: &Site, prepare: &str) -> Option<Stage> {
        let mut command = on_a_small_disk(site)?;
        let text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
             files = { root = \"www\" }\n[access_log]\npath = \"disk/access\"\nformat = \"json\"\n\
             [log]\npath = \"disk/events\"\nformat = \"json\"\n";
        let configuration = site.write("disk.toml", text);
        let prepare = format!("cd \"$0\" && {prepare}; cd /; exec \"$@\"");
        command.args(["sh", "-c", &prepare]).arg(site.path("disk"));
        command.args([env!("CARGO_BIN_EXE_superpoll"), "serve", "-c"]).arg(configuration);
        let since = Instant::now();
        let server = Server::of(command, 1);
        let inside = site.path("disk");
        let inside = inside.strip_prefix("/").unwrap();
        let disk = PathBuf::from(format!("/proc/{}/root", server.child().id())).join(inside);
        // They can be read after the end of the server, which unmounts the disk.
        let [access, events] = ["access", "events"].map(|name| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(disk.join(name)).unwrap()
        });
        let stream = server.connect();
        Some(Stage { server, disk, access, events, stream, requests: 0, since })
    }

    /// Sends a request, whose log line has a few kilobytes, and which must be answered.
    fn request(&mut self) {
        let agent = "a".repeat(3000);
        let head = format!("GET /small HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
        self.stream.write_all(head.as_bytes()).unwrap();
        let answer = response(&mut self.stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("0123456789"), "{answer}");
        self.requests += 1;
    }

    /// Sends requests until the access log has lost lines: it takes the last bytes of the disk
    /// itself, and ends in the middle of a line.
    fn exhaust(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.complaints() == 0 {
            assert!(Instant::now() < end, "the disk is never full: {}", text(&self.events));
            self.request();
        }
    }

    fn remove_filler(&self) {
        fs::remove_file(self.disk.join(FILLER)).unwrap();
    }

    /// Returns the messages of the events of that name.
    fn messages(&self, name: &str) -> Vec<String> {
        let events = objects(&self.events);
        let events = events.iter().filter(|event| event["event"] == name);
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the events that say that the access log loses lines.
    fn complaints(&self) -> usize {
        self.messages("log-failed").iter().filter(|told| told.ends_with(" lost so far")).count()
    }

    /// Returns how often a failure may have been reported: at once, and every minute.
    fn reports(&self) -> usize {
        1 + usize::try_from(self.since.elapsed().as_secs() / 60).unwrap()
    }

    /// Opens the logs again, and waits until the server says so.
    fn reopen(&self) {
        self.server.signal("USR1");
        until("the logs are reopened", || self.messages("log-reopened").len() == 2);
    }

    /// Sends a request, whose line must be written, and waits until the server says how many lines
    /// were lost. Returns their number.
    fn recover(&mut self) -> usize {
        let before = text(&self.access).len();
        self.request();
        until("lines are written again", || text(&self.access).len() > before);
        // No further request is necessary.
        let last = || self.messages("log-failed").pop();
        let is_over = |told: String| told.contains(": lines are written again; ");
        until("the lost lines are told", || last().is_some_and(is_over));
        let last = last().unwrap();
        let number = last.strip_suffix(" lines were lost in all");
        number.and_then(|rest| rest.rsplit(' ').next()).unwrap().parse().unwrap()
    }

    /// Returns the memory of the server in bytes.
    fn memory(&self) -> usize {
        let path = format!("/proc/{}/status", self.server.child().id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    /// Ends it. Returns its standard error.
    fn finish(self) -> String {
        drop(self.stream);
        self.server.signal("TERM");
        let (status, errors) = self.server.ended();
        assert!(status.success(), "{status}: {errors}");
        errors
    }
}

fn text(mut file: &File) -> String {
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Returns the lines of a log, each of which must be a whole object; the last one may be under way
/// or cut.
fn objects(file: &File) -> Vec<Value> {
    let text = text(file);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let object = |line: &str| match serde_json::from_str(line) {
        Ok(value @ Value::Object(_)) => value,
        other => panic!("{other:?}: {line:?}"),
    };
    whole.lines().map(object).collect()
}

/// Fills the disk with lines, makes room by `make_room`, and checks that each request has a line or
/// is among the lost ones. `make_room` returns how many lines it has taken away.
fn is_survived(make_room: impl FnOnce(&mut Stage) -> usize) {
    let site = Site::new();
    let Some(mut stage) = Stage::new(&site, "head -c 131072 /dev/zero >filler") else { return };
    until("the server serves", || stage.messages("serving").len() == 1);
    stage.exhaust();
    let before = stage.memory();
    for _ in 0..2000 {
        stage.request();
    }
    // Their lines would need more.
    let grown = stage.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes");
    assert!(stage.complaints() <= stage.reports(), "{}", text(&stage.events));
    let removed = make_room(&mut stage);
    let lost = stage.recover();
    // The last ones may have waited for the room.
    assert!(lost > 1900, "{lost}");
    let (requests, access) = (stage.requests, stage.access.try_clone().unwrap());
    let errors = stage.finish();
    assert!(errors.is_empty(), "{errors}");
    assert_eq!(objects(&access).len() + removed + lost, requests);
    assert!(text(&access).ends_with('\n'));
}

#[test]
fn lines_follow_when_another_file_gives_room_to_the_log() {
    is_survived(|stage| {
        // The log is still at its path, and ends in the middle of a line.
        stage.reopen();
        stage.remove_filler();
        0
    });
}

#[test]
fn lines_follow_when_a_full_log_is_truncated() {
    is_survived(|stage| {
        let removed = objects(&stage.access).len();
        stage.access.set_len(0).unwrap();
        removed
    });
}

#[test]
fn lines_follow_in_a_new_file_when_a_full_log_is_moved_away() {
    is_survived(|stage| {
        let removed = objects(&stage.access).len();
        let (path, former) = (stage.disk.join("access"), stage.disk.join("access.1"));
        fs::rename(&path, &former).unwrap();
        stage.reopen();
        stage.access = File::open(&path).unwrap();
        assert_eq!(text(&stage.access), "");
        stage.remove_filler();
        removed
    });
}

#[test]
fn a_disk_that_is_full_from_the_start_is_told_on_standard_error() {
    let site = Site::new();
    let Some(mut stage) = Stage::new(&site, "head -c 262144 /dev/zero >filler") else { return };
    stage.server.says("/events: No space left on device");
    for _ in 0..100 {
        stage.request();
    }
    stage.server.signal("USR1");
    stage.request();
    assert_eq!((text(&stage.access), text(&stage.events)), Default::default());
    stage.remove_filler();
    let lost = stage.recover();
    let most = stage.reports();
    stage.server.says("/events: lines are written again; ");
    let (requests, access) = (stage.requests, stage.access.try_clone().unwrap());
    let errors = stage.finish();
    assert_eq!(objects(&access).len() + lost, requests);
    let failed = format!("superpoll: writing the log {}", site.path("disk/events").display());
    assert!(errors.lines().all(|line| line.starts_with(&failed)), "{errors}");
    assert!(errors.ends_with(" lines were lost in all\n"), "{errors}");
    let told = errors.lines().filter(|line| line.contains(": No space left on device"));
    assert!(told.count() <= most, "{errors}");
}
