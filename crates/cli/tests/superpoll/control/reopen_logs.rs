//! `superpoll reopen-logs` and SIGUSR1: logs are rotated apart from the configuration.

use std::fs;
use std::path::Path;

use super::{Stage, status};
use crate::stage::{Server, get, run, until};

const LOGS: &str =
    "[access_log]\npath = \"access.log\"\nformat = \"json\"\n[log]\npath = \"error.log\"";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number of requests with this target in a log.
fn requests(path: &Path, target: &str) -> usize {
    text(path).matches(&format!("\"{target}\"")).count()
}

/// Sends requests, so that all processes have some.
fn ask(server: &Server, target: &str) -> usize {
    for _ in 0..8 {
        get(&mut server.connect(), target);
    }
    8
}

/// The ways to make a server open its logs again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Command,
    Signal,
    /// A reload, of a file with a mistake.
    RefusedReload,
}

#[test]
fn logs_are_reopened_in_all_processes_although_the_file_on_disk_has_a_mistake() {
    for processes in [1, 2] {
        let stage = Stage::new();
        let server = stage.start_with(processes, LOGS);
        let path = |name: &str| stage.site.path(name);
        let (access, error) = (path("access.log"), path("error.log"));
        let mut round = 0;
        for way in [Way::Command, Way::Signal, Way::RefusedReload] {
            round += 1;
            let target = format!("/text.txt?{round}");
            let count = ask(&server, &target);
            until("the lines are written", || requests(&access, &target) == count);
            let moved = [path(&format!("access.{round}")), path(&format!("error.{round}"))];
            fs::rename(&access, &moved[0]).unwrap();
            fs::rename(&error, &moved[1]).unwrap();
            // A route that must not be served, and a mistake.
            let half = "[[hosts.routes]]\npath = \"/small\"\nredirect = { to = \"/x\" }\nhalf [";
            stage.configure(&format!("processes = {processes}"), half);
            match way {
                Way::Command => {
                    let told = run(&mut stage.command("reopen-logs", &[]));
                    for path in [&access, &error] {
                        assert!(told.contains(&format!("reopened {}\n", path.display())), "{told}");
                    }
                }
                Way::Signal => server.signal("USR1"),
                Way::RefusedReload => server.signal("HUP"),
            }
            let name = access.display().to_string();
            let says = || text(&error).matches(&format!("reopened the log {name}")).count();
            until("all processes have reopened it", || says() == processes);
            if way != Way::RefusedReload {
                assert_eq!(status(&stage.stats)["reload"], serde_json::Value::Null, "{way:?}");
            }
            let before = text(&moved[0]);
            let later = format!("/small?{round}");
            let count = ask(&server, &later);
            until("the lines are in the new file", || requests(&access, &later) == count);
            assert_eq!(text(&moved[0]), before, "{way:?}: the former file has further lines");
            assert!(!text(&access).contains("\"status\":308"), "half a configuration is served");
        }
        // The refusal, which may still wait to be written, is in one of the two files.
        let told = text(&path("error.3")) + &text(&error);
        assert!(told.contains("still serving the previous configuration"), "{told}");
        server.signal("TERM");
        assert!(server.ended().0.success());
    }
}

#[test]
fn a_log_that_cannot_be_reopened_is_named_and_goes_on() {
    let stage = Stage::new();
    fs::create_dir(stage.site.path("logs")).unwrap();
    let server = stage.start_with(1, "[access_log]\npath = \"logs/access.log\"");
    let (folder, aside) = (stage.site.path("logs"), stage.site.path("aside"));
    fs::rename(&folder, &aside).unwrap();
    let output = stage.command("reopen-logs", &[]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("reopening the access log ") && errors.contains("No such"), "{errors}");
    get(&mut server.connect(), "/text.txt?later");
    until("the log goes on", || text(&aside.join("access.log")).contains("/text.txt?later"));
    server.signal("TERM");
    assert!(server.ended().0.success());
}

#[test]
fn a_server_without_a_log_in_a_file_says_so() {
    let stage = Stage::new();
    let server = stage.start(1);
    let told = run(&mut stage.command("reopen-logs", &[]));
    assert_eq!(told, "there is no log in a file\n");
    server.signal("TERM");
    assert!(server.ended().0.success());
}
