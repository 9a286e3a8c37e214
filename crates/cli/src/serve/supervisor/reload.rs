//! SIGHUP: the configuration is read once, on a thread, and the workers get its text.
//!
//! One reading is under way at a time. All that is asked for meanwhile is one further reading,
//! which begins afterwards.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use sd_notify::NotifyState;
use superpoll_gateway::control::CommandCall;
use superpoll_gateway::serve::Server;
use superpoll_gateway::{Config, Inherited, Level, prepare};
use superpoll_rt::blocking::unblock;

use super::super::{
    Options, change_log, check_keeper, commands, hide_keys, notify, notify_reloading, reloaded,
    report_warnings, statistics_stay,
};
use super::{Happening, Reload, State, Supervision};

/// How long workers may take to read a configuration.
const RELOAD: Duration = Duration::from_secs(30);

/// A configuration that was read and checked: with its text, and the number of processes.
pub(super) type Read = Result<(Config, String, NonZeroUsize), String>;

/// Reads and checks a configuration. This may wait for disks.
fn read(path: &Path, options: &Options) -> Read {
    let text = Config::read_text(path).map_err(|error| error.to_string())?;
    let config = prepare::parse_file(path, &text).map_err(|error| error.to_string());
    let mut config = config?;
    options.set_keeper(&mut config)?;
    let processes = options.processes(&config)?;
    check_keeper(&config, processes)?;
    Server::check(&config).map_err(|error| error.to_string())?;
    hide_keys(options.dumpable, &config)?;
    Ok((config, text, processes))
}

impl Supervision<'_> {
    /// Begins to read the configuration, or to read it once more after the reading under way.
    pub(super) fn reload(&mut self, call: Option<CommandCall>) {
        if self.options.config.is_none() {
            return commands::refuse(call, commands::NO_FILE);
        }
        if self.is_ending {
            return commands::refuse(call, commands::ENDING);
        }
        self.next_reading.get_or_insert_default().extend(call);
        self.begin_reading();
    }

    /// Begins the reading that was asked for, unless one is under way.
    fn begin_reading(&mut self) {
        if self.reading.is_some() || self.next_reading.is_none() {
            return;
        }
        let Some(path) = self.options.config.clone() else { return };
        notify_reloading(self.error_log);
        self.reading = self.next_reading.take();
        let options = self.options.clone();
        // Workers are answered meanwhile.
        self.happenings.spawn(async move {
            let outcome = unblock(move || read(&path, &options)).await;
            Happening::Read(Box::new(outcome.unwrap_or_else(|error| Err(error.to_string()))))
        });
    }

    /// Opens the listeners of a configuration that was read, and makes the workers read it.
    pub(super) fn has_read(&mut self, read: Read) {
        let calls = self.reading.take().unwrap_or_default();
        if self.is_ending {
            return calls.into_iter().for_each(|call| call.refuse(commands::ENDING));
        }
        self.take_on(read, calls);
        self.begin_reading();
    }

    fn take_on(&mut self, read: Read, calls: Vec<CommandCall>) {
        let Some(path) = &self.options.config else { return };
        let outcome = read.and_then(|(config, text, processes)| {
            self.service.change(&config, Inherited::default())?;
            self.service.set_configuration(text);
            Ok((config, processes))
        });
        let (config, processes) = match outcome {
            Ok(read) => read,
            Err(error) => {
                notify(self.error_log, &[NotifyState::Ready]);
                self.service.note_reload(false);
                // The one that is still under way is not the last one any more.
                if let Some(reload) = &mut self.reload {
                    reload.is_followed = true;
                }
                let told = commands::not_taken_on(&error);
                calls.into_iter().for_each(|call| call.refuse(&told));
                let outcome = Err(error);
                commands::note_reload(&self.queue, &outcome);
                self.error_log.write(&reloaded(path, &outcome));
                // Whoever has moved the files away has done so in any case.
                return self.reopen_logs();
            }
        };
        let mut reload = Reload {
            number: self.service.configuration_number(),
            waits_for: Vec::new(),
            is_refused: false,
            is_followed: false,
            // The workers read this one in place of the one that is still under way.
            calls: self.reload.take().map_or_else(Vec::new, |before| before.calls),
            told: commands::taken_on(path, &config),
            errors: Vec::new(),
        };
        reload.calls.extend(calls);
        change_log(self.error_log, &config);
        report_warnings(self.error_log, &config);
        let place = self.options.stats.as_ref().unwrap_or(&config.server.stats).clone();
        if let Err(error) = self.statistics.change(place, self.subject.clone()) {
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
        self.has_reloaded(0, self.service.configuration_number(), Ok(()));
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
        // Otherwise the next reload is under way, and says so when it is done.
        if self.reading.is_none() {
            notify(self.error_log, &[NotifyState::Ready]);
        }
        self.service.note_reload(!reload.is_refused);
        if reload.is_followed {
            self.service.note_reload(false);
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
