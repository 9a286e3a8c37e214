//! A server whose link has no room, because the keeper does not read.

use super::*;

/// Returns a server's link and its other end, which greets as a keeper does and reads on
/// demand.
fn greeted() -> (Control, KeeperLink) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keeper");
    let listener = Listener::bind(&path).unwrap();
    let opening = std::thread::spawn(move || Control::connect(&path, 1).unwrap());
    let link = loop {
        match listener.accept() {
            Ok(link) => break link,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    };
    receive_any(&link);
    let welcome = Notice::Welcome { orphans: 0 }.encode();
    let first = [&b"superpollsit"[..], &VERSION.to_le_bytes(), &welcome].concat();
    link.send(&first, &[]).unwrap();
    (opening.join().unwrap(), link)
}

/// Returns the next packet, and the number of descriptors that came with it.
fn receive_any(link: &KeeperLink) -> (Vec<u8>, usize) {
    let (mut packet, mut descriptors) = (Vec::new(), Vec::new());
    assert!(link.wait(false, soon()).unwrap(), "nothing is said");
    link.receive(&mut packet, &mut descriptors).unwrap();
    (packet, descriptors.len())
}

#[test]
fn requests_that_do_not_fit_into_a_full_link_are_sent_later() {
    let (mut control, link) = greeted();
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
        let (packet, came) = receive_any(&link);
        descriptors += came;
        match Request::decode(&packet).unwrap() {
            Request::PutRecord(record) => {
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
fn a_keeper_that_does_not_read_is_given_up_with_a_goodbye() {
    let (mut control, link) = greeted();
    let much = vec![0; 1 << 20];
    for id in 0..80 {
        control.keep(1, id, &much).unwrap();
    }
    assert!(control.is_behind());
    // Its link is still there, and its last message is that it leaves nothing.
    let mut last = Vec::new();
    let error = loop {
        match control.catch_up() {
            Ok(()) => last = receive_any(&link).0,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("has not read for too long"), "{error}");
    drop(control);
    loop {
        match receive_any(&link).0 {
            packet if packet.is_empty() => break,
            packet => last = packet,
        }
    }
    assert_eq!(Request::decode(&last).unwrap(), Request::Bye);
}
