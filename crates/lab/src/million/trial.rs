//! The kinds of connections, one after the other.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::budget::Budget;
use crate::environment::{self, Headroom, Limit};
use crate::error::{Error, Result};
use crate::http::BODY;
use crate::idle::service::Kind;
use crate::million::{Crash, KINDS, Options, Round, Row};
use crate::options::{self, Output};
use crate::record::Record;
use crate::run::{self, Run};
use crate::server::crowd::{Crowd, Order, Report, Settings};
use crate::server::fleet::{Fleet, NAME, Use};
use crate::server::memory;
use crate::server::wire::message;
use crate::sys::process;

/// The steps of a kind.
const STEPS: usize = 5;

/// Complaints that are printed for each kind.
const COMPLAINTS: usize = 3;

pub(super) fn run(options: &Options) -> Result<Record<Row>> {
    let plan = plan(options, Machine::here())?;
    let output = Output { repetitions: Some(1), ..options.output.clone() };
    let budget = Budget::new(&output, plan.kinds.len(), 30.0, 1200.0);
    let notes = plan.note.iter().cloned().collect();
    let mut run = Run::new("million", &output, notes, plan.kinds.len() * STEPS, budget);
    let mut rows = Vec::new();
    for &kind in &plan.kinds {
        if !run.budget.point() || !run.budget.round() {
            continue;
        }
        let measured = Stage::start(&plan, kind).and_then(|mut stage| {
            let row = stage.run(|step| run.progress.step(format!("{kind} {step}")));
            row.map(|row| (row, std::mem::take(&mut stage.complaints)))
        });
        if let Some((row, complaints)) = run.budget.keep(measured)? {
            rows.push(row);
            let complaints = complaints.into_iter().take(COMPLAINTS);
            complaints.for_each(|text| run.note(format!("{kind}: {text}")));
        }
    }
    let own = [
        ("kinds", json!(plan.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>())),
        ("connections", json!(plan.connections)),
        ("processes", json!(plan.processes)),
        ("keepers", json!(plan.has_keepers)),
    ];
    Ok(run.record(own, rows))
}

// The checked options, and the limit of the number of connections.

/// The assumed memory of a pair of sockets with both of its ends, in bytes: 10 KB of the kernel's
/// and the rest of the processes'.
const BYTES: u64 = 12 << 10;

/// Descriptors that a server keeps for files (see `docs/memory.md`), and those of its own.
const KEPT: usize = 32;
const SHARE: usize = 32;
const OWN: usize = 32;

/// The most processes of the server.
const PROCESSES: usize = 4096;

/// The number of watched descriptors of a user.
const WATCHES: &str = "/proc/sys/fs/epoll/max_user_watches";

/// The checked options.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The kinds, in turn.
    pub kinds: Vec<Kind>,
    /// Connections to open.
    pub connections: usize,
    /// Why there are no more.
    pub limit: &'static str,
    /// Processes of the server.
    pub processes: usize,
    /// Whether each server has a keeper.
    pub has_keepers: bool,
    /// How long connections may be opened, for each kind.
    pub time: Duration,
    /// A difference from the request.
    pub note: Option<String>,
}

impl Plan {
    /// Returns the number of connections of a process of clients.
    pub(super) fn share(&self, process: usize) -> usize {
        self.connections / self.processes + usize::from(process < self.connections % self.processes)
    }
}

/// The limits of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    headroom: Headroom,
    /// Descriptors of a process.
    descriptors: usize,
    /// Descriptors that all epoll sets of a user may watch.
    watches: usize,
}

impl Machine {
    /// Looks around. The limit of descriptors is raised as far as it goes.
    pub(super) fn here() -> Machine {
        let nofile = superpoll::limits::raise_descriptors()
            .unwrap_or_else(|_| superpoll::limits::nofile().0);
        let watches = environment::line(WATCHES).and_then(|line| line.parse().ok());
        Machine {
            headroom: Headroom::here(),
            descriptors: usize::try_from(nofile).unwrap_or(usize::MAX),
            watches: watches.unwrap_or(usize::MAX),
        }
    }

    /// Returns how many connections a process may have.
    fn capacity(&self) -> usize {
        self.descriptors.saturating_sub(KEPT + self.descriptors / SHARE + OWN).max(1)
    }

