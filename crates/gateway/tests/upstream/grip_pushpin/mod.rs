//! The gateway next to pushpin, whose protocol GRIP is: with the same application, publications and
//! clients, both must say the same to all of them.
//!
//! Deliberate differences are listed (`differences`). A listed one that is no longer there fails
//! the test, too.

mod differences;
mod pushpin;
mod script;
mod scripts;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use superpoll_gateway::config::KeySource;
use superpoll_hub::channel::GripKey;
use superpoll_rt::BackendKind;

use crate::gateway::Gateway;
use crate::grip::KEY;
use crate::origin::Origin;
use differences::{DIFFERENCES, Difference};
use pushpin::Pushpin;
use script::{POLLS, Script, Subject, app, run};

/// The scripts that run with a server at a time.
const AT_A_TIME: usize = 6;

/// The gateway. Each script has a key of its own, as its subscribers are counted.
struct Ours {
    gateway: Gateway,
    app: Origin,
}

fn key_of(script: &str) -> String {
    format!("{KEY}, for {script}")
}

impl Ours {
    fn start(scripts: &Arc<Vec<Script>>) -> Ours {
        let app = app(scripts.clone());
        let mut text = "[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n".to_owned();
        for Script { name, .. } in scripts.iter() {
            let key = key_of(name);
            write!(
                text,
                "[[hosts.routes]]\npath = \"/{name}\"\n\
                 proxy = {{ upstream = \"app\", grip = {{ key = {key:?} }} }}\n\
                 [[hosts.routes]]\npath = \"/control/{name}\"\ngrip = {{ key = {key:?} }}\n"
            )
            .unwrap();
        }
        write!(text, "[upstreams.app]\nservers = [{{ address = \"{}\" }}]\n", app.address).unwrap();
        Ours { gateway: Gateway::start(BackendKind::Adaptive, &text), app }
    }
}

impl Subject for Ours {
    fn front(&self) -> &str {
        &self.gateway.address
    }

    fn control(&self, script: &str) -> (String, String, String) {
        let own = format!("Authorization: Bearer {}\r\n", key_of(script));
        (self.gateway.address.clone(), format!("/control/{script}"), own)
    }

    fn app(&self) -> &Origin {
        &self.app
    }

    fn key(&self, script: &str) -> String {
        key_of(script)
    }

    fn is_held(&self, script: &str, _mode: &str, _channel: &str, _times: usize) -> bool {
        let path = GripKey::path(&KeySource::Text(key_of(script)));
        self.gateway.call(move |_, server| {
            server.channel("*grip", &path).is_some_and(|log| log.subscribers() > 0)
        })
    }

    fn has_left(&self, _channel: &str) -> bool {
        // It has, before the client gets a message that follows.
        true
    }
}

struct Theirs {
    pushpin: Pushpin,
    app: Origin,
}

impl Theirs {
    fn start(scripts: &Arc<Vec<Script>>) -> Theirs {
        let app = app(scripts.clone());
        let pushpin = Pushpin::start(&app.address, KEY);
        let channels: Vec<String> = scripts.iter().flat_map(Script::channels).collect();
        pushpin.prepare(POLLS, &channels);
        Theirs { pushpin, app }
    }
}

impl Subject for Theirs {
    fn front(&self) -> &str {
        &self.pushpin.front
    }

    fn control(&self, _script: &str) -> (String, String, String) {
        (self.pushpin.control.clone(), "/publish/".to_owned(), String::new())
    }

    fn app(&self) -> &Origin {
        &self.app
    }

    fn key(&self, _script: &str) -> String {
        KEY.to_owned()
    }

    fn is_held(&self, _script: &str, mode: &str, channel: &str, times: usize) -> bool {
        self.pushpin.subscribed(mode, channel) >= times
    }

    fn has_left(&self, channel: &str) -> bool {
        self.pushpin.unsubscribed("ws", channel) > 0
    }
}

/// Runs all scripts with a server, and returns their transcripts.
fn run_all(scripts: &[Script], subject: &dyn Subject) -> Vec<Vec<String>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); scripts.len()]));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(script) = scripts.get(number) else { return };
                    let lines = run(script, subject);
                    found.lock().unwrap()[number] = lines;
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Puts the gateway's lines in the place of pushpin's where these differ deliberately, and counts
/// the scripts with each difference.
fn settle(theirs: &[String], script: &Script, found: &mut [usize]) -> Vec<String> {
    let mut lines = theirs.to_vec();
    for (difference, count) in DIFFERENCES.iter().zip(found) {
        let Difference { scripts, pushpin, ours, .. } = difference;
        if !scripts.is_empty() && !scripts.contains(&script.name) {
            continue;
        }
        let named = |text: &str| -> Vec<String> {
            text.lines().map(|line| script.named(line.trim())).collect()
        };
        let (from, to) = (named(pushpin), named(ours));
        if let Some(place) = lines.windows(from.len()).position(|some| some == from) {
            lines.splice(place..place + from.len(), to);
            *count += 1;
        }
    }
    lines
}

#[test]
fn the_gateway_does_what_pushpin_does() {
    if let Some(why) = pushpin::absent() {
        return eprintln!("skipped: {why}");
    }
    let scripts = Arc::new(scripts::all());
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(|| run_all(&scripts, &Theirs::start(&scripts)));
        let ours = run_all(&scripts, &Ours::start(&scripts));
        (theirs.join().unwrap(), ours)
    });
    let (mut failed, mut found) = (String::new(), vec![0; DIFFERENCES.len()]);
    for (script, (theirs, ours)) in scripts.iter().zip(theirs.iter().zip(&ours)) {
        let fails = |lines: &[String]| lines.iter().any(|line| line.starts_with("FAILED"));
        let settled = settle(theirs, script, &mut found);
        if settled != *ours || fails(ours) || fails(theirs) {
            let (theirs, ours) = (theirs.join("\n    "), ours.join("\n    "));
            let name = script.name;
            write!(failed, "\n{name}\n  pushpin:\n    {theirs}\n  the gateway:\n    {ours}\n")
                .unwrap();
        }
    }
    for (Difference { scripts, pushpin, reason, .. }, count) in DIFFERENCES.iter().zip(found) {
        if count < scripts.len().max(1) {
            write!(failed, "\npushpin has no such lines {scripts:?} ({reason}):\n    {pushpin}\n")
                .unwrap();
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
