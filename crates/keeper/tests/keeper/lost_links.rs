//! Servers next to a keeper that misbehave: one that has lost its link and lives on, and one
//! that does not read the orphans that it is handed.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use superpoll_keeper::{
    Adopted, Control, Error, Keeper, KeeperEvent, KeeperLink, Listener, Notice, Options, Request,
    Role, VERSION, Watching,
};
use superpoll_test_support::{start, until};

const PATIENCE: Duration = Duration::from_secs(20);

/// The variable with the path of the keeper, for a child process that runs this program again.
const KEEPER_AT: &str = "SUPERPOLL_TEST_KEEPER";

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A keeper that listens, in a thread of its own.
struct Listening {
    _folder: tempfile::TempDir,
    path: PathBuf,
    events: Receiver<KeeperEvent>,
}

fn keeper(grace: Duration) -> Listening {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper");
    let (sender, events) = mpsc::channel();
    let report = move |event: &KeeperEvent| drop(sender.send(event.clone()));
    let options = Options { grace, ends: false, ..Options::default() };
    let mut keeper = Keeper::new(options, report).unwrap();
    keeper.listen(Listener::bind(&path).unwrap()).unwrap();
    std::thread::spawn(|| keeper.run());
    Listening { _folder: folder, path, events }
}

impl Listening {
    fn waiting(&self) -> u64 {
        Control::connect(&self.path, 99).unwrap().waiting()
    }
}

fn ask(link: &KeeperLink, request: &Request<'_>, descriptors: &[&dyn AsFd]) {
    let packet = request.encode();
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    link.send_until(soon(), &packet, &descriptors).unwrap();
}

fn sync(link: &KeeperLink) {
    ask(link, &Request::Sync(7), &[]);
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    until("it does not answer", || {
        let is_there = link.receive(&mut packet, &mut descriptors).is_ok();
        is_there && matches!(Notice::decode(&packet), Ok(Notice::Synced(7, _)))
    });
}

/// A server in a process of its own, which has left a connection and a record and then follows
/// orders.
struct Server {
    child: Child,
}

impl Server {
    fn start(path: &Path) -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "lost_links::a_server_of_another_test",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(KEEPER_AT, path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Server { child: start(&mut command) };
        server.says("it has left something");
        server
    }

    fn says(&mut self, what: &str) {
        let mut output = BufReader::new(self.child.stdout.as_mut().unwrap());
        let mut line = String::new();
        while !line.contains(what) {
            assert!(output.read_line(&mut line).unwrap() > 0, "{line}");
        }
    }

    fn send_command(&mut self, what: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{what}").unwrap();
        self.says(&format!("done: {what}"));
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the code of a child process.
#[test]
fn a_server_of_another_test() {
    let Some(path) = std::env::var_os(KEEPER_AT) else { return };
    let mut control = Control::connect(Path::new(&path), 1).unwrap();
    control.adopt(false).unwrap();
    let link = control.link().unwrap();
    // A listener has no peer, whose end would be its own end.
    let kept = TcpListener::bind("127.0.0.1:0").unwrap();
    let watching = Watching { key: 1, events: 1, number: -1, state: b"left" };
    ask(&link, &Request::Watch(vec![watching]), &[&kept]);
    control.keep(1, 1, b"record").unwrap();
    sync(&link);
    println!("it has left something");
    let (mut control, mut link) = (Some(control), Some(link));
    for said in std::io::stdin().lines() {
        let said = said.unwrap();
        match said.as_str() {
            "lose the links" => drop((link.take(), control.take())),
            "give up" => {
                link.take().unwrap().revoke();
                control.take().unwrap().give_up();
            }
            "revoke the loop's link" => {
                let link = link.take().unwrap();
                link.revoke();
                // A message on the link comes too late, or not at all.
                drop(link);
            }
            other => panic!("{other}"),
        }
        println!("done: {said}");
    }
}

/// A successor that takes its time, in a thread of its own.
fn successor(path: &Path) -> std::thread::JoinHandle<Result<Adopted, Error>> {
    let path = path.to_path_buf();
    std::thread::spawn(move || Control::connect(&path, 2).unwrap().adopt(true))
}

#[test]
fn descriptors_of_a_server_that_lost_its_link_are_handed_over_when_it_ends() {
    let keeper = keeper(PATIENCE);
    let mut server = Server::start(&keeper.path);
    server.send_command("lose the links");
    until("its link is still there", || keeper.waiting() == 1);
    let successor = successor(&keeper.path);
    // The successor has asked by then, unless the machine is busy; in that case the test shows
    // less.
    for _ in 0..100 {
        keeper.waiting();
    }
    assert!(!successor.is_finished(), "it is handed descriptors that another server still has");
    server.kill();
    let adopted = successor.join().unwrap().unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (1, 1));
    assert_eq!(adopted.orphans[0].state[..], *b"left");
}

#[test]
fn a_live_server_without_a_link_keeps_its_descriptors_and_a_successor_gets_none() {
    let keeper = keeper(Duration::from_millis(100));
    let mut server = Server::start(&keeper.path);
    server.send_command("lose the links");
    let successor = successor(&keeper.path);
    match successor.join().unwrap() {
        // After the grace period nothing is left of it; before, the keeper waits for it.
        Ok(adopted) => assert_eq!((adopted.orphans.len(), adopted.records.len()), (0, 0)),
        Err(Error::Refused { why, .. }) => {
            let number = server.child.id().to_string();
            assert!(why.contains("is still at work") && why.contains(&number), "{why}");
        }
        Err(error) => panic!("{error}"),
    }
    until("it is kept", || keeper.waiting() == 0);
    server.kill();
    let adopted = Control::connect(&keeper.path, 3).unwrap().adopt(true).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (0, 0));
}

