//! A client of the statistics socket: the lines that it is sent, and the lines that it may send.
//!
//! ```text
//!           at most CLIENTS                         a line with a command
//! accepted ----------------> sent snapshots --------------------------------> answered, and ends
//!     |  more than that                              a line with a command         ^
//!     +----------------> not sent snapshots for COMMAND_WAIT ----------------------+
//! ```
//!
//! So a command is answered though there are as many viewers as there may be, and a client that
//! sends no command is refused a moment later.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::AsyncReadExt;
use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::geteuid;
use serde::Deserialize;
use serde::de::IgnoredAny;
use socket2::SockRef;
use superpoll_http::admin::command::{COMMAND_PROTOCOL, CommandRequest};
use superpoll_http::telemetry::traffic::Traffic;
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time;

use super::answer::{self, PATIENCE, write};
use super::collector::Collector;
use super::snapshot::{Failure, INTERVALS, Request, SCHEMA};
use super::subject::Subject;

/// The most clients at a time that are sent snapshots.
pub const CLIENTS: usize = 8;

/// The most further clients at a time: they are there for a command only.
const COMMANDS: usize = 8;

/// How long such a client may take to send its command.
const COMMAND_WAIT: Duration = Duration::from_secs(1);

/// The time from one snapshot to the next, unless the client asks for another, in milliseconds.
const INTERVAL: u64 = 1000;

/// The time between two looks whether a client that has ended its own direction has gone.
const HANG_UP: Duration = Duration::from_millis(250);

/// The longest line of a client.
const LINE: usize = 1024;

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

/// The reason for which a client is sent no more snapshots.
#[derive(PartialEq, Eq, Debug)]
enum StreamEnd {
    /// A mistake of the client.
    Mistake(String),
    /// A command, or the mistake in it.
    Command(Box<Result<CommandRequest, String>>),
}

/// Sends snapshots to a client until it goes or gives a command, or answers with the mistake in its
/// line.
pub(super) async fn serve(stream: UnixStream, subject: Arc<Subject>, clients: Rc<Cell<usize>>) {
    // Only a hint: with more room the server notices a slow client later.
    let _ = SockRef::from(&stream).set_send_buffer_size(ROOM);
    clients.set(clients.get() + 1);
    let slot = ClientSlot(clients);
    let mut lines = Lines::default();
    let ended = if slot.0.get() > CLIENTS + COMMANDS {
        Ok(StreamEnd::Mistake(full()))
    } else if !is_own(&stream) {
        Ok(StreamEnd::Mistake("this process is another user's".to_owned()))
    } else if slot.0.get() > CLIENTS {
        await_command(&stream, &mut lines).await
    } else {
        send_snapshots(&stream, &mut lines, subject.clone()).await
    };
    let written = match ended {
        Ok(StreamEnd::Mistake(error)) => write(&stream, &Failure { schema: SCHEMA, error }).await,
        Ok(StreamEnd::Command(command)) => {
            or(answer::answer(&stream, &subject, *command), gone(&stream)).await
        }
        // The client has gone, or does not read.
        Err(_) => return,
    };
    if written.is_ok() {
        drain(&stream).await;
    }
}

fn full() -> String {
    format!("there are {CLIENTS} clients already, expected to be tried again later")
}

/// Waits for the command of a client that is sent no snapshots.
async fn await_command(stream: &UnixStream, lines: &mut Lines) -> io::Result<StreamEnd> {
    let Ok(line) = time::timeout(COMMAND_WAIT, lines.next(stream)).await else {
        return Ok(StreamEnd::Mistake(full()));
    };
    Ok(match read_line(line?) {
        Ok(_) => StreamEnd::Mistake(full()),
        Err(end) => end,
    })
}

