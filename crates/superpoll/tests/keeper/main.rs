//! Pollers with a keeper, in a thread and in a process: which descriptors leave and come back,
//! and how everything goes on when the keeper is lost, is full, or has no room.
//!
//! One test at a time, because descriptors of the whole process are counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use superpoll::backend::policy::{Fixed, Set};
use superpoll::backend::{KeeperStatus, Profile, Rule, Topology, Tuning};
use superpoll::diagnostics::Costs;
use superpoll::{BackendKind, Error, Events, Interest, Key, Mode, Poller, Watch};
use superpoll_keeper::{Control, FULL, Keeper, KeeperLink, Listener, Notice, Options, STATE};
use superpoll_test_support::until;

mod exchanged;
mod goodbye;
mod kinds;
mod limits;
mod patience;
mod played;
mod returned;
mod states;
// Other tests use the rest of it.
#[allow(dead_code)]
#[path = "../sys/mod.rs"]
mod sys;

use patience::{Patient, patiently};

const PATIENCE: Duration = Duration::from_secs(20);
const ZERO: Option<Duration> = Some(Duration::ZERO);

/// Everything leaves with the first wait that does not report it.
const RESTLESS: Tuning = Tuning {
    idle: Duration::ZERO,
    batch: 1,
    rule: Rule::Regret { within: 4, doublings: 6 },
    only_with_state: false,
};

/// Where a child process is to listen, which is this program again.
const LISTENS: &str = "SUPERPOLL_TEST_KEEPER";

static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A poller that keeps nothing in its array, because descriptors leave only from the epoll set.
fn poller(topology: Topology) -> Patient {
    let builder = Poller::builder().policy(Fixed::new(Set::Cold)).costs(Costs::ASSUMED);
    Patient(builder.topology(topology).build().unwrap())
}

