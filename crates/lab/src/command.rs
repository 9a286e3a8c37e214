//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Doing;
use crate::output::{self, present};
use crate::say::{PROGRAM, note};
use crate::wake::{AtrLatency, MixLatency};
use crate::{
    Error, Result, all, citation, comparison, gate, png, replay, statistics, targets, verify,
    zombies,
};

/// The laboratory of superpoll: experiments that compare ways to watch descriptors, on this
/// machine.
#[derive(Debug, Parser)]
#[command(name = "superpoll-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Declares the commands that run an experiment: the folder and the experiment in it.
macro_rules! experiments {
    ($($(#[$about:meta])* $folder:ident::$experiment:ident,)*) => {
        #[derive(Debug, Subcommand)]
        enum Measured {
            $($(#[$about])* $experiment(crate::$folder::Options),)*
        }

        fn measure(measured: &Measured) -> Result<()> {
            match measured {
                Measured::Atr(options) if options.latency => present::<AtrLatency>(options),
                Measured::Mix(options) if options.latency => present::<MixLatency>(options),
                Measured::Zombies(options) if options.is_client() => zombies::client(options),
                $(Measured::$experiment(options) => {
                    present::<crate::$folder::$experiment>(options)
                })*
            }
        }
    };
}

experiments! {
    /// Where poll beats epoll and the reverse, over the ratio of active to all descriptors
    atr::Atr,
    /// Loads of busy and idle descriptors: where adapting pays
    mix::Mix,
    /// Try, signals, ask, register: four ways to learn which descriptors are ready, over the
    /// active/total ratio
    models::Models,
    /// A thread for each descriptor against loops over events, over the active/total ratio
    threads::Threads,
    /// The cost of beginning and ending to watch, singly and in batches
    registrations::Registrations,
    /// How long a loop that has gone quiet takes to wake up
    wake::Wake,
    /// Waits that gather events: processor time and latency of a loop and of a relay
    gather::Gather,
    /// Pipes in a ring with a task between each two: the time a runtime takes to pass a byte on
    ring::Ring,
    /// Many processes wait for one listening socket: a connection's cost, the processes it wakes,
    /// and the one that gets it
    herd::Herd,
    /// A server that echoes its input: the processor time of a request
    echo::Echo,
    /// A web server, the same hyper on each runtime: the processor time of a request
    http::Http,
    /// Servers of static files, ours, nginx, and hyper on tokio: the processor time of a request
    files::Files,
    /// Proxies with and without speculation, compared with haproxy and nginx: system calls and
    /// processor time
    relay::Relay,
    /// Timers set and cancelled, and the delay of timers that fire
    timers::Timers,
    /// A few busy connections among thousands of silent ones: the processor time of a request
    zombies::Zombies,
    /// Connections that do nothing: the memory of each kind
    idle::Idle,
    /// A message to thousands of subscribers: processor time, memory and delay, next to nchan,
    /// pushpin, ws and hyper
    fanout::Fanout,
    /// Idle connections with a keeper: the cost of moving and waking, and how many survive an
    /// upgrade and a crash
    #[command(visible_alias = "sit")]
    keep::Keep,
    /// Three servers with the messages of one Redis, and subscribers that check every message while
    /// a part fails
    cluster::Cluster,
    /// As many idle connections at once as the machine allows, over many processes: memory, a
    /// message to all, and a crash
    million::Million,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Measured(Measured),
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
    /// What poll, epoll, adaptive and uring would have cost a program that superpoll watch --record
    /// has recorded
    Replay(replay::Options),
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
        Command::Measured(measured) => measure(&measured),
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
        Command::Replay(options) => replay::run(&options),
        Command::Statistics(options) => statistics::run(&options),
    }
}
