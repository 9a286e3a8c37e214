//! A keeper from the outside: the descriptors that are left with it, its notices, and the
//! succession of servers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use superpoll_keeper::{
    Control, Error, FULL, Happening, Keeper, Line, Listener, Notice, Options, Request, VERSION,
    Watching,
};

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
    happenings: Receiver<Happening>,
    thread: JoinHandle<io::Result<()>>,
}

fn keeper(orphans: Duration) -> Listening {
    keeper_with(Options { orphans, ..Options::default() })
}

fn keeper_with(options: Options) -> Listening {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper");
    let (sender, happenings) = mpsc::channel();
    let report = move |happening: &Happening| drop(sender.send(happening.clone()));
    let mut keeper = Keeper::new(options, report).unwrap();
    keeper.listen(Listener::bind(&path).unwrap()).unwrap();
    let thread = std::thread::spawn(|| keeper.run());
    Listening { _folder: folder, path, happenings, thread }
}

impl Listening {
    fn until(&self, is_meant: impl Fn(&Happening) -> bool) -> Happening {
        loop {
            let happening = self.happenings.recv_timeout(PATIENCE).expect("it happens");
            if is_meant(&happening) {
                return happening;
            }
        }
    }

    /// Waits until it ends, once no line and no orphan is left.
    fn end(self) {
        let end = soon();
        while !self.thread.is_finished() {
            assert!(Instant::now() < end, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.join().unwrap().unwrap();
        assert!(!self.path.exists());
    }
}

fn ask(line: &Line, request: &Request<'_>, descriptors: &[&dyn AsFd]) {
    let packet = request.encode();
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    line.send_until(soon(), &packet, &descriptors).unwrap();
}

/// Receives the next notice, and returns the result of `look`.
fn hear<R>(line: &Line, look: impl FnOnce(Notice<'_>) -> R) -> R {
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    loop {
        assert!(line.wait(false, soon()).unwrap(), "nothing is said");
        match line.receive(&mut packet, &mut descriptors) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => {
                assert!(received.unwrap().length > 0, "the line has ended");
                return look(Notice::decode(&packet).unwrap());
            }
        }
    }
}

fn ready(line: &Line) -> Vec<(u64, u32)> {
    hear(line, |notice| match notice {
        Notice::Ready(ready) => ready,
        other => panic!("{other:?}"),
    })
}

fn watching(key: u64, number: i32, state: &[u8]) -> Watching<'_> {
    Watching { key, events: IN, number, state }
}

/// Waits until the keeper has handled all requests so far.
fn sync(line: &Line) -> superpoll_keeper::Sums {
    ask(line, &Request::Sync(7), &[]);
    hear(line, |notice| match notice {
        Notice::Synced(7, sums) => sums,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_thread_is_told_numbers_and_tells_what_stirs() {
    let (line, theirs) = Line::pair().unwrap();
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    keeper.work_for(theirs).unwrap();
    let thread = std::thread::spawn(|| keeper.run());
    let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    let all = (0..3).map(|key| watching(key as u64, pairs[key].0.as_raw_fd(), b"")).collect();
    ask(&line, &Request::Watch(all), &[]);
    ask(&line, &Request::Forget(vec![2, 99]), &[]);
    assert_eq!(sync(&line).len, 2);
    (&pairs[2].1).write_all(b"x").unwrap();
    (&pairs[1].1).write_all(b"x").unwrap();
    assert_eq!(ready(&line), [(1, IN)]);
    // The keeper does not watch it until it is asked to again.
    (&pairs[1].1).write_all(b"y").unwrap();
    let sums = sync(&line);
    assert_eq!((sums.len, sums.active), (1, 1));
    assert!(sums.watched >= 2);
    // A descriptor that is ready already is reported at once, and an invalid one is returned.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let all = vec![
        watching(1, pairs[1].0.as_raw_fd(), b""),
        watching(5, -1, b""),
        watching(6, file.as_raw_fd(), b""),
    ];
    ask(&line, &Request::Watch(all), &[]);
    let returned = hear(&line, |notice| match notice {
        Notice::Returned(returned) => returned,
        other => panic!("{other:?}"),
    });
    assert_eq!(returned, [(5, 9), (6, 1)]);
    assert_eq!(ready(&line), [(1, IN)]);
    drop(pairs);
    drop(line);
    thread.join().unwrap().unwrap();
}

#[test]
fn what_a_lost_server_has_left_is_handed_to_the_next() {
    let keeper = keeper(PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let mut clients = Vec::new();
    {
        let mut control = Control::connect(&keeper.path, 1).unwrap();
        let line = control.line().unwrap();
        control.hold(9, &listener, b"listener").unwrap();
        let servers: Vec<TcpStream> = (0..3 * FULL)
            .map(|_| {
                let (client, server) = connect();
                clients.push(client);
                server
            })
            .collect();
        for (number, some) in servers.chunks(FULL).enumerate() {
            let states: Vec<Vec<u8>> =
                (0..some.len()).map(|at| (number * FULL + at).to_string().into()).collect();
            let all = states.iter().enumerate();
            let all = all.map(|(at, state)| watching((number * FULL + at) as u64, -1, state));
            let descriptors: Vec<&dyn AsFd> = some.iter().map(|it| it as &dyn AsFd).collect();
            ask(&line, &Request::Watch(all.collect()), &descriptors);
        }
        let long = vec![b'x'; 200_000];
        for (space, id) in [(1, 1), (1, 2), (2, 1)] {
            control.keep(space, id, &long[id as usize..]).unwrap();
        }
        control.trim(1, 2).unwrap();
        // Packets that are still here would be lost with the server.
        while control.is_behind() {
            control.catch_up().unwrap();
        }
        assert_eq!(sync(&line).len, 3 * FULL as u64);
        // A connection that becomes ready is the server's again, and ends with it.
        (&clients[0]).write_all(b"x").unwrap();
        assert_eq!(ready(&line), [(0, IN)]);
    }
    let lost = keeper.until(|happening| matches!(happening, Happening::Lost { .. }));
    let Happening::Lost { orphans, .. } = lost else { unreachable!() };
    assert_eq!(orphans, 3 * FULL);
    assert_eq!(clients[0].read(&mut [0]).unwrap_or(0), 0);
    // Connections that hang up meanwhile are not reported. Data of the other connections waits for
    // them.
    drop(clients.pop());
    (&clients[1]).write_all(b"question").unwrap();
    let mut control = Control::connect(&keeper.path, 2).unwrap();
    let end = soon();
    while Control::connect(&keeper.path, 3).unwrap().waiting() != 3 * FULL as u64 - 1 {
        assert!(Instant::now() < end, "who has gone is not noticed");
    }
    let adopted = control.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.without_room), (3 * FULL - 1, 0));
    let names: Vec<_> = adopted.records.iter().map(|(space, id, _)| (*space, *id)).collect();
    assert_eq!(names, [(1, 2), (2, 1)]);
    assert!(adopted.records[0].2.len() == 199_998 && adopted.records[1].2.len() == 199_999);
    for orphan in adopted.orphans {
        if orphan.state == b"listener" {
            continue;
        }
        let number: usize = String::from_utf8(orphan.state).unwrap().parse().unwrap();
        let server = TcpStream::from(orphan.descriptor);
        assert_eq!(server.peer_addr().unwrap(), clients[number].local_addr().unwrap());
        if number == 1 {
            let mut question = [0; 8];
            (&server).read_exact(&mut question).unwrap();
            assert_eq!(&question, b"question");
        }
    }
    control.settled().unwrap();
    control.bye().unwrap();
    // All copies of them are closed now.
    for client in &mut clients[1..] {
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }
    keeper.end();
}

#[test]
fn a_server_at_work_yields_to_one_that_upgrades() {
    let keeper = keeper(PATIENCE);
    let mut old = Control::connect(&keeper.path, 1).unwrap();
    let line = old.line().unwrap();
    let (kept, _peer) = UnixStream::pair().unwrap();
    ask(&line, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&kept]);
    old.keep(1, 1, b"first").unwrap();
    sync(&line);
    match Control::connect(&keeper.path, 2).unwrap().adopt(false) {
        Err(Error::Refused { why, .. }) => assert!(why.contains("is at work"), "{why}"),
        other => panic!("{other:?}"),
    }
    let path = keeper.path.clone();
    let successor = std::thread::spawn(move || {
        let mut new = Control::connect(&path, 3).unwrap();
        let adopted = new.adopt(true).unwrap();
        (new, adopted)
    });
    let end = soon();
    while !old.is_to_yield().unwrap() {
        assert!(Instant::now() < end, "it is not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Descriptors that it leaves before it yields are handed over as well.
    let (late, _peer) = UnixStream::pair().unwrap();
    ask(&line, &Request::Watch(vec![watching(2, -1, b"late")]), &[&late]);
    sync(&line);
    old.keep(1, 2, b"second").unwrap();
    old.yielded().unwrap();
    let (new, adopted) = successor.join().unwrap();
    let mut states: Vec<_> = adopted.orphans.iter().map(|orphan| &orphan.state[..]).collect();
    states.sort_unstable();
    assert_eq!(states, [&b"kept"[..], b"late"]);
    assert_eq!(adopted.records.len(), 2);
    // Descriptors that it would leave afterwards stay with it, and its end takes nothing away.
    ask(&line, &Request::Watch(vec![watching(3, -1, b"")]), &[&late]);
    let returned = hear(&line, |notice| matches!(notice, Notice::Returned(all) if all.len() == 1));
    assert!(returned);
    old.keep(1, 3, b"third").unwrap();
    old.bye().unwrap();
    drop(line);
    // The successor ends before it is settled: another one is given the same.
    drop(new);
    keeper.until(|happening| matches!(happening, Happening::Lost { .. }));
    let mut third = Control::connect(&keeper.path, 4).unwrap();
    let adopted = third.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (2, 2));
    // A descriptor that is left again replaces the one that was handed over.
    let line = third.line().unwrap();
    let again = &adopted.orphans[0].descriptor;
    ask(&line, &Request::Watch(vec![watching(1, -1, b"again")]), &[again]);
    sync(&line);
    third.settled().unwrap();
    drop((line, third));
    keeper.until(|happening| matches!(happening, Happening::Lost { orphans: 1, .. }));
    let mut last = Control::connect(&keeper.path, 5).unwrap();
    let adopted = last.adopt(true).unwrap();
    assert_eq!(adopted.orphans.len(), 1);
    assert_eq!(adopted.orphans[0].state, b"again");
    last.bye().unwrap();
    // The descriptor that it has handed over is still an orphan, which no server has settled.
    drop(adopted);
}

#[test]
fn nobody_comes_for_orphans_in_time() {
    let keeper = keeper(Duration::from_millis(50));
    let (kept, mut peer) = UnixStream::pair().unwrap();
    let control = Control::connect(&keeper.path, 1).unwrap();
    let line = control.line().unwrap();
    ask(&line, &Request::Watch(vec![watching(1, -1, b"")]), &[&kept]);
    sync(&line);
    drop((line, control, kept));
    keeper.until(|happening| *happening == Happening::Dropped { orphans: 1 });
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    keeper.end();
}

#[test]
fn who_does_not_speak_as_it_does_is_told_so() {
    let keeper = keeper(PATIENCE);
    let refused = |packet: &[u8]| {
        let line = Line::connect(&keeper.path).unwrap();
        line.send(packet, &[]).unwrap();
        let happening = keeper.until(|happening| matches!(happening, Happening::Refused { .. }));
        let Happening::Refused { why, .. } = happening else { unreachable!() };
        let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
        assert!(line.wait(false, soon()).unwrap());
        assert!(line.receive(&mut packet, &mut descriptors).unwrap().length > 0);
        assert!(String::from_utf8_lossy(&packet).contains(&why));
        assert!(line.wait(false, soon()).unwrap());
        assert_eq!(line.receive(&mut packet, &mut descriptors).unwrap().length, 0);
        why
    };
    let why = refused(b"GET / HTTP/1.1\r\n\r\n");
    assert!(why.contains("spoken to in another way"), "{why}");
    let mut other = b"superpollsit".to_vec();
    other.extend((VERSION + 1).to_le_bytes());
    let why = refused(&other);
    assert!(why.contains("the same release of both"), "{why}");

    let control = Control::connect(&keeper.path, 1).unwrap();
    let line = control.line().unwrap();
    let (one, _peer) = UnixStream::pair().unwrap();
    let all = vec![watching(1, -1, b""), watching(2, -1, b"")];
    ask(&line, &Request::Watch(all), &[&one]);
    let why = hear(&line, |notice| match notice {
        Notice::Refused(why) => why.to_owned(),
        other => panic!("{other:?}"),
    });
    assert!(why.contains("as many descriptors"), "{why}");
    control.bye().unwrap();
    keeper.end();
}

#[test]
fn what_shares_an_inode_is_watched_apart() {
    let keeper = keeper(PATIENCE);
    let control = Control::connect(&keeper.path, 1).unwrap();
    let line = control.line().unwrap();
    // Both ends of a pipe, and a socket twice.
    let (reader, writer) = io::pipe().unwrap();
    let (socket, peer) = UnixStream::pair().unwrap();
    let twin = socket.try_clone().unwrap();
    let all = (0..4).map(|key| watching(key, -1, b"")).collect();
    ask(&line, &Request::Watch(all), &[&reader, &writer, &socket, &twin]);
    assert_eq!(sync(&line).len, 4);
    (&writer).write_all(b"x").unwrap();
    assert_eq!(ready(&line), [(0, IN)]);
    (&peer).write_all(b"x").unwrap();
    let mut both = ready(&line);
    if both.len() == 1 {
        both.extend(ready(&line));
    }
    both.sort_unstable();
    assert_eq!(both, [(2, IN), (3, IN)]);
    assert_eq!(sync(&line).len, 1);
    control.bye().unwrap();
    drop(line);
    keeper.end();
}

#[test]
fn a_hang_up_is_told_like_anything_else() {
    let (line, theirs) = Line::pair().unwrap();
    let mut keeper = Keeper::new(Options::default(), |_| {}).unwrap();
    keeper.work_for(theirs).unwrap();
    let thread = std::thread::spawn(|| keeper.run());
    let (one, other) = UnixStream::pair().unwrap();
    let writable = Watching { events: OUT, ..watching(1, one.as_raw_fd(), b"") };
    one.set_nonblocking(true).unwrap();
    while (&one).write(&[0; 4096]).is_ok() {}
    ask(&line, &Request::Watch(vec![writable]), &[]);
    sync(&line);
    // Half a hang-up is reported only if it was asked for.
    other.shutdown(Shutdown::Write).unwrap();
    assert_eq!(sync(&line).len, 1);
    drop(other);
    let ready = ready(&line);
    assert!(ready.len() == 1 && ready[0].1 & HUP != 0, "{ready:?}");
    ask(&line, &Request::Bye, &[]);
    thread.join().unwrap().unwrap();
}

#[test]
fn one_that_nobody_ever_needs_ends() {
    keeper(Duration::from_millis(20)).end();
}

#[test]
fn no_packet_stops_it() {
    let keeper = keeper(PATIENCE);
    let control = Control::connect(&keeper.path, 1).unwrap();
    let (one, mut other) = UnixStream::pair().unwrap();
    let holder = control.line().unwrap();
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
        Request::Trim { space: 1, below: 2 },
        Request::Yielded,
        Request::Settled,
        Request::Bye,
    ]
    .iter()
    .map(Request::encode)
    .collect();
    for round in 0..400 {
        // On the line of a stranger, or of a client that has introduced itself.
        let stranger;
        let known;
        let line = if round % 4 == 0 {
            stranger = Line::connect(&keeper.path).unwrap();
            &stranger
        } else {
            known = control.line().unwrap();
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
            if line.send_until(soon(), &packet, &descriptors[..some]).is_err() {
                // It has been refused.
                break;
            }
        }
    }
    // The first line is unharmed, and so is the descriptor that was left on it.
    assert_eq!(sync(&holder).len, 1);
    other.write_all(b"x").unwrap();
    assert_eq!(ready(&holder), [(1, IN)]);
    drop(holder);
    control.bye().unwrap();
    keeper.end();
}

#[test]
fn listeners_are_shown_while_their_server_is_at_work() {
    let keeper = keeper(PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut old = Control::connect(&keeper.path, 1).unwrap();
    let line = old.line().unwrap();
    let (kept, _peer) = UnixStream::pair().unwrap();
    ask(&line, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&kept]);
    old.hold(9, &listener, b"listener").unwrap();
    old.keep(1, 1, b"kept").unwrap();
    sync(&line);
    let mut new = Control::connect(&keeper.path, 2).unwrap();
    for _ in 0..2 {
        let shown = new.listeners().unwrap();
        let [shown] = <[_; 1]>::try_from(shown).unwrap();
        assert_eq!(shown.state, b"listener");
        let shown = TcpListener::from(shown.descriptor);
        assert_eq!(shown.local_addr().unwrap(), listener.local_addr().unwrap());
    }
    assert!(!old.is_to_yield().unwrap());
    // A server that has looked and goes takes nothing along, whether it announces its end or not.
    drop(new);
    keeper.until(|happening| matches!(happening, Happening::Lost { .. }));
    let mut another = Control::connect(&keeper.path, 4).unwrap();
    another.listeners().unwrap();
    another.bye().unwrap();
    assert_eq!(sync(&line).len, 1);
    drop((line, old));
    keeper.until(|happening| matches!(happening, Happening::Lost { orphans: 2, .. }));
    let mut next = Control::connect(&keeper.path, 3).unwrap();
    assert_eq!(next.listeners().unwrap().len(), 1);
    let adopted = next.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (2, 1));
}

