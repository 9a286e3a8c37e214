//! The end of workers, and their reports when they begin to drain, so that the log has one line
//! with the sum over all.
//!
//! ```text
//! SIGTERM --> workers: accept no more --> each reports its connections --> "draining: ..."
//! SIGUSR2 --> each is replaced --> each reports, and its successor serves --> "upgraded: ..."
//! ```
//!
//! A worker that ends without a report has no connections any more. One that is stopped reports
//! nothing, and after [`REPORTS`] the line says so.

use std::time::Duration;

use rustix::process::Signal;
use sd_notify::NotifyState;
use superpoll_gateway::control::{CommandCall, HandedOverStatus, UpgradeState};
use superpoll_gateway::processes::WorkerDrain;
use superpoll_gateway::{Event, Level};

use super::super::notify;
use super::{Child, GRACE, Happening, State, Supervision, commands};
use crate::quantity;

/// How long workers may take to report. Only those that are stopped or hang take that long.
pub(super) const REPORTS: Duration = Duration::from_secs(5);

/// The time between the end of a worker and its last message, at most: both are on their way.
const LAST_WORDS: Duration = Duration::from_millis(10);

/// The reason for which reports are awaited.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    /// The end of the server.
    End,
    /// The end of an upgrade.
    Upgrade,
}

/// The reports of some workers.
pub(super) struct Drains {
    /// The processes that have not reported.
    waits_for: Vec<u32>,
    sum: WorkerDrain,
    /// How many have not reported in time.
    silent: usize,
}

impl Drains {
    pub(super) fn of(processes: impl Iterator<Item = u32>) -> Drains {
        let (waits_for, sum) = (processes.collect(), WorkerDrain::default());
        Drains { waits_for, sum, silent: 0 }
    }

    /// Takes the report of a process; `None`: it has ended.
    fn take(&mut self, process: u32, drain: Option<WorkerDrain>) {
        let Some(index) = self.waits_for.iter().position(|other| *other == process) else { return };
        self.waits_for.swap_remove(index);
        let more = drain.unwrap_or_default();
        self.sum.elsewhere += more.elsewhere;
        self.sum.connections += more.connections;
        self.sum.requests += more.requests;
    }

    fn is_complete(&self) -> bool {
        self.waits_for.is_empty()
    }

    fn give_up(&mut self) {
        self.silent += self.waits_for.len();
        self.waits_for.clear();
    }

    /// Returns the end of a sentence about the workers that have not reported.
    fn silence(&self) -> String {
        match self.silent {
            0 => String::new(),
            1 => "; 1 worker has not answered".to_owned(),
            silent => format!("; {silent} workers have not answered"),
        }
    }
}

