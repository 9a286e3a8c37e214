//! Watching this process and others. Every test needs BPF, and is skipped with a printed reason
//! where the kernel does not permit it.

mod counts;
mod record;
mod trace;
mod verdicts;

use superpoll_watch::{Error, Subject, Watch};

/// Attaches, or prints why this machine does not let the tests do so.
fn attach(subject: Subject) -> Option<Watch> {
    match Watch::attach(subject) {
        Ok(watch) => Some(watch),
        Err(error @ (Error::NotPermitted(_) | Error::NoBpf { .. } | Error::Namespace)) => {
            // A program that the verifier refuses is a mistake of ours.
            assert!(!error.to_string().contains("processed"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