fn descriptors_of(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Connections, one end of each watched by the poller.
struct Connections {
    keys: Vec<Key>,
    mine: Vec<UnixStream>,
    theirs: Vec<UnixStream>,
}

impl Connections {
    fn new(poller: &mut Poller, count: usize) -> Connections {
        let pairs = (0..count).map(|_| UnixStream::pair().unwrap());
        let (mine, theirs): (Vec<_>, Vec<_>) = pairs.unzip();
        let watch = Watch::new(Interest::READABLE).mode(Mode::Level);
        let keys = mine.iter().map(|mine| poller.register(mine, watch).unwrap()).collect();
        Connections { keys, mine, theirs }
    }

    /// Each end is reported once a byte is sent to it, and no other end is.
    fn assert_reported(&mut self, poller: &mut Poller, which: impl Iterator<Item = usize>) {
        let mut events = Events::with_limit(64);
        for place in which {
            self.theirs[place].write_all(b"x").unwrap();
            poller.wait(&mut events, Some(PATIENCE)).unwrap();
            let heard: Vec<Key> = events.iter().map(|event| event.key()).collect();
            assert_eq!(heard, [self.keys[place]], "connection {place}");
            self.mine[place].read_exact(&mut [0]).unwrap();
        }
    }
}

/// A keeper in a process of its own.
struct KeeperHandle {
    _folder: tempfile::TempDir,
    path: PathBuf,
    child: Child,
    /// Open until the keeper ends, so that its last output finds a reader.
    _said: BufReader<ChildStdout>,
}

impl KeeperHandle {
    /// With this many descriptors, if it should have few.
    fn start(limit: Option<usize>) -> KeeperHandle {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keeper");
        let mut command = again("a_keeper_of_another_test", limit);
        command.env(LISTENS, &path).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("it listens") {
            assert!(said.read_line(&mut line).unwrap() > 0, "the keeper does not begin: {line}");
        }
        KeeperHandle { _folder: folder, path, child, _said: said }
    }

    fn control(&self, session: u64) -> Control {
        Control::connect(&self.path, session).unwrap()
    }

    fn signal(&self, signal: libc::c_int) {
        let status = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program again, for one test, with a limit of descriptors.
fn again(test: &str, limit: Option<usize>) -> Command {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", test, "--nocapture", "--test-threads=1"];
    let Some(limit) = limit else {
        let mut command = Command::new(program);
        command.args(arguments);
        return command;
    };
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
    command.arg("-c").arg(script).arg(program).args(arguments);
    command
}

/// No test of its own: the program of a child process.
#[test]
fn a_keeper_of_another_test() {
    let Some(path) = std::env::var_os(LISTENS) else { return };
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    keeper.listen(Listener::bind(Path::new(&path)).unwrap()).unwrap();
    println!("it listens");
    keeper.run().unwrap();
}

/// Waits without blocking until as many are away.
fn leave(poller: &mut Poller, wanted: usize) {
    let mut events = Events::with_limit(64);
    until("they do not leave", || {
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
        poller.stats().away.len == wanted
    });
}

fn both(test: impl Fn(Topology)) {
    patiently(|| run_both(&test));
}

fn run_both(test: impl Fn(Topology)) {
    let _one = one_at_a_time();
    let before = descriptors_of(std::process::id());
    test(Topology::Thread(RESTLESS));
    assert_eq!(descriptors_of(std::process::id()), before, "descriptors are left over");
    let keeper = KeeperHandle::start(None);
    let control = keeper.control(1);
    let idle = descriptors_of(keeper.child.id());
    let mine = descriptors_of(std::process::id());
    test(Topology::Process(control.link().unwrap(), RESTLESS));
    assert_eq!(descriptors_of(std::process::id()), mine, "descriptors are left over");
    until("the keeper keeps descriptors", || descriptors_of(keeper.child.id()) == idle);
}

#[test]
fn idle_descriptors_leave_and_ready_ones_come_back() {
    both(|topology| {
        let mut poller = poller(topology);
        assert!(matches!(poller.keeper_status(), KeeperStatus::Present));
        // More than go into a packet.
        let count = FULL + 20;
        let mut all = Connections::new(&mut poller, count);
        leave(&mut poller, count);
        let stats = poller.stats();
        assert_eq!((stats.moves_away, stats.moves_back, stats.cold.len), (count as u64, 0, 0));
        assert!(poller.is_away(all.keys[0]) && stats.calls.sendmsg >= 2);
        all.assert_reported(&mut poller, (0..count).step_by(7));
        let stats = poller.stats();
        assert_eq!(stats.moves_back, count.div_ceil(7) as u64);
        assert_eq!(stats.away.active, stats.moves_back);
        assert!(stats.away.watched >= stats.away.active * (count as u64 / 2));
        // Bytes that were there before a flush are reported after it.
        for theirs in &mut all.theirs {
            theirs.write_all(b"x").unwrap();
        }
        poller.flush();
        assert_eq!(poller.stats().away.len, 0);
        let mut events = Events::with_limit(count);
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), count);
        assert_eq!(poller.stats().keeper_lost, 0);
    });
}

#[test]
fn a_change_or_an_end_recalls_a_descriptor_that_is_away() {
    both(|topology| {
        let mut poller = poller(topology);
        let mut all = Connections::new(&mut poller, 4);
        leave(&mut poller, 4);
        let before = poller.stats().calls;
        let watch = |mode| Watch::new(Interest::READABLE).mode(mode);
        poller.modify(all.keys[0], Interest::READABLE | Interest::WRITABLE).unwrap();
        poller.modify_watch(all.keys[1], watch(Mode::Edge)).unwrap();
        // Undone before the keeper learns of it.
        poller.modify(all.keys[2], Interest::NONE).unwrap();
        poller.modify(all.keys[2], Interest::READABLE).unwrap();
        poller.deregister(all.keys[3]).unwrap();
        let mut events = Events::with_limit(8);
        poller.wait(&mut events, Some(PATIENCE)).unwrap();
        assert!(events.find(all.keys[0]).is_some_and(|event| event.is_writable()));
        assert_eq!((events.len(), poller.is_away(all.keys[2])), (1, true));
        let calls = poller.stats().calls.since(&before);
        assert!((1..=2).contains(&calls.sendmsg) && calls.epoll_ctl_del == 0, "{calls}");
        // Only this test holds the file.
        drop(all.mine.remove(3));
        all.theirs[3].set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(all.theirs[3].read(&mut [0]).unwrap(), 0);
        assert!(poller.is_away(all.keys[2]));
        // An edge stays where it is.
        poller.modify(all.keys[0], Interest::READABLE).unwrap();
        leave(&mut poller, 2);
        assert!(!poller.is_away(all.keys[1]));
        all.assert_reported(&mut poller, [0, 1, 2].into_iter());
    });
}

#[test]
fn a_lost_keeper_loses_nothing() {
    let _one = one_at_a_time();
    let mut keeper = KeeperHandle::start(None);
    let control = keeper.control(1);
    let before = descriptors_of(std::process::id());
    let mut poller = poller(Topology::Process(control.link().unwrap(), RESTLESS));
    let mut all = Connections::new(&mut poller, 300);
    leave(&mut poller, 300);
    // Some stir while no keeper is there to see it, some before the end is seen.
    keeper.kill();
    for theirs in &mut all.theirs[..10] {
        theirs.write_all(b"x").unwrap();
    }
    let mut events = Events::with_limit(300);
    assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 10);
    let stats = poller.stats();
    assert_eq!((stats.keeper_lost, stats.away.len, stats.cold.len), (1, 0, 300));
    assert!(matches!(poller.keeper_status(), KeeperStatus::Lost(_)));
    for (key, mine) in all.keys.iter().zip(&mut all.mine[..10]) {
        assert!(events.find(*key).is_some());
        mine.read_exact(&mut [0]).unwrap();
    }
    // From here on it is as if there had never been one.
    all.assert_reported(&mut poller, (0..300).step_by(30));
    assert_eq!((poller.move_all_to_keeper(), poller.stats().away.len), (300, 0));
    poller.flush();
    drop((all, poller));
    assert_eq!(descriptors_of(std::process::id()), before);
}

