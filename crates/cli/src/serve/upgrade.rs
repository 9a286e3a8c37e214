//! SIGUSR2 to a server of one process: another process takes over, by way of the keeper.
//!
//! ```text
//!            check             start             asks the keeper to take over
//! (none) ----------> checked ----------> started ----------------------------> this one yields
//!    ^                  |                   |
//!    |  a mistake       |   ends            |
//!    +------------------+-------------------+   the upgrade has failed, and this one continues
//! ```
//!
//! One upgrade is under way at a time. A successor that does not get anywhere has to be ended
//! before the next one.

use std::cell::Cell;
use std::future::pending;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use superpoll_gateway::control::{CommandCall, CommandOutcome};
use superpoll_gateway::{ErrorLog, Event, Level};
use superpoll_rt::{JoinHandle, process, spawn};

use super::worker_process::check_program;
use super::{arguments_with, called_program, commands};

/// The upgrade of a server.
#[derive(Default)]
pub(super) struct Upgrade {
    /// The process that is to take over.
    successor: Rc<Cell<Option<u32>>>,
    /// The successor has taken over: when it ends, nothing has failed.
    has_succeeded: Rc<Cell<bool>>,
    /// The reason for which it does not, in the end.
    failed: Option<JoinHandle<String>>,
    call: Option<CommandCall>,
}

impl Upgrade {
    /// Begins an upgrade.
    ///
    /// # Errors
    ///
    /// If an upgrade is under way; the call is answered then.
    pub(super) fn begin(
        &mut self,
        call: Option<CommandCall>,
        error_log: &Arc<ErrorLog>,
    ) -> Result<(), String> {
        if self.failed.is_some() {
            let mut why = "not upgrading: an upgrade is under way".to_owned();
            if let Some(process) = self.successor.get() {
                why = format!("{why}, process {process} is to take over");
            }
            commands::refuse(call, &why);
            return Err(why);
        }
        self.call = call;
        self.failed =
            Some(spawn(run(self.successor.clone(), self.has_succeeded.clone(), error_log.clone())));
        Ok(())
    }

    /// Returns the process that is to take over, if it runs.
    pub(super) fn successor(&self) -> Option<u32> {
        self.successor.get()
    }

    /// Waits until the upgrade has failed; indefinitely, if none is under way.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub(super) async fn failed(&mut self) -> String {
        let Some(failed) = &mut self.failed else { return pending().await };
        let why = failed.await.unwrap_or_else(|error| error.to_string());
        self.failed = None;
        commands::refuse(self.call.take(), &why);
        why
    }

    /// Refuses the call that waits for the upgrade, as the server ends.
    pub(super) fn give_up(&mut self) {
        commands::refuse(self.call.take(), commands::ENDING);
    }

    /// Answers the call that waits for the upgrade, which has succeeded.
    pub(super) fn succeed(&mut self, message: String) {
        self.has_succeeded.set(true);
        let successor = self.successor.get();
        commands::conclude(
            self.call.take(),
            Ok(CommandOutcome { message, successor, ..CommandOutcome::default() }),
        );
    }
}

/// Starts the program that is to take over, and returns why that has ended or was not started.
async fn run(
    successor: Rc<Cell<Option<u32>>>,
    has_succeeded: Rc<Cell<bool>>,
    error_log: Arc<ErrorLog>,
) -> String {
    let log = |level, name, message: &str| error_log.write(&Event::new(level, name, message));
    let mut child = match start().await {
        Ok(child) => child,
        Err(error) => {
            let why = format!("not upgrading: {error}");
            log(Level::Error, "upgrade-failed", &why);
            return why;
        }
    };
    let number = child.id();
    successor.set(Some(number));
    log(Level::Notice, "upgrading", &format!("upgrading: process {number} is to take over"));
    let status = child.wait().await;
    successor.set(None);
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let why = format!("process {number}, which was to take over, has ended: {status}");
    if has_succeeded.get() {
        return why;
    }
    log(Level::Error, "upgrade-failed", &why);
    why
}

/// Starts the program that is to take over, which may be another version by now.
async fn start() -> Result<process::Child, String> {
    check_program(Vec::new(), &[]).await?;
    let program = called_program()?;
    let mut command = Command::new(&program);
    let mut arguments = arguments_with(&[]);
    if !arguments.iter().any(|argument| argument == "--upgrade") {
        arguments = arguments_with(&["--upgrade".into()]);
    }
    // Sockets that a service manager has passed on belong to this process, which leaves them with
    // the keeper.
    command.args(arguments).env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    let started = process::spawn(&mut command);
    started.map_err(|error| format!("starting {}: {error}", program.display()))
}