    /// Returns how many connections there can be, and the limit that allows no more.
    fn most(&self, processes: Option<usize>, has_keepers: bool) -> (usize, &'static str) {
        let capacity = self.capacity();
        // A keeper is one more process for the connections of a server.
        let at_servers = if has_keepers { capacity / 2 } else { capacity };
        let (count, limit) = self.headroom.connections(BYTES, at_servers, capacity);
        // Both ends of a connection are watched.
        let all = [
            (count, limit.name()),
            (self.watches / 2, "watches"),
            (capacity.saturating_mul(processes.unwrap_or(PROCESSES)), "descriptors"),
        ];
        all.into_iter().min_by_key(|(count, _)| *count).unwrap_or(all[0])
    }

    /// Returns a limit in words.
    fn explain(&self, limit: &str) -> String {
        match limit {
            "watches" => format!("fs.epoll.max_user_watches is {}", self.watches),
            "descriptors" => format!("a process may open {} descriptors", self.descriptors),
            name if name == Limit::Memory.name() => {
                let available = self.headroom.memory >> 20;
                format!("{available} MiB of memory are available, and a quarter is left")
            }
            name if name == Limit::Files.name() => "fs.file-max allows no more".to_owned(),
            _ => "no more processes may be started".to_owned(),
        }
    }
}

/// Checks the options.
pub(super) fn plan(options: &Options, machine: Machine) -> Result<Plan> {
    let kinds = options::named(&options.kinds, &KINDS, |one| one.name(), |_| true, "no kind")?;
    let is_quick = options.output.quick;
    if let Some(connections) = options.connections {
        options::within("--connections", connections, 1..=usize::MAX / 2)?;
    }
    let wanted = options.processes.or(is_quick.then_some(2));
    if let Some(processes) = wanted {
        options::within("--processes", processes, 1..=PROCESSES)?;
    }
    if options.output.repetitions.is_some_and(|count| count > 1) {
        return Err(Error::usage("--repetitions has no use here: each kind is measured once"));
    }
    let has_keepers = !options.no_keeper;
    let (most, limit) = machine.most(wanted, has_keepers);
    let asked = options.connections.or(is_quick.then_some(300));
    let connections = asked.unwrap_or(most).min(most);
    if connections == 0 {
        let why = machine.explain(limit);
        return Err(Error::usage(format!("there is no room for a connection: {why}")));
    }
    let is_cut = asked.is_none_or(|asked| asked > most);
    let note = is_cut.then(|| {
        let why = machine.explain(limit);
        match asked {
            Some(asked) => format!("{most} connections instead of {asked}: {why}"),
            None => format!("{most} connections: {why}"),
        }
    });
    let needed = connections.div_ceil(machine.capacity());
    let seconds = options.output.budget(30.0, 1200.0) / kinds.len() as f64;
    Ok(Plan {
        connections,
        limit: if is_cut { limit } else { "asked" },
        processes: wanted.unwrap_or(needed).min(connections),
        has_keepers,
        // The rest is for the message, the crash and the check of each connection.
        time: Duration::from_secs_f64(seconds * 0.6),
        note,
        kinds,
    })
}

// All connections of a kind, from the first one to the check of each.

/// Processes of clients that open connections, or send requests, at the same time; and how many
/// each of them has under way.
const AT_ONCE: usize = 4;
const IN_FLIGHT: usize = 50;

/// How long a server needs to give freed memory back, after all connections are parked: it looks at
/// its memory once a second, and waits for another second if there is little to give back.
const SETTLING_NS: u64 = 4_000_000_000;

/// How long it takes until all clients wait for a message, and how long they listen for another one
/// after the last one has its message.
const LISTENING_NS: u64 = 300_000_000;
const LISTEN_MS: u64 = 200;

/// Bytes of a message.
const MESSAGE: usize = 16;

/// All processes of a kind.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    plan: &'a Plan,
    kind: Kind,
    // Declared before the servers: the clients reset their connections before a server closes them,
    // so that no port stays occupied.
    crowds: Vec<Crowd>,
    fleet: Fleet,
    /// The open connections of each process of clients.
    open: Vec<usize>,
    messages: u64,
    row: Row,
    /// Failures, in words.
    pub complaints: Vec<String>,
}

