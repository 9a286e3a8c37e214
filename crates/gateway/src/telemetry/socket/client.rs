//! A client of the statistics socket: the lines that it is sent, and the lines that it may send.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::process::geteuid;
use serde::Serialize;
use socket2::SockRef;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time;

use super::collector::Collector;
use super::snapshot::{Failure, INTERVALS, Request, SCHEMA};
use super::subject::Subject;

/// The most clients at a time.
pub const CLIENTS: usize = 8;

/// The time from one snapshot to the next, unless the client asks for another, in milliseconds.
const INTERVAL: u64 = 1000;

/// How long a client may take to read a snapshot.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest line of a client.
const LINE: usize = 256;

/// How many lines a client may send between two snapshots.
const LINES: u32 = 32;

/// The bytes that may wait to be read by a client, about.
const ROOM: usize = 32 << 10;

/// A client's place among the clients that there may be.
struct ClientSlot(Rc<Cell<usize>>);

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Sends snapshots to a client until it goes, or answers with the mistake in its line.
pub(super) async fn serve(stream: UnixStream, subject: Arc<Subject>, clients: Rc<Cell<usize>>) {
    // Only a hint: with more room the server notices a slow client later.
    let _ = SockRef::from(&stream).set_send_buffer_size(ROOM);
    clients.set(clients.get() + 1);
    let slot = ClientSlot(clients);
    let error = if slot.0.get() > CLIENTS {
        format!("there are {CLIENTS} clients already, expected to be tried again later")
    } else if !is_own(&stream) {
        "this process is another user's".to_owned()
    } else {
        match send_snapshots(&stream, subject).await {
            Ok(error) => error,
            // The client has gone, or does not read.
            Err(_) => return,
        }
    };
    if write(&stream, &Failure { schema: SCHEMA, error }).await.is_ok() {
        drain(&stream).await;
    }
}

/// Reads the bytes that are still on their way, so that the client sees an end and no reset.
async fn drain(stream: &UnixStream) {
    let takes = async {
        let mut stream = stream;
        let mut room = [0; LINE];
        for _ in 0..LINES {
            if stream.read(&mut room).await.is_ok_and(|count| count == 0) {
                break;
            }
        }
    };
    if stream.shutdown(Shutdown::Write).is_ok() {
        let _ = time::timeout(PATIENCE, takes).await;
    }
}

fn is_own(stream: &UnixStream) -> bool {
    let user = geteuid().as_raw();
    stream.peer_credentials().is_ok_and(|peer| peer.uid == user || peer.uid == 0)
}

async fn write(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    time::timeout(PATIENCE, stream.write_all(&line)).await?
}

/// Sends snapshots for as long as nothing is wrong.
async fn send_snapshots(stream: &UnixStream, subject: Arc<Subject>) -> io::Result<String> {
    let mut look = Collector::new(subject);
    let mut lines = Lines::default();
    let mut interval = INTERVAL;
    loop {
        let began = Instant::now();
        let mut snapshot = look.take().await;
        snapshot.interval_ms = interval;
        write(stream, &snapshot).await?;
        let mut lines_read = 0;
        loop {
            let next = began + Duration::from_millis(interval);
            let waits = async {
                time::sleep_until(next).await;
                Ok(None)
            };
            let reads = async { lines.next(stream).await.map(Some) };
            let Some(line) = or(waits, reads).await? else { break };
            lines_read += 1;
            if lines_read > LINES {
                return Ok(format!("more than {LINES} lines came before a snapshot was due"));
            }
            match requested_interval(line) {
                Ok(requested_interval) => interval = requested_interval,
                Err(error) => return Ok(error),
            }
        }
    }
}

/// Returns the interval that a line asks for; a line is `None` if it is too long.
fn requested_interval(line: Option<Vec<u8>>) -> Result<u64, String> {
    let (least, most) = (INTERVALS.start(), INTERVALS.end());
    let expected = format!("expected {{\"interval_ms\": N}} with N from {least} to {most}");
    let Some(line) = line else {
        return Err(format!("the line has more than {LINE} bytes, {expected}"));
    };
    match serde_json::from_slice::<Request>(&line) {
        Ok(Request { interval_ms }) if INTERVALS.contains(&interval_ms) => Ok(interval_ms),
        Ok(Request { interval_ms }) => {
            Err(format!("the interval is {interval_ms} milliseconds, {expected}"))
        }
        Err(error) => Err(format!("the line cannot be read ({error}), {expected}")),
    }
}

/// The lines of a client.
#[derive(Default)]
struct Lines {
    read: Vec<u8>,
}

impl Lines {
    /// Returns the next line; `None` if it is too long. No bytes are lost if this future is
    /// dropped.
    async fn next(&mut self, mut stream: &UnixStream) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.truncate(end);
                return Ok((end <= LINE).then_some(line));
            }
            if self.read.len() > LINE {
                return Ok(None);
            }
            let mut room = [0; LINE];
            match stream.read(&mut room).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.read.extend_from_slice(&room[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<u64, String> {
        requested_interval(Some(line.as_bytes().to_vec()))
    }

    #[test]
    fn an_interval_within_the_bounds_is_taken_and_anything_else_is_named() {
        for good in [50, 1000, 60_000] {
            assert_eq!(request(&format!("{{\"interval_ms\":{good}}}")), Ok(good));
        }
        for (bad, said) in [
            ("{\"interval_ms\":49}", "the interval is 49 milliseconds, expected"),
            ("{\"interval_ms\":60001}", "60001"),
            ("{\"interval_ms\":-1}", "cannot be read"),
            ("{\"interval_ms\":1,\"more\":2}", "unknown field `more`"),
            ("{}", "missing field `interval_ms`"),
            ("", "cannot be read"),
            ("\u{0}", "cannot be read"),
            ("GET / HTTP/1.1", "expected {\"interval_ms\": N} with N from 50 to 60000"),
        ] {
            let error = request(bad).unwrap_err();
            assert!(error.contains(said) && error.lines().count() == 1, "{bad:?}: {error}");
        }
        assert!(requested_interval(None).unwrap_err().contains("more than 256 bytes"));
    }
}
