//! `superpoll serve`: the web server and proxy, until a signal ends it.
//!
//! One process serves (`process`), or a supervisor starts several workers, each of them such a
//! process (`supervisor`).

mod commands;
mod options;
mod panics;
mod process;
mod reload;
mod signals;
mod supervisor;
mod upgrade;
mod worker_process;

use std::error::Error;
use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sd_notify::NotifyState;
use superpoll::limits;
use superpoll_gateway::config::{KeeperKind, Log};
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Config, ErrorLog, Event, Inherited, Level};
use superpoll_rt::{Error as RuntimeError, Runtime};

pub(crate) use options::Options;
use supervisor::SupervisorState;

use crate::secrecy;

/// The number of descriptors below which a server of many connections will soon run out of them.
const FEW: u64 = 4096;

/// The end of a keeper's path with the place of a worker, in bytes at most.
const SLOT_SUFFIX: usize = ".1023".len();

/// The longest path of a socket; see `unix(7)`.
const LONGEST_PATH: usize = 107;

/// Notifies the service manager, if there is one.
fn notify(error_log: &ErrorLog, states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let message = format!("notifying the service manager: {error}");
        error_log.write(&Event::new(Level::Warning, "notify-failed", message));
    }
}

/// Notifies the service manager that the configuration is read again.
fn notify_reloading(error_log: &ErrorLog) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(error_log, &[NotifyState::Reloading, now]);
    }
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

/// Prints the addresses that are served, and the certificates that clients are to trust.
fn announce<'a>(
    error_log: &ErrorLog,
    fronts: impl Iterator<Item = String>,
    roots: impl Iterator<Item = &'a Path>,
) -> std::io::Result<()> {
    let mut output = stdout().lock();
    for front in fronts {
        writeln!(output, "superpoll: serving {front}")?;
        let event = Event::new(Level::Info, "serving", format!("serving {front}"));
        error_log.write(&event.with("listener", front));
    }
    for root in roots {
        let root = root.display();
        writeln!(output, "superpoll: trust {root} in browsers: it vouches for this server")?;
    }
    output.flush()
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let outcome = begin(options);
    if let (Some(place), Err(error)) = (&options.worker, &outcome) {
        process::report_failure(place, &error.to_string());
        // The supervisor writes the error.
        std::process::exit(1);
    }
    outcome
}

fn begin(options: &Options) -> Result<(), Box<dyn Error>> {
    let left = SupervisorState::take()?;
    let inherited = Inherited::take()?;
    let mut addresses = inherited.addresses()?;
    addresses.extend(options.passed.iter().cloned());
    let text = match (&options.config, &options.worker) {
        (Some(path), None) => Some(Config::read_text(path)?),
        // The file may have changed since the supervisor read it.
        (Some(_), Some(place)) => Some(process::configuration(place)?),
        (None, _) => None,
    };
    let mut config = options.read(&addresses, text.as_deref())?;
    options.set_keeper(&mut config)?;
    let processes = options.processes(&config)?;
    check_keeper(&config, processes)?;
    if options.takes_over.is_some_and(|form| form != SupervisorState::PROTOCOL) {
        let why =
            "it cannot take over the state of the program that runs; end that and start this one";
        return Err(why.into());
    }
    if options.check {
        return check(&config);
    }
    let has_keeper = keeper_socket(&config).is_some();
    if options.upgrade && !has_keeper {
        let why = "--upgrade takes over from a server with the same keeper process; \
                   name it with --keeper, or in [keeper] of the configuration";
        return Err(why.into());
    }
    let is_supervisor =
        options.worker.is_none() && (processes > NonZeroUsize::MIN || left.is_some());
    if options.upgrade && is_supervisor {
        let why = "--upgrade is for a server of one process; several are replaced by SIGUSR2 to their supervisor";
        return Err(why.into());
    }
    let error_log = Arc::new(open_log(&config, left.is_some())?);
    // Engines that are still at work may hold the log, and the process does not wait for those.
    let _closes = Closes(&error_log);
    panics::log_panics(&error_log);
    hide_keys(options.dumpable, &config).map_err(Into::into).and_then(|()| {
        if is_supervisor {
            return supervisor::run(
                options,
                (config, text),
                processes,
                inherited,
                left,
                &error_log,
            );
        }
        process::run(options, &mut config, inherited, &error_log)
    })
}

/// Closes the log when it is dropped, after a panic as well.
struct Closes<'a>(&'a ErrorLog);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Opens the log. One that takes over from another program continues without its log, rather than
/// to end a server at work.
fn open_log(config: &Config, takes_over: bool) -> Result<ErrorLog, Box<dyn Error>> {
    let cannot = |error: std::io::Error| format!("opening the log {}: {error}", config.log.place());
    match ErrorLog::open(&config.log).map_err(cannot) {
        Err(error) if takes_over => {
            let log = ErrorLog::open(&Log::default())?;
            log.write(&Event::new(Level::Error, "log-failed", error));
            Ok(log)
        }
        outcome => Ok(outcome?),
    }
}

/// Checks whether each worker can have a keeper of its own.
fn check_keeper(config: &Config, processes: NonZeroUsize) -> Result<(), String> {
    match keeper_socket(config) {
        Some(socket) if processes > NonZeroUsize::MIN => keeper_of_worker(socket, 0).map(drop),
        _ => Ok(()),
    }
}