/// The state of servers and kernel without connections.
#[derive(Clone, Copy, Debug)]
struct Start {
    memory: Use,
    time: Use,
    slab: u64,
    begun: Instant,
}

impl<'a> Stage<'a> {
    /// Starts all processes, without connections.
    pub(super) fn start(plan: &'a Plan, kind: Kind) -> Result<Stage<'a>> {
        let mut fleet = Fleet::new(plan.processes, plan.has_keepers)?;
        // Processes are forked before there is anything that they could inherit.
        let crowd = |number: usize| {
            Crowd::start(Settings {
                subject: NAME,
                from: address(number),
                port: fleet.port(number),
                opening: kind.opening(),
                bytes: MESSAGE,
                tls: None,
            })
        };
        let crowds = (0..plan.processes).map(crowd).collect::<Result<Vec<_>>>()?;
        fleet.start(BODY)?;
        let open = vec![0; plan.processes];
        let (row, complaints) = (Row::default(), Vec::new());
        Ok(Stage { plan, kind, crowds, fleet, open, messages: 0, row, complaints })
    }

    /// Opens all connections, and takes them through all steps; `step` is told the next one.
    pub(super) fn run(&mut self, step: impl Fn(&str)) -> Result<Row> {
        let start = Start {
            memory: self.fleet.memory(0)?,
            time: self.fleet.processor_time()?,
            slab: memory::of_machine()?.slab,
            begun: Instant::now(),
        };
        step("opens");
        let limit = self.open()?;
        self.row = Row {
            kind: self.kind.name().to_owned(),
            asked: self.plan.connections,
            limit: limit.to_owned(),
            processes: self.plan.processes,
            ..Row::default()
        };
        step("parks");
        self.measure(start)?;
        let before = self.all();
        if self.kind != Kind::KeepAlive {
            step("publishes");
            self.row.message = Some(self.publish()?);
        }
        if self.plan.has_keepers {
            step("crashes");
            // Clients that poll have asked again since the message.
            self.fleet.until_parked(self.all())?;
            let connections = self.open[0];
            let begun = process::now();
            self.fleet.kill()?;
            self.fleet.follow(BODY, &[])?;
            let seconds = seconds(process::now() - begun);
            self.row.crash = Some(Crash { connections, lost: 0, seconds });
        }
        step("checks");
        self.row.check = match self.kind {
            Kind::KeepAlive => self.ask()?,
            _ => self.publish()?,
        };
        let lost = before.saturating_sub(self.all());
        if let Some(crash) = &mut self.row.crash {
            crash.lost = lost;
        }
        Ok(self.row.clone())
    }

    fn all(&self) -> usize {
        self.open.iter().sum()
    }

    /// Opens connections, and returns why there are no more.
    fn open(&mut self) -> Result<&'static str> {
        let begun = Instant::now();
        let floor = Headroom::here().memory / 4;
        let mut limit = None;
        let plan = self.plan;
        let orders = |number: usize| {
            let refusal = if run::signal().is_some() {
                Some("interrupted")
            } else if begun.elapsed() > plan.time {
                Some("time")
            } else {
                (Headroom::here().memory < floor).then_some("memory")
            };
            limit = limit.or(refusal);
            let open = Order::Open { count: plan.share(number), at_once: IN_FLIGHT };
            limit.is_none().then_some(open)
        };
        let reports =
            in_turn(&mut self.crowds, AT_ONCE, orders, |report| report.complaint.is_none())?;
        let is_refused = reports.iter().flatten().any(|report| report.complaint.is_some());
        self.note(&reports);
        if self.all() == 0 {
            let why = self.complaints.first().map_or("there was no time", String::as_str);
            return Err(Error::usage(format!("no connection was opened: {why}")));
        }
        Ok(if is_refused { "refused" } else { limit.unwrap_or(plan.limit) })
    }

    /// Keeps the open connections of each process, and the first complaint of all.
    fn note(&mut self, reports: &[Option<Report>]) {
        for (number, report) in reports.iter().enumerate() {
            let Some(report) = report else { continue };
            self.open[number] = report.open;
            let complaint = report.complaint.as_ref();
            self.complaints.extend(complaint.map(|text| format!("clients {number}: {text}")));
        }
    }

