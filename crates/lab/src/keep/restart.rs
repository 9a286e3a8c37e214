//! A server that is restarted: upgraded, and then killed.
//!
//! The server is `superpoll serve`, as a user would start it, with a keeper process. Half of
//! the connections are subscribers by WebSocket, and half have sent one request and are kept. When
//! all are with the keeper, messages are published one after another; meanwhile the next server
//! is started, with `--upgrade`, or without it after `kill -9`. Each server serves a page with its
//! own number: the time runs from before its process is made until a new connection has received
//! its page. Then every subscriber reports the messages that it received, and every kept connection
//! sends another request. A message whose publisher got no confirmation may arrive or not, but not
//! twice.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::keep::busy::Named;
use crate::keep::crowd::{self, CHANNEL, Order};
use crate::keep::topology::KeeperProcess;
use crate::server::clients::Clients;
use crate::server::{ProcessOptions, Server, program};
use crate::sys::process;

/// How long it may take until connections are left with the keeper, and until a server ends or
/// begins.
const PATIENCE: Duration = Duration::from_secs(40);

/// Messages during a restart, and the pause after each.
const MESSAGES: usize = 20;
const PAUSE_NS: u64 = 25_000_000;

/// How long messages are published before the next server is started.
const BEFORE_NS: u64 = 100_000_000;

crate::by_name::named! {
    /// How a server follows the previous one.
    pub(super) enum RestartKind {
        /// The new server is told to take over.
        Upgrade = "upgrade",
        /// The previous server has been killed.
        Crash = "crash",
    }
}

/// A server, its keeper and its clients.
#[derive(Debug)]
pub(super) struct Site {
    connections: usize,
    port: u16,
    keeper: KeeperProcess,
    crowd: Clients,
    publisher: Clients,
    server: Option<Server>,
    /// How many descriptors the keeper has without connections.
    own: usize,
    number: usize,
    messages: u64,
    folder: TempDir,
}

const PROCESS: ProcessOptions = ProcessOptions { processor: None, second_thread: false };

impl Site {
    /// Starts all of them, and makes the clients connect.
    pub(super) fn start(connections: usize) -> Result<Site> {
        let failed = |e| Error::system("making a folder to be served", e);
        let folder = tempfile::tempdir().map_err(failed)?;
        let port = program::free_port()?;
        let keeper = KeeperProcess::start()?;
        let crowd = crowd::start("superpoll serve", port, Ipv4Addr::new(127, 0, 0, 2))?;
        let publisher = crowd::start("superpoll serve", port, Ipv4Addr::new(127, 0, 0, 3))?;
        let mut site = Site {
            connections,
            port,
            keeper,
            crowd,
            publisher,
            server: None,
            own: 0,
            number: 0,
            messages: 0,
            folder,
        };
        let server = site.begin(&[])?;
        site.server = Some(server);
        site.own = site.keeper.descriptors()?;
        let subscribers = connections / 2;
        site.crowd.ask::<_, Vec<u64>>(&Order::Connect(subscribers, connections - subscribers))?;
        Ok(site)
    }

    fn wrong(found: impl Into<String>) -> Error {
        Error::Work { subject: "superpoll serve", found: found.into() }
    }

    /// Starts the next server, whose page is its number.
    fn begin(&mut self, arguments: &[&str]) -> Result<Server> {
        self.number += 1;
        let page = page(self.number);
        let file = write(self.folder.path(), self.port, self.number, &page)
            .doing("writing the configuration of a server")?;
        let (file, keep) = (file.to_string_lossy(), self.keeper.path());
        let keep = keep.to_string_lossy();
        let all = [&["serve", "--workers", "1", "-c", &*file, "--keeper", &*keep][..], arguments]
            .concat();
        program::superpoll("superpoll serve", PROCESS, &all).map(|(server, _)| server)
    }

    fn until_held(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let held = self.keeper.descriptors()?.saturating_sub(self.own);
            if held >= self.connections {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let all = self.connections;
                let found = format!("{held} of {all} idle connections were left with the keeper");
                return Err(Site::wrong(found));
            }
            process::sleep(10_000_000);
        }
    }

    /// Makes the next server follow the present one. Returns the nanoseconds until the new process
    /// answers; and how many connections have ended, how many messages a subscriber has missed or
    /// received twice, and how many were confirmed.
    pub(super) fn follow(&mut self, kind: RestartKind) -> Result<(Named, [Named; 4])> {
        self.until_held()?;
        let first = self.messages + 1;
        self.publisher.order(&Order::Publish(first, MESSAGES, PAUSE_NS))?;
        process::sleep(BEFORE_NS);
        let before = self.server.take();
        if kind == RestartKind::Crash {
            // Dropping kills the server and waits for its end.
            drop(before);
        } else {
            self.server = before;
        }
        let begun = process::now();
        let server = self.begin(if kind == RestartKind::Upgrade { &["--upgrade"] } else { &[] })?;
        let page = page(self.number);
        let mut said = String::new();
        while said != page {
            said = crowd::ask(self.port).unwrap_or_default();
            if process::now() - begun > PATIENCE.as_nanos() as u64 {
                return Err(Site::wrong(format!("a new server does not answer, but {said:?}")));
            }
        }
        let answer_ns = (process::now() - begun) as f64;
        if let Some(before) = self.server.replace(server) {
            let begun = Instant::now();
            while !before.has_ended() {
                if begun.elapsed() > PATIENCE {
                    return Err(Site::wrong("a server that was replaced does not end"));
                }
                process::sleep(1_000_000);
            }
        }
        let outcome: Vec<u64> = self.publisher.answer()?;
        let numbers = (first..).zip(outcome);
        let confirmed: Vec<u64> =
            numbers.filter(|(_, confirmed)| *confirmed == 1).map(|(number, _)| number).collect();
        self.messages += MESSAGES as u64 + 1;
        self.publisher.ask::<_, Vec<u64>>(&Order::End(self.messages))?;
        let count = confirmed.len() as f64;
        let found: Vec<u64> = self.crowd.ask(&Order::Hear(self.messages, confirmed))?;
        let of = |place: usize| found.get(place).map_or(f64::NAN, |&number| number as f64);
        let counts =
            [("dropped", of(0)), ("lost", of(1)), ("doubled", of(2)), ("confirmed", count)];
        Ok((("first answer", answer_ns), counts))
    }
}

fn page(number: usize) -> String {
    format!("server {number}\n")
}

/// Writes a folder to serve, and a configuration.
fn write(folder: &Path, port: u16, number: usize, page: &str) -> std::io::Result<PathBuf> {
    let root = folder.join(format!("root-{number}"));
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("index.html"), page)?;
    let file = folder.join(format!("server-{number}.toml"));
    let config = format!(
        "[[listeners]]\naddress = \"127.0.0.1:{port}\"\n[[hosts]]\n[[hosts.routes]]\n\
         files = {{ root = {:?} }}\n[[hosts.routes]]\npath = \"{CHANNEL}\"\n\
         channel = {{ history = 1000 }}\n[timeouts]\npark = \"50ms\"\nidle = \"24h\"\nheader = \"24h\"\n",
        root.to_string_lossy()
    );
    std::fs::write(&file, config)?;
    Ok(file)
}