/// Returns a server's line and its other end, which greets as a keeper does and reads on
/// demand.
fn greeted() -> (Control, Line) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper");
    let listener = Listener::bind(&path).unwrap();
    let opening = std::thread::spawn(move || Control::connect(&path, 1).unwrap());
    let line = loop {
        match listener.accept() {
            Ok(line) => break line,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    };
    hear_any(&line);
    let welcome = Notice::Welcome { orphans: 0 }.encode();
    let first = [&b"superpollsit"[..], &VERSION.to_le_bytes(), &welcome].concat();
    line.send(&first, &[]).unwrap();
    (opening.join().unwrap(), line)
}

/// Returns the next packet, and the number of descriptors that came with it.
fn hear_any(line: &Line) -> (Vec<u8>, usize) {
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    assert!(line.wait(false, soon()).unwrap(), "nothing is said");
    line.receive(&mut packet, &mut descriptors).unwrap();
    (packet, descriptors.len())
}

#[test]
fn what_a_full_line_has_no_room_for_is_said_later() {
    let (mut control, line) = greeted();
    let mut said = 0;
    while !control.is_behind() {
        said += 1;
        control.keep(1, said, &said.to_le_bytes()).unwrap();
    }
    let (held, _peer) = UnixStream::pair().unwrap();
    control.hold(7, &held, b"held").unwrap();
    drop(held);
    for _ in 0..100 {
        said += 1;
        control.keep(1, said, &said.to_le_bytes()).unwrap();
    }
    let (mut heard, mut descriptors) = (0, 0);
    while heard < said {
        control.catch_up().unwrap();
        let (packet, came) = hear_any(&line);
        descriptors += came;
        match Request::decode(&packet).unwrap() {
            Request::Keep(record) => {
                heard += 1;
                assert_eq!((record.id, record.bytes), (heard, &heard.to_le_bytes()[..]));
            }
            Request::Watch(all) => assert_eq!(all[0].state, b"held"),
            other => panic!("{other:?}"),
        }
    }
    assert!(!control.is_behind() && descriptors == 1);
}

