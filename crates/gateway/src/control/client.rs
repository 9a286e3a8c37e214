//! A client of the statistics socket: one request of HTTP/1.1 and its response, which ends the
//! connection.
//!
//! ```text
//!           at most CLIENTS, in REQUEST_WAIT       one answer
//! accepted ---------------------------------> read -----------------------------> ended
//!     |   COMMANDS more, in COMMAND_WAIT       ^ |   a stream, to VIEWERS at most   ^
//!     +----------------------------------------+ +--------> lines ---- it goes -----+
//! ```
//!
//! So a command is answered though there are as many viewers as there may be. Unread bytes stay in
//! the kernel, and a client that does not read for a while is dropped, so that no client can make a
//! server grow.

use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::geteuid;
use serde::Serialize;
use socket2::SockRef;
use superpoll_http::admin::{Operation, ServerCommand};
use superpoll_http::telemetry::traffic::Traffic;
use superpoll_http1::{
    After, Asked, BodyReader, BodyWriter, FieldLines, Framing, Limits, Progress, Refusal, Room,
    Version, Writer, request,
};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time;

use super::api::{self, Answer, Call, refuse, route};
use super::subject::{Collector, Engines, Subject};

/// The most clients at a time that are sent a stream of snapshots.
pub const VIEWERS: usize = 8;

/// The most clients at a time that may take their time.
const CLIENTS: usize = 8;

/// The most further clients at a time.
const COMMANDS: usize = 8;

/// How long a client may take to send its request.
const REQUEST_WAIT: Duration = Duration::from_secs(10);

/// The same for a further client.
const COMMAND_WAIT: Duration = Duration::from_secs(1);

/// How long a client may take to read a response, or a line of a stream.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two reports of how far a drain is.
const REPORT: Duration = Duration::from_millis(200);

/// The same for several processes, which the supervisor must ask.
const REPORT_OF_WORKERS: Duration = Duration::from_millis(500);

/// The time between two looks whether a client that has ended its own direction has gone.
const HANG_UP: Duration = Duration::from_millis(250);

/// The limits of the head of a request.
const LIMITS: Limits = Limits { head: 8 << 10, ..Limits::DEFAULT };

/// The most bytes that are read at once.
const STEP: usize = 1024;

/// How many times bytes after the request are read, and dropped.
const STEPS: u32 = 32;

/// The bytes that may wait to be read by a client, about.
const ROOM: usize = 32 << 10;

/// The clients that there are.
#[derive(Default)]
pub(super) struct Places {
    clients: Cell<usize>,
    viewers: Cell<usize>,
}

/// One of the clients that are counted.
struct Place<'p>(&'p Cell<usize>);

