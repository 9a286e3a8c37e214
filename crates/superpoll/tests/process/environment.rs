//! The back-end and the policy that the environment chooses.

use std::process::Command;

use superpoll::backend::policy::{POLICY_VARIABLE, PolicyKind};
use superpoll::{BackendKind, Poller};

/// Run by the test below, in a process with an environment of its own.
#[test]
fn child_prints_its_back_end() {
    match Poller::new() {
        Ok(poller) => {
            println!("back-end={};", poller.backend());
            println!("policy={};", PolicyKind::from_environment().unwrap());
        }
        Err(error) => println!("error={error};"),
    }
}

#[test]
fn the_environment_chooses_where_the_program_does_not() {
    let run = |value: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "environment::child_prints_its_back_end", "--nocapture"]);
        command.env_remove(superpoll::backend::BACKEND_VARIABLE).env_remove(POLICY_VARIABLE);
        if let Some(value) = value {
            command.env(superpoll::backend::BACKEND_VARIABLE, value);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(run(None).contains("back-end=adaptive;"));
    assert!(run(Some("")).contains("back-end=adaptive;"));
    for kind in BackendKind::available() {
        assert!(run(Some(kind.name())).contains(&format!("back-end={kind};")));
    }
    let chosen = run(Some("auto"));
    assert!(["adaptive", "uring"].iter().any(|name| chosen.contains(&format!("back-end={name};"))));
    let refused = run(Some("devpoll"));
    assert!(refused.contains("error=") && refused.contains("devpoll"), "{refused}");
    assert!(refused.contains("select, poll, epoll, adaptive"), "{refused}");
}

#[test]
fn the_environment_chooses_a_policy_where_the_program_does_not() {
    let run = |backend: &str, policy: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "environment::child_prints_its_back_end", "--nocapture"]);
        command.env(superpoll::backend::BACKEND_VARIABLE, backend).env(POLICY_VARIABLE, policy);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for policy in ["adaptive", "idle-server", "media-server", "hot_atr=0.25,cold_atr=0.5,hold=9"] {
        assert!(run("adaptive", policy).contains(&format!("policy={policy};")));
    }
    assert!(run("", "").contains("policy=adaptive;"));
    for wrong in ["busy", "hot_atr=2", "hot_atr=0.9,cold_atr=0.1"] {
        let refused = run("adaptive", wrong);
        assert!(refused.contains("error=no placement policy is") && refused.contains(wrong));
    }
}
