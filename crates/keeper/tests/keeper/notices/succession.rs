//! Servers that follow one another: what one of them leaves is handed to the next.

use super::*;
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn descriptors_of_a_lost_server_are_handed_to_the_next() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let keeper = keeper(PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let mut clients = Vec::new();
    {
        let mut control = Control::connect(&keeper.path, 1).unwrap();
        let link = control.link().unwrap();
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
            ask(&link, &Request::Watch(all.collect()), &descriptors);
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
        assert_eq!(sync(&link).len, 3 * FULL as u64);
        // A connection that becomes ready is the server's again, and ends with it.
        (&clients[0]).write_all(b"x").unwrap();
        assert_eq!(ready(&link), [(0, IN)]);
    }
    let lost = keeper.until(|event| matches!(event, KeeperEvent::Lost { .. }));
    let KeeperEvent::Lost { orphans, .. } = lost else { unreachable!() };
    assert_eq!(orphans, 3 * FULL);
    assert_eq!(clients[0].read(&mut [0]).unwrap_or(0), 0);
    // Connections that hang up meanwhile are not reported. Data of the other connections waits for
    // them.
    drop(clients.pop());
    (&clients[1]).write_all(b"question").unwrap();
    let mut control = Control::connect(&keeper.path, 2).unwrap();
    let end = soon();
    while Control::connect(&keeper.path, 3).unwrap().waiting() != 3 * FULL as u64 - 1 {
        assert!(Instant::now() < end, "the end of a connection is not noticed");
    }
    let adopted = control.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.without_room), (3 * FULL - 1, 0));
    let names: Vec<_> = adopted.records.iter().map(|(space, id, _)| (*space, *id)).collect();
    assert_eq!(names, [(1, 2), (2, 1)]);
    assert!(adopted.records[0].2.len() == 199_998 && adopted.records[1].2.len() == 199_999);
    for orphan in adopted.orphans {
        if *orphan.state == b"listener" {
            continue;
        }
        let number: usize = String::from_utf8(orphan.state.to_vec()).unwrap().parse().unwrap();
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
    let link = old.link().unwrap();
    let (kept, _peer) = UnixStream::pair().unwrap();
    ask(&link, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&kept]);
    old.keep(1, 1, b"first").unwrap();
    sync(&link);
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
    until("it is asked to yield", || old.is_to_yield().unwrap());
    // Descriptors that it leaves before it yields are handed over as well.
    let (late, _peer) = UnixStream::pair().unwrap();
    ask(&link, &Request::Watch(vec![watching(2, -1, b"late")]), &[&late]);
    sync(&link);
    old.keep(1, 2, b"second").unwrap();
    old.yielded().unwrap();
    let (new, adopted) = successor.join().unwrap();
    let mut states: Vec<_> = adopted.orphans.iter().map(|orphan| &orphan.state[..]).collect();
    states.sort_unstable();
    assert_eq!(states, [&b"kept"[..], b"late"]);
    assert_eq!(adopted.records.len(), 2);
    // Descriptors that it would leave afterwards stay with it, and its end takes nothing away.
    ask(&link, &Request::Watch(vec![watching(3, -1, b"")]), &[&late]);
    let returned =
        receive(&link, |notice| matches!(notice, Notice::Returned(all) if all.len() == 1));
    assert!(returned);
    old.keep(1, 3, b"third").unwrap();
    old.bye().unwrap();
    drop(link);
    // The successor ends before it is settled: another one is given the same.
    drop(new);
    keeper.until(|event| matches!(event, KeeperEvent::Lost { .. }));
    let mut third = Control::connect(&keeper.path, 4).unwrap();
    let adopted = third.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (2, 2));
    // A descriptor that is left again replaces the one that was handed over.
    let link = third.link().unwrap();
    let again = &adopted.orphans[0].descriptor;
    ask(&link, &Request::Watch(vec![watching(1, -1, b"again")]), &[again]);
    sync(&link);
    third.settled().unwrap();
    drop((link, third));
    keeper.until(|event| matches!(event, KeeperEvent::Lost { orphans: 1, .. }));
    let mut last = Control::connect(&keeper.path, 5).unwrap();
    let adopted = last.adopt(true).unwrap();
    assert_eq!(adopted.orphans.len(), 1);
    assert_eq!(adopted.orphans[0].state[..], *b"again");
    last.bye().unwrap();
    // The descriptor that it has handed over is still an orphan, which no server has settled.
    drop(adopted);
}

#[test]
fn listeners_are_shown_while_their_server_is_at_work() {
    let keeper = keeper(PATIENCE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut old = Control::connect(&keeper.path, 1).unwrap();
    let link = old.link().unwrap();
    let (kept, _peer) = UnixStream::pair().unwrap();
    ask(&link, &Request::Watch(vec![watching(1, -1, b"kept")]), &[&kept]);
    old.hold(9, &listener, b"listener").unwrap();
    old.keep(1, 1, b"kept").unwrap();
    sync(&link);
    let mut new = Control::connect(&keeper.path, 2).unwrap();
    for _ in 0..2 {
        let shown = new.listeners().unwrap();
        let [shown] = <[_; 1]>::try_from(shown).unwrap();
        assert_eq!(shown.state[..], *b"listener");
        let shown = TcpListener::from(shown.descriptor);
        assert_eq!(shown.local_addr().unwrap(), listener.local_addr().unwrap());
    }
    assert!(!old.is_to_yield().unwrap());
    // A server that has looked and goes takes nothing along, whether it announces its end or not.
    drop(new);
    keeper.until(|event| matches!(event, KeeperEvent::Lost { .. }));
    let mut another = Control::connect(&keeper.path, 4).unwrap();
    another.listeners().unwrap();
    another.bye().unwrap();
    assert_eq!(sync(&link).len, 1);
    drop((link, old));
    keeper.until(|event| matches!(event, KeeperEvent::Lost { orphans: 2, .. }));
    let mut next = Control::connect(&keeper.path, 3).unwrap();
    assert_eq!(next.listeners().unwrap().len(), 1);
    let adopted = next.adopt(false).unwrap();
    assert_eq!((adopted.orphans.len(), adopted.records.len()), (2, 1));
}

#[test]
fn descriptors_on_a_dropped_link_belong_to_their_server_again() {
    let grace = Duration::from_millis(50);
    let keeper = keeper_with(Options { grace, ..Options::default() });
    let mut old = Control::connect(&keeper.path, 1).unwrap();
    let (one, two) = (old.link().unwrap(), old.link().unwrap());
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
    let three = old.link().unwrap();
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
        assert!(Instant::now() < end, "it is not asked to yield");
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
        keeper.until(|event| matches!(event, KeeperEvent::Lost { .. }));
    };
    let patient = keeper(PATIENCE);
    lost(&patient);
    let mut control = Control::connect(&patient.path, 2).unwrap();
    assert_eq!(control.adopt(false).unwrap().records.len(), 1);
    control.bye().unwrap();
    patient.end();
    let keeper = keeper(Duration::from_millis(30));
    lost(&keeper);
    keeper.until(|event| matches!(event, KeeperEvent::Dropped { orphans: 0 }));
    keeper.end();
}
