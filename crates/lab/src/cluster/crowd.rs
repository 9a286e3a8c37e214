//! Subscribers, thousands in a process of their own, each a task of an async runtime.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use superpoll_rt::{Runtime, spawn, time};

use crate::cluster::ledger::{Heard, Ledger, Position, Reader};
use crate::cluster::subscriber::{Shared, Subscriber};
use crate::error::{Error, Result};
use crate::server::clients::Clients;
use crate::sys::process;

/// How long it may take until all subscribers are accepted.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the last subscriber may take to receive the end of a round, after the first.
const END: Duration = Duration::from_secs(60);

/// How long a round may take.
const ROUND: Duration = Duration::from_secs(240);

/// Subscribers that begin to connect together.
const BURST: usize = 100;

/// The orders for a process of subscribers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect subscribers with these numbers, from the first to before the second, behind this
    /// position. The answer: an empty report.
    Connect(usize, usize, Position),
    /// Receive messages until each subscriber has this one. The answer: the report of the round.
    Follow(String),
    /// Check that each subscriber has these messages, unless it was told that it has missed some.
    /// The answer: a report with the lost messages.
    Check(Vec<String>),
}

/// A round at the subscribers of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// The messages that came for the first time.
    pub messages: Vec<Heard>,
    /// Messages that were lost, over all subscribers.
    pub lost: u64,
    /// Messages that came twice.
    pub doubled: u64,
    /// Messages in another order.
    pub reordered: u64,
    /// Subscribers that were told that they have missed messages.
    pub missed: u64,
    /// Connections that were lost.
    pub reconnects: u64,
    /// The processor time of the process.
    pub cpu_ns: u64,
    /// The longest silence of a subscriber.
    pub silence_ns: u64,
    /// Examples of mistakes.
    pub complaints: Vec<String>,
    /// Why connections were lost, and how many.
    pub reasons: BTreeMap<String, u64>,
}

/// Starts a process without subscribers.
pub(super) fn start(servers: Vec<SocketAddr>) -> Result<Clients> {
    let mut crowd: Option<Crowd> = None;
    Clients::start("superpoll serve", move |order: Order| {
        let crowd = match &mut crowd {
            Some(crowd) => crowd,
            // Descriptors that were made before the fork are closed by now.
            none => none.insert(Crowd::new(servers.clone())?),
        };
        match order {
            Order::Connect(from, to, behind) => crowd.connect(from, to, behind),
            Order::Follow(end) => crowd.follow(end),
            Order::Check(texts) => Ok(crowd.check(&texts)),
        }
    })
}

struct Crowd {
    runtime: Runtime,
    shared: Rc<Shared>,
}

impl Crowd {
    fn new(servers: Vec<SocketAddr>) -> Result<Crowd> {
        let shared = Shared {
            servers,
            ledger: RefCell::new(Ledger::default()),
            readers: RefCell::new(Vec::new()),
            accepted: Cell::new(0),
            reasons: RefCell::new(BTreeMap::new()),
            end: RefCell::new(String::new()),
            ended: Cell::new(0),
        };
        Ok(Crowd { runtime: Runtime::new()?, shared: Rc::new(shared) })
    }

    fn wrong(found: String) -> Error {
        Error::Work { subject: "superpoll serve", found }
    }

    fn connect(&mut self, from: usize, to: usize, behind: Position) -> Result<Report> {
        let shared = &self.shared;
        let all = async {
            for global in from..to {
                shared.readers.borrow_mut().push(Reader::new(behind));
                let subscriber = Subscriber {
                    shared: Rc::clone(shared),
                    number: global - from,
                    global,
                    resume: behind.to_string(),
                    server: (global / 3) % shared.servers.len(),
                    is_accepted: false,
                };
                spawn(subscriber.run()).detach();
                if global % BURST == 0 {
                    time::sleep(Duration::from_millis(1)).await;
                }
            }
            let begun = Instant::now();
            while shared.accepted.get() < to - from && begun.elapsed() < PATIENCE {
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.runtime.try_block_on(all)?;
        let (accepted, count) = (shared.accepted.get(), to - from);
        if accepted < count {
            let reasons = shared.reasons.borrow();
            let found = format!("{accepted} of {count} subscribers were accepted: {reasons:?}");
            return Err(Crowd::wrong(found));
        }
        Ok(Report::default())
    }

    fn follow(&mut self, end: String) -> Result<Report> {
        let shared = &self.shared;
        let first = shared.ledger.borrow().count();
        let (now, cpu) = (process::now(), process::processor_time());
        shared.readers.borrow_mut().iter_mut().for_each(|reader| reader.begin(now));
        shared.reasons.borrow_mut().clear();
        shared.end.replace(end);
        shared.ended.set(0);
        let count = shared.readers.borrow().len();
        let all = async {
            let begun = Instant::now();
            let mut first_end = None;
            while shared.ended.get() < count && begun.elapsed() < ROUND {
                if shared.ended.get() > 0 {
                    let first = *first_end.get_or_insert_with(Instant::now);
                    if first.elapsed() > END {
                        break;
                    }
                }
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.runtime.try_block_on(all)?;
        let reasons = shared.reasons.take();
        let mut report = Report {
            messages: shared.ledger.borrow().since(first).to_vec(),
            reconnects: reasons.values().sum(),
            reasons,
            cpu_ns: process::processor_time() - cpu,
            ..Report::default()
        };
        for reader in &*shared.readers.borrow() {
            report.doubled += reader.counts.doubled;
            report.reordered += reader.counts.reordered;
            report.missed += u64::from(reader.counts.missed > 0);
            report.silence_ns = report.silence_ns.max(reader.counts.silence_ns);
        }
        Ok(report)
    }

    fn check(&mut self, texts: &[String]) -> Report {
        let mut ledger = self.shared.ledger.borrow_mut();
        let numbers: Vec<_> = texts.iter().map(|text| (text, ledger.number(text))).collect();
        let mut lost = 0;
        for (place, reader) in self.shared.readers.borrow().iter().enumerate() {
            let is_told = reader.counts.missed > 0;
            let has = |number: Option<usize>| number.is_some_and(|number| reader.has(number));
            let absent: Vec<_> = numbers
                .iter()
                .filter(|(_, number)| !is_told && !has(*number))
                .map(|(text, _)| text)
                .collect();
            if let Some(text) = absent.first() {
                let count = absent.len();
                ledger
                    .complain(|| format!("subscriber {place} lacks {count}, the first is {text}"));
            }
            lost += reader.counts.lost.max(absent.len() as u64);
        }
        Report { lost, complaints: ledger.complaints(), ..Report::default() }
    }
}