    /// Waits until all connections are parked, and reads memory and processor time.
    fn measure(&mut self, start: Start) -> Result<()> {
        self.fleet.until_parked(self.all())?;
        let seconds = start.begun.elapsed().as_secs_f64();
        let time = self.fleet.processor_time()?;
        let memory = self.fleet.memory(SETTLING_NS)?;
        let slab = memory::of_machine()?.slab;
        // The memory is that of connections that are all there at this time.
        let reports = in_turn(&mut self.crowds, AT_ONCE, |_| Some(Order::Check), |_| true)?;
        self.note(&reports);
        let count = self.all();
        let (servers, keepers) = memory.since(start.memory, count);
        let (server_ns, keeper_ns) = time.since(start.time, count);
        self.row = Row {
            connections: count,
            seconds,
            server_bytes_per_connection: servers,
            keeper_bytes_per_connection: keepers,
            server_bytes: memory.servers,
            keeper_bytes: memory.keepers,
            slab_bytes_per_pair: (slab as f64 - start.slab as f64) / count.max(1) as f64,
            server_ns_per_connection: server_ns,
            keeper_ns_per_connection: keeper_ns,
            ..self.row.clone()
        };
        Ok(())
    }

    /// Publishes a message to all connections.
    fn publish(&mut self) -> Result<Round> {
        self.messages += 1;
        let text = message(self.messages, MESSAGE);
        for crowd in &mut self.crowds {
            crowd.order(&Order::Receive { number: self.messages, listen_ms: LISTEN_MS })?;
        }
        process::sleep(LISTENING_NS);
        let (before, begun) = (self.fleet.processor_time()?, process::now());
        self.fleet.publish(&text)?;
        let mut reports = Vec::new();
        for crowd in &mut self.crowds {
            reports.push(Some(crowd.report()?));
        }
        self.round(&reports, before, begun)
    }

    /// Sends a request on each connection.
    fn ask(&mut self) -> Result<Round> {
        let (before, begun) = (self.fleet.processor_time()?, process::now());
        let all = Order::Ask { count: usize::MAX, at_once: IN_FLIGHT };
        let reports = in_turn(&mut self.crowds, AT_ONCE, |_| Some(all.clone()), |_| true)?;
        self.round(&reports, before, begun)
    }

    fn round(&mut self, reports: &[Option<Report>], before: Use, begun: u64) -> Result<Round> {
        self.note(reports);
        let all = || reports.iter().flatten();
        let received = all().map(|report| report.done).sum();
        let last = all().map(|report| report.last_ns).max().unwrap_or(begun);
        let (servers, keepers) = self.fleet.processor_time()?.since(before, received);
        Ok(Round {
            received,
            wrong: all().map(|report| report.wrong).sum(),
            seconds: seconds(last.saturating_sub(begun)),
            server_ns_per_connection: servers + keepers,
        })
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Returns the address of a process of clients, from 127.0.1.1 on.
fn address(process: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 1, 1).to_bits() + process as u32)
}