impl<'p> Place<'p> {
    fn take(count: &'p Cell<usize>) -> Place<'p> {
        count.set(count.get() + 1);
        Place(count)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Answers a client.
pub(super) async fn serve(stream: UnixStream, subject: Arc<Subject>, places: Rc<Places>) {
    // Only a hint: with more room the server notices a slow client later.
    let _ = SockRef::from(&stream).set_send_buffer_size(ROOM);
    let _place = Place::take(&places.clients);
    let mut client = Client { stream: &stream, version: Version::Http11, asked: Asked::default() };
    let read = if places.clients.get() > CLIENTS + COMMANDS {
        Ok(Err(full(CLIENTS + COMMANDS, "clients")))
    } else if !is_own(&stream) {
        Ok(Err(refuse(StatusCode::FORBIDDEN, "this process is another user's")))
    } else if places.clients.get() > CLIENTS {
        time::timeout(COMMAND_WAIT, client.read())
            .await
            .unwrap_or_else(|_| Ok(Err(full(CLIENTS, "clients"))))
    } else {
        let late = || refuse(StatusCode::REQUEST_TIMEOUT, "no request has come, expected HTTP/1.1");
        time::timeout(REQUEST_WAIT, client.read()).await.unwrap_or_else(|_| Ok(Err(late())))
    };
    let answered = match read {
        Ok(Ok(call)) => or(client.respond(call, &subject, &places), gone(&stream)).await,
        Ok(Err(answer)) => client.send(&answer).await,
        // The client has gone.
        Err(_) => return,
    };
    if answered.is_ok() {
        drain(&stream).await;
    }
}

fn full(most: usize, of: &str) -> Answer {
    let what = format!("there are {most} {of} already, expected to be tried again later");
    refuse(StatusCode::SERVICE_UNAVAILABLE, what)
}

fn is_own(stream: &UnixStream) -> bool {
    let user = geteuid().as_raw();
    stream.peer_credentials().is_ok_and(|peer| peer.uid == user || peer.uid == 0)
}

/// Ready when a client has gone that waits for an answer. It may have ended its own direction, as
/// `printf REQUEST | socat` does, and sends nothing more.
async fn gone(mut stream: &UnixStream) -> io::Result<()> {
    let mut room = [0; STEP];
    for _ in 0..STEPS {
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
        let mut room = [0; STEP];
        for _ in 0..STEPS {
            if stream.read(&mut room).await.is_ok_and(|count| count == 0) {
                break;
            }
        }
    };
    if stream.shutdown(Shutdown::Write).is_ok() {
        let _ = time::timeout(PATIENCE, takes).await;
    }
}

/// The connection of a client, and the facts of its request that responses depend on.
struct Client<'s> {
    stream: &'s UnixStream,
    version: Version,
    asked: Asked,
}

/// The parts of a request, and the extent of its body.
struct ReadHead {
    request: Request<Vec<u8>>,
    framing: Framing,
    continues: bool,
    len: usize,
}

impl Client<'_> {
    /// Reads a request, and what it asks for, or the response to a wrong one.
    async fn read(&mut self) -> io::Result<Result<Call, Answer>> {
        let mut read = Vec::new();
        let head = loop {
            match self.read_head(&read) {
                Err(refusal) => return Ok(Err(wrong(refusal, &read))),
                Ok(Some(head)) => break head,
                Ok(None) => self.read_more(&mut read).await?,
            }
        };
        read.drain(..head.len);
        if head.continues && read.is_empty() {
            let mut text = Vec::new();
            let (version, status) = (self.version, StatusCode::CONTINUE);
            Writer::response(&mut text, version, status, None, self.asked).interim();
            self.write(&text).await?;
        }
        let (mut body, (parts, mut data)) =
            (BodyReader::new(head.framing), head.request.into_parts());
        while !body.is_over() {
            let piece = match body.step(&read) {
                Err(refusal) => return Ok(Err(refuse(refusal.status(), refusal.to_string()))),
                Ok(piece) => piece,
            };
            data.extend_from_slice(&read[piece.data]);
            if data.len() as u64 > api::LARGEST {
                let what = format!("the body has more than {} bytes", api::LARGEST);
                return Ok(Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, what)));
            }
            let (used, progress) = (piece.used, piece.progress);
            read.drain(..used);
            if progress == Progress::More {
                self.read_more(&mut read).await?;
            }
        }
        Ok(route(&parts, &data).map_err(|refused| *refused))
    }

    /// Reads the head of a request, if it is complete.
    fn read_head(&mut self, read: &[u8]) -> Result<Option<ReadHead>, Refusal> {
        let mut scratch = Vec::new();
        let mut room = Room::new(&mut scratch);
        let Some(head) = request(read, &LIMITS, &mut room)? else { return Ok(None) };
        self.version = head.version;
        self.asked.is_head = head.method == superpoll_http1::Method::Head;
        let mut request = Request::builder().method(head.method.as_str()).uri(head.target.as_str());
        if let Some(kind) = head.fields.value("content-type") {
            request = request.header(CONTENT_TYPE, kind.as_bytes());
        }
        let request = request.body(Vec::new()).map_err(|_| Refusal::Target)?;
        let (framing, continues) = (head.framing, head.wants.continues);
        Ok(Some(ReadHead { request, framing, continues, len: head.len }))
    }

    async fn read_more(&mut self, read: &mut Vec<u8>) -> io::Result<()> {
        let mut room = [0; STEP];
        match self.stream.read(&mut room).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                read.extend_from_slice(&room[..count]);
                Ok(())
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        time::timeout(PATIENCE, self.stream.write_all(bytes)).await?
    }

    /// Writes the head of a response. Its body is still to be written.
    fn head<B>(&self, response: &Response<B>, framing: Framing, to: &mut Vec<u8>) -> BodyWriter {
        let lines: FieldLines = response.headers().iter().collect();
        let mut writer = Writer::response(to, self.version, response.status(), None, self.asked);
        writer.lines(&lines);
        writer.body(framing, After::Closes)
    }

    /// Sends a response.
    async fn send(&mut self, answer: &Answer) -> io::Result<()> {
        let mut text = Vec::new();
        let length = Framing::Length(answer.body().len() as u64);
        let mut body = self.head(answer, length, &mut text);
        body.piece(answer.body(), &mut text).map_err(io::Error::other)?;
        body.end(&mut text);
        self.write(&text).await
    }

    /// Carries out a call, and sends the response.
    async fn respond(
        &mut self,
        call: Call,
        subject: &Arc<Subject>,
        places: &Places,
    ) -> io::Result<()> {
        let (operation, only) = match call {
            Call::Index => return self.send(&api::index("")).await,
            Call::Operate(operation) => (operation, None),
            Call::Upstream(name) => (Operation::Upstreams, Some(name)),
            Call::Snapshots(_) if places.viewers.get() >= VIEWERS => {
                return self.send(&full(VIEWERS, "viewers")).await;
            }
            Call::Snapshots(interval) => {
                let _viewer = Place::take(&places.viewers);
                return self.send_snapshots(interval, subject).await;
            }
            Call::FollowedDrain => return self.follow_drain(subject).await,
        };
        let (outcome, _unwritten) = subject.carry_out(operation.clone()).await;
        self.send(&api::answer(&operation, only.as_deref(), outcome)).await
    }

    /// Begins a stream of lines, which has no end of its own.
    fn begin_lines(&self, to: &mut Vec<u8>) -> BodyWriter {
        self.head(&api::head(StatusCode::OK, api::LINES), Framing::Chunked, to)
    }

    /// Sends snapshots until the client has gone, or does not read.
    async fn send_snapshots(&mut self, interval: u64, subject: &Arc<Subject>) -> io::Result<()> {
        let mut text = Vec::new();
        let mut body = self.begin_lines(&mut text);
        if self.asked.is_head {
            return self.write(&text).await;
        }
        let mut look = Collector::new(subject.clone());
        loop {
            let began = Instant::now();
            let mut snapshot = look.take_snapshot().await;
            snapshot.interval_ms = interval;
            snapshot.traffic.iter_mut().for_each(Traffic::limit);
            self.send_line(&snapshot, &mut body, &mut text).await?;
            time::sleep_until(began + Duration::from_millis(interval)).await;
        }
    }

    /// Sends a line of a stream, after the bytes that are there already.
    async fn send_line(
        &mut self,
        line: &impl Serialize,
        body: &mut BodyWriter,
        text: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        body.piece(&line, text).map_err(io::Error::other)?;
        let sent = self.write(text).await;
        text.clear();
        sent
    }

    /// Begins a drain, and tells how many connections there are until the process ends, and this
    /// task with it.
    async fn follow_drain(&mut self, subject: &Arc<Subject>) -> io::Result<()> {
        let (outcome, unwritten) = subject.command(ServerCommand::Drain).await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(refusal) => return self.send(&api::refusal(refusal)).await,
        };
        let mut text = Vec::new();
        let mut body = self.begin_lines(&mut text);
        self.send_line(&outcome, &mut body, &mut text).await?;
        drop(unwritten);
        let pause = match subject.engines {
            Engines::Here { .. } => REPORT,
            Engines::There(_) => REPORT_OF_WORKERS,
        };
        loop {
            let progress = subject.drain_progress().await;
            self.send_line(&progress, &mut body, &mut text).await?;
            time::sleep(pause).await;
        }
    }
}

/// Returns the response to bytes that are no request.
fn wrong(refusal: Refusal, read: &[u8]) -> Answer {
    let what = match read.first() {
        // Versions before the API had one of their own.
        Some(b'{') => {
            let version = env!("CARGO_PKG_VERSION");
            format!(
                "superpoll {version} speaks HTTP/1.1 here, and not lines of JSON; use its \
                 `superpoll`, or GET /api/snapshots"
            )
        }
        _ => format!("{refusal}, expected HTTP/1.1"),
    };
    refuse(refusal.status(), what)
}
