//! SIGUSR2: the program is replaced in this process, and then the workers, one after the other.

use std::os::unix::process::CommandExt;

use superpoll_gateway::Level;

use super::super::worker_process::{self, replacement};
use super::super::{change_log, keeper_socket};
use super::{Child, Happening, State, Supervision};

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
                let message = "upgraded: all workers are of the new program";
                self.log(Level::Notice, "upgraded", message);
            }
            self.replace_next();
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
        let message = format!("worker {slot}: {why}; the workers before go on");
        self.log(Level::Error, "upgrade-failed", message);
    }

    /// Whether workers are about to begin, or to read a configuration.
    pub(super) fn is_busy(&self) -> bool {
        self.reload.is_some() || self.children.iter().any(|child| child.state == State::Starting)
    }

    /// Checks whether the program can be replaced.
    pub(super) fn check_upgrade(&mut self) {
        if self.is_ending {
            return;
        }
        if self.is_upgrading || !self.to_replace.is_empty() {
            let why = "not upgrading: an upgrade is under way";
            return self.log(Level::Error, "upgrade-refused", why);
        }
        self.is_upgrading = true;
        let passed = self.passed.clone();
        let checks =
            async move { Happening::Checked(worker_process::check_replacement(&passed).await) };
        self.happenings.spawn(checks);
    }

    /// Replaces the program in this process. Returns only if that fails.
    pub(super) fn upgrade(&self) -> Result<(), String> {
        if self.is_ending {
            return Ok(());
        }
        let mut command = replacement(Vec::new(), &self.passed)?;
        let program = command.get_program().display().to_string();
        let mut workers: Vec<&Child> = self.children.iter().collect();
        workers.sort_by_key(|child| child.state != State::Leaving);
        let workers = workers.into_iter().map(|child| (child.slot, child.process)).collect();
        let left = self.supervisor.leave(workers);
        let left = left.map_err(|error| format!("writing down what stays: {error}"))?;
        let (name, value) = left.variable();
        self.log(Level::Notice, "upgrading", format!("upgrading: {program} takes over"));
        // The thread that writes the log ends with the program.
        self.error_log.close();
        superpoll_cli::block_signals(true);
        let error = command.env(name, value).exec();
        superpoll_cli::block_signals(false);
        change_log(self.error_log, &self.config);
        Err(format!("running {program}: {error}"))
    }
}
