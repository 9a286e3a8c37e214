//! SIGUSR2: the program is replaced in this process, and then the workers, one after the other.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use superpoll_gateway::Level;
use superpoll_gateway::config::Log;
use superpoll_gateway::control::{CommandCall, CommandOutcome, UpgradeState};
use superpoll_rt::time;

use super::super::signals::Signals;
use super::super::worker_process::{self, replacement};
use super::super::{commands, keeper_socket, reopen_log};
use super::drain::{REPORTS, Wait};
use super::{Child, Happening, State, Supervision};

/// How long events from before an upgrade may take to be seen: one wait of the engine.
const EARLIER: Duration = Duration::from_millis(1);

impl Supervision<'_> {
    /// Ends the worker before in a slot, whose successor serves.
    pub(super) fn replaced(&mut self, slot: u32, by: u32) {
        for index in 0..self.children.len() {
            let child = &self.children[index];
            if child.slot == slot && child.process != by && child.state != State::Leaving {
                // One that has yielded drains already, and takes no notice.
                self.dismiss(index);
            }
        }
        if self.to_replace.front() == Some(&slot) {
            self.to_replace.pop_front();
            if self.to_replace.is_empty() {
                self.later(REPORTS, Happening::ReportsLate(Wait::Upgrade));
            }
            self.replace_next();
        }
        // Also if no worker was there to be replaced.
        if self.to_replace.is_empty() {
            self.log_drains();
        }
    }

    /// Starts a worker in the place of one of the program before.
    pub(super) fn replace_next(&mut self) {
        let has_keeper = keeper_socket(&self.config).is_some();
        if let (Some(&slot), false) = (self.to_replace.front(), self.is_ending) {
            self.start_with(slot, has_keeper);
        }
    }

    pub(super) fn give_up_upgrade(&mut self, slot: u32, why: &str) {
        self.to_replace.clear();
        self.replacing = None;
        let message = format!("worker {slot}: {why}; the workers before go on");
        self.log(Level::Error, "upgrade-failed", &message);
        self.note_upgrade(UpgradeState::Failed(message));
    }

    /// Whether workers are about to begin, or to read a configuration.
    pub(super) fn is_busy(&self) -> bool {
        self.reload.is_some()
            || self.reading.is_some()
            || self.children.iter().any(|child| child.state == State::Starting)
    }

    /// Checks whether the program can be replaced.
    pub(super) fn check_upgrade(&mut self, call: Option<CommandCall>) {
        if self.is_ending {
            return commands::refuse(call, commands::ENDING);
        }
        if self.is_upgrading || !self.to_replace.is_empty() {
            let why = "not upgrading: an upgrade is under way";
            commands::refuse(call, why);
            return self.log(Level::Error, "upgrade-refused", why);
        }
        self.is_upgrading = true;
        self.upgrade_call = call;
        self.note_upgrade(UpgradeState::UnderWay);
        let passed = self.passed.clone();
        let checks =
            async move { Happening::Checked(worker_process::check_replacement(&passed).await) };
        self.happenings.spawn(checks);
    }

    pub(super) fn upgrade_failed(&mut self, error: &str) {
        self.is_upgrading = false;
        let why = format!("not upgrading: {error}");
        self.log(Level::Error, "upgrade-failed", &why);
        commands::refuse(self.upgrade_call.take(), &why);
        self.note_upgrade(UpgradeState::Failed(why));
    }

    /// Replaces the program in this process. Returns if that fails, or if something else was first,
    /// after which the check of the program begins again.
    pub(super) async fn upgrade(&mut self, signals: &mut Signals) -> Result<(), Box<dyn Error>> {
        if self.is_ending {
            return Ok(());
        }
        let command = match replacement(Vec::new(), &self.passed) {
            Ok(command) => command,
            Err(error) => {
                self.upgrade_failed(error);
                return Ok(());
            }
        };
        let program = command.get_program().display();
        self.log(Level::Notice, "upgrading", format!("upgrading: {program} takes over"));
        // Answers that are on their way would be lost with this program, and so would this call.
        if let Some(call) = self.upgrade_call.take() {
            let message =
                "the program of this process is being replaced; the outcome is in its status";
            let message = message.to_owned();
            call.succeed(CommandOutcome { message, is_under_way: true, ..Default::default() });
        }
        self.queue.written().await;
        // From here on signals wait for the new program, in this thread: the one that writes the
        // log has ended before, unless it is stuck. What has happened until now would be lost with
        // this program.
        self.error_log.close();
        crate::block_signals(true);
        let outcome = match time::timeout(EARLIER, self.next(signals)).await {
            Ok(earlier) => Ok(earlier?),
            Err(_) => Err(self.replace(command)),
        };
        crate::block_signals(false);
        // Operators must learn of a failure of both the upgrade and the log.
        let otherwise = Log { level: self.config.log.level, ..Log::default() };
        reopen_log(self.error_log, &self.config.log, &otherwise);
        match outcome {
            Ok(earlier) => {
                self.take(earlier)?;
                self.is_upgrading = false;
                self.check_upgrade(None);
            }
            Err(error) => self.upgrade_failed(&error),
        }
        Ok(())
    }

    /// Returns why the program was not replaced.
    fn replace(&self, mut command: Command) -> String {
        let mut workers: Vec<&Child> =
            self.children.iter().filter(|child| !child.has_ended).collect();
        workers.sort_by_key(|child| child.state != State::Leaving);
        let workers = workers.into_iter().map(|child| (child.slot, child.process)).collect();
        let left = match self.service.leave(workers) {
            Ok(left) => left,
            Err(error) => return format!("writing down what stays: {error}"),
        };
        let (name, value) = left.variable();
        let error = command.env(name, value).exec();
        format!("running {}: {error}", command.get_program().display())
    }
}
