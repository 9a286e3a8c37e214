//! `superpoll proxy`: relays connections from one address to another until a signal ends it.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::or;
use superpoll::BackendKind;
use superpoll_gateway::config::{
    AccessLog, Balance, Dns, Health, HealthKind, LogFormat, Server, ServerAddress, Upstream,
    Workers,
};
use superpoll_gateway::control::{
    CommandOutcome, CommandQueue, ServerCommand, ServerPhase, SocketPath, seconds_now,
};
use superpoll_gateway::relay::{self, Relay};
use superpoll_gateway::upstream::Group;
use superpoll_gateway::{Address, Event, Inherited};
use superpoll_rt::Runtime;
use superpoll_rt::signal::{SignalKind, signal};

use crate::{quantity, stats};

/// Options of `proxy`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Address for clients: HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH; port 0 lets the kernel
    /// choose [default: the socket that a service manager passes on (LISTEN_FDS)]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Address>,
    /// Address to relay to, written alike; a name is looked up again for new connections, and its
    /// addresses are tried in order. Give several to balance among servers
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub to: Vec<Address>,
    /// How one of several servers is chosen: round-robin, least-connections or hash of the client's
    /// address
    #[arg(long, value_name = "NAME", default_value = "round-robin", value_parser = balance)]
    pub balance: Balance,
    /// Check each server by a connection, every so many seconds [default: 5 if no number is given;
    /// without the option, a server that refuses three connections is left out for 10 s]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
          value_parser = seconds)]
    pub health: Option<Duration>,
    /// Threads that relay, or "auto" for one for each processor
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub workers: Workers,
    /// The back-end [default: that of SUPERPOLL_BACKEND, else adaptive]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<BackendKind>,
    /// How long the upstream may take to accept a connection
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub connect_timeout: Duration,
    /// Close a pair after this long without a byte [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub idle_timeout: Option<Duration>,
    /// The most connections at a time; further ones wait [default: as many as there are descriptors
    /// for]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,
    /// The most connections at a time of one client address, or of one network of IPv6 (/64);
    /// further ones are closed [default: no limit]
    #[arg(long, value_name = "N")]
    pub connections_per_client: Option<NonZeroU32>,
    /// How long connections may continue after SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = patience)]
    pub drain: Duration,
    /// Log of the connections that have ended, a line of JSON each: a file, or stderr [default:
    /// none]
    #[arg(long, value_name = "PATH")]
    pub access_log: Option<PathBuf>,
    /// Place of the statistics socket for `superpoll top`: a path, which only this user can open,
    /// or "off" [default: by its number in a folder of the user's]
    #[arg(long, value_name = "PATH|off")]
    pub stats: Option<SocketPath>,
    /// Watch each direction of each socket before it is tried: slower, for comparison
    #[arg(long, hide = true)]
    pub no_speculation: bool,
}

/// Parses a duration above zero.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match patience(text)? {
        Duration::ZERO => Err("it must be more than zero".to_owned()),
        duration => Ok(duration),
    }
}