impl Supervision<'_> {
    /// Asks all workers to end; the second time, to end at once.
    pub(super) fn end(&mut self) {
        if self.is_ending {
            let all = self.children.iter();
            return all.for_each(|child| child.signal(Signal::INT));
        }
        self.is_ending = true;
        let reloads = self.reload.as_mut().map(|reload| std::mem::take(&mut reload.calls));
        let readings = self.reading.as_mut().map(std::mem::take);
        let readings = readings.into_iter().chain(self.next_reading.take());
        let reloads = reloads.into_iter().chain(readings).flatten();
        for call in reloads.chain(self.upgrade_call.take()) {
            call.refuse(commands::ENDING);
        }
        notify(self.error_log, &[NotifyState::Stopping]);
        self.await_drains();
        for index in 0..self.children.len() {
            self.dismiss(index);
        }
        self.log_drains();
    }

    /// Asks a worker to drain and end. One that drains already takes no notice.
    pub(super) fn dismiss(&mut self, index: usize) {
        let child = &mut self.children[index];
        child.state = State::Leaving;
        let process = child.process;
        child.signal(Signal::TERM);
        self.await_end(process);
    }

    /// Kills a worker if it takes too long to end.
    pub(super) fn await_end(&mut self, process: u32) {
        self.later(self.config.timeouts.drain + GRACE, Happening::Late(process));
    }

    /// Asks the workers to end whose slots the configuration does not have any more.
    pub(super) fn end_superfluous(&mut self) {
        for index in 0..self.children.len() {
            let Child { slot, state, .. } = self.children[index];
            if slot >= self.slots && state != State::Leaving {
                self.dismiss(index);
            }
        }
    }

    /// Awaits the reports of all workers that are asked to end now. Those that drain already have
    /// reported before.
    pub(super) fn await_drains(&mut self) {
        let asked = self.children.iter().filter(|child| child.state != State::Leaving);
        self.ending = Some(Drains::of(asked.map(|child| child.process)));
        self.later(REPORTS, Happening::ReportsLate(Wait::End));
    }

    /// Takes a report, or the end of a process.
    pub(super) fn reported(&mut self, process: u32, drain: Option<WorkerDrain>) {
        for drains in [&mut self.ending, &mut self.replacing].into_iter().flatten() {
            drains.take(process, drain);
        }
        self.log_drains();
    }

    /// Continues without the reports that have not arrived.
    pub(super) fn reports_are_late(&mut self, wait: Wait) {
        match wait {
            Wait::End => self.ending.iter_mut().for_each(Drains::give_up),
            Wait::Upgrade => self.replacing.iter_mut().for_each(Drains::give_up),
        }
        self.log_drains();
    }

    /// Whether the report of a process that has ended may still be on its way. It is, once.
    pub(super) fn may_report(&mut self, process: u32) -> bool {
        let mut all = [&self.ending, &self.replacing].into_iter().flatten();
        let is_awaited = all.any(|drains| drains.waits_for.contains(&process));
        let child = self.children.iter_mut().find(|child| child.process == process);
        is_awaited
            && self.service.has_member(process)
            && child.is_some_and(|child| !std::mem::replace(&mut child.has_ended, true))
    }

    pub(super) fn later_ended(
        &mut self,
        process: u32,
        status: std::io::Result<std::process::ExitStatus>,
    ) {
        self.later(LAST_WORDS, Happening::Ended(process, status));
    }

    /// Answers a command to drain: at once, or with the line that is logged when the reports are
    /// there.
    pub(super) fn answer_drain(&mut self, call: CommandCall) {
        self.drain_calls.push(call);
        self.log_drains();
    }

    /// Writes the lines whose reports are there.
    pub(super) fn log_drains(&mut self) {
        if let Some(drains) = self.ending.take_if(|drains| drains.is_complete()) {
            let WorkerDrain { connections, requests, .. } = drains.sum;
            let work = quantity::open_work(connections, Some(requests)) + &drains.silence();
            let event = Event::new(Level::Notice, "draining", format!("draining: {work}"));
            let event = event.with("connections", connections).with("requests", requests);
            self.error_log.write(&event);
            self.drained = Some(work);
        }
        if let Some(work) = &self.drained {
            for call in self.drain_calls.drain(..) {
                commands::begin_drain(Some(call), work);
            }
        }
        let is_replaced = self.to_replace.is_empty() && !self.is_ending;
        let replaced = self.replacing.take_if(|drains| is_replaced && drains.is_complete());
        if let Some(drains) = replaced {
            let WorkerDrain { elsewhere, connections: here, .. } = drains.sum;
            let numbers = quantity::handed_over(elsewhere, here) + &drains.silence();
            let message = format!("upgraded: all workers are of the new program, {numbers}");
            let event = Event::new(Level::Notice, "upgraded", message);
            self.error_log.write(&event.with("connections", here).with("elsewhere", elsewhere));
            let handed_over = Some(HandedOverStatus { elsewhere, here });
            self.queue.note(|facts| facts.handed_over = handed_over);
            // The next one may have begun meanwhile.
            if !self.is_upgrading {
                self.note_upgrade(UpgradeState::Done);
            }
        }
    }

    /// Logs that all workers have ended.
    pub(super) fn log_end(&self) {
        self.log(Level::Notice, "ended", "ended");
    }
}
