//! The command line of `superpoll`.

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use superpoll_gateway::control::ServerCommand;

use crate::{control, doctor, explain, import, init, keep, proxy, refusal, serve, sys, top, watch};

/// The I/O engine that adapts: a web server and proxy, and a view of their work on this machine.
#[derive(Debug, Parser)]
#[command(name = "superpoll", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve files, channels and other servers by HTTP, to idle and busy connections
    Serve(Box<serve::Options>),
    /// Relay connections from one address to another, TCP or Unix
    Proxy(proxy::Options),
    /// Keep idle connections while servers come and go
    #[command(visible_alias = "sit")]
    Keep(keep::Options),
    /// Write a small configuration to begin with
    Init(init::Options),
    /// Write a configuration from one of nginx or Caddy, and say what it leaves out
    Import(import::Options),
    /// Say which route of a configuration answers a request, and why
    Explain(explain::Options),
    /// Make a running server read its configuration again, and print the outcome
    Reload(control::Options),
    /// Make a running server open its log files again, after they were moved away
    ReopenLogs(control::ReopenOptions),
    /// Make the program on disk take over from a running server, and print the outcome
    Upgrade(control::Options),
    /// End a running server or proxy when its connections have ended, and wait for that
    Drain(control::Options),
    /// Print the state of a running server or proxy
    Status(control::StatusOptions),
    /// List the servers of the upstreams of a running server, or take one out, or change its weight
    Upstream(control::UpstreamOptions),
    /// List the channels of a running server
    Channels(control::ChannelOptions),
    /// List the connections of a running server, or close those of a client
    Connections(control::ConnectionOptions),
    /// Show a running server or proxy: requests, servers, channels, and the engines
    Top(top::Options),
    /// Count the waits of any running program, and say what another way to wait would save
    Watch(watch::Options),
    /// Try the back-ends on this machine, and measure the cost of watching here
    Doctor(doctor::Options),
    /// Experiments are a command of their own
    #[command(hide = true, disable_help_flag = true)]
    Lab(Moved),
}

/// The arguments of a command that is no longer part of this program.
#[derive(Debug, clap::Args)]
struct Moved {
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    arguments: Vec<String>,
}

impl Command {
    /// Whether the signal of a broken pipe must not end the command: `serve`, `proxy` and `keep`
    /// move bytes within the kernel (`splice(2)`, `sendfile(2)`) to clients that may be gone; `top`
    /// has a terminal to give back.
    fn outlives_pipes(&self) -> bool {
        match self {
            Command::Proxy(_) | Command::Serve(_) | Command::Keep(_) => true,
            Command::Top(options) => !options.once,
            Command::Explain(_)
            | Command::Import(_)
            | Command::Init(_)
            | Command::Reload(_)
            | Command::ReopenLogs(_)
            | Command::Upgrade(_)
            | Command::Drain(_)
            | Command::Status(_)
            | Command::Upstream(_)
            | Command::Channels(_)
            | Command::Connections(_)
            | Command::Watch(_)
            | Command::Doctor(_)
            | Command::Lab(_) => false,
        }
    }
}

/// Returns the command line with its subcommands and options. The manual pages and the completions
/// of shells are made from it (`examples/manual.rs`).
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command `superpoll` with the arguments of this process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refusal::refuse("superpoll", &error),
    };
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("superpoll: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    if !command.outlives_pipes() {
        sys::end_on_closed_output();
    }
    let done = match command {
        Command::Import(options) => return import::run(&options),
        Command::Watch(options) => return watch::run(&options),
        Command::Channels(options) => control::channels(&options),
        Command::Connections(options) => control::connections(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Drain(options) => control::run(ServerCommand::Drain, &options),
        Command::Explain(options) => explain::run(&options),
        Command::Init(options) => init::run(&options),
        Command::Keep(options) => keep::run(&options),
        Command::Lab(moved) => Err(elsewhere(&moved.arguments).into()),
        Command::Proxy(options) => proxy::run(&options),
        Command::Reload(options) => control::run(ServerCommand::Reload, &options),
        Command::ReopenLogs(options) => control::reopen_logs(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Status(options) => control::status(&options),
        Command::Top(options) => top::run(&options),
        Command::Upstream(options) => control::upstream(&options),
        Command::Upgrade(options) => control::run(ServerCommand::Upgrade, &options),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The error that names the command of the laboratory, with the same arguments.
fn elsewhere(arguments: &[String]) -> String {
    let words: String = arguments.iter().map(|word| format!(" {word}")).collect();
    format!(
        "experiments are a command of their own: superpoll-lab{words}; \
         to build it: cargo build --profile dist -p superpoll-lab"
    )
}
