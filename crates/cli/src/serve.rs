//! `superpoll serve`: the web server and proxy, until a signal ends it.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use futures_lite::future::or;
use sd_notify::NotifyState;
use superpoll::backend::Profile;
use superpoll::{BackendKind, limits};
use superpoll_gateway::config::{Automatic, ChallengeKind, Internal, is_local};
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::socket::SocketPath;
use superpoll_gateway::{Address, Config, ErrorLog, Event, Inherited, Level, config};
use superpoll_rt::Runtime;
use superpoll_rt::signal::{SignalKind, signal};

use crate::proxy::workers;
use crate::{keep, secrecy, stats};

/// The number of descriptors below which a server of many connections will soon run out of them.
const FEW: u64 = 4096;

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder whose files are served [default: the built-in demonstration]
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub folder: Option<PathBuf>,
    /// Serve as this file says
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, print any error, and end
    #[arg(long)]
    pub check: bool,
    /// Address for clients: HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH; may be repeated [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub listen: Vec<Address>,
    /// Another name that clients use for this server, in addition to localhost, addresses and this
    /// machine's; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub name: Vec<String>,
    /// Serve by HTTPS under these names, separated by commas, with certificates that the server
    /// gets by itself: from Let's Encrypt, or from an authority of its own for localhost and
    /// addresses of this machine. Ports 443 and 80 unless --listen and --http say otherwise
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["config", "name"])]
    pub https: Vec<String>,
    #[command(flatten)]
    pub authority: Authority,
    /// Threads that serve [default: that of the configuration, else 1]
    #[arg(long, value_name = "N", value_parser = workers)]
    pub workers: Option<NonZeroUsize>,
    /// Leave idle connections with the keeper at this path, which is started if necessary, so
    /// that they outlive the server
    #[arg(long, alias = "sit", value_name = "PATH")]
    pub keeper: Option<PathBuf>,
    /// Take over the listeners, channels and idle connections of the server that is at work with
    /// the same keeper
    #[arg(long)]
    pub upgrade: bool,
    /// Place of the statistics socket for `superpoll top`: a path, which only this user can open,
    /// or "off" [default: that of the configuration, else by its number in a folder of the user's]
    #[arg(long, value_name = "PATH|off")]
    pub stats: Option<SocketPath>,
    /// Let core files and this user's debuggers have the memory of a server with TLS, in which its
    /// keys are
    #[arg(long)]
    pub dumpable: bool,
    /// The back-end [default: that of the configuration, else SUPERPOLL_BACKEND, else adaptive]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<BackendKind>,
}

/// Options of `serve --https`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Authority {
    /// Address for clients without encryption, which are redirected [default: :80]
    #[arg(long, value_name = "ADDRESS", requires = "https")]
    pub http: Option<Address>,
    /// Address that the certificate authority may write to
    #[arg(long, value_name = "MAIL", requires = "https")]
    pub email: Option<String>,
    /// URL of the directory of a certificate authority with ACME [default: Let's Encrypt]
    #[arg(long, value_name = "URL", requires = "https")]
    pub acme: Option<String>,
    /// File of certificates that the authority's own server is verified with [default: the
    /// system's]
    #[arg(long, value_name = "FILE", requires = "acme")]
    pub acme_ca: Option<PathBuf>,
    /// How the authority verifies names: tls-alpn-01 on port 443, http-01 on port 80 [default:
    /// tls-alpn-01]
    #[arg(long, value_name = "KIND", requires = "https", value_parser = challenge)]
    pub challenge: Option<ChallengeKind>,
    /// Folder for keys and certificates [default: STATE_DIRECTORY, else the user's folder of
    /// state]
    #[arg(long, value_name = "DIR", requires = "https")]
    pub state: Option<PathBuf>,
}

/// Reads the kind of a challenge.
fn challenge(text: &str) -> Result<ChallengeKind, String> {
    let known = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
    let found = known.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| "expected tls-alpn-01 or http-01".to_owned())
}

impl Authority {
    /// Returns the source of certificates for some names.
    fn automatic(&self, names: &[String]) -> Result<Automatic, String> {
        let storage = self.state.as_deref().map(std::path::absolute).transpose();
        let storage = storage.map_err(|error| format!("--state: {error}"))?;
        let local = names.iter().filter(|name| is_local(name)).count();
        if self.acme.is_none() && local == names.len() {
            return Ok(Automatic::Internal(Internal { storage }));
        }
        if self.acme.is_none() && local > 0 {
            let what = "--https: names of this machine have certificates of the server's own";
            return Err(format!("{what}, expected either such names or others"));
        }
        let mut acme = config::Acme { storage, ..config::Acme::default() };
        acme.email = self.email.clone().unwrap_or_default();
        acme.directory = self.acme.clone().unwrap_or(acme.directory);
        acme.directory_ca = self.acme_ca.clone();
        acme.challenge = self.challenge.unwrap_or_default();
        Ok(Automatic::Acme(acme))
    }
}