#[test]
fn a_keeper_that_does_not_read_is_given_up_in_the_end_and_told_so() {
    let (mut control, line) = greeted();
    let much = vec![0; 1 << 20];
    for id in 0..80 {
        control.keep(1, id, &much).unwrap();
    }
    assert!(control.is_behind());
    // Its line is still there, and its last message is that it leaves nothing.
    let mut last = Vec::new();
    let error = loop {
        match control.catch_up() {
            Ok(()) => last = hear_any(&line).0,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("has not read for too long"), "{error}");
    drop(control);
    loop {
        match hear_any(&line).0 {
            packet if packet.is_empty() => break,
            packet => last = packet,
        }
    }
    assert_eq!(Request::decode(&last).unwrap(), Request::Bye);
}

#[test]
fn what_was_left_on_a_line_that_is_given_up_is_its_servers_again() {
    let grace = Duration::from_millis(50);
    let keeper = keeper_with(Options { grace, ..Options::default() });
    let mut old = Control::connect(&keeper.path, 1).unwrap();
    let (one, two) = (old.line().unwrap(), old.line().unwrap());
    let pairs: Vec<_> = (0..2).map(|_| UnixStream::pair().unwrap()).collect();
    ask(&one, &Request::Watch(vec![watching(1, -1, b"given up")]), &[&pairs[0].0]);
    ask(&two, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&pairs[1].0]);
    sync(&one);
    sync(&two);
    let mut new = Control::connect(&keeper.path, 2).unwrap();
    drop(one);
    let waiting = || Control::connect(&keeper.path, 3).unwrap().waiting();
    let end = soon();
    while waiting() > 0 {
        assert!(Instant::now() < end, "it is not forgotten");
    }
    // The same if the server yields before that is clear.
    let three = old.line().unwrap();
    ask(&three, &Request::Watch(vec![watching(1, -1, b"given up")]), &[&pairs[0].0]);
    sync(&three);
    drop(three);
    sync(&two);
    let taking = std::thread::spawn(move || {
        let adopted = new.adopt(true).unwrap();
        (new, adopted)
    });
    let end = soon();
    while !old.is_to_yield().unwrap() {
        assert!(Instant::now() < end, "it is not told");
    }
    old.yielded().unwrap();
    let (_new, adopted) = taking.join().unwrap();
    let states: Vec<_> = adopted.orphans.iter().map(|orphan| &orphan.state[..]).collect();
    assert_eq!(states, [&b"kept"[..]]);
}

#[test]
fn records_alone_are_kept_for_a_while() {
    let lost = |keeper: &Listening| {
        let mut control = Control::connect(&keeper.path, 1).unwrap();
        control.keep(1, 1, b"x").unwrap();
        drop(control);
        keeper.until(|happening| matches!(happening, Happening::Lost { .. }));
    };
    let patient = keeper(PATIENCE);
    lost(&patient);
    let mut control = Control::connect(&patient.path, 2).unwrap();
    assert_eq!(control.adopt(false).unwrap().records.len(), 1);
    control.bye().unwrap();
    patient.end();
    let keeper = keeper(Duration::from_millis(30));
    lost(&keeper);
    keeper.until(|happening| matches!(happening, Happening::Dropped { orphans: 0 }));
    keeper.end();
}
