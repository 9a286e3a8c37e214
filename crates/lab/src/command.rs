//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::atr::{self, Atr};
use crate::cluster::{self, Cluster};
use crate::echo::{self, Echo};
use crate::error::Doing;
use crate::fanout::{self, Fanout};
use crate::files::{self, Files};
use crate::herd::{self, Herd};
use crate::http::{self, Http};
use crate::idle::{self, Idle};
use crate::keep::{self, Keep};
use crate::latency::{AtrLatency, MixLatency};
use crate::million::{self, Million};
use crate::mix::{self, Mix};
use crate::models::{self, Models};
use crate::output::{self, present};
use crate::registrations::{self, Registrations};
use crate::relay::{self, Relay};
use crate::ring::{self, Ring};
use crate::say::{PROGRAM, note};
use crate::threads::{self, Threads};
use crate::timers::{self, Timers};
use crate::wake::{self, Wake};
use crate::zombies::{self, Zombies};
use crate::{Error, Result, all, citation, comparison, gate, png, statistics, targets, verify};

/// The laboratory of superpoll: experiments that compare ways to watch descriptors, on this
/// machine.
#[derive(Debug, Parser)]
#[command(name = "superpoll-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Where poll beats epoll and the reverse, over the ratio of active to all descriptors
    Atr(atr::Options),
    /// Loads of busy and idle descriptors: where adapting pays
    Mix(mix::Options),
    /// Try, signals, ask, register: four ways to learn which descriptors are ready, over the
    /// active/total ratio
    Models(models::Options),
    /// A thread for each descriptor against loops over events, over the active/total ratio
    Threads(threads::Options),
    /// The cost of beginning and ending to watch, singly and in batches
    Registrations(registrations::Options),
    /// How long a loop that has gone quiet takes to wake up
    Wake(wake::Options),
    /// Pipes in a ring with a task between each two: the time a runtime takes to pass a byte on
    Ring(ring::Options),
    /// Many processes wait for one listening socket: a connection's cost, the processes it wakes,
    /// and the one that gets it
    Herd(herd::Options),
    /// A server that echoes its input: the processor time of a request
    Echo(echo::Options),
    /// A web server, the same hyper on each runtime: the processor time of a request
    Http(http::Options),
    /// Servers of static files, ours, nginx, and hyper on tokio: the processor time of a request
    Files(files::Options),
    /// Proxies with and without speculation, compared with haproxy and nginx: system calls and
    /// processor time
    Relay(relay::Options),
    /// Timers set and cancelled, and the delay of timers that fire
    Timers(timers::Options),
    /// A few busy connections among thousands of silent ones: the processor time of a request
    Zombies(zombies::Options),
    /// Connections that do nothing: the memory of each kind
    Idle(idle::Options),
    /// A message to thousands of subscribers: processor time, memory and delay, next to nchan,
    /// pushpin, ws and hyper
    Fanout(fanout::Options),
    /// Idle connections with a keeper: the cost of moving and waking, and how many survive an
    /// upgrade and a crash
    #[command(visible_alias = "sit")]
    Keep(keep::Options),
    /// Three servers with the messages of one Redis, and subscribers that check every message while
    /// a part fails
    Cluster(cluster::Options),
    /// As many idle connections at once as the machine allows, over many processes: memory, a
    /// message to all, and a crash
    Million(million::Options),
    /// Checks whether an operation of a core path takes more instructions or system calls than
    /// stored
    Gate(gate::Options),
    /// Measures everything that has a target, and whether the targets are kept
    Targets(targets::Options),
    /// Every experiment in turn, and the report on the claims and which of them hold
    All(all::Options),
    /// Two reports side by side: machines, kernels or commits
    Compare(comparison::Options),
    /// The numbers and pictures of the documentation, from a report
    Cite(citation::Options),
    /// The plots of a report as PNG
    Png(png::Options),
    /// Checks the README's promises on this machine
    Verify(verify::Options),
    /// Which estimator recovers a planted difference under the noise of a shared machine
    Statistics(statistics::Options),
}

/// Runs the command that the arguments of this process name.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return superpoll_cli::refuse(PROGRAM, &error),
    };
    superpoll_cli::end_on_closed_output();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&error.to_string());
            match error {
                // As a shell reports it, 130 for Ctrl-C.
                Error::Interrupted { signal, .. } => ExitCode::from(128 + signal as u8),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// This program, for experiments that are run by processes of their own.
fn this_program() -> Result<std::path::PathBuf> {
    std::env::current_exe().doing("finding this program")
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Atr(options) if options.latency => present::<AtrLatency>(&options),
        Command::Atr(options) => present::<Atr>(&options),
        Command::Mix(options) if options.latency => present::<MixLatency>(&options),
        Command::Mix(options) => present::<Mix>(&options),
        Command::Models(options) => present::<Models>(&options),
        Command::Threads(options) => present::<Threads>(&options),
        Command::Registrations(options) => present::<Registrations>(&options),
        Command::Wake(options) => present::<Wake>(&options),
        Command::Ring(options) => present::<Ring>(&options),
        Command::Herd(options) => present::<Herd>(&options),
        Command::Echo(options) => present::<Echo>(&options),
        Command::Http(options) => present::<Http>(&options),
        Command::Files(options) => present::<Files>(&options),
        Command::Relay(options) => present::<Relay>(&options),
        Command::Timers(options) => present::<Timers>(&options),
        Command::Zombies(options) => present::<Zombies>(&options),
        Command::Idle(options) => present::<Idle>(&options),
        Command::Fanout(options) => present::<Fanout>(&options),
        Command::Keep(options) => present::<Keep>(&options),
        Command::Cluster(options) => present::<Cluster>(&options),
        Command::Million(options) => present::<Million>(&options),
        Command::Gate(options) => gate::run(&options),
        Command::Targets(options) => {
            let record = targets::run(&options, |what| note(&format!("measuring {what}")))?;
            output::all_targets(&record, &options.output)
        }
        Command::All(options) => {
            output::all(&all::run(&options, &this_program()?)?, &options.report)
        }
        Command::Compare(options) => comparison::run(&options),
        Command::Cite(options) => citation::run(&options),
        Command::Png(options) => png::run(&options),
        Command::Verify(options) => verify::run(&options, &this_program()?),
        Command::Statistics(options) => statistics::run(&options),
    }
}
