//! HTTP/2 clients that do not take their responses.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::frames2::{DATA, Frame, Frames2, HEADERS, LARGEST, PING, RST_STREAM};
use crate::gaps::{Gaps, until_undisturbed};
use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, PATIENCE, Stage, folder};

/// A stream of which nothing was read for less than this is not reset.
const GAP: Duration = Duration::from_millis(300);

fn stage(trust: &Trust, folder: &std::path::Path, backend: superpoll_rt::BackendKind) -> Stage {
    let text = trust.text(folder).replace("[timeouts]", "[timeouts]\nbody = \"400ms\"");
    Stage::new(backend, 1, &text)
}

#[test]
fn streams_without_a_window_are_reset_and_the_connection_goes_on() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        until_undisturbed(|| {
            let stage = stage(&trust, folder.path(), backend);
            let client = Frames2::connect(port(&stage), &trust.config, 0);
            let is_valid = slow_stream_outlives_stalled_ones(client, backend);
            stage.until(|engine| &engine.running, 0);
            stage.until(|engine| &engine.active, 0);
            is_valid
        });
    }
}

/// Returns false if the slow stream was reset because this process was kept from running.
fn slow_stream_outlives_stalled_ones(
    mut client: Frames2,
    backend: superpoll_rt::BackendKind,
) -> bool {
    let streams: BTreeSet<u32> = (0..20).map(|index| 2 * index + 1).collect();
    let requests: Vec<Frame> =
        streams.iter().map(|stream| Frame::get(*stream, "/large.bin")).collect();
    let mut gaps = Gaps::new();
    client.send(&requests);
    // One of them is read, slowly, for longer than the timeout of the rest.
    let (slow, begin) = (5, Instant::now());
    let (mut reset, mut read) = (BTreeSet::new(), 0);
    client.send(&[Frame::window_update(slow, 1000)]);
    while reset.len() < streams.len() - 1 || begin.elapsed() < Duration::from_secs(1) {
        assert!(begin.elapsed() < PATIENCE, "{backend:?}: only {reset:?} are reset");
        let frame = client.next().expect("the connection goes on");
        match frame.kind {
            RST_STREAM if frame.stream == slow => {
                gaps.assert_reached(GAP, format_args!("{backend:?}: the slow stream is reset"));
                return false;
            }
            RST_STREAM => assert!(reset.insert(frame.stream), "{backend:?}"),
            DATA => {
                assert_eq!(frame.stream, slow);
                read += frame.payload.len();
                std::thread::sleep(Duration::from_millis(20));
                gaps.turn();
                client.send(&[Frame::window_update(slow, 1000)]);
            }
            _ => {}
        }
    }
    assert!(reset.is_subset(&streams));
    assert!(read > 1000 || gaps.longest() >= GAP, "{backend:?}: {read} bytes");
    client.send(&[Frame::get(101, "/small.txt"), Frame::window_update(101, 100)]);
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{backend:?}: the last request is not answered");
        let frame = client.next().expect("the connection goes on");
        if frame.kind == DATA && frame.stream == 101 {
            assert_eq!(frame.payload, b"hello\n");
            return true;
        }
        if frame.kind == DATA {
            client.send(&[Frame::window_update(slow, 1000)]);
        }
    }
}

#[test]
fn the_end_of_a_response_that_is_not_taken_ends_the_connection() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    let stage = stage(&trust, folder.path(), BACKENDS[2]);
    // All of the body is with h2, which has reported that it may be sent; five bytes of it are not
    // taken.
    let mut client = Frames2::connect(port(&stage), &trust.config, 1);
    client.send(&[Frame::get(1, "/small.txt")]);
    let end = Instant::now() + PATIENCE;
    while let Some(frame) = client.next() {
        assert!(Instant::now() < end && frame.payload.len() < 1000);
        // The client shows that it is still there.
        let _ = client.try_send(&[Frame::new(PING, 0, 0, &[7; 8])]);
    }
    stage.until(|engine| &engine.active, 0);
    assert_eq!(stage.count(|engine| &engine.timed_out), 1);
}

#[test]
fn a_client_that_sends_and_does_not_read_is_not_waited_for() {
    let folder = folder();
    let trust = Trust::new(&[b"h2"]);
    for backend in BACKENDS {
        let stage = stage(&trust, folder.path(), backend);
        let mut client = Frames2::connect(port(&stage), &trust.config, LARGEST / 2);
        client.send(&[Frame::get(1, "/large.bin")]);
        let end = Instant::now() + PATIENCE;
        while stage.count(|engine| &engine.timed_out) == 0 {
            assert!(Instant::now() < end, "{backend:?}");
            // Bytes come all the time.
            let _ = client.try_send(&[Frame::window_update(1, 1)]);
            std::thread::sleep(Duration::from_millis(20));
        }
        stage.until(|engine| &engine.active, 0);
        stage.until(|engine| &engine.running, 0);
        let mut other = Frames2::connect(port(&stage), &trust.config, 100);
        other.send(&[Frame::get(1, "/small.txt")]);
        while other.next().expect("the server goes on").kind != HEADERS {}
    }
}
