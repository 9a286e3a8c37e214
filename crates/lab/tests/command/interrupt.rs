//! An experiment that is interrupted.

use std::process::{Child, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::program;
use crate::record::json;
use crate::start::lab;

/// The bit of SIGINT in the masks of `/proc/PID/status`.
const INTERRUPT: u64 = 1 << 1;

/// The time after which a command that hangs fails the test: until it handles the interrupt, and
/// until it has ended after that.
const STARTS: Duration = Duration::from_secs(60);
const ENDS: Duration = Duration::from_secs(300);

/// Whether a process handles the interrupt.
fn handles_interrupt(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & INTERRUPT != 0)
}

/// Waits until a command handles the interrupt.
fn until_handled(mut child: Child) -> Child {
    let end = Instant::now() + STARTS;
    while !handles_interrupt(child.id()) {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            panic!("it ended before it was interrupted: {output:?}");
        }
        if Instant::now() > end {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("it does not handle the interrupt: {output:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    child
}

/// Waits until a command has ended.
fn output(child: Child) -> Output {
    let id = child.id().to_string();
    let (ended, output) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(ENDS) else {
        let _ = program("kill").args(["-KILL", &id]).status();
        // The servers of the experiment may keep the other end of its output open.
        let output = output.recv_timeout(Duration::from_secs(10));
        panic!("it goes on after the interrupt: {output:?}");
    };
    output.unwrap()
}

/// Interrupts an experiment of several points at once, and checks its exit code, its output and its
/// record.
fn interrupt(arguments: &[&str], subject: &str) {
    let folder = tempfile::tempdir().unwrap();
    let child = lab()
        .current_dir(folder.path())
        .args(arguments)
        .args(["--seconds", "600", "--json", "record.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let child = until_handled(child);
    let sent = program("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = output(child);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("interrupted by signal 2"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("incomplete") && text.contains(subject), "{text}");
    assert!(!text.contains("hold"), "a claim is judged: {text}");
    let record = json(&folder.path().join("record.json"));
    assert!(!record["rows"].as_array().unwrap().is_empty());
    assert!(record["parameters"]["interrupted"].is_string(), "{}", record["parameters"]);
    assert!(record["parameters"]["points_left_out"].as_u64() > Some(0));
    let page = std::fs::read_to_string(folder.path().join("superpoll-report/index.html")).unwrap();
    assert!(page.contains("incomplete: interrupted"));
}

#[test]
fn an_interrupted_experiment_writes_what_it_has() {
    interrupt(&["atr", "--total", "20", "--subjects", "floor,poll,epoll-lt"], "epoll-lt");
}

#[test]
fn an_interrupted_experiment_with_servers_writes_what_it_has() {
    interrupt(&["echo", "--connections", "1,2", "--subjects", "raw-epoll"], "raw-epoll");
}

#[test]
fn an_interrupted_experiment_judges_no_claim() {
    // The first kind decides one.
    let arguments = ["wake", "--kind", "all", "--total", "20", "--hot", "5"];
    interrupt(&[&arguments[..], &["--subjects", "poll,epoll-lt"]].concat(), "epoll-lt");
}