/// Checks a configuration, and prints notes about it.
fn check(config: &Config) -> Result<(), Box<dyn Error>> {
    Server::check(config)?;
    // The server raises its limit as far as it may.
    if let Some(excess) = Server::excess(config, limits::nofile().1) {
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
    Ok(())
}

/// Returns the runtime for some threads.
fn runtime(
    options: &Options,
    config: &Config,
    workers: NonZeroUsize,
) -> Result<Runtime, RuntimeError> {
    let mut builder = Runtime::builder().workers(workers);
    if let Some(backend) = options.backend.or(config.server.backend) {
        builder = builder.backend(backend);
    }
    if let Some(policy) = config.engine.policy {
        builder = builder.policy(policy);
    }
    builder.gather(config.engine.gather).build()
}

/// Logs the settings of a configuration that are probably not meant.
fn report_warnings(error_log: &ErrorLog, config: &Config) {
    for warning in &config.warnings {
        error_log.write(&Event::new(Level::Warning, "configuration-warning", warning.as_str()));
    }
}

/// Opens the log again, at the place that a configuration has.
fn change_log(error_log: &ErrorLog, config: &Config) {
    if let Err(error) = error_log.change(&config.log) {
        let message = format!("opening the log {}: {error}", config.log.place());
        error_log.write(&Event::new(Level::Error, "log-failed", message));
    }
}

/// Opens the log that was closed, at the place that a configuration has; otherwise at another one.
fn reopen_log(error_log: &ErrorLog, wanted: &Log, otherwise: &Log) {
    if let Err(error) = error_log.change(wanted) {
        let message = format!("opening the log {}: {error}", wanted.place());
        // Without a thread for this one there is no log.
        let _ = error_log.change(otherwise);
        error_log.write(&Event::new(Level::Error, "log-failed", message));
    }
}

/// Returns the event of a configuration that was read again, or was refused.
fn reloaded(path: &Path, outcome: &Result<(), String>) -> Event {
    let event = match outcome {
        Ok(()) => {
            let message = format!("reloaded the configuration {}", path.display());
            Event::new(Level::Notice, "reloaded", message)
        }
        Err(error) => {
            let message = format!("{error}\nstill serving the previous configuration");
            let event = Event::new(Level::Error, "reload-refused", message);
            event.with("error", error.as_str())
        }
    };
    event.with("configuration", path.display().to_string())
}

/// Returns the event of a failed move of the statistics socket.
fn statistics_stay(error: &dyn Error) -> Event {
    let message = format!("{error}; statistics stay at the previous socket");
    Event::new(Level::Error, "statistics-failed", message)
}

/// Hides the memory of a server with TLS.
fn hide_keys(is_dumpable: bool, config: &Config) -> Result<(), String> {
    let keeps_keys = config.keeper.as_ref().is_some_and(|keeper| keeper.tls);
    let has_keys = keeps_keys || config.listeners.iter().any(|listener| listener.tls.is_some());
    if is_dumpable || !has_keys {
        return Ok(());
    }
    secrecy::hide_memory().map_err(|error| format!("hiding this process' memory: {error}"))
}

/// Returns the socket of the keeper process, if there is one.
fn keeper_socket(config: &Config) -> Option<&PathBuf> {
    match &config.keeper.as_ref()?.kind {
        KeeperKind::Process { socket } => Some(socket),
        KeeperKind::Thread => None,
    }
}

/// Returns the keeper's socket of a worker, which has its own.
///
/// # Errors
///
/// If the path is too long.
fn keeper_of_worker(socket: &Path, slot: u32) -> Result<PathBuf, String> {
    if socket.as_os_str().len() + SLOT_SUFFIX > LONGEST_PATH {
        let most = LONGEST_PATH - SLOT_SUFFIX;
        let what = format!("the path of the keeper, {}, is too long", socket.display());
        return Err(format!("{what}: with several processes expected at most {most} bytes"));
    }
    let mut path = socket.as_os_str().to_owned();
    path.push(format!(".{slot}"));
    Ok(path.into())
}

/// Returns the arguments of this process with more options in front, as an argument after `--` is
/// no option.
fn arguments_with(options: &[OsString]) -> Vec<OsString> {
    let mut own = std::env::args_os().skip(1);
    let command = own.next();
    command.into_iter().chain(options.iter().cloned()).chain(own).collect()
}

/// Returns this program as it was called, which may be another version by now.
fn called_program() -> Result<OsString, &'static str> {
    std::env::args_os().next().ok_or("the program's name is not known")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when an upgrade has failed, and the folder of the log is gone.
    #[test]
    fn a_log_that_cannot_be_opened_again_goes_on_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let log = |name: &str| Log { path: folder.path().join(name), ..Log::default() };
        let error_log = ErrorLog::open(&log("first")).unwrap();
        error_log.close();
        reopen_log(&error_log, &log("no/such"), &log("other"));
        error_log.write(&Event::new(Level::Error, "e", "later"));
        error_log.close();
        let text = std::fs::read_to_string(folder.path().join("other")).unwrap();
        let mut lines = text.lines();
        assert!(lines.next().unwrap().contains(" error opening the log "), "{text}");
        assert!(lines.next().unwrap().ends_with(" error later"), "{text}");
    }
}
