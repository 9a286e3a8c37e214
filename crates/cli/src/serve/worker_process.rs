//! The processes of workers, as their supervisor starts, signals and awaits them.
//!
//! A process is known by its number alone, since the program that replaces a supervisor's has the
//! children of the one before. The number stays the child's until it is awaited.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use superpoll_gateway::Address;
use superpoll_gateway::processes::WorkerPlace;
use superpoll_rt::{AsyncFd, process, time};

use super::{SupervisorState, arguments_with, called_program};
use crate::running_program::running_program;

/// How long the check of another program may take.
const CHECK: Duration = Duration::from_secs(30);

/// The time between two looks at a child that cannot be watched.
const LOOK: Duration = Duration::from_millis(200);

/// The variables of a service manager that are for the supervisor alone.
const OF_MANAGER: [&str; 2] = ["NOTIFY_SOCKET", "WATCHDOG_USEC"];

/// The variables about its sockets, which are for the first program of a process alone.
const OF_SOCKETS: [&str; 3] = ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

fn remove(command: &mut Command, variables: &[&str]) {
    for variable in variables {
        command.env_remove(variable);
    }
}

/// Hides the supervisor's own variables from a child.
fn hide_from_child(command: &mut Command) {
    remove(command, &OF_MANAGER);
    remove(command, &OF_SOCKETS);
    remove(command, &[SupervisorState::VARIABLE]);
}

/// Adds the arguments of this process, more options, and the addresses of sockets that a service
/// manager has passed on, unless the arguments have them.
fn add_arguments(command: &mut Command, mut options: Vec<OsString>, passed: &[Address]) {
    if !std::env::args_os().any(|argument| argument == "--passed") {
        for address in passed {
            options.extend(["--passed".into(), address.to_string().into()]);
        }
    }
    command.args(arguments_with(&options));
}

/// Starts a worker, and returns the number of its process.
///
/// # Errors
///
/// The errors of `fork(2)` and `execve(2)`.
pub(super) fn start(place: &WorkerPlace, passed: &[Address], upgrades: bool) -> io::Result<u32> {
    let mut command = Command::new(running_program());
    if let Ok(name) = called_program() {
        command.arg0(name);
    }
    let mut options = vec!["--worker".into(), place.to_string().into()];
    if upgrades {
        options.push("--upgrade".into());
    }
    add_arguments(&mut command, options, passed);
    hide_from_child(&mut command);
    // A signal of the terminal is for the supervisor, which passes it on.
    command.process_group(0).stdin(Stdio::null());
    command.spawn().map(|child| child.id())
}

/// Returns the program that is to replace this one in its process, with more options.
pub(super) fn replacement(
    options: Vec<OsString>,
    passed: &[Address],
) -> Result<Command, &'static str> {
    let mut command = Command::new(called_program()?);
    add_arguments(&mut command, options, passed);
    // The sockets of the service manager are among those that are left.
    remove(&mut command, &OF_SOCKETS);
    Ok(command)
}

/// Lets the program that is to replace this one check the configuration.
///
/// # Errors
///
/// The reason for which it would not begin.
pub(super) async fn check_replacement(passed: &[Address]) -> Result<(), String> {
    let form = SupervisorState::PROTOCOL.to_string();
    check_program(vec!["--takes-over".into(), form.into()], passed).await
}

/// Lets the program on disk, which may be another version by now, check the configuration, with
/// more options.
///
/// # Errors
///
/// The reason for which it would not begin.
pub(super) async fn check_program(
    mut options: Vec<OsString>,
    passed: &[Address],
) -> Result<(), String> {
    options.push("--check".into());
    let mut command = replacement(options, passed)?;
    let program = command.get_program().display().to_string();
    command.stdin(Stdio::null());
    hide_from_child(&mut command);
    let output = match time::timeout(CHECK, process::output(&mut command)).await {
        Ok(output) => output.map_err(|error| format!("running {program}: {error}"))?,
        Err(_) => return Err(format!("{program} --check takes longer than {} s", CHECK.as_secs())),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let said = said.strip_prefix("superpoll: ").unwrap_or(said);
    Err(format!("{program} --check: {}: {said}", output.status))
}

fn pid(process: u32) -> io::Result<Pid> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Waits until a child has ended. Afterwards its number may be another process'.
///
/// # Errors
///
/// The errors of `waitpid(2)`.
pub(super) async fn ended(process: u32) -> io::Result<ExitStatus> {
    let pid = pid(process)?;
    let watched = pidfd_open(pid, PidfdFlags::empty()).map(AsyncFd::nonblocking);
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG)? {
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        let ready = match &watched {
            Ok(watched) => watched.readable().await.ok(),
            Err(_) => None,
        };
        match ready {
            Some(ready) => ready.clear(),
            // There is no descriptor for it, or no place in the poller.
            None => time::sleep(LOOK).await,
        }
    }
}

/// Sends a signal to a child that was not awaited yet.
pub(super) fn signal(process: u32, signal: Signal) {
    // It may have ended, which is what its supervisor waits for.
    let _ = pid(process).and_then(|pid| Ok(kill_process(pid, signal)?));
}
