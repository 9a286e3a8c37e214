//! The three programs of the experiment, for a machine each: the server, the active client and the
//! zombie client.
//!
//! The server conducts. Each client program connects once and says what it is. On this line the
//! server tells it, for each of its servers and each number of zombies, when to connect, when to
//! send, and when to close; the client answers with the time that took. The connections of both
//! arrive while the server's parent accepts; then a process of their own serves them, and its
//! processor time counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::budget::Budget;
use crate::echo::load::{self, Connections};
use crate::error::{Doing, Error, Result};
use crate::record::Record;
use crate::run::Run;
use crate::server::subject::names;
use crate::server::trial::{self, Figures};
use crate::server::web::Load;
use crate::server::wire::ECHO;
use crate::server::{ProcessOptions, Server};
use crate::zombies::fleet::{self, ROOM, Work};
use crate::zombies::{Options, Row, trial as zombies};
use crate::{run, say};

/// How long a program waits for the next word of another machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Requests on each active connection before those that count.
const WARM_UP: u64 = 20;

/// One of the three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Program {
    /// Serves, conducts and prints the table.
    Server,
    /// Sends requests.
    Active,
    /// Connects, sends one request on each connection, and keeps silent.
    Zombie,
}

/// What the server tells a client program; the answer is a number of nanoseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Word {
    /// Make so many connections.
    Connect(usize),
    /// Send so many requests, over all connections, and wait for the answers.
    Ask(u64),
    /// Close the connections.
    Close,
}

/// A line to another program.
struct Line(BufReader<TcpStream>);

impl Line {
    fn new(stream: TcpStream) -> Result<Line> {
        let ready = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        ready.doing("setting up the line to another program")?;
        Ok(Line(BufReader::new(stream)))
    }

    fn say(&mut self, what: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(what).unwrap_or_default() + "\n";
        self.0.get_mut().write_all(text.as_bytes()).doing("writing to another program")
    }

    /// Returns what the other program says; `None` when it has closed the line.
    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut text = String::new();
        if self.0.read_line(&mut text).doing("reading from another program")? == 0 {
            return Ok(None);
        }
        let strange = |_| Error::usage(format!("the other program said {text:?}: is it this one?"));
        serde_json::from_str(&text).map(Some).map_err(strange)
    }

    /// Waits until the last word was carried out, and returns the nanoseconds that took.
    fn done(&mut self) -> Result<u64> {
        let outcome = self.hear::<Result<u64, String>>()?;
        let outcome = outcome.unwrap_or_else(|| Err("it has ended".to_owned()));
        outcome.map_err(|reason| Error::usage(format!("a client program failed: {reason}")))
    }

    fn ask(&mut self, word: Word) -> Result<u64> {
        self.say(&word)?;
        self.done()
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.0.get_ref().peer_addr().ok()
    }
}

/// Runs the program of the active clients, or of the zombies, until the server has no more work.
pub(crate) fn client(options: &Options, program: Program) -> Result<()> {
    superpoll::limits::raise_descriptors().doing("raising the limit of descriptors")?;
    let address = options.address.as_str();
    let connecting = || format!("connecting to the server at {address}; is it running?");
    let connect = || TcpStream::connect(address).doing(connecting());
    let mut line = Line::new(connect()?)?;
    line.say(&program)?;
    let (mut silent, mut busy) = (Vec::new(), None);
    while let Some(word) = line.hear()? {
        let began = Instant::now();
        let mut carry_out = || -> Result<u64> {
            match word {
                Word::Connect(count) => {
                    silent = (0..count).map(|_| connect()).collect::<Result<Vec<_>>>()?;
                    if program == Program::Active {
                        busy = Some(busy_clients(std::mem::take(&mut silent))?);
                    }
                }
                Word::Ask(requests) => match &mut busy {
                    Some(busy) => return busy.go(requests),
                    None => silent.iter_mut().try_for_each(ask_once)?,
                },
                Word::Close => (silent, busy) = (Vec::new(), None),
            }
            Ok(began.elapsed().as_nanos() as u64)
        };
        line.say(&carry_out().map_err(|error| error.to_string()))?;
    }
    Ok(())
}

fn busy_clients(streams: Vec<TcpStream>) -> Result<load::Clients> {
    let prepared = streams.into_iter().map(|stream| {
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true))?;
        Ok(OwnedFd::from(stream))
    });
    let sockets = prepared.collect::<std::io::Result<Vec<OwnedFd>>>();
    load::load("the server", sockets.doing("setting up connections")?, ECHO)
}

