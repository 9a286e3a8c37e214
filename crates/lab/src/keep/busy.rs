//! A loop with busy and idle connections, which echoes what it reads.
//!
//! The parent makes the connections. It gives one end of each to the loop's process, the opposite
//! end to the clients' process, and keeps none.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use superpoll::backend::Tuning;
use superpoll::backend::policy::CostBased;
use superpoll::{Events, Interest};

use crate::echo::load::{Connection, Room};
use crate::error::{Doing, Error, Result};
use crate::findings::Named;
use crate::keep::moves::{KeeperProcess, Kind, Station, Watcher};
use crate::server::clients::Clients;
use crate::server::web::{self, Generator, Load as _};
use crate::sys::{descriptor, process};
use crate::{channel, statistics};

/// Connections that send requests.
pub(super) const ACTIVE: usize = 10;

/// Bytes of a request.
const BYTES: usize = 64;

/// Requests before the counted ones, in which connections that were away come back.
const FIRST: u64 = 500;

/// How long idle connections may take to leave, and a request may take to be answered.
const PATIENCE: Duration = Duration::from_secs(20);

/// The commands for the loop.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    /// Wait until all connections that may leave have left. The answer: their number.
    HandOver,
    /// Answer this many requests. The answer: nanoseconds for a request, in the main loop and in
    /// the keeper, and how many connections are away.
    Serve(u64),
}

/// A loop and its clients.
#[derive(Debug)]
pub(super) struct Pair {
    main: Clients,
    clients: Clients,
}

impl Pair {
    /// Starts both, and waits until the idle connections have left.
    pub(super) fn start(
        kind: Kind,
        keeper: Option<&KeeperProcess>,
        idle: usize,
        main: Option<usize>,
        client: Option<usize>,
    ) -> Result<Pair> {
        let ends = channel::socket_pairs(channel::Kind::Unix, idle + ACTIVE)?;
        let (ours, theirs): (Vec<OwnedFd>, Vec<OwnedFd>) = ends.into_iter().unzip();
        let numbers = |all: &[OwnedFd]| all.iter().map(AsRawFd::as_raw_fd).collect();
        let station = Station::new(kind, keeper, main);
        let mut serving = Serving { station, sockets: Vec::new(), watcher: None };
        let keeps = numbers(&ours);
        let mut ours = Some(ours);
        let mut main = Clients::keeping(kind.name(), keeps, move |order: Order| {
            if let Some(ours) = ours.take() {
                serving.begin(ours)?;
            }
            match order {
                Order::HandOver => serving.hand_over_idle(),
                Order::Serve(requests) => serving.serve(requests),
            }
        })?;
        let keeps = numbers(&theirs);
        let mut theirs = Some(theirs);
        let mut asking = None;
        let clients = Clients::keeping(kind.name(), keeps, move |requests: u64| {
            if let Some(theirs) = theirs.take() {
                asking = Some(Asking::new(kind.name(), theirs, client)?);
            }
            let ask = |asking: &mut Asking| asking.ask(kind.name(), requests);
            asking.as_mut().map_or_else(|| Ok(Vec::new()), ask)
        })?;
        main.ask::<_, Vec<f64>>(&Order::HandOver)?;
        Ok(Pair { main, clients })
    }

    /// Measures one round. Returns the median and the 99th percentile of the time of a request, and
    /// the processor time of the main loop and of the keeper for one, all in nanoseconds; and how
    /// many connections the keeper had in the end.
    pub(super) fn measure(&mut self, requests: u64) -> Result<[Named; 5]> {
        self.main.order(&Order::Serve(requests))?;
        self.clients.order(&requests)?;
        let times: Vec<f64> = self.clients.answer()?;
        let costs: Vec<f64> = self.main.answer()?;
        let of = |place: usize| costs.get(place).copied().unwrap_or_default();
        let (p50, p99) = (statistics::median(&times), statistics::quantile(&times, 0.99));
        Ok([
            ("p50", "ns", p50),
            ("p99", "ns", p99),
            ("main", "ns", of(0)),
            ("keeper", "ns", of(1)),
            ("away", "count", of(2)),
        ])
    }
}

/// The loop's side.
struct Serving {
    station: Station,
    sockets: Vec<OwnedFd>,
    watcher: Option<Watcher>,
}

impl Serving {
    fn begin(&mut self, sockets: Vec<OwnedFd>) -> Result<()> {
        let mut watcher = self.station.poller(Tuning::default(), None::<CostBased>)?;
        for (number, socket) in sockets.iter().enumerate() {
            let key = watcher.poller.register(socket, Interest::READABLE)?;
            if key.index() as usize != number {
                return Err(self.wrong("registrations are not numbered in their order".to_owned()));
            }
        }
        self.sockets = sockets;
        self.watcher = Some(watcher);
        Ok(())
    }

