//! The `superpoll` command.

mod doctor;
mod proxy;
mod serve;
mod sit;
mod stats;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use superpoll_lab::{
    all, atr, citation, comparison, echo, files, gate, herd, http, idle, latency, mix, models,
    output, png, registrations, relay, ring, sit as babysitting, targets, threads, timers, verify,
    wake, zombies,
};

/// Counts allocations, so that experiments can say that a round made none.
#[global_allocator]
static ALLOCATOR: superpoll_lab::Counting = superpoll_lab::Counting;

/// The I/O engine that adapts: a web server and proxy, experiments, and what works on this machine.
#[derive(Debug, Parser)]
#[command(name = "superpoll", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Experiments that compare ways to watch descriptors
    #[command(subcommand)]
    Lab(Box<Lab>),
    /// Serve files, channels and other servers by HTTP, to idle and busy connections
    Serve(serve::Options),
    /// Relay connections from one address to another, TCP or Unix
    Proxy(proxy::Options),
    /// Hold idle connections while servers come and go
    Sit(sit::Options),
    /// What a running server or proxy is doing: its sets, moves, system calls and slowest turns
    Top(top::Options),
    /// What works on this machine, and what watching costs here
    Doctor(doctor::Options),
}

impl Command {
    /// Whether the signal of a broken pipe must not end it: because it moves bytes within the kernel (`splice(2)`,
    /// `sendfile(2)`) to clients, any of which may be gone, or because it has a terminal to give back.
    fn outlives_pipes(&self) -> bool {
        match self {
            Command::Proxy(_) | Command::Serve(_) | Command::Sit(_) => true,
            Command::Top(options) => !options.once,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Lab {
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
    Sit(babysitting::Options),
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
        Err(error) => return refuse(&error),
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("superpoll: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version as clap prints them; anything else in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let cause = text.split("\n\n").next().unwrap_or(&text);
    let line = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("superpoll: {} (see --help)", line.trim_start_matches("error: "));
    ExitCode::from(2)
}

fn run(command: Command) -> Result<(), Box<dyn std::error::Error>> {
    if !command.outlives_pipes() {
        superpoll_lab::end_on_closed_output();
    }
    match command {
        Command::Doctor(options) => Ok(doctor::run(&options)?),
        Command::Lab(lab) => Ok(experiment(*lab)?),
        Command::Proxy(options) => proxy::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::Sit(options) => sit::run(&options),
        Command::Top(options) => top::run(&options),
    }
}

/// This program, for experiments that are run by processes of their own.
fn this_program() -> superpoll_lab::Result<std::path::PathBuf> {
    std::env::current_exe().map_err(|e| superpoll_lab::Error::system("finding this program", e))
}

fn experiment(lab: Lab) -> superpoll_lab::Result<()> {
    match lab {
        Lab::Atr(options) if options.latency => {
            output::latency(&latency::of_atr(&options)?, &options.output)
        }
        Lab::Atr(options) => {
            let record = atr::run(&options)?;
            let appendix = atr::appendix(&options)?;
            output::atr(&record, appendix.as_ref(), &options.output)
        }
        Lab::Mix(options) if options.latency => {
            output::latency(&latency::of_mix(&options)?, &options.output)
        }
        Lab::Mix(options) => {
            let record = mix::run(&options)?;
            output::mix(&record, &options.output)
        }
        Lab::Models(options) => {
            let record = models::run(&options)?;
            output::models(&record, &options.output)
        }
        Lab::Threads(options) => {
            let record = threads::run(&options)?;
            output::threads(&record, &options.output)
        }
        Lab::Registrations(options) => {
            let record = registrations::run(&options)?;
            output::registrations(&record, &options.output)
        }
        Lab::Wake(options) => {
            let record = wake::run(&options)?;
            output::wake(&record, &options.output)
        }
        Lab::Ring(options) => {
            let record = ring::run(&options)?;
            output::ring(&record, &options.output)
        }
        Lab::Herd(options) => {
            let record = herd::run(&options)?;
            output::herd(&record, &options.output)
        }
        Lab::Echo(options) => {
            let record = echo::run(&options)?;
            output::echo(&record, &options.output)
        }
        Lab::Http(options) => {
            let record = http::run(&options)?;
            output::http(&record, &options.output)
        }
        Lab::Files(options) => {
            let record = files::run(&options)?;
            output::files(&record, &options.output)
        }
        Lab::Relay(options) => {
            let record = relay::run(&options)?;
            output::relay(&record, &options.output)
        }
        Lab::Timers(options) => {
            let record = timers::run(&options)?;
            output::timers(&record, &options.output)
        }
        Lab::Zombies(options) => {
            let record = zombies::run(&options)?;
            output::zombies(&record, &options.output)
        }
        Lab::Idle(options) if options.ramp => {
            output::idle_ramp(&idle::ramp::run(&options)?, &options.output)
        }
        Lab::Idle(options) => {
            let record = idle::run(&options)?;
            output::idle(&record, &options.output)
        }
        Lab::Sit(options) => {
            let record = babysitting::run(&options)?;
            output::sit(&record, &options.output)
        }
        Lab::Gate(options) => gate::run(&options),
        Lab::Targets(options) => {
            let record = targets::run(&options, |what| eprintln!("superpoll: measuring {what}"))?;
            output::all_targets(&record, &options.output)
        }
        Lab::All(options) => output::all(&all::run(&options, &this_program()?)?, &options.report),
        Lab::Compare(options) => comparison::run(&options),
        Lab::Cite(options) => citation::run(&options),
        Lab::Png(options) => png::run(&options),
        Lab::Verify(options) => verify::run(&options, &this_program()?),
    }
}
