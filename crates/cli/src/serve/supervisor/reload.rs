//! SIGHUP: the configuration is read once, and the workers get its text.

use std::time::Duration;

use rustix::process::Signal;
use sd_notify::NotifyState;
use superpoll_gateway::serve::Server;
use superpoll_gateway::telemetry::socket::CommandCall;
use superpoll_gateway::{Config, Level};

use super::super::{
    change_log, check_keeper, commands, hide_keys, notify, notify_reloading, reloaded,
    report_warnings, statistics_stay,
};
use super::{Happening, Reload, State, Supervision};

/// How long workers may take to read a configuration.
const RELOAD: Duration = Duration::from_secs(30);

impl Supervision<'_> {
    /// Checks the configuration, opens its listeners, and makes the workers read it.
    pub(super) fn reload(&mut self, call: Option<CommandCall>) {
        let Some(path) = &self.options.config else {
            return commands::refuse(call, commands::NO_FILE);
        };
        if self.is_ending {
            return commands::refuse(call, commands::ENDING);
        }
        notify_reloading(self.error_log);
        let read = || {
            let text = Config::read_text(path)?;
            Config::parse_file(path, &text).map(|config| (config, text))
        };
        let outcome = read().map_err(|error| error.to_string()).and_then(|(mut config, text)| {
            self.options.set_keeper(&mut config)?;
            let processes = self.options.processes(&config)?;
            check_keeper(&config, processes)?;
            Server::check(&config).map_err(|error| error.to_string())?;
            hide_keys(self.options, &config)?;
            self.supervisor.change(&config).map_err(|error| error.to_string())?;
            self.number = self.supervisor.set_configuration(text);
            Ok((config, processes))
        });
        let (config, processes) = match outcome {
            Ok(read) => read,
            Err(error) => {
                notify(self.error_log, &[NotifyState::Ready]);
                self.supervisor.note_reload(false);
                // The one that is still under way is not the last one any more.
                if let Some(reload) = &mut self.reload {
                    reload.is_followed = true;
                }
                commands::refuse(call, &commands::not_taken_on(&error));
                let outcome = Err(error);
                commands::note_reload(&self.queue, &outcome);
                return self.error_log.write(&reloaded(path, &outcome));
            }
        };
        let mut reload = Reload {
            number: self.number,
            waits_for: Vec::new(),
            is_refused: false,
            is_followed: false,
            // The workers read this one in place of the one that is still under way.
            calls: self.reload.take().map_or_else(Vec::new, |before| before.calls),
            told: commands::taken_on(path, &config),
            errors: Vec::new(),
        };
        reload.calls.extend(call);
        change_log(self.error_log, &config);
        report_warnings(self.error_log, &config);
        let place = self.options.stats.as_ref().unwrap_or(&config.server.stats).clone();
        let subject = self.supervisor.subject(self.backend, self.handle.clone());
        let subject = subject.with_commands(self.queue.sender());
        if let Err(error) = self.statistics.change(place, subject) {
            self.error_log.write(&statistics_stay(&*error));
        }
        self.config = config;
        for child in &mut self.children {
            match child.state {
                // It does not listen to signals yet, and may have the text before.
                State::Starting => child.is_stale = true,
                // One that has ended reads nothing.
                State::Serving if child.has_ended => {}
                State::Serving => {
                    child.signal(Signal::HUP);
                    reload.waits_for.push(child.process);
                }
                State::Leaving => {}
            }
        }
        self.later(RELOAD, Happening::ReloadLate(reload.number));
        self.set_slots(u32::try_from(processes.get()).unwrap_or(u32::MAX));
        self.reload = Some(reload);
        self.has_reloaded(0, self.number, Ok(()));
    }

    /// Starts or ends workers until there are so many.
    pub(super) fn set_slots(&mut self, slots: u32) {
        let more = self.slots..slots;
        self.slots = slots;
        let replacing = self.to_replace.front().copied();
        self.to_replace.retain(|slot| *slot < slots);
        if self.to_replace.front() != replacing.as_ref() {
            self.replace_next();
        }
        if self.has_served {
            for slot in more {
                if !self.has_worker(slot) {
                    self.start(slot);
                }
            }
        }
        self.end_superfluous();
    }

    /// Notes that a process has read the configuration of a number, or has ended.
    pub(super) fn has_reloaded(&mut self, process: u32, number: u64, outcome: Result<(), String>) {
        let refusal = outcome.err().map(|error| {
            format!("process {process}: {error}\nit goes on with the previous configuration")
        });
        if let Some(message) = &refusal {
            self.log(Level::Error, "reload-refused", message);
        }
        let Some(reload) = self.reload.as_mut().filter(|reload| reload.number == number) else {
            return;
        };
        if reload.waits_for.contains(&process) {
            reload.waits_for.retain(|other| *other != process);
            reload.is_refused |= refusal.is_some();
            reload.errors.extend(refusal);
        }
        if let Some(reload) = self.reload.take_if(|reload| reload.waits_for.is_empty()) {
            self.finish_reload(reload);
        }
    }

    pub(super) fn finish_reload(&mut self, reload: Reload) {
        notify(self.error_log, &[NotifyState::Ready]);
        self.supervisor.note_reload(!reload.is_refused);
        if reload.is_followed {
            self.supervisor.note_reload(false);
        }
        let outcome = match reload.is_refused {
            true => Err(reload.errors.join("\n")),
            false => Ok(reload.told),
        };
        if !reload.is_followed {
            commands::note_reload(&self.queue, &outcome.as_ref().map(drop).map_err(Clone::clone));
        }
        for call in reload.calls {
            commands::conclude(Some(call), outcome.clone());
        }
        // A refusal was logged when it came.
        if let (Some(path), false) = (&self.options.config, reload.is_refused) {
            self.error_log.write(&reloaded(path, &Ok(())));
        }
    }
}
