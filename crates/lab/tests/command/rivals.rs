//! Rivals that are absent, fail at the start or end in the middle: experiments go on without them
//! and say so.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::record::json;
use crate::start::{SMALL, lab};

/// Writes a script that the search path finds before the real program of this name.
pub(crate) fn script(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a search path that begins with a folder.
pub(crate) fn path_from(folder: &Path) -> OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([folder.to_owned()].into_iter().chain(std::env::split_paths(&rest)))
        .unwrap()
}

/// Runs a command that must succeed with that search path. Returns its record and its standard
/// error.
fn run(folder: &Path, path: OsString, arguments: &[&str]) -> (Value, String) {
    let mut command = lab();
    command.current_dir(folder).env("PATH", path).args(arguments);
    let output = command.args(["--no-report", "--json", "record.json"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let record = json(&folder.join("record.json"));
    let line = String::from_utf8(output.stdout).unwrap();
    let line =
        line.lines().find(|line| line.starts_with("rivals: ")).unwrap_or_default().to_owned();
    let rivals = record["parameters"]["rivals"].as_object().unwrap();
    for (name, version) in rivals {
        let version = version.as_str().unwrap();
        let part = match version.strip_prefix("absent: ") {
            Some(reason) => format!("{name} ({reason})"),
            None => format!("{name} {version}"),
        };
        assert!(line.contains(&part), "{part} is missing in {line}");
    }
    (record, errors)
}

fn subjects(record: &Value) -> Vec<&str> {
    record["rows"].as_array().unwrap().iter().map(|row| row["subject"].as_str().unwrap()).collect()
}

fn is_noted(record: &Value, errors: &str, what: &str) {
    assert!(errors.contains(what), "{what} is missing in {errors}");
    let notes = record["parameters"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains(what)), "{notes:?}");
}

#[test]
fn a_program_in_go_that_ends_by_itself_is_left_out_by_name() {
    let folder = tempfile::tempdir().unwrap();
    // The built program ends at once and prints nothing. The compiler's arguments are build -o NAME
    // main.go.
    let text =
        "case $1 in version) echo go version go1.99 none/none;; build) cp /bin/true \"$3\";; esac";
    script(folder.path(), "go", text);
    let path = || path_from(folder.path());
    let arguments = ["echo", "--connections", "4", "--subjects", "go,superpoll-epoll"];
    let (record, errors) = run(folder.path(), path(), &[&arguments[..], &SMALL].concat());
    is_noted(&record, &errors, "go failed and is left out from there on: ");
    is_noted(&record, &errors, "ended without an answer");
    assert_eq!(subjects(&record), ["raw-epoll", "superpoll-epoll"]);
    assert_eq!(record["parameters"]["rivals"]["Go"], "1.99");

    let arguments = ["ring", "--total", "4", "--subjects", "go,raw-epoll-lt"];
    let (record, errors) = run(folder.path(), path(), &[&arguments[..], &SMALL].concat());
    assert!(errors.contains("go takes no part"), "{errors}");
    assert!(errors.contains("the program in Go ended by itself"), "{errors}");
    assert_eq!(record["parameters"]["took_no_part"][0]["subject"], "go");
    assert_eq!(subjects(&record), ["raw-epoll-lt"]);
}

#[test]
fn a_compiler_that_fails_is_quoted_and_one_that_is_absent_is_named() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "go", "echo 'no space left' >&2; exit 1");
    let echo = ["echo", "--connections", "4", "--subjects", "go,superpoll-epoll"];
    let ring = ["ring", "--total", "4", "--subjects", "go,raw-epoll-lt"];
    for arguments in [&echo, &ring] {
        let arguments = [&arguments[..], &SMALL].concat();
        let (record, errors) = run(folder.path(), path_from(folder.path()), &arguments);
        is_noted(&record, &errors, "go left out: `go build` made nothing: no space left");
        assert_eq!(record["parameters"]["rivals"]["Go"], "unknown");
        assert!(!subjects(&record).contains(&"go"));
    }
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for arguments in [&echo, &ring] {
        let arguments = [&arguments[..], &SMALL].concat();
        let (record, errors) = run(folder.path(), empty.clone().into(), &arguments);
        is_noted(&record, &errors, "go left out: no `go` on the PATH");
        assert_eq!(record["parameters"]["rivals"]["Go"], "absent: no `go` on the PATH");
        assert!(!subjects(&record).contains(&"go"));
    }
}