/// Ready when a client has gone that waits for an answer. It may have ended its own direction, as
/// `printf COMMAND | socat` does, and sends nothing more.
async fn gone(mut stream: &UnixStream) -> io::Result<()> {
    let mut room = [0; LINE];
    for _ in 0..LINES {
        if stream.read(&mut room).await? == 0 {
            while !has_hung_up(stream)? {
                time::sleep(HANG_UP).await;
            }
            break;
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Whether both directions are closed at the other end.
fn has_hung_up(stream: &UnixStream) -> io::Result<bool> {
    let mut asked = [PollFd::new(stream, PollFlags::empty())];
    rustix::event::poll(&mut asked, Some(&Timespec::default()))?;
    Ok(asked[0].revents().contains(PollFlags::HUP))
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

/// Sends snapshots until there is a command or a mistake.
async fn send_snapshots(
    stream: &UnixStream,
    lines: &mut Lines,
    subject: Arc<Subject>,
) -> io::Result<StreamEnd> {
    let mut look = Collector::new(subject);
    let mut requests = Requests { interval: INTERVAL, lines: 0 };
    loop {
        let began = Instant::now();
        requests.lines = 0;
        let mut snapshot = {
            // Engines may take their time, and a command does not wait for them.
            let mut taken = pin!(look.take_snapshot());
            loop {
                match requests.read_until(stream, lines, taken.as_mut()).await? {
                    Read::Ready(snapshot) => break snapshot,
                    Read::Interval => {}
                    Read::End(end) => return Ok(end),
                }
            }
        };
        snapshot.interval_ms = requests.interval;
        snapshot.traffic.iter_mut().for_each(Traffic::limit);
        write(stream, &snapshot).await?;
        loop {
            let next = pin!(time::sleep_until(began + Duration::from_millis(requests.interval)));
            match requests.read_until(stream, lines, next).await? {
                Read::Ready(()) => break,
                Read::Interval => {}
                Read::End(end) => return Ok(end),
            }
        }
    }
}

/// The requests of a client.
struct Requests {
    /// The time from one snapshot to the next, in milliseconds.
    interval: u64,
    /// How many lines have arrived since the last snapshot.
    lines: u32,
}

/// The first of two events.
enum Read<T> {
    /// The awaited one.
    Ready(T),
    /// The client has asked for another interval.
    Interval,
    End(StreamEnd),
}

impl Requests {
    /// Reads a line, unless something else is ready first. Lines come before: snapshots may take
    /// longer than the interval.
    async fn read_until<T>(
        &mut self,
        stream: &UnixStream,
        lines: &mut Lines,
        ready: Pin<&mut impl Future<Output = T>>,
    ) -> io::Result<Read<T>> {
        let reads = async { lines.next(stream).await.map(Err) };
        let line = match or(reads, async { Ok(Ok(ready.await)) }).await? {
            Ok(ready) => return Ok(Read::Ready(ready)),
            Err(line) => line,
        };
        self.lines += 1;
        if self.lines > LINES {
            let what = format!("more than {LINES} lines came before a snapshot was due");
            return Ok(Read::End(StreamEnd::Mistake(what)));
        }
        Ok(match read_line(line) {
            Ok(interval) => {
                self.interval = interval;
                Read::Interval
            }
            Err(end) => Read::End(end),
        })
    }
}

/// The fields by which a command is told from an interval.
#[derive(Deserialize)]
struct Envelope {
    command: Option<IgnoredAny>,
    protocol: Option<u32>,
}

/// Returns the interval that a line asks for, or else why there are no more snapshots; a line is
/// `None` if it is too long.
fn read_line(line: Option<Vec<u8>>) -> Result<u64, StreamEnd> {
    let (least, most) = (INTERVALS.start(), INTERVALS.end());
    let expected = format!("expected {{\"interval_ms\": N}} with N from {least} to {most}");
    let Some(line) = line else {
        let what = format!("the line has more than {LINE} bytes, {expected}");
        return Err(StreamEnd::Mistake(what));
    };
    if let Ok(Envelope { command: Some(_), protocol }) = serde_json::from_slice(&line) {
        return Err(StreamEnd::Command(Box::new(read_command(&line, protocol))));
    }
    match serde_json::from_slice::<Request>(&line) {
        Ok(Request { interval_ms }) if INTERVALS.contains(&interval_ms) => Ok(interval_ms),
        Ok(Request { interval_ms }) => Err(StreamEnd::Mistake(format!(
            "the interval is {interval_ms} milliseconds, {expected}"
        ))),
        Err(error) => {
            Err(StreamEnd::Mistake(format!("the line cannot be read ({error}), {expected}")))
        }
    }
}

/// Returns the command of a line. Commands of another version may have another form.
fn read_command(line: &[u8], protocol: Option<u32>) -> Result<CommandRequest, String> {
    match protocol {
        Some(COMMAND_PROTOCOL) => {}
        Some(other) => {
            return Err(format!(
                "the command is of version {other}, and this server knows version {COMMAND_PROTOCOL}"
            ));
        }
        None => {
            return Err(format!(
                "the command has no version, expected \"protocol\": {COMMAND_PROTOCOL}"
            ));
        }
    }
    let read = serde_json::from_slice::<CommandRequest>(line);
    read.map_err(|error| format!("the command cannot be read ({error})"))
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
    use superpoll_http::admin::command::ServerCommand;

    use super::*;

    fn request(line: &str) -> Result<u64, StreamEnd> {
        read_line(Some(line.as_bytes().to_vec()))
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
            let Err(StreamEnd::Mistake(error)) = request(bad) else { panic!("{bad:?} was taken") };
            assert!(error.contains(said) && error.lines().count() == 1, "{bad:?}: {error}");
        }
        let Err(StreamEnd::Mistake(error)) = read_line(None) else { panic!("it was taken") };
        assert!(error.contains("more than 1024 bytes"));
    }

    #[test]
    fn a_command_needs_its_version_and_nothing_else() {
        let command = |line: &str| match request(line) {
            Err(StreamEnd::Command(command)) => command.map(|read| read.command),
            other => panic!("{line} is no command, but {other:?}"),
        };
        for known in [
            ServerCommand::Reload,
            ServerCommand::Upgrade,
            ServerCommand::Drain,
            ServerCommand::Status,
        ] {
            let line = format!("{{\"command\":\"{}\",\"protocol\":1}}", known.name());
            assert_eq!(command(&line), Ok(known));
        }
        for (bad, said) in [
            ("{\"command\":\"reload\"}", "no version, expected \"protocol\": 1"),
            (
                "{\"command\":\"reload\",\"protocol\":2}",
                "version 2, and this server knows version 1",
            ),
            (
                "{\"command\":{\"x\":1},\"protocol\":2}",
                "version 2, and this server knows version 1",
            ),
            (
                "{\"command\":\"dance\",\"protocol\":1}",
                "unknown variant `dance`, expected one of `reload`",
            ),
            ("{\"command\":\"reload\",\"protocol\":1,\"more\":2}", "unknown field `more`"),
        ] {
            let error = command(bad).unwrap_err();
            assert!(error.contains(said) && error.lines().count() == 1, "{bad:?}: {error}");
        }
    }
}