impl Options {
    /// Returns the configuration with HTTPS.
    fn https(&self, config: Config, inherited: &[Address]) -> Result<Config, Box<dyn Error>> {
        let everywhere = |port| Address::Tcp { host: None, port };
        let is_plain = |address: &&Address| matches!(address, Address::Tcp { port: 80, .. });
        let plain = inherited.iter().find(is_plain).cloned();
        let http = self.authority.http.clone().or(plain).unwrap_or(everywhere(80));
        let mut https = self.listen.clone();
        if https.is_empty() {
            https.extend(inherited.iter().filter(|one| **one != http).cloned());
        }
        if https.is_empty() {
            https.push(everywhere(443));
        }
        let automatic = self.authority.automatic(&self.https)?;
        let config = config.with_https(&self.https, automatic, &https, http);
        Ok(config.map_err(|what| format!("--https: {what}"))?)
    }

    /// Returns the configuration to serve. `inherited` are the addresses on which a service manager
    /// listens for this process.
    fn read(&self, inherited: &[Address]) -> Result<Config, Box<dyn Error>> {
        let mut config = match (&self.config, &self.folder) {
            (Some(path), _) => return Ok(Config::read(path)?),
            (None, Some(folder)) => Config::folder(folder),
            (None, None) => Config::demo(),
        };
        if !self.https.is_empty() {
            return self.https(config, inherited);
        }
        let asked = if self.listen.is_empty() { inherited } else { &self.listen };
        if !asked.is_empty() {
            config.listeners = asked.iter().cloned().map(config::Listener::plain).collect();
        }
        // The operators' name for this machine does not belong to any other site.
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let listened = asked.iter().filter_map(|address| match address {
            Address::Tcp { host, .. } => host.as_deref(),
            Address::Unix(_) => None,
        });
        for name in std::iter::once(machine.trim()).chain(listened) {
            // A name that is no host name is not one that a client asks for.
            let _ = config.also_named(name);
        }
        for name in &self.name {
            config.also_named(name).map_err(|what| format!("--name: {what}"))?;
        }
        Ok(config)
    }
}

/// Notifies the service manager, if there is one.
fn notify(error_log: &ErrorLog, states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let message = format!("notifying the service manager: {error}");
        error_log.write(&Event::new(Level::Warning, "notify-failed", message));
    }
}

/// The request that a signal or a successor has made of the process.
enum Asked {
    End,
    Change,
    Upgrade,
    Yield,
}

/// Raises the limit on descriptors as far as possible, and logs a note if it is low.
fn raise_limit(error_log: &ErrorLog) {
    let (_, hard) = limits::nofile();
    let message = match limits::raise_descriptors() {
        Ok(limit) if limit >= FEW => return,
        Ok(limit) => format!(
            "at most {limit} descriptors may be open, about as many connections as that; \
             raise the hard limit of {hard} (ulimit -Hn) for more"
        ),
        Err(error) => format!("raising the limit of descriptors to {hard}: {error}"),
    };
    error_log.write(&Event::new(Level::Warning, "few-descriptors", message));
}

fn announce(error_log: &ErrorLog, server: &Server) -> std::io::Result<()> {
    let mut output = stdout().lock();
    for front in server.fronts() {
        writeln!(output, "superpoll: serving {front}")?;
        let event = Event::new(Level::Info, "serving", format!("serving {front}"));
        error_log.write(&event.with("listener", front));
    }
    for root in server.roots() {
        let root = root.display();
        writeln!(output, "superpoll: trust {root} in browsers: it vouches for this server")?;
    }
    output.flush()
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let inherited = Inherited::take()?;
    let addresses = inherited.addresses()?;
    let mut config = options.read(&addresses)?;
    if options.check {
        Server::check(&config)?;
        // The server raises its limit as far as it may.
        if let Some(excess) = Server::excess(&config, limits::nofile().1) {
            writeln!(stderr(), "superpoll: {excess}")?;
        }
        for warning in &config.warnings {
            writeln!(stderr(), "superpoll: {warning}")?;
        }
        let mut output = stdout().lock();
        writeln!(output, "superpoll: the configuration is right")?;
        if let Some(metrics) = config.metrics.as_ref().filter(|metrics| !metrics.public) {
            let path = &metrics.path;
            writeln!(
                output,
                "superpoll: note: {path} answers only programs on this machine; \
                 public = true in [metrics] opens it to all clients"
            )?;
        }
        return Ok(());
    }
    if let Some(socket) = &options.keeper {
        let socket = std::path::absolute(socket)?;
        let wanted = config.keeper.as_ref();
        let profile = wanted.map_or(Profile::Chat, |one| one.profile);
        let tls = wanted.is_some_and(|one| one.tls);
        let kind = config::KeeperKind::Process { socket };
        config.keeper = Some(config::Keeper { kind, profile, tls });
    }
    if options.upgrade && !has_keeper_process(&config) {
        let why = "--upgrade takes over from a server with the same keeper process; \
                   name it with --keeper, or in [keeper] of the configuration";
        return Err(why.into());
    }
    let path = config.log.path.display();
    let error_log =
        ErrorLog::open(&config.log).map_err(|error| format!("opening the log {path}: {error}"))?;
    let error_log = Arc::new(error_log);
    let outcome = serve(options, &config, inherited, &error_log);
    // Engines that are still at work may hold the log, and the process does not wait for those.
    error_log.close();
    outcome
}