#[test]
fn a_server_whose_modules_cannot_be_had_is_left_out_by_name() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), "go", "echo 'module lookup disabled' >&2; exit 1");
    let arguments = ["files", "--bytes", "100", "--protocol", "http", "--connections", "4"];
    let arguments = [&arguments[..], &SMALL].concat();
    let (record, errors) = run(folder.path(), path_from(folder.path()), &arguments);
    let reason = "caddy left out: `go build` made nothing: module lookup disabled";
    is_noted(&record, &errors, reason);
    assert!(!subjects(&record).contains(&"caddy"));
}

#[test]
fn an_nginx_that_does_not_start_is_left_out_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = "case $1 in -v) echo nginx version: nginx/9.9 >&2;; *) echo it is broken >&2; exit 1;; esac";
    script(folder.path(), "nginx", text);
    let arguments = ["files", "--bytes", "100", "--protocol", "http", "--connections", "4"];
    let subjects_asked = ["--subjects", "superpoll-epoll,nginx"];
    let arguments = [&arguments[..], &subjects_asked, &SMALL].concat();
    let (record, errors) = run(folder.path(), path_from(folder.path()), &arguments);
    is_noted(&record, &errors, "nginx failed and is left out from there on: ");
    is_noted(&record, &errors, "it is broken");
    assert_eq!(record["parameters"]["rivals"]["nginx"], "9.9");
    assert_eq!(subjects(&record), ["superpoll-epoll"]);
}

/// Waits until a process has used this many ticks of a processor.
fn has_worked(process: u32, ticks: u64, until: Instant) -> bool {
    while Instant::now() < until {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> =
            text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let used = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
        // User and system time, the fourteenth and fifteenth of all fields.
        if used(11).zip(used(12)).is_some_and(|(user, system)| user + system >= ticks) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

#[test]
fn a_haproxy_that_is_killed_at_work_is_left_out_and_the_others_go_on() {
    let all = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&all).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let here = |folder: PathBuf| Some(folder.join("haproxy")).filter(|file| file.is_file());
    let Some(haproxy) = places.into_iter().find_map(here) else {
        println!("skipped: haproxy is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("process");
    let text = format!(
        "[ \"$1\" = -v ] || {{ echo $$ >{0}.new; mv {0}.new {0}; }}\nexec {1} \"$@\"",
        note.display(),
        haproxy.display()
    );
    script(folder.path(), "haproxy", &text);
    let mut command = lab();
    command.args(["relay", "--load", "keep-alive", "--keep-alive", "4", "--forwarded", "50"]);
    command.args(["--subjects", "superpoll-epoll,haproxy", "--quick", "--seconds", "8"]);
    command.args(["--repetitions", "40", "--no-report", "--json", "record.json"]);
    command.current_dir(folder.path()).env("PATH", path_from(folder.path()));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let process = loop {
        let process = std::fs::read_to_string(&note).ok().and_then(|text| text.trim().parse().ok());
        match process {
            Some(process) => break process,
            None => assert!(Instant::now() < until, "haproxy was not started"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(has_worked(process, 3, until), "haproxy was not asked for anything");
    let kill =
        std::process::Command::new("sh").args(["-c", &format!("kill -9 {process}")]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let record = json(&folder.path().join("record.json"));
    is_noted(&record, &errors, "haproxy failed and is left out from there on: ");
    assert_eq!(subjects(&record), ["superpoll-epoll"]);
    assert_eq!(record["rows"][0]["haproxy_ratio"], Value::Null);
}
