//! HTTP/2 clients that do not take their responses.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::frames2::{DATA, Frame, Frames2, HEADERS, LARGEST, PING, RST_STREAM};
use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, Stage, folder};

/// The timeout of bodies.
const LIMIT: Duration = Duration::from_secs(600);

fn stage(trust: &Trust, folder: &std::path::Path, backend: superpoll_rt::BackendKind) -> Stage {
    let text = trust.text(folder).replace("[timeouts]", "[timeouts]\nbody = \"600s\"");
    Stage::new(backend, 1, &text)
}

/// Lets time pass, with a sign of life of the client now and then, until the server gives the
/// client up for the time of a body.
fn until_given_up(stage: &Stage, mut sign: impl FnMut()) {
    const STEP: Duration = Duration::from_secs(30);
    let passed = stage.elapse_until(STEP, 2 * LIMIT, || {
        sign();
        stage.count(|engine| &engine.timed_out) > 0
    });
    // The time that the test itself takes counts as well.
    assert!(passed >= LIMIT / 10 * 8, "it is given up after {passed:?}");
}

#[test]
fn streams_without_a_window_are_reset_and_the_connection_goes_on() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let streams: BTreeSet<u32> = (0..20).map(|index| 2 * index + 1).collect();
    for backend in BACKENDS {
        let stage = stage(&trust, folder.path(), backend);
        let mut client = Frames2::connect(port(&stage), &trust.config, 0);
        let requests: Vec<Frame> =
            streams.iter().map(|stream| Frame::get(*stream, "/large.bin")).collect();
        client.send(&requests);
        // One of them is read, slowly, for longer than the timeout of the rest.
        let (slow, mut reset, mut read) = (5, BTreeSet::new(), 0);
        for round in 1..=10 {
            client.send(&[Frame::window_update(slow, 1000)]);
            while read < round * 1000 {
                let frame = client.next().expect("the connection goes on");
                match frame.kind {
                    RST_STREAM => {
                        assert_ne!(frame.stream, slow, "{backend:?}");
                        assert!(reset.insert(frame.stream), "{backend:?}");
                    }
                    DATA => {
                        assert_eq!(frame.stream, slow);
                        read += frame.payload.len();
                    }
                    _ => {}
                }
            }
            let passed = (round - 1) as u32 * LIMIT / 3;
            assert!(passed > LIMIT / 2 || reset.is_empty(), "{backend:?}: {reset:?}");
            stage.elapse(LIMIT / 3);
        }
        assert_eq!(reset.len(), streams.len() - 1, "{backend:?}: only {reset:?} are reset");
        assert!(reset.is_subset(&streams));
        client.send(&[Frame::get(101, "/small.txt"), Frame::window_update(101, 100)]);
        loop {
            let frame = client.next().expect("the connection goes on");
            if frame.kind == DATA && frame.stream == 101 {
                assert_eq!(frame.payload, b"hello\n");
                break;
            }
        }
        drop(client);
        stage.until(|engine| &engine.running, 0);
        stage.until(|engine| &engine.active, 0);
    }
}

#[test]
fn a_response_of_which_only_the_end_is_not_taken_is_reset() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BACKENDS[2]);
    // All of the body is in memory, and five bytes of it are not taken.
    let mut client = Frames2::connect(port(&stage), &trust.config, 1);
    client.send(&[Frame::get(1, "/small.txt")]);
    stage.until(|engine| &engine.running, 1);
    // The client shows that it is still there.
    let mut sign = || client.send(&[Frame::new(PING, 0, 0, &[7; 8])]);
    let passed = stage.elapse_until(LIMIT / 60, 2 * LIMIT, || {
        sign();
        stage.count(|engine| &engine.running) == 0
    });
    assert!(passed >= LIMIT / 10 * 8, "it is reset after {passed:?}");
    while client.next().expect("the connection goes on").kind != RST_STREAM {}
    client.send(&[Frame::new(PING, 0, 0, &[8; 8])]);
    while client.next().expect("the connection goes on").payload != [8; 8] {}
}

#[test]
fn a_client_that_sends_and_does_not_read_is_not_waited_for() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = stage(&trust, folder.path(), backend);
        let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST / 2);
        client.send(&[Frame::get(1, "/large.bin")]);
        stage.until(|engine| &engine.running, 1);
        // Bytes come all the time.
        until_given_up(&stage, || drop(client.try_send(&[Frame::window_update(1, 1)])));
        stage.until(|engine| &engine.active, 0);
        stage.until(|engine| &engine.running, 0);
        let mut other = Frames2::connect(port(&stage), &trust.config, 100);
        other.send(&[Frame::get(1, "/small.txt")]);
        while other.next().expect("the server goes on").kind != HEADERS {}
    }
}
