//! A keeper from the outside: the descriptors that are left with it, and its notices.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_keeper::{
    Control, Error, FULL, Keeper, KeeperEvent, KeeperLink, Listener, Notice, Options, Request,
    VERSION, Watching,
};
use superpoll_test_support::until;

mod full_link;
mod succession;

const PATIENCE: Duration = Duration::from_secs(10);
const IN: u32 = 1;
const OUT: u32 = 4;
const HUP: u32 = 0x10;

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A keeper that listens, in a thread of its own.
struct Listening {
    _folder: tempfile::TempDir,
    path: PathBuf,
    events: Receiver<KeeperEvent>,
    thread: JoinHandle<io::Result<()>>,
    /// A link that says nothing, and is there before the keeper runs: a keeper that nobody has
    /// connected to in time ends, however late the test gets to connect.
    held: Option<KeeperLink>,
}

fn keeper(orphans: Duration) -> Listening {
    keeper_with(Options { orphans, ..Options::default() })
}

fn keeper_with(options: Options) -> Listening {
    start(options, true)
}

fn start(options: Options, is_held: bool) -> Listening {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper");
    let (sender, events) = mpsc::channel();
    let report = move |event: &KeeperEvent| drop(sender.send(event.clone()));
    let mut keeper = Keeper::new(options, report).unwrap();
    keeper.listen(Listener::bind(&path).unwrap()).unwrap();
    let held = is_held.then(|| KeeperLink::connect(&path).unwrap());
    let thread = std::thread::spawn(|| keeper.run());
    Listening { _folder: folder, path, events, thread, held }
}

impl Listening {
    fn until(&self, is_meant: impl Fn(&KeeperEvent) -> bool) -> KeeperEvent {
        loop {
            let event = self.events.recv_timeout(PATIENCE).expect("it happens");
            if is_meant(&event) {
                return event;
            }
        }
    }

    /// Waits until it ends, once no link and no orphan is left.
    fn end(self) {
        drop(self.held);
        until("the keeper ends", || self.thread.is_finished());
        self.thread.join().unwrap().unwrap();
        assert!(!self.path.exists());
    }
}

fn ask(link: &KeeperLink, request: &Request<'_>, descriptors: &[&dyn AsFd]) {
    let packet = request.encode();
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    link.send_until(soon(), &packet, &descriptors).unwrap();
}

/// Receives the next notice, and returns the result of `look`.
fn receive<R>(link: &KeeperLink, look: impl FnOnce(Notice<'_>) -> R) -> R {
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    loop {
        assert!(link.wait(false, soon()).unwrap(), "nothing is said");
        match link.receive(&mut packet, &mut descriptors) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => {
                assert!(received.unwrap().length > 0, "the link has ended");
                return look(Notice::decode(&packet).unwrap());
            }
        }
    }
}

fn ready(link: &KeeperLink) -> Vec<(u64, u32)> {
    receive(link, |notice| match notice {
        Notice::Ready(ready) => ready,
        other => panic!("{other:?}"),
    })
}

fn watching(key: u64, number: i32, state: &[u8]) -> Watching<'_> {
    Watching { key, events: IN, number, state }
}

