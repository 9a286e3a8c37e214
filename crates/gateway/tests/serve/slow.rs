//! Clients that read slowly, and steadily: they are served to the end however long it takes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use futures_rustls::rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use superpoll_test_support::connect_narrow;

use crate::frames2::{DATA, Frame, Frames2, LARGEST, RST_STREAM};
use crate::http2::{Trust, port};
use crate::stage::{BACKENDS, PATIENCE, Stage};

/// The configured timeout of a body.
const LIMIT: Duration = Duration::from_secs(600);

/// The pause between two small reads. Not each small read lets further bytes come.
const PAUSE: Duration = Duration::from_secs(120);

/// The bytes of a small read.
const PIECE: usize = 2048;

/// The bytes that are read before the first small read.
const BEFORE: usize = 8192;

/// The bytes of the file: more than the buffers of both kernels hold.
const LENGTH: usize = 2 << 20;

fn noise() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..LENGTH).map(|_| next()).collect()
}

fn with_limit(text: &str) -> String {
    text.replace("[timeouts]\n", &format!("[timeouts]\nbody = \"{}s\"\n", LIMIT.as_secs()))
}

/// A socket that is read slowly for longer than three timeouts, and then as fast as possible.
struct Slow<'a> {
    stream: TcpStream,
    stage: &'a Stage,
    read: usize,
    /// For how long it has been slow.
    passed: Duration,
}

impl<'a> Slow<'a> {
    fn connect(stage: &'a Stage) -> Slow<'a> {
        let stream = connect_narrow(("127.0.0.1", port(stage)), Some(4096));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Slow { stream, stage, read: 0, passed: Duration::ZERO }
    }

    /// The same, encrypted.
    fn encrypted(
        stage: &'a Stage,
        config: &ClientConfig,
    ) -> StreamOwned<ClientConnection, Slow<'a>> {
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        StreamOwned::new(client, Slow::connect(stage))
    }
}

impl Read for Slow<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // A handshake is not slow.
        let is_slow = self.read > BEFORE && self.passed < 4 * LIMIT;
        let most = if is_slow { room.len().min(PIECE) } else { room.len() };
        if is_slow {
            self.stage.elapse(PAUSE);
            self.passed += PAUSE;
        }
        let count = self.stream.read(&mut room[..most]);
        if let Err(error) = &count {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "no byte comes");
        }
        self.read += *count.as_ref().unwrap_or(&0);
        count
    }
}

impl Write for Slow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a response to its end; it is an error if that comes early.
fn read(client: &mut impl Read, expected: &[u8]) -> io::Result<()> {
    let mut all = Vec::new();
    client.read_to_end(&mut all)?;
    let head = all.windows(4).position(|end| end == b"\r\n\r\n");
    let start = head.ok_or(ErrorKind::UnexpectedEof)? + 4;
    assert!(expected.starts_with(&all[start..]), "other bytes have come");
    if all.len() - start < expected.len() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// A server of one large file on each back-end, all at the same time.
fn on_all(
    text: impl Fn(&std::path::Path) -> String + Sync,
    test: impl Fn(&Stage, &[u8]) -> io::Result<()> + Sync,
) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise();
    std::fs::write(folder.path().join("large.bin"), &bytes).unwrap();
    std::thread::scope(|scope| {
        for backend in BACKENDS {
            let (text, test, bytes, folder) = (&text, &test, &bytes, &folder);
            scope.spawn(move || {
                let stage = Stage::new(backend, 1, &with_limit(&text(folder.path())));
                let outcome = test(&stage, bytes);
                let is_served = outcome.is_ok() && stage.count(|engine| &engine.timed_out) == 0;
                assert!(is_served, "{backend:?}: it is not served ({outcome:?})");
            });
        }
    });
}

const REQUEST: &[u8] = b"GET /large.bin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

#[test]
fn over_http_1() {
    let text = |folder: &std::path::Path| {
        format!(
            "[[listeners]]\naddress = \"127.0.0.1:0\"\n[timeouts]\npark = \"40ms\"\n\
             [[hosts]]\n[[hosts.routes]]\nfiles.root = {folder:?}\n"
        )
    };
    on_all(text, |stage, expected| {
        let mut client = Slow::connect(stage);
        client.write_all(REQUEST).unwrap();
        read(&mut client, expected)
    });
}

#[test]
fn over_tls() {
    let trust = Trust::new(&[b"http/1.1"]);
    on_all(
        |folder| trust.text(folder),
        |stage, expected| {
            let mut client = Slow::encrypted(stage, &trust.config);
            client.write_all(REQUEST).unwrap();
            read(&mut client, expected)
        },
    );
}

#[test]
fn over_http_2() {
    let trust = Trust::new(&[b"h2"]);
    on_all(
        |folder| trust.text(folder),
        |stage, expected| {
            let slow = Slow::connect(stage);
            let mut client = Frames2::over(slow, &trust.config, LARGEST / 2);
            client.send(&[Frame::get(1, "/large.bin")]);
            let mut all = Vec::new();
            while all.len() < expected.len() {
                let frame = client.next().ok_or(ErrorKind::UnexpectedEof)?;
                match frame.kind {
                    DATA => all.extend_from_slice(&frame.payload),
                    RST_STREAM => return Err(ErrorKind::ConnectionReset.into()),
                    _ => {}
                }
            }
            assert!(all == expected, "other bytes have come");
            Ok(())
        },
    );
}