fn balance(text: &str) -> Result<Balance, String> {
    match text {
        "round-robin" => Ok(Balance::RoundRobin),
        "least-connections" => Ok(Balance::LeastConnections),
        "hash" => Ok(Balance::Hash),
        _ => Err("write round-robin, least-connections or hash".to_owned()),
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| "write a number of seconds, such as 2.5".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// Returns the address to listen on: the option's, or that of the one socket that a service manager
/// has passed on.
fn listen(options: &Options, inherited: &Inherited) -> Result<Address, Box<dyn Error>> {
    let passed = inherited.addresses()?;
    match (&options.listen, passed.as_slice()) {
        (Some(address), _) => Ok(address.clone()),
        (None, [one]) => Ok(one.clone()),
        (None, []) => Err("there is nowhere to listen; name an address with --listen, or have a \
                           service manager pass on a socket"
            .into()),
        (None, several) => {
            let all: Vec<String> = several.iter().map(Address::to_string).collect();
            let all = all.join(", ");
            Err(format!("the service manager passes on {all}; a proxy listens on one socket")
                .into())
        }
    }
}

/// Waits for the command to drain, and refuses all other commands.
async fn await_drain(queue: &mut CommandQueue, work: impl Fn() -> String) {
    loop {
        let call = queue.next().await;
        if call.command == ServerCommand::Drain {
            let message = format!("draining: {}", work());
            return call.succeed(CommandOutcome { message, ..CommandOutcome::default() });
        }
        call.refuse("a proxy has no configuration to read again and no successor; start it anew");
    }
}

/// Returns the group of the servers, if there is a choice among them or they are checked.
fn group(options: &Options) -> Result<Option<Arc<Group>>, Box<dyn Error>> {
    if options.to.len() == 1 && options.health.is_none() {
        return Ok(None);
    }
    for (index, address) in options.to.iter().enumerate() {
        if matches!(address, Address::Tcp { port: 0, .. }) {
            return Err(format!("relaying to {address}: port 0 cannot be connected to").into());
        }
        if options.to[..index].contains(address) {
            return Err(format!("--to {address} is given twice; each server counts once").into());
        }
    }
    let server = |address: &Address| {
        let address = ServerAddress::Address(address.clone());
        Server { address, weight: NonZeroU32::MIN, backup: false }
    };
    let health = options.health.map(|interval| Health {
        kind: HealthKind::Connect,
        interval,
        ..Health::default()
    });
    let upstream = Upstream {
        servers: options.to.iter().map(server).collect(),
        balance: options.balance,
        health,
        proxy_protocol: None,
        keep_alive: 0,
        idle: Duration::ZERO,
        lifetime: None,
        fastcgi: false,
        h2: false,
        tls: None,
        dns: Dns::default(),
        eject: None,
        sticky: None,
        slow_start: None,
    };
    let report = |event: &Event| report(&event.to_string());
    Ok(Some(Group::new("the proxy", &upstream, None, Arc::new(report))?))
}

/// Writes a line, in one write, so that the lines of several engines are not mixed.
fn report(what: &str) {
    let _ = stderr().write_all(format!("superpoll: {what}\n").as_bytes());
}

/// Relays until SIGTERM or SIGINT.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut inherited = Inherited::take()?;
    let listen = listen(options, &inherited)?;
    // Each pair takes two descriptors, and many systems allow a thousand unless asked for more. If
    // the limit cannot be raised, the present one will do.
    let _ = superpoll::limits::raise_descriptors();
    let mut builder = Runtime::builder().workers(options.workers.count(NonZeroUsize::MIN));
    if let Some(backend) = options.backend {
        builder = builder.backend(backend);
    }
    let runtime = builder.build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let warn = |what: String| eprintln!("superpoll: {what}");
    let socket = stats::bind(&options.stats.clone().unwrap_or_default(), false, warn)?;
    let settings = relay::Options {
        connect_timeout: options.connect_timeout,
        idle_timeout: options.idle_timeout,
        max_connections: options.max_connections.map(NonZeroUsize::get),
        connections_per_client: options.connections_per_client,
        speculative: !options.no_speculation,
        access_log: options.access_log.clone().map(|path| AccessLog {
            path,
            format: LogFormat::Json,
            ..AccessLog::default()
        }),
    };
    let failed = |failure: &relay::Failure| report(&failure.to_string());
    let group = group(options)?;
    let relay = match &group {
        None => {
            Relay::start_with(&runtime, &mut inherited, &listen, &options.to[0], settings, failed)
        }
        Some(group) => {
            Relay::start_with_group(&runtime, &mut inherited, &listen, group, settings, failed)
        }
    }?;
    inherited.all_used()?;
    let mut queue = CommandQueue::default();
    let to: Vec<String> = options.to.iter().map(Address::to_string).collect();
    let to = to.join(", ");
    queue.note(|facts| {
        facts.state = ServerPhase::Serving;
        facts.configured_at = seconds_now();
        facts.listeners = vec![format!("{}, relayed to {to}", relay.listening())];
    });
    let subject = relay.subject(&runtime).with_commands(queue.sender());
    let _statistics = stats::open(socket, subject, warn);
    let mut output = stdout().lock();
    writeln!(output, "superpoll: relaying from {} to {to}", relay.listening())?;
    output.flush()?;
    drop(output);
    let left = runtime.try_block_on(async {
        let work = || quantity::open_work(relay.counters().active, None);
        let drains = async {
            await_drain(&mut queue, work).await;
            Ok(())
        };
        or(drains, or(terminate.recv(), interrupt.recv())).await?;
        report(&format!("draining: {}", work()));
        relay.stop();
        queue.note(|facts| facts.state = ServerPhase::Draining);
        // A second signal ends the process at once.
        let asked = async {
            let _ = or(terminate.recv(), interrupt.recv()).await;
            relay.counters().active
        };
        let drained = or(relay.drained(options.drain), asked);
        let others = async {
            loop {
                await_drain(&mut queue, work).await;
            }
        };
        let left = or(drained, others).await;
        queue.written().await;
        std::io::Result::Ok(left)
    })??;
    let counters = relay.counters();
    for (clients, why) in [
        (counters.connect_failures, "because the upstream could not be reached"),
        (counters.shed, "for lack of descriptors"),
        (counters.refused, "because their address had as many as it may have"),
    ] {
        // Not each of the clients had its own line.
        if clients > 1 {
            eprintln!("superpoll: {clients} clients were closed {why}");
        }
    }
    match left {
        0 => report("ended"),
        left => {
            let connections = quantity::count(left, "connection");
            report(&format!("closing {connections} that did not end in time"));
        }
    }
    Ok(())
}