#[test]
fn a_link_without_a_reader_fills_up_and_is_then_lost() {
    let _one = one_at_a_time();
    // A user may have as many descriptors in flight as one process may have open.
    superpoll::limits::raise_descriptors().unwrap();
    let before = descriptors_of(std::process::id());
    let (link, theirs) = KeeperLink::pair().unwrap();
    let mut poller = poller(Topology::Process(link, RESTLESS));
    let mut all = Connections::new(&mut poller, 8);
    let mut events = Events::with_limit(64);
    let read_write = Interest::READABLE | Interest::WRITABLE;
    until("the link is never full", || {
        // Called back, and away again.
        for &key in &all.keys {
            poller.modify(key, read_write).unwrap();
        }
        assert_eq!(poller.wait(&mut events, Some(PATIENCE)).unwrap(), 8);
        for &key in &all.keys {
            poller.modify(key, Interest::READABLE).unwrap();
        }
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
        poller.stats().keeper_full > 0
    });
    // No call waits for it.
    let stats = poller.stats();
    assert_eq!(stats.keeper_lost, 0);
    assert!(stats.moves_away > 8);
    // Those that could not leave are reported as ever.
    let (mine, mut other) = UnixStream::pair().unwrap();
    let key = poller.register(&mine, Interest::READABLE).unwrap();
    other.write_all(b"x").unwrap();
    poller.wait(&mut events, Some(PATIENCE)).unwrap();
    assert_eq!(events.iter().map(|event| event.key()).collect::<Vec<_>>(), [key]);
    poller.deregister(key).unwrap();
    // A call that needs an answer waits for a while, and gets everything back.
    poller.flush();
    assert_eq!((poller.stats().keeper_lost, poller.stats().away.len), (1, 0));
    all.assert_reported(&mut poller, 0..8);
    // Files that were under way are closed with the link.
    drop((poller, all.mine, theirs, mine));
    for theirs in &mut all.theirs {
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }
    drop((all.theirs, other));
    assert_eq!(descriptors_of(std::process::id()), before);
}