    fn wrong(&self, found: String) -> Error {
        Error::Work { subject: self.station.kind.name(), found }
    }

    fn hand_over_idle(&mut self) -> Result<Vec<f64>> {
        let Some(watcher) = &mut self.watcher else { return Ok(Vec::new()) };
        let mut events = Events::with_limit(64);
        let begun = Instant::now();
        let all = if self.station.kind == Kind::Nested { 0 } else { self.sockets.len() };
        loop {
            watcher.poller.wait(&mut events, Some(Duration::from_millis(20)))?;
            let away = watcher.poller.stats().away.len;
            if away >= all {
                return Ok(vec![away as f64]);
            }
            if begun.elapsed() > PATIENCE {
                let found = format!("{away} of {all} idle connections left for the keeper");
                return Err(self.wrong(found));
            }
        }
    }

    fn serve(&mut self, requests: u64) -> Result<Vec<f64>> {
        let Some(watcher) = &mut self.watcher else { return Ok(Vec::new()) };
        let mut events = Events::with_limit(64);
        let mut room = [0; BYTES];
        let (mut unanswered, mut counted) = (requests + FIRST, 0);
        let (mut main, mut keeper) = (process::thread_time(), self.station.keeper_time()?);
        while unanswered > 0 {
            watcher.poller.wait(&mut events, Some(PATIENCE))?;
            if events.is_empty() {
                return Err(self.wrong(format!("{unanswered} requests did not come")));
            }
            for event in &events {
                let fd = self.sockets[event.key().index() as usize].as_raw_fd();
                let count = descriptor::read(fd, &mut room);
                if count != BYTES as isize || descriptor::write(fd, &room) != BYTES as isize {
                    return Err(self.wrong(format!("a request was read as {count} bytes")));
                }
                unanswered = unanswered.saturating_sub(1);
            }
            if counted == 0 && unanswered <= requests {
                counted = unanswered;
                (main, keeper) = (process::thread_time(), self.station.keeper_time()?);
            }
        }
        let each = |ns: u64| ns as f64 / counted.max(1) as f64;
        let away = watcher.poller.stats().away.len as f64;
        Ok(vec![
            each(process::thread_time() - main),
            each(self.station.keeper_time()?.saturating_sub(keeper)),
            away,
        ])
    }
}

/// The clients' side: the first connections send requests, the remaining ones are silent.
struct Asking {
    generator: Generator<Timed>,
    silent: Vec<OwnedFd>,
}

impl Asking {
    fn new(
        subject: &'static str,
        mut sockets: Vec<OwnedFd>,
        processor: Option<usize>,
    ) -> Result<Asking> {
        if let Some(processor) = processor {
            process::pin(&[processor]).doing("moving clients to their processor")?;
        }
        let silent = sockets.split_off(ACTIVE);
        let room = (Room::new(BYTES), Vec::new());
        let mut sockets = sockets.into_iter();
        let generator = Generator::new(subject, ACTIVE, room, |set, number| {
            let socket = sockets.next().ok_or_else(|| Error::usage("a client has no socket"))?;
            let connection = Connection::new(socket, set, number).doing("setting clients up")?;
            Ok(Timed { connection, asked_at: 0 })
        })?;
        Ok(Asking { generator, silent })
    }

    /// Returns the time of each request except the first ones.
    fn ask(&mut self, subject: &'static str, requests: u64) -> Result<Vec<f64>> {
        self.generator.go(requests + FIRST)?;
        // The clients' ends of idle connections must have received nothing.
        if self.silent.iter().any(|one| descriptor::read_byte(one.as_raw_fd()).is_some()) {
            let found = "a silent connection received data".to_owned();
            return Err(Error::Work { subject, found });
        }
        Ok(std::mem::take(&mut self.generator.room().1).split_off(FIRST as usize))
    }
}

/// A client whose requests are timed. All share a list of the times.
struct Timed {
    connection: Connection,
    asked_at: u64,
}

impl web::Connection for Timed {
    type Room = (Room, Vec<f64>);

    fn ask(&mut self, count: usize, room: &mut Self::Room) -> Result<(), String> {
        self.asked_at = process::now();
        self.connection.ask(count, &mut room.0)
    }

    fn read(&mut self, (room, times): &mut Self::Room) -> Result<usize, String> {
        let answered = self.connection.read(room)?;
        if answered > 0 {
            times.push((process::now() - self.asked_at) as f64);
        }
        Ok(answered)
    }
}