/// Waits until the keeper has handled all requests so far.
fn sync(link: &KeeperLink) -> superpoll_keeper::Sums {
    ask(link, &Request::Sync(7), &[]);
    receive(link, |notice| match notice {
        Notice::Synced(7, sums) => sums,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_keeper_thread_watches_numbers_and_reports_ready_ones() {
    let (link, theirs) = KeeperLink::pair().unwrap();
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    keeper.work_for(theirs).unwrap();
    let thread = std::thread::spawn(|| keeper.run());
    let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    let all = (0..3).map(|key| watching(key as u64, pairs[key].0.as_raw_fd(), b"")).collect();
    ask(&link, &Request::Watch(all), &[]);
    ask(&link, &Request::Forget(vec![2, 99]), &[]);
    assert_eq!(sync(&link).len, 2);
    (&pairs[2].1).write_all(b"x").unwrap();
    (&pairs[1].1).write_all(b"x").unwrap();
    assert_eq!(ready(&link), [(1, IN)]);
    // The keeper does not watch it until it is asked to again.
    (&pairs[1].1).write_all(b"y").unwrap();
    let sums = sync(&link);
    assert_eq!((sums.len, sums.active), (1, 1));
    assert!(sums.watched >= 2);
    // A descriptor that is ready already is reported at once, and an invalid one is returned.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let all = vec![
        watching(1, pairs[1].0.as_raw_fd(), b""),
        watching(5, -1, b""),
        watching(6, file.as_raw_fd(), b""),
    ];
    ask(&link, &Request::Watch(all), &[]);
    let returned = receive(&link, |notice| match notice {
        Notice::Returned(returned) => returned,
        other => panic!("{other:?}"),
    });
    assert_eq!(returned, [(5, 9), (6, 1)]);
    assert_eq!(ready(&link), [(1, IN)]);
    drop(pairs);
    drop(link);
    thread.join().unwrap().unwrap();
}

#[test]
fn orphans_are_dropped_when_no_server_comes_in_time() {
    let keeper = keeper(Duration::from_millis(50));
    let (kept, mut peer) = UnixStream::pair().unwrap();
    let control = Control::connect(&keeper.path, 1).unwrap();
    let link = control.link().unwrap();
    ask(&link, &Request::Watch(vec![watching(1, -1, b"")]), &[&kept]);
    sync(&link);
    drop((link, control, kept));
    keeper.until(|event| *event == KeeperEvent::Dropped { orphans: 1 });
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    keeper.end();
}

#[test]
fn a_client_of_another_protocol_is_refused_with_the_reason() {
    let keeper = keeper(PATIENCE);
    let refused = |packet: &[u8]| {
        let link = KeeperLink::connect(&keeper.path).unwrap();
        link.send(packet, &[]).unwrap();
        let event = keeper.until(|event| matches!(event, KeeperEvent::Refused { .. }));
        let KeeperEvent::Refused { why, .. } = event else { unreachable!() };
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        assert!(link.wait(false, soon()).unwrap());
        assert!(link.receive(&mut packet, &mut descriptors).unwrap().length > 0);
        assert!(String::from_utf8_lossy(&packet).contains(&why));
        assert!(link.wait(false, soon()).unwrap());
        assert_eq!(link.receive(&mut packet, &mut descriptors).unwrap().length, 0);
        why
    };
    let why = refused(b"GET / HTTP/1.1\r\n\r\n");
    assert!(why.contains("spoken to in another way"), "{why}");
    let mut other = b"superpollsit".to_vec();
    other.extend((VERSION + 1).to_le_bytes());
    let why = refused(&other);
    assert!(why.contains("the same release of both"), "{why}");

    let control = Control::connect(&keeper.path, 1).unwrap();
    let link = control.link().unwrap();
    let (one, _peer) = UnixStream::pair().unwrap();
    let all = vec![watching(1, -1, b""), watching(2, -1, b"")];
    ask(&link, &Request::Watch(all), &[&one]);
    let why = receive(&link, |notice| match notice {
        Notice::Refused(why) => why.to_owned(),
        other => panic!("{other:?}"),
    });
    assert!(why.contains("as many descriptors"), "{why}");
    control.bye().unwrap();
    keeper.end();
}

#[test]
fn descriptors_that_share_an_inode_are_watched_separately() {
    let keeper = keeper(PATIENCE);
    let control = Control::connect(&keeper.path, 1).unwrap();
    let link = control.link().unwrap();
    // Both ends of a pipe, and a socket twice.
    let (reader, writer) = io::pipe().unwrap();
    let (socket, peer) = UnixStream::pair().unwrap();
    let twin = socket.try_clone().unwrap();
    let all = (0..4).map(|key| watching(key, -1, b"")).collect();
    ask(&link, &Request::Watch(all), &[&reader, &writer, &socket, &twin]);
    assert_eq!(sync(&link).len, 4);
    (&writer).write_all(b"x").unwrap();
    assert_eq!(ready(&link), [(0, IN)]);
    (&peer).write_all(b"x").unwrap();
    let mut both = ready(&link);
    if both.len() == 1 {
        both.extend(ready(&link));
    }
    both.sort_unstable();
    assert_eq!(both, [(2, IN), (3, IN)]);
    assert_eq!(sync(&link).len, 1);
    control.bye().unwrap();
    drop(link);
    keeper.end();
}

#[test]
fn a_hang_up_is_reported_like_other_readiness() {
    let (link, theirs) = KeeperLink::pair().unwrap();
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    keeper.work_for(theirs).unwrap();
    let thread = std::thread::spawn(|| keeper.run());
    let (one, other) = UnixStream::pair().unwrap();
    let writable = Watching { events: OUT, ..watching(1, one.as_raw_fd(), b"") };
    one.set_nonblocking(true).unwrap();
    while (&one).write(&[0; 4096]).is_ok() {}
    ask(&link, &Request::Watch(vec![writable]), &[]);
    sync(&link);
    // Half a hang-up is reported only if it was asked for.
    other.shutdown(Shutdown::Write).unwrap();
    assert_eq!(sync(&link).len, 1);
    drop(other);
    let ready = ready(&link);
    assert!(ready.len() == 1 && ready[0].1 & HUP != 0, "{ready:?}");
    ask(&link, &Request::Bye, &[]);
    thread.join().unwrap().unwrap();
}

#[test]
fn a_keeper_without_clients_ends() {
    start(Options { orphans: Duration::from_millis(20), ..Options::default() }, false).end();
}

#[test]
fn no_packet_stops_it() {
    let keeper = keeper(PATIENCE);
    let control = Control::connect(&keeper.path, 1).unwrap();
    let (one, mut other) = UnixStream::pair().unwrap();
    let holder = control.link().unwrap();
    ask(&holder, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&one]);
    sync(&holder);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let valid: Vec<Vec<u8>> = [
        Request::Watch(vec![watching(1, -1, b"state"), watching(2, 0, b"")]),
        Request::Forget(vec![1, 2, 3]),
        Request::Sync(7),
        Request::TrimRecords { space: 1, below: 2 },
        Request::Yielded,
        Request::Settled,
        Request::Bye,
    ]
    .iter()
    .map(Request::encode)
    .collect();
    for round in 0..400 {
        // On the link of a stranger, or of a client that has introduced itself.
        let stranger;
        let known;
        let link = if round % 4 == 0 {
            stranger = KeeperLink::connect(&keeper.path).unwrap();
            &stranger
        } else {
            known = control.link().unwrap();
            &known
        };
        for _ in 0..1 + random(4) {
            let mut packet = valid[random(valid.len())].clone();
            for _ in 0..random(4) {
                let at = random(packet.len());
                packet[at] = random(256) as u8;
            }
            packet.truncate(1 + random(packet.len()));
            packet.resize(packet.len() + random(3) * random(40_000), 0xff);
            let descriptors = [one.as_fd()];
            let some = random(2);
            if link.send_until(soon(), &packet, &descriptors[..some]).is_err() {
                // It has been refused.
                break;
            }
        }
    }
    // The first link is unharmed, and so is the descriptor that was left on it.
    assert_eq!(sync(&holder).len, 1);
    other.write_all(b"x").unwrap();
    assert_eq!(ready(&holder), [(1, IN)]);
    drop(holder);
    control.bye().unwrap();
    keeper.end();
}