#[test]
fn descriptors_beyond_the_limit_of_the_keeper_come_back() {
    patiently(|| {
        let _one = one_at_a_time();
        let keeper = KeeperHandle::start(Some(40));
        let control = keeper.control(1);
        let mut poller = poller(Topology::Process(control.link().unwrap(), RESTLESS));
        let mut all = Connections::new(&mut poller, 100);
        poller.flush();
        let mut events = Events::with_limit(64);
        let here = poller.move_all_to_keeper();
        assert!((60..100).contains(&here), "{here} stay");
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
        all.assert_reported(&mut poller, 0..100);
        assert_eq!(poller.stats().keeper_lost, 0);
    });
}

#[test]
fn a_successor_gets_the_remaining_descriptors_with_their_states() {
    patiently(|| {
        let _one = one_at_a_time();
        let keeper = KeeperHandle::start(None);
        let mut control = keeper.control(1);
        let tuning = Tuning { only_with_state: true, ..Profile::Chat.into() };
        let mut poller = poller(Topology::Process(control.link().unwrap(), tuning));
        let mut all = Connections::new(&mut poller, 6);
        for (place, &key) in all.keys[..5].iter().enumerate() {
            poller.leave_state(key, format!("state {place}").as_bytes()).unwrap();
        }
        let long = vec![0; STATE + 1];
        let refused = poller.leave_state(all.keys[0], &long).unwrap_err();
        assert!(matches!(refused, Error::StateTooLong { .. }));
        // One is busy, one is disarmed, one has no state.
        all.theirs[0].write_all(b"x").unwrap();
        poller.modify(all.keys[1], Interest::NONE).unwrap();
        assert_eq!(poller.move_all_to_keeper(), 3);
        poller.deregister(all.keys[4]).unwrap();
        assert!(matches!(poller.leave_state(all.keys[4], b""), Err(Error::StaleKey { .. })));
        control.yielded().unwrap();
        // Its own end takes nothing away any more.
        drop(poller);
        let mut next = keeper.control(2);
        let mut states: Vec<_> =
            next.adopt(false).unwrap().orphans.into_iter().map(|one| one.state.to_vec()).collect();
        states.sort();
        assert_eq!(states, [b"state 2", b"state 3"]);
    });
}

#[test]
fn a_descriptor_that_needs_a_state_leaves_once_it_has_one() {
    let _one = one_at_a_time();
    let keeper = KeeperHandle::start(None);
    let control = keeper.control(1);
    let tuning = Tuning { only_with_state: true, ..RESTLESS };
    let mut poller = poller(Topology::Process(control.link().unwrap(), tuning));
    let mut all = Connections::new(&mut poller, 3);
    // A direction that is not wanted any more does not stir there either.
    let read_closed = Interest::READABLE | Interest::READ_CLOSED;
    poller.modify(all.keys[1], read_closed).unwrap();
    let mut events = Events::with_limit(8);
    for _ in 0..3 {
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
    }
    assert_eq!(poller.stats().moves_away, 0);
    poller.modify(all.keys[1], Interest::READABLE).unwrap();
    poller.leave_state(all.keys[1], b"state").unwrap();
    leave(&mut poller, 1);
    assert!(poller.is_away(all.keys[1]));
    all.assert_reported(&mut poller, 0..3);
    // It has come back, and its state was for that stay.
    for _ in 0..3 {
        assert_eq!(poller.wait(&mut events, ZERO).unwrap(), 0);
    }
    assert_eq!((poller.stats().moves_away, poller.stats().away.len), (1, 0));
}

