//! `superpoll reload`, `upgrade`, `drain`, `status` and the operations of `operate`: commands to a
//! running server.
//!
//! Each is a request of the [API](superpoll_gateway::control) on the statistics socket of the
//! server, which does the same as for SIGHUP, SIGUSR2 or SIGTERM, and waits for the outcome. A
//! signal has no outcome: a mistake in a file is in the log only, and the program that sent the
//! signal has ended by then.
//!
//! A connection that ends without an answer has one of two reasons. Either the process has ended,
//! which `process` sees. Or the program of a supervisor was replaced in its process: then its
//! socket is back in a moment, and the request is repeated (`reload`, `drain`), or the outcome is
//! asked for (`upgrade`).

pub(crate) mod client;
mod operate;
mod process;
mod status;
pub(crate) mod target;
mod upgrade;

use std::cell::RefCell;
use std::error::Error;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use superpoll::BackendKind;
use superpoll_gateway::control::{ApiRequest, CommandOutcome, DrainProgress, ServerCommand};
use superpoll_rt::{Runtime, time};

use crate::printable::printable_value;
use crate::quantity;
use client::{End, Exchange};
pub(crate) use process::ServerProcess;
use target::Meant;

pub(crate) use operate::{
    ChannelOptions, ConnectionOptions, ReopenOptions, UpstreamOptions, channels, connections,
    reopen_logs, upstream,
};
pub(crate) use status::{StatusOptions, run as status};

/// The time between two attempts to reach a server whose program is replaced.
const AGAIN: Duration = Duration::from_millis(50);

/// How often to try to reach a server whose socket is there, and which may be about to listen.
const ATTEMPTS: u32 = 10;

/// The argument that names a running server, the same in all commands.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerName {
    /// A server by the number of its process, or by the path of its statistics socket [default: the
    /// only one of this user]
    #[arg(value_name = "PID|PATH", conflicts_with = "of")]
    server: Option<String>,
    /// The same, as in the commands that have other arguments
    #[arg(long, value_name = "PID|PATH")]
    of: Option<String>,
}

impl ServerName {
    /// Returns the number or the path, if one is given.
    pub(crate) fn get(&self) -> Option<&str> {
        self.server.as_deref().or(self.of.as_deref())
    }
}

/// Options of `reload`, `upgrade` and `drain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub name: ServerName,
    /// How long to wait for the outcome [default: 60 for reload, 300 for upgrade, as long as it
    /// takes for drain]
    #[arg(long, value_name = "SECONDS", value_parser = crate::proxy::seconds)]
    pub timeout: Option<Duration>,
}

/// Returns some processes in words.
fn processes(numbers: &[u32]) -> String {
    let all: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let noun = if numbers.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}", all.join(", "))
}

/// Returns the processes that have not answered, in words.
fn not_answering(numbers: &[u32]) -> String {
    let verb = if numbers.len() == 1 { "does" } else { "do" };
    format!("{}, which {verb} not answer", processes(numbers))
}

/// The server, as far as it is known.
#[derive(Default)]
struct LastSeen {
    path: PathBuf,
    process: Option<u32>,
    /// The last that was heard of it.
    last: Option<String>,
}

impl LastSeen {
    fn subject(&self) -> String {
        match self.process {
            Some(process) => format!("process {process}"),
            None if self.path.as_os_str().is_empty() => "looking for the server".to_owned(),
            None => format!("the process at {}", self.path.display()),
        }
    }
}

/// Carries out `reload`, `upgrade` or `drain`.
pub(crate) fn run(command: ServerCommand, options: &Options) -> Result<(), Box<dyn Error>> {
    let limit = options.timeout.or(match command {
        ServerCommand::Reload => Some(Duration::from_secs(60)),
        ServerCommand::Upgrade => Some(Duration::from_secs(300)),
        ServerCommand::Drain => None,
    });
    let meant = match command {
        ServerCommand::Drain => Meant::Any,
        ServerCommand::Reload | ServerCommand::Upgrade => Meant::WebServer,
    };
    within(limit, async |seen| {
        let path = &target::locate(options.name.get(), meant).await?;
        seen.borrow_mut().path.clone_from(path);
        match command {
            ServerCommand::Reload => reload(path, seen).await,
            ServerCommand::Upgrade => upgrade::upgrade(path, seen).await,
            ServerCommand::Drain => drain(path, seen).await,
        }
    })
}

