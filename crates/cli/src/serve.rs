//! `superpoll serve`: the web server and proxy, until it is told to end.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_lite::future::or;
use sd_notify::NotifyState;
use superpoll::{BackendKind, limits};
use superpoll_gateway::serve::{Failure, Server};
use superpoll_gateway::{Address, Config, Inherited, config};
use superpoll_rt::Runtime;
use superpoll_rt::signal::{SignalKind, signal};

/// Below this many descriptors a server of many connections will soon run out of them.
const FEW: u64 = 4096;

/// Options of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The folder whose files are served [default: the built-in demonstration]
    #[arg(value_name = "DIR", conflicts_with = "config")]
    pub folder: Option<PathBuf>,
    /// Serve what this file says
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say what is wrong with the configuration and end
    #[arg(long)]
    pub check: bool,
    /// Where clients connect: HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH; may be repeated
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    pub listen: Vec<Address>,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value = "1")]
    pub workers: NonZeroUsize,
    /// The I/O manager [default: that of SUPERPOLL_BACKEND, else adaptive]
    #[arg(long, value_name = "NAME")]
    pub backend: Option<BackendKind>,
}

impl Options {
    /// What is to be served. `inherited` are the addresses that a service manager listens on for us.
    fn read(&self, inherited: &[Address]) -> Result<Config, Box<dyn Error>> {
        let mut config = match (&self.config, &self.folder) {
            (Some(path), _) => return Ok(Config::read(path)?),
            (None, Some(folder)) => Config::folder(folder),
            (None, None) => Config::demo(),
        };
        let asked = if self.listen.is_empty() { inherited } else { &self.listen };
        if !asked.is_empty() {
            config.listeners = asked.iter().cloned().map(config::Listener::plain).collect();
        }
        Ok(config)
    }
}

/// Writes a line in one piece, so that those of several engines are not mixed.
fn say(line: impl std::fmt::Display) {
    let _ = stderr().write_all(format!("superpoll: {line}\n").as_bytes());
}

/// Tells the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        say(format_args!("telling the service manager: {error}"));
    }
}

/// As many descriptors as there may be; a word where they are few.
fn raise_limit() {
    let (_, hard) = limits::descriptors();
    match limits::raise_descriptors() {
        Ok(limit) if limit >= FEW => {}
        Ok(limit) => say(format_args!(
            "at most {limit} descriptors may be open, about as many connections as that; \
             raise the hard limit of {hard} (ulimit -Hn) for more"
        )),
        Err(error) => say(format_args!("raising the limit of descriptors to {hard}: {error}")),
    }
}

fn announce(server: &Server) -> std::io::Result<()> {
    let mut output = stdout().lock();
    for front in server.fronts() {
        writeln!(output, "superpoll: serving {front}")?;
    }
    output.flush()
}

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let inherited = Inherited::take()?;
    let addresses = inherited.addresses()?;
    let config = options.read(&addresses)?;
    if options.check {
        Server::check(&config)?;
        writeln!(stdout(), "superpoll: the configuration is right")?;
        return Ok(());
    }
    raise_limit();
    let mut builder = Runtime::builder().workers(options.workers);
    if let Some(backend) = options.backend {
        builder = builder.backend(backend);
    }
    let runtime = builder.build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let report = |failure: &Failure| say(failure);
    let mut server = Server::start_with(&runtime, &config, inherited, report)?;
    announce(&server)?;
    let mut drain = config.timeouts.drain;
    let left = runtime.block_on(async {
        notify(&[NotifyState::Ready]);
        loop {
            let ends = async {
                or(terminate.recv(), interrupt.recv()).await?;
                std::io::Result::Ok(true)
            };
            let changes = async {
                hang_up.recv().await?;
                Ok(false)
            };
            if or(ends, changes).await? {
                break;
            }
            if let Some(path) = &options.config
                && let Some(patience) = reload(&runtime, &mut server, path)
            {
                drain = patience;
            }
        }
        notify(&[NotifyState::Stopping]);
        server.stop();
        // Who is asked a second time ends at once.
        let asked = async {
            let _ = or(terminate.recv(), interrupt.recv()).await;
            server.connections()
        };
        std::io::Result::Ok(or(server.drained(drain), asked).await)
    })??;
    if left > 0 {
        say(format_args!("closing {left} connections that did not end in time"));
    }
    Ok(())
}

/// Takes on what the file says now; if anything is wrong with it, that is told and all goes on as before.
fn reload(runtime: &Runtime, server: &mut Server, path: &Path) -> Option<Duration> {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    let outcome = Config::read(path).map_err(|error| error.to_string()).and_then(|config| {
        server.change(runtime, &config).map_err(|error| error.to_string())?;
        Ok(config.timeouts.drain)
    });
    notify(&[NotifyState::Ready]);
    match outcome {
        Ok(drain) => {
            say(format_args!("serving what {} says now", path.display()));
            Some(drain)
        }
        Err(error) => {
            say(format_args!("{error}\nsuperpoll: serving what was served before"));
            None
        }
    }
}
