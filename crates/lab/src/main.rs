//! The `superpoll-lab` command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use superpoll_lab::{
    Error, Result, all, atr, citation, comparison, echo, files, gate, herd, http, idle, latency,
    mix, models, output, png, registrations, relay, ring, sit, targets, threads, timers, verify,
    wake, zombies,
};

/// Counts allocations, so that experiments can say that a round made none.
#[global_allocator]
static ALLOCATOR: superpoll_lab::Counting = superpoll_lab::Counting;

/// The laboratory of superpoll: experiments that compare ways to watch descriptors, on this machine.
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
    /// Try, signals, ask, register: four ways to learn what is ready, over the active/total ratio
    Models(models::Options),
    /// A thread for each descriptor against loops over events, over the active/total ratio
    Threads(threads::Options),
    /// What it costs to begin and end watching, one by one and in batches
    Registrations(registrations::Options),
    /// How long a loop that has gone quiet takes to wake up
    Wake(wake::Options),
    /// Pipes in a ring and a task between each two: what a runtime takes to pass a byte on
    Ring(ring::Options),
    /// Many wait for one listening socket: what a connection costs, whom it wakes, who gets it
    Herd(herd::Options),
    /// A server that sends back what it gets: the processor time of a request
    Echo(echo::Options),
    /// A web server, the same hyper on each runtime: the processor time of a request
    Http(http::Options),
    /// Servers of static files, ours beside nginx and hyper on tokio: the processor time of a request
    Files(files::Options),
    /// Proxies with and without speculation, beside haproxy and nginx: system calls and processor time
    Relay(relay::Options),
    /// Timers set and taken back, and how late those are that end
    Timers(timers::Options),
    /// A few busy connections beside thousands of silent ones: the processor time of a request
    Zombies(zombies::Options),
    /// Connections that do nothing: the memory of each kind
    Idle(idle::Options),
    /// Idle connections with a babysitter: what moving and waking cost, what outlives an upgrade and a crash
    Sit(sit::Options),
    /// Whether an operation of a core path takes more instructions or system calls than is stored
    Gate(gate::Options),
    /// Everything our targets are about, and whether they are kept
    Targets(targets::Options),
    /// Every experiment, one after the other, and the report on what was claimed and what holds
    All(all::Options),
    /// Two reports side by side: machines, kernels or commits
    Compare(comparison::Options),
    /// The numbers and pictures of the documentation, from a report
    Cite(citation::Options),
    /// The plots of a report as PNG
    Png(png::Options),
    /// Whether what the README promises is so on this machine
    Verify(verify::Options),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return superpoll_cli::refuse(output::PROGRAM, &error),
    };
    superpoll_cli::end_on_closed_output();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// This program, for experiments that are run by processes of their own.
fn this_program() -> Result<std::path::PathBuf> {
    std::env::current_exe().map_err(|e| Error::system("finding this program", e))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Atr(options) if options.latency => {
            output::latency(&latency::of_atr(&options)?, &options.output)
        }
        Command::Atr(options) => {
            let record = atr::run(&options)?;
            let appendix = atr::appendix(&options)?;
            output::atr(&record, appendix.as_ref(), &options.output)
        }
        Command::Mix(options) if options.latency => {
            output::latency(&latency::of_mix(&options)?, &options.output)
        }
        Command::Mix(options) => {
            let record = mix::run(&options)?;
            output::mix(&record, &options.output)
        }
        Command::Models(options) => {
            let record = models::run(&options)?;
            output::models(&record, &options.output)
        }
        Command::Threads(options) => {
            let record = threads::run(&options)?;
            output::threads(&record, &options.output)
        }
        Command::Registrations(options) => {
            let record = registrations::run(&options)?;
            output::registrations(&record, &options.output)
        }
        Command::Wake(options) => {
            let record = wake::run(&options)?;
            output::wake(&record, &options.output)
        }
        Command::Ring(options) => {
            let record = ring::run(&options)?;
            output::ring(&record, &options.output)
        }
        Command::Herd(options) => {
            let record = herd::run(&options)?;
            output::herd(&record, &options.output)
        }
        Command::Echo(options) => {
            let record = echo::run(&options)?;
            output::echo(&record, &options.output)
        }
        Command::Http(options) => {
            let record = http::run(&options)?;
            output::http(&record, &options.output)
        }
        Command::Files(options) => {
            let record = files::run(&options)?;
            output::files(&record, &options.output)
        }
        Command::Relay(options) => {
            let record = relay::run(&options)?;
            output::relay(&record, &options.output)
        }
        Command::Timers(options) => {
            let record = timers::run(&options)?;
            output::timers(&record, &options.output)
        }
        Command::Zombies(options) => {
            let record = zombies::run(&options)?;
            output::zombies(&record, &options.output)
        }
        Command::Idle(options) if options.ramp => {
            output::idle_ramp(&idle::ramp::run(&options)?, &options.output)
        }
        Command::Idle(options) => {
            let record = idle::run(&options)?;
            output::idle(&record, &options.output)
        }
        Command::Sit(options) => {
            let record = sit::run(&options)?;
            output::sit(&record, &options.output)
        }
        Command::Gate(options) => gate::run(&options),
        Command::Targets(options) => {
            let record =
                targets::run(&options, |what| eprintln!("superpoll-lab: measuring {what}"))?;
            output::all_targets(&record, &options.output)
        }
        Command::All(options) => {
            output::all(&all::run(&options, &this_program()?)?, &options.report)
        }
        Command::Compare(options) => comparison::run(&options),
        Command::Cite(options) => citation::run(&options),
        Command::Png(options) => png::run(&options),
        Command::Verify(options) => verify::run(&options, &this_program()?),
    }
}