/// Runs until a time is over; then the error says how far it has got.
fn within(
    limit: Option<Duration>,
    work: impl AsyncFnOnce(&RefCell<LastSeen>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    // A few descriptors: choosing a back-end is not worth the effort.
    let runtime = Runtime::builder().backend(BackendKind::Epoll).build()?;
    runtime.try_block_on(async {
        let seen = RefCell::default();
        let work = work(&seen);
        let Some(limit) = limit else { return work.await };
        match time::timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seen = seen.borrow();
                let (subject, seconds) = (seen.subject(), limit.as_secs_f64());
                let last = seen.last.as_ref().map(|last| format!(" ({last})"));
                let last = last.unwrap_or_default();
                Err(format!(
                    "{subject} is not done within {seconds} s{last}; it goes on, or is stopped"
                )
                .into())
            }
        }
    })?
}

/// Makes a server read its configuration again, and prints the outcome.
async fn reload(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    let mut exchange = converse(path, &ServerCommand::Reload.into(), seen).await?;
    let outcome: CommandOutcome = exchange.answer().await?;
    for note in &outcome.notes {
        eprintln!("superpoll: {note}");
    }
    say(&format!("process {} {}", outcome.process, outcome.message))
}

/// Ends a server, and prints its connections and requests until its process has ended.
async fn drain(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    let mut exchange = converse(path, &ApiRequest::followed_drain(), seen).await?;
    let read = |line: &[u8]| serde_json::from_slice::<Value>(line).map(printable_value);
    let begun = read(&exchange.line().await?)?;
    let CommandOutcome { process, .. } = exchange.understand(begun)?;
    let mut known = None;
    loop {
        let line = match exchange.line().await {
            Ok(line) => read(&line)?,
            Err(End::Ended) => break,
            Err(error) => return Err(error.into()),
        };
        let now: DrainProgress = exchange.understand(line)?;
        if known.replace(now.clone()).as_ref() != Some(&now) {
            let mut line = quantity::open_work(now.connections, now.requests);
            let missing = &now.missing_processes;
            if !missing.is_empty() {
                line = format!("{line}, without those of {}", not_answering(missing));
            }
            say(&format!("process {process}: {line}"))?;
            seen.borrow_mut().last = Some(line);
        }
    }
    if let Some(process) = &exchange.process {
        process.ended().await;
    }
    say(&format!("process {process} has ended"))
}

/// Sends a request until its answer begins.
async fn converse(
    path: &Path,
    request: &ApiRequest,
    seen: &RefCell<LastSeen>,
) -> Result<Exchange, Box<dyn Error>> {
    let mut first: Option<ServerProcess> = None;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match Exchange::begin(path, request).await {
            Ok(mut exchange) => {
                let number = exchange.process.as_ref().map(|process| process.number);
                let known = first.as_ref().map(|process| process.number);
                if known.is_some() && known != number {
                    return Err(ended(known).into());
                }
                seen.borrow_mut().process = number;
                match exchange.head().await {
                    Ok(()) => return Ok(exchange),
                    Err(End::Ended) => first = first.or(exchange.process.take()),
                    Err(error) => return Err(error.into()),
                }
                if first.is_none() {
                    return Err(ended(None).into());
                }
            }
            Err(error) if first.is_none() && (attempts == ATTEMPTS || !path.exists()) => {
                return Err(error.into());
            }
            Err(_) if first.is_none() => time::sleep(AGAIN).await,
            // Its program is being replaced, or it is about to end.
            Err(_) => {}
        }
        if let Some(process) = &first
            && process.ends_within(AGAIN).await
        {
            return Err(ended(Some(process.number)).into());
        }
    }
}

fn ended(process: Option<u32>) -> String {
    let subject = match process {
        Some(process) => format!("process {process}"),
        None => "the server".to_owned(),
    };
    format!("{subject} has ended before it has answered")
}

/// Prints a line at once.
fn say(line: &str) -> Result<(), Box<dyn Error>> {
    let mut output = stdout().lock();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}