/// Logs the settings of a configuration that are probably not meant.
fn report_warnings(error_log: &ErrorLog, config: &Config) {
    for warning in &config.warnings {
        error_log.write(&Event::new(Level::Warning, "configuration-warning", warning.as_str()));
    }
}

/// Hides the memory of a server with TLS.
fn hide_keys(options: &Options, config: &Config) -> Result<(), String> {
    let keeps_keys = config.keeper.as_ref().is_some_and(|keeper| keeper.tls);
    let has_keys = keeps_keys || config.listeners.iter().any(|listener| listener.tls.is_some());
    if options.dumpable || !has_keys {
        return Ok(());
    }
    secrecy::hide_memory().map_err(|error| format!("hiding this process' memory: {error}"))
}

fn has_keeper_process(config: &Config) -> bool {
    let kind = config.keeper.as_ref().map(|keeper| &keeper.kind);
    matches!(kind, Some(config::KeeperKind::Process { .. }))
}

/// Starts the program that will take over, which may be another version by now.
fn start_successor() -> Result<Child, Box<dyn Error>> {
    let program = std::env::args_os().next().ok_or("the program's name is not known")?;
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1).filter(|argument| argument != "--upgrade"));
    // Sockets that a service manager has passed on belong to this process, which leaves them with
    // the keeper.
    command.arg("--upgrade").env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    let started = command.spawn();
    started.map_err(|error| format!("starting {}: {error}", program.display()).into())
}

/// Logs an error if a successor ends before this process does, which then has no successor.
fn await_end(mut child: Child, error_log: Arc<ErrorLog>) {
    let number = child.id();
    let waits = move || {
        let status =
            child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let message = format!("process {number}, which was to take over, has ended: {status}");
        error_log.write(&Event::new(Level::Error, "upgrade-failed", message));
    };
    // Without a thread to spare the end is not reported.
    let _ = std::thread::Builder::new().name("successor".to_owned()).spawn(waits);
}