#[test]
fn void_descriptors_are_handed_to_no_server_however_its_server_ends() {
    let keeper = keeper(PATIENCE);
    let mut server = Server::start(&keeper.path);
    server.send_command("revoke the loop's link");
    server.kill();
    let adopted = Control::connect(&keeper.path, 2).unwrap().adopt(true).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (0, 1));
    drop(adopted);

    let keeper = self::keeper(PATIENCE);
    let mut server = Server::start(&keeper.path);
    server.send_command("give up");
    server.kill();
    let adopted = Control::connect(&keeper.path, 2).unwrap().adopt(true).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (0, 0));
}

#[test]
fn a_session_is_that_of_one_process() {
    let keeper = keeper(PATIENCE);
    let _server = Server::start(&keeper.path);
    let error = Control::connect(&keeper.path, 1).unwrap_err().to_string();
    assert!(error.contains("session 1 is that of process"), "{error}");
}

#[test]
fn a_successor_that_does_not_read_delays_no_other_server() {
    let keeper = keeper(PATIENCE);
    {
        let mut control = Control::connect(&keeper.path, 1).unwrap();
        control.adopt(true).unwrap();
        // More than a link has room for.
        for id in 0..64 {
            control.keep(1, id, &vec![b'x'; 60_000]).unwrap();
        }
        while control.is_behind() {
            control.catch_up().unwrap();
        }
    }
    let stuck = KeeperLink::connect(&keeper.path).unwrap();
    let hello = Request::Hello { role: Role::Control, session: 2 }.encode();
    let first = [&b"superpollsit"[..], &VERSION.to_le_bytes(), &hello].concat();
    stuck.send(&first, &[]).unwrap();
    ask(&stuck, &Request::Adopt { upgrades: true }, &[]);
    let other = Control::connect(&keeper.path, 3).unwrap();
    let link = other.link().unwrap();
    for _ in 0..10 {
        sync(&link);
    }
    // All of that happened while the keeper waited for it: at the end of the wait it would have
    // been refused.
    let refused = |event: &KeeperEvent| matches!(event, KeeperEvent::Refused { .. });
    assert!(!keeper.events.try_iter().any(|event| refused(&event)));
    // Meanwhile another server is told that it is not alone, and when that one has gone nothing is
    // lost.
    let error = Control::connect(&keeper.path, 4).unwrap().adopt(true).unwrap_err().to_string();
    assert!(error.contains("about to take over"), "{error}");
    drop((stuck, link, other));
    until("no server is handed it", || {
        let adopted = Control::connect(&keeper.path, 5).unwrap().adopt(true);
        adopted.is_ok_and(|adopted| adopted.records.len() == 64)
    });
}
