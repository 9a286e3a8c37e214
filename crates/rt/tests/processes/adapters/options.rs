//! The messages of the examples when they cannot start.

use std::process::{Command, Output};

use super::example::{Example, path};
use superpoll_rt::BackendKind;

const EXAMPLES: [&str; 5] = ["echo", "http_echo", "tls_echo", "tower", "ws_echo"];

fn run(name: &str, arguments: &[&str]) -> Output {
    Command::new(path(name)).args(arguments).output().unwrap()
}

#[test]
fn bad_arguments_get_one_line_and_status_1() {
    let taken = Example::start("echo", BackendKind::Epoll);
    let taken = taken.address.to_string();
    for name in EXAMPLES {
        for (arguments, parts) in [
            (
                &["--backend", "kqueue"][..],
                &["--backend", "kqueue", "select, poll, epoll, adaptive"][..],
            ),
            (&["--listen", "here"], &["--listen", "here", "127.0.0.1:8080"]),
            (&["--listen", &taken], &["listening on", &taken, "in use"]),
            (&["--listen"], &["--listen", "argument"]),
            (&["--frobnicate"], &["--frobnicate", "--help"]),
            (&["stray"], &["stray", "--help"]),
        ] {
            let output = run(name, arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{name} {arguments:?}: {said}");
            for part in parts {
                assert!(said.contains(part), "{name} {arguments:?}: {said:?} lacks {part:?}");
            }
            assert!(output.stdout.is_empty(), "{name} {arguments:?}");
        }
    }
}

#[test]
fn help_names_the_options() {
    for name in EXAMPLES {
        let output = run(name, &["--help"]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        for part in ["--listen", "--backend", "select, poll, epoll, adaptive"] {
            assert!(said.contains(part), "{name}: {said}");
        }
    }
}