/// Sends a zombie's only request, and checks the answer.
fn ask_once(stream: &mut TcpStream) -> Result<()> {
    let (request, mut answer) = ([0x5a; ECHO], [0; ECHO]);
    let asked = stream.write_all(&request).and_then(|()| stream.read_exact(&mut answer));
    asked.doing("sending a zombie's request")?;
    let found = || "a zombie's request came back changed".to_owned();
    let wrong = || Error::Work { subject: "the server", found: found() };
    (answer == request).then_some(()).ok_or_else(wrong)
}

/// Runs the program of the servers: waits for both client programs, and measures each server with
/// each number of zombies.
pub(super) fn serve(options: &Options) -> Result<Record<Row>> {
    let ([echo, web], mut notes) = fleet::chosen(options.subjects.as_deref())?;
    let left_out = web.iter().map(|subject| subject.name).collect::<Vec<_>>().join(", ");
    if !left_out.is_empty() {
        notes.push(format!("{left_out} left out: on several machines only echo servers take part"));
    }
    let (groups, cut) = zombies::groups(options)?;
    notes.extend(cut);
    // One process serves all connections of a point here.
    let points: Vec<_> = groups.into_iter().flatten().filter(|point| point.workers == 1).collect();
    let address = options.address.as_str();
    let listener = TcpListener::bind(address).doing(format_args!("listening on {address}"))?;
    let here = listener.local_addr().doing("finding the listener's address")?;
    // Notes are printed before the others are waited for.
    let steps = points.len() * echo.len();
    let mut run = Run::new("zombies", &options.output, notes, steps, Budget::of_rounds(1));
    run.note(format!(
        "waiting at {here} for the client programs: superpoll-lab zombies active, and zombie, with \
         --address HOST:{}",
        here.port()
    ));
    let (mut active, mut zombie) = meet(&listener)?;
    let rounds = options.output.repetitions.unwrap_or(1);
    let requests = options.requests.div_ceil(rounds as u64).max(options.active as u64);
    let mut rows = Vec::new();
    for subject in &echo {
        for point in &points {
            if run::signal().is_some() {
                break;
            }
            let Work::Echo(software) = subject.start else { continue };
            run.progress.step(format!("{} with {} zombies", subject.name, point.zombies));
            zombie.say(&Word::Connect(point.zombies))?;
            active.say(&Word::Connect(options.active))?;
            let sockets = fleet::accept(&listener, point.zombies + options.active)
                .doing("accepting a connection")?;
            zombie.done()?;
            active.done()?;
            let process = ProcessOptions { processor: None, second_thread: false };
            let keeps = sockets.iter().map(AsRawFd::as_raw_fd).collect();
            let started = Server::start(subject.name, false, process, keeps, |control| {
                software.serve(Connections { sockets, room: ROOM }, control)
            });
            match started {
                Ok(server) => {
                    zombie.ask(Word::Ask(1))?;
                    active.ask(Word::Ask(WARM_UP * options.active as u64))?;
                    let servers = [server];
                    let slices = (0..rounds)
                        .map(|_| trial::round(&servers, || active.ask(Word::Ask(requests))))
                        .collect::<Result<Vec<_>>>()?;
                    let figures = Figures::of(&slices, &[], requests);
                    rows.push(Row::new(options, subject, *point, figures));
                }
                Err(Error::Usage(reason)) if subject.start.is_limited() => {
                    run.note(format!(
                        "{} left out at {} zombies: {reason}",
                        subject.name, point.zombies
                    ));
                }
                Err(error) => return Err(error),
            }
            zombie.ask(Word::Close)?;
            active.ask(Word::Close)?;
        }
    }
    zombies::relate(&mut rows);
    let parameters = [
        ("zombies", json!(points.iter().map(|point| point.zombies).collect::<Vec<_>>())),
        ("active", json!(options.active)),
        ("requests", json!(options.requests)),
        ("bytes", json!(ECHO)),
        ("machines", json!([here, active.peer(), zombie.peer()])),
        ("subjects", json!(echo.iter().map(|subject| subject.name).collect::<Vec<_>>())),
        ("rivals", crate::rivals::versions(names(fleet::ALL))),
    ];
    Ok(run.record(parameters, rows))
}

/// Accepts the lines of both client programs, in either order.
fn meet(listener: &TcpListener) -> Result<(Line, Line)> {
    let (mut active, mut zombie) = (None, None);
    loop {
        let (stream, from) = listener.accept().doing("waiting for a client program")?;
        let mut line = Line::new(stream)?;
        match line.hear() {
            Ok(Some(Program::Active)) => active = Some(line),
            Ok(Some(Program::Zombie)) => zombie = Some(line),
            // A stranger, such as a port scanner.
            _ => say::note(&format!("{from} is no client program: closing the connection")),
        }
        match (active, zombie) {
            (Some(active), Some(zombie)) => return Ok((active, zombie)),
            others => (active, zombie) = others,
        }
    }
}