fn serve(
    options: &Options,
    config: &Config,
    mut inherited: Inherited,
    error_log: &Arc<ErrorLog>,
) -> Result<(), Box<dyn Error>> {
    hide_keys(options, config)?;
    raise_limit(error_log);
    let workers = options.workers.unwrap_or(config.server.workers);
    let mut builder = Runtime::builder().workers(workers);
    if let Some(backend) = options.backend.or(config.server.backend) {
        builder = builder.backend(backend);
    }
    let runtime = builder.build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let told = error_log.clone();
    let report = move |event: &Event| told.write(event);
    let mut upgrade = signal(SignalKind::user_defined2())?;
    if let Some(config::Keeper { kind: config::KeeperKind::Process { socket }, .. }) =
        &config.keeper
        && keep::start(socket, options.dumpable)?
    {
        let message = format!("started a keeper at {}", socket.display());
        error_log.write(&Event::new(Level::Notice, "keeper-started", message));
    }
    if options.upgrade {
        inherited = inherited.by_upgrade();
    }
    let warn = |what: String| error_log.write(&Event::new(Level::Warning, "no-statistics", what));
    let place = options.stats.as_ref().unwrap_or(&config.server.stats).clone();
    let socket = stats::bind(&place, options.upgrade, warn)?;
    let mut server = Server::start_with(&runtime, config, inherited, report)?;
    let statistics = stats::open(socket, server.subject(), warn);
    let mut statistics = stats::Kept::new(place, statistics);
    announce(error_log, &server)?;
    report_warnings(error_log, config);
    let mut drain = config.timeouts.drain;
    let left = runtime.try_block_on(async {
        notify(error_log, &[NotifyState::Ready]);
        if options.upgrade {
            // The service manager knows the process from which this one has taken over.
            notify(error_log, &[NotifyState::MainPid(std::process::id())]);
        }
        let (mut successor, mut has_yielded) = (None, false);
        loop {
            let ends = async {
                or(terminate.recv(), interrupt.recv()).await?;
                std::io::Result::Ok(Asked::End)
            };
            let changes = async {
                hang_up.recv().await?;
                Ok(Asked::Change)
            };
            let upgrades = async {
                upgrade.recv().await?;
                Ok(Asked::Upgrade)
            };
            let yields = async {
                server.asked_to_yield().await;
                Ok(Asked::Yield)
            };
            match or(or(ends, changes), or(upgrades, yields)).await? {
                Asked::End => break,
                Asked::Change => {
                    if let Some(path) = &options.config
                        && let Some(config) = reload(&runtime, &mut server, error_log, options, path)
                    {
                        drain = config.timeouts.drain;
                        let place = options.stats.clone().unwrap_or(config.server.stats);
                        if let Err(error) = statistics.change(place, server.subject()) {
                            let message =
                                format!("{error}; statistics stay at the previous socket");
                            let event = Event::new(Level::Error, "statistics-failed", message);
                            error_log.write(&event);
                        }
                    }
                }
                Asked::Upgrade if !has_keeper_process(config) => {
                    let why = "not upgrading: there is no keeper process; \
                               name one with --keeper, or in [keeper] of the configuration";
                    error_log.write(&Event::new(Level::Error, "upgrade-refused", why));
                }
                Asked::Upgrade => match start_successor() {
                    Ok(child) => {
                        let message = format!("upgrading: process {} is to take over", child.id());
                        error_log.write(&Event::new(Level::Notice, "upgrading", message));
                        successor = Some(child.id());
                        await_end(child, error_log.clone());
                    }
                    Err(error) => {
                        let event = Event::new(Level::Error, "upgrade-failed", error.to_string());
                        error_log.write(&event);
                    }
                },
                Asked::Yield => {
                    has_yielded = true;
                    // The manager might look for the process before the successor has named it.
                    if let Some(number) = successor {
                        notify(error_log, &[NotifyState::MainPid(number)]);
                    }
                    let handed = server.hand_over().await;
                    let (elsewhere, here) = (handed.elsewhere, handed.here);
                    let message = format!(
                        "another server takes over: {elsewhere} connections go on there, {here} end here"
                    );
                    let event = Event::new(Level::Notice, "handed-over", message);
                    error_log.write(&event.with("connections", here).with("elsewhere", elsewhere));
                    break;
                }
            }
        }
        // For a service manager, a server that a successor continues has not stopped.
        if !has_yielded {
            notify(error_log, &[NotifyState::Stopping]);
        }
        let open = server.connections();
        let message = format!("draining: asked to end, {open} connections are open");
        error_log.write(&Event::new(Level::Info, "draining", message).with("connections", open));
        server.stop();
        // A second signal ends the process at once.
        let asked = async {
            let _ = or(terminate.recv(), interrupt.recv()).await;
            server.connections()
        };
        std::io::Result::Ok(or(server.drained(drain), asked).await)
    })??;
    let event = match left {
        0 => Event::new(Level::Info, "ended", "ended, and so have all connections"),
        left => {
            let message = format!("closing {left} connections that did not end in time");
            Event::new(Level::Warning, "ended", message)
        }
    };
    error_log.write(&event.with("connections", left));
    Ok(())
}

/// Applies the configuration that the file has now. On any error, the error is logged and the
/// server goes on as before.
fn reload(
    runtime: &Runtime,
    server: &mut Server,
    error_log: &ErrorLog,
    options: &Options,
    path: &Path,
) -> Option<Config> {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(error_log, &[NotifyState::Reloading, now]);
    }
    let outcome = Config::read(path).map_err(|error| error.to_string()).and_then(|config| {
        hide_keys(options, &config)?;
        server.change(runtime, &config).map_err(|error| error.to_string())?;
        Ok(config)
    });
    notify(error_log, &[NotifyState::Ready]);
    let (event, config) = match outcome {
        Ok(config) => {
            if let Err(error) = error_log.change(&config.log) {
                let message = format!("opening the log {}: {error}", config.log.path.display());
                error_log.write(&Event::new(Level::Error, "log-failed", message));
            }
            report_warnings(error_log, &config);
            let message = format!("reloaded the configuration {}", path.display());
            (Event::new(Level::Notice, "reloaded", message), Some(config))
        }
        Err(error) => {
            let message = format!("{error}\nstill serving the previous configuration");
            let event = Event::new(Level::Error, "reload-refused", message);
            (event.with("error", error), None)
        }
    };
    error_log.write(&event.with("configuration", path.display().to_string()));
    config
}