/// Gives each process an order, so that at most `at_once` have one at the same time, and returns
/// the reports. No further process gets an order after one without an order, or after a report that
/// is not good.
fn in_turn(
    crowds: &mut [Crowd],
    at_once: usize,
    mut order: impl FnMut(usize) -> Option<Order>,
    is_good: impl Fn(&Report) -> bool,
) -> Result<Vec<Option<Report>>> {
    let mut reports = Vec::new();
    let (mut given, mut goes_on) = (0, true);
    while goes_on || reports.len() < given {
        while goes_on && given < crowds.len() && given < reports.len() + at_once {
            match order(given) {
                Some(order) => {
                    crowds[given].order(&order)?;
                    given += 1;
                }
                None => goes_on = false,
            }
        }
        goes_on &= given < crowds.len();
        if reports.len() < given {
            let report = crowds[reports.len()].report()?;
            goes_on &= is_good(&report);
            reports.push(Some(report));
        }
    }
    reports.resize(crowds.len(), None);
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn machine() -> Machine {
        Machine { headroom: Headroom::here(), descriptors: 20_000, watches: 5_000_000 }
    }

    fn of(change: fn(&mut Options)) -> Result<Plan> {
        let mut options = Options::default();
        change(&mut options);
        plan(&options, machine())
    }

    #[test]
    fn connections_are_spread_over_as_many_processes_as_they_need() {
        let capacity = machine().capacity();
        assert!((19_000..19_900).contains(&capacity), "{capacity}");
        let few = of(|options| options.connections = Some(5)).unwrap();
        assert_eq!((few.connections, few.processes, few.limit), (5, 1, "asked"));
        let spread = Plan { connections: 11, processes: 3, ..few };
        assert_eq!((0..3).map(|one| spread.share(one)).collect::<Vec<_>>(), [4, 4, 3]);
        let two = Machine { watches: 4 * capacity, ..machine() };
        let options = Options { connections: Some(capacity + 1), ..Options::default() };
        assert_eq!(plan(&options, two).unwrap().processes, 2);
    }

    #[test]
    fn the_limit_that_allows_no_more_is_named() {
        let few = Machine { watches: 100, ..machine() };
        let found = plan(&Options::default(), few).unwrap();
        assert_eq!((found.connections, found.limit), (50, "watches"));
        assert!(found.note.unwrap().contains("max_user_watches is 100"));
        let options = Options { connections: Some(51), ..Options::default() };
        let found = plan(&options, few).unwrap();
        assert!(found.note.unwrap().starts_with("50 connections instead of 51"));
        let small = Machine { descriptors: 200, ..machine() };
        let options = Options { processes: Some(2), ..Options::default() };
        let found = plan(&options, small).unwrap();
        assert_eq!((found.connections, found.limit), (2 * small.capacity(), "descriptors"));
        let none = plan(&Options::default(), Machine { watches: 1, ..machine() });
        assert!(none.unwrap_err().to_string().contains("no room for a connection"));
    }

    #[test]
    fn options_are_checked() {
        let quick = of(|options| options.output.quick = true).unwrap();
        assert_eq!((quick.connections, quick.processes), (300, 2));
        assert_eq!(quick.kinds, [Kind::KeepAlive, Kind::WebSocket]);
        assert_eq!(of(|options| options.kinds = "all".to_owned()).unwrap().kinds, KINDS);
        assert!(quick.has_keepers && quick.note.is_none());
        assert!(!of(|options| options.no_keeper = true).unwrap().has_keepers);
        for (change, about) in [
            (
                (|o| o.kinds = "telnet".to_owned()) as fn(&mut Options),
                "keep-alive, websocket, events",
            ),
            (|o| o.connections = Some(0), "--connections 0"),
            (|o| o.processes = Some(0), "--processes 0"),
            (|o| o.processes = Some(5000), "--processes 5000"),
            (|o| o.output.repetitions = Some(2), "--repetitions"),
        ] {
            let error = of(change).unwrap_err().to_string();
            assert!(error.contains(about), "{error}");
        }
    }

    fn crowds(count: usize) -> Vec<Crowd> {
        let one = |number: usize| {
            Crowd::by("absent", move |order| {
                let Order::Connect(done) = order else { return Err(Error::usage("no connect")) };
                Ok(Report { open: number, done, ..Report::default() })
            })
        };
        (0..count).map(|number| one(number).unwrap()).collect()
    }

    #[test]
    fn every_process_has_its_turn_until_one_fails() {
        let mut crowds = crowds(5);
        let order = |number| Some(Order::Connect(10 * number));
        let reports = in_turn(&mut crowds, 2, order, |_| true).unwrap();
        let done: Vec<_> = reports.iter().flatten().map(|one| (one.open, one.done)).collect();
        assert_eq!(done, [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)]);
        let given = Cell::new(0);
        let order = |number| {
            given.set(number + 1);
            Some(Order::Connect(number))
        };
        let reports = in_turn(&mut crowds, 2, order, |one| one.done < 1).unwrap();
        assert_eq!((given.get(), reports.iter().flatten().count()), (3, 3));
        let none = in_turn(&mut crowds, 2, |_| None, |_| true).unwrap();
        assert_eq!(none, [None, None, None, None, None]);
    }

    #[test]
    fn addresses_go_on_in_the_next_network() {
        assert_eq!(address(0), Ipv4Addr::new(127, 0, 1, 1));
        assert_eq!(address(255), Ipv4Addr::new(127, 0, 2, 0));
    }
}