#[test]
fn a_poller_that_ends_leaves_nothing_behind() {
    let _one = one_at_a_time();
    let keeper = KeeperHandle::start(None);
    let control = keeper.control(1);
    let mut poller = poller(Topology::Process(control.link().unwrap(), RESTLESS));
    let all = Connections::new(&mut poller, 5);
    leave(&mut poller, 5);
    drop(poller);
    drop(all.mine);
    for mut theirs in all.theirs {
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }
    assert_eq!(keeper.control(2).waiting(), 0);
}

#[test]
fn a_sleeping_loop_wakes_to_let_idle_descriptors_leave() {
    let _one = one_at_a_time();
    let tuning = Tuning { idle: Duration::from_millis(20), batch: 100, ..RESTLESS };
    let mut poller = poller(Topology::Thread(tuning));
    let mut all = Connections::new(&mut poller, 5);
    let mut events = Events::with_limit(8);
    until("no descriptor leaves", || {
        assert_eq!(poller.wait(&mut events, Some(Duration::from_millis(200))).unwrap(), 0);
        poller.stats().away.len == 5
    });
    // Once all have left there is nothing to wake up for.
    let before = poller.stats().calls.waits();
    assert_eq!(poller.wait(&mut events, Some(Duration::from_millis(200))).unwrap(), 0);
    assert_eq!(poller.stats().calls.waits() - before, 1);
    all.assert_reported(&mut poller, 0..5);
}

#[test]
fn an_idle_time_may_be_infinite() {
    let _one = one_at_a_time();
    for rule in [RESTLESS.rule, Rule::Threshold { idle_atr: f32::NAN }] {
        let tuning =
            Tuning { idle: Duration::MAX, rule, batch: usize::MAX, only_with_state: false };
        let mut poller = poller(Topology::Thread(tuning));
        let mut all = Connections::new(&mut poller, 2);
        let mut events = Events::with_limit(8);
        assert_eq!(poller.wait(&mut events, Some(Duration::from_millis(2))).unwrap(), 0);
        all.assert_reported(&mut poller, 0..2);
        assert_eq!(poller.stats().moves_away, 0);
    }
}

#[test]
fn only_the_adaptive_back_end_has_a_keeper() {
    let _one = one_at_a_time();
    let before = descriptors_of(std::process::id());
    for kind in BackendKind::available() {
        let builder = Poller::builder().backend(kind).costs(Costs::ASSUMED);
        match builder.topology(Topology::Thread(RESTLESS)).build() {
            Ok(poller) => assert_eq!(poller.backend(), "adaptive"),
            Err(error @ Error::Unsupported { .. }) => {
                let said = error.to_string();
                assert!(said.contains(kind.name()) && said.contains("adaptive"), "{said}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let auto = Poller::builder().backend(BackendKind::Auto).costs(Costs::ASSUMED);
    let auto = auto.topology(Topology::Thread(RESTLESS)).build().unwrap();
    assert_eq!(auto.backend(), "adaptive");
    assert!(matches!(Poller::new().unwrap().keeper_status(), KeeperStatus::None));
    drop(auto);
    assert_eq!(descriptors_of(std::process::id()), before);
}

#[test]
fn a_descriptor_that_was_closed_behind_its_back_harms_no_other() {
    both(|topology| {
        let mut poller = poller(topology);
        let mut all = Connections::new(&mut poller, 6);
        let (twin, other) = UnixStream::pair().unwrap();
        let number = poller.register(&twin, Interest::READABLE).unwrap();
        drop((twin, other));
        let mut events = Events::with_limit(8);
        until("the other descriptors do not leave", || {
            poller.wait(&mut events, ZERO).unwrap();
            poller.stats().away.len == 6
        });
        assert_eq!(poller.stats().keeper_lost, 0);
        assert!(!poller.is_away(number));
        all.assert_reported(&mut poller, 0..6);
    });
}
