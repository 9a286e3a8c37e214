//! The consequences of requests and checks for the state of servers, and the reports about them.
//!
//! Failures and changes of state are reported, the same kind at a limited rate, as clients may
//! cause as many as they like.
//!
//! A response is not a failure, whatever its status: a server that answers 500 to one path may well
//! serve other paths. It counts as an error where the group ejects servers (`ejection`).
//!
//! The head of a response counts at once, as a response may take indefinitely. A response that
//! breaks off after it, or cannot be passed on, is an error there in place of an answer: each
//! request has one outcome.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use http::StatusCode;

use super::fault::{Fault, Outcome};
use super::group::{Group, PAUSE};
use super::health::CheckError;
use super::http2::StreamReset;
use super::server::GroupServer;
use crate::log::{Event, Level, others};
use crate::trace::RequestTrace;

/// Returns the id of a request as the end of a message.
fn suffix(trace: Option<&Rc<RequestTrace>>) -> String {
    trace.map_or_else(String::new, |trace| trace.suffix())
}

/// Adds the id of a request and its trace to an event.
fn described(event: Event, trace: Option<&Rc<RequestTrace>>) -> Event {
    match trace {
        Some(trace) => trace.describe(event),
        None => event,
    }
}

/// Whether a status counts as an error of the server. 508 says something about the way of the
/// request, which its client may have written into `Via`.
fn is_error(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::LOOP_DETECTED
}

impl Group {
    /// Notes that a server has answered a request.
    pub fn worked(&self, server: &GroupServer) {
        if server.failures_in_row.load(Ordering::Relaxed) != 0 {
            server.failures_in_row.store(0, Ordering::Relaxed);
            let until = server.paused_until.swap(0, Ordering::Relaxed);
            if until != 0 {
                // A pause that is over was the beginning already.
                match until > self.clock.now() {
                    true => server.begin_slowly(self.clock),
                    false => drop(server.up_since.fetch_max(until, Ordering::Relaxed)),
                }
                self.changed(server, true, "it has answered");
            }
        }
    }

    /// Notes that a server has answered a request with a status.
    pub(super) fn answered(&self, server: &GroupServer, status: StatusCode) {
        self.worked(server);
        self.rate(server, is_error(status));
    }

    /// Reports that a server is up or down now.
    fn changed(&self, server: &GroupServer, is_up: bool, why: &str) {
        let (level, name, now) = match is_up {
            true => (Level::Notice, "upstream-up", "up again"),
            false => (Level::Warning, "upstream-down", "down"),
        };
        let Some(left_out) = server.changes.admit() else { return };
        let (upstream, address) = (self.name(), server.address.to_string());
        let others = others(left_out);
        let message = format!("the server {address} of {upstream} is {now}: {why}{others}");
        let event = Event::new(level, name, message);
        let event = event.with("upstream", upstream).with("server", address);
        (self.report)(&event.with("why", why).with("left_out", left_out));
    }

    /// Reports the reason for which a request below a path has failed on a server.
    pub(super) fn report_failure(
        &self,
        server: &GroupServer,
        route: &str,
        fault: &Fault,
        outcome: Outcome,
        trace: Option<&Rc<RequestTrace>>,
    ) {
        if matches!(outcome, Outcome::Retried) {
            server.retries.fetch_add(1, Ordering::Relaxed);
        }
        let (number, kind) = fault.kind();
        let Some(left_out) = server.faults[number].admit() else { return };
        let (upstream, address) = (self.name(), server.address.to_string());
        let (then, status) = match outcome {
            Outcome::Retried => ("it is sent again".to_owned(), None),
            Outcome::Answered(status) => {
                (format!("the client gets {}", status.as_u16()), Some(status.as_u16()))
            }
            Outcome::CutOff => ("the client is cut off".to_owned(), None),
        };
        let (others, request) = (others(left_out), suffix(trace));
        let message = format!(
            "forwarding a request below {route} to {address} of {upstream}: {fault}; {then}{request}{others}"
        );
        let event = Event::new(Level::Warning, "upstream-failed", message);
        let event = event.with("upstream", upstream).with("server", address);
        let event = event.with("route", route).with("reason", kind);
        let event = event.with("error", fault.to_string()).with("status", status);
        (self.report)(&described(event.with("left_out", left_out), trace));
    }

    /// Reports that the body of a request below a path cannot be kept.
    pub(super) fn not_kept(
        &self,
        route: &str,
        error: &io::Error,
        trace: Option<&Rc<RequestTrace>>,
    ) {
        let Some(left_out) = self.not_kept.admit() else { return };
        let upstream = self.name();
        let (others, request) = (others(left_out), suffix(trace));
        let message = format!(
            "keeping the body of a request below {route} for {upstream}: {error}; the client gets 503{request}{others}"
        );
        let event = Event::new(Level::Warning, "body-not-kept", message);
        let event = event.with("upstream", upstream).with("route", route);
        let event = event.with("error", error.to_string()).with("status", 503);
        (self.report)(&described(event.with("left_out", left_out), trace));
    }

    /// Reports what a script below a path has written for the log.
    pub(super) fn script_errors(
        &self,
        server: &GroupServer,
        (route, script): (&str, &str),
        text: &str,
        trace: Option<&Rc<RequestTrace>>,
    ) {
        let Some(left_out) = self.script_errors.admit() else { return };
        let (upstream, address) = (self.name(), server.address.to_string());
        let (others, request) = (others(left_out), suffix(trace));
        let line = text.split(['\n', '\r']).filter(|line| !line.is_empty());
        let line = line.collect::<Vec<_>>().join("; ");
        let message =
            format!("the script {script} on {address} of {upstream} says: {line}{request}{others}");
        let event = Event::new(Level::Warning, "script-errors", message);
        let event = event.with("upstream", upstream).with("server", address);
        let event = event.with("route", route).with("script", script).with("error", text);
        (self.report)(&described(event.with("left_out", left_out), trace));
    }

    /// Reports that there is no server for a request below a path.
    pub(super) fn turned_away(&self, route: &str, trace: Option<&Rc<RequestTrace>>) {
        let Some(left_out) = self.turned_away.admit() else { return };
        let upstream = self.name();
        let (others, request) = (others(left_out), suffix(trace));
        let message = format!(
            "forwarding a request below {route} to {upstream}: no server is up; the client gets 503{request}{others}"
        );
        let event = Event::new(Level::Warning, "upstream-failed", message);
        let event = event.with("upstream", upstream).with("route", route);
        let event = event.with("reason", "none-up").with("status", 503);
        (self.report)(&described(event.with("left_out", left_out), trace));
    }

    /// Reports that a request below a path was forwarded by this server before.
    pub(super) fn came_back(&self, route: &str, trace: &RequestTrace) {
        let Some(left_out) = self.came_back.admit() else { return };
        let (upstream, via, status) = (self.name(), trace.via(), StatusCode::LOOP_DETECTED);
        let (others, request) = (others(left_out), trace.suffix());
        let message = format!(
            "a request below {route} has come back: its Via names this server ({via}); the client gets {}{request}. \
             Look where the servers of {upstream} lead, and whether another server on the way has the same via{others}",
            status.as_u16()
        );
        let event = Event::new(Level::Warning, "request-loop", message);
        let event = event.with("upstream", upstream).with("route", route).with("via", via);
        let event = event.with("status", status.as_u16()).with("left_out", left_out);
        (self.report)(&trace.describe(event));
    }

    /// Notes that a request has failed on a server by a fault. A shortage on this machine is no
    /// failure of the server, nor is a request that it has cancelled.
    pub(super) fn attempt_failed(&self, server: &GroupServer, fault: &Fault) {
        let is_cancelled =
            fault.stream_reset().is_some_and(StreamReset::is_cancel) || self.is_of_script(fault);
        if fault.local_shortage().is_none() && !is_cancelled {
            self.failed(server);
        }
    }

    /// Whether a script is to blame for a fault, and not the server that has run it.
    pub(super) fn is_of_script(&self, fault: &Fault) -> bool {
        self.config().fastcgi && matches!(fault, Fault::Head(_))
    }

    /// Notes that a request has failed on a server.
    pub(crate) fn failed(&self, server: &GroupServer) {
        self.rate(server, true);
        self.unreachable(server);
    }

    /// Notes that a request has failed on a server that has answered it with a status.
    pub(super) fn failed_behind(&self, server: &GroupServer, status: StatusCode) {
        if !is_error(status) {
            self.rate_again(server);
        }
        self.unreachable(server);
    }

    /// Notes that a connection that is relayed could not be opened. As no answers of such a server
    /// are counted, this is no error that ejects it.
    pub fn unreachable(&self, server: &GroupServer) {
        server.failures.fetch_add(1, Ordering::Relaxed);
        let failures = server.failures_in_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures < self.fall() {
            return;
        }
        if self.config().health.is_some() {
            server.good_checks.store(0, Ordering::Relaxed);
            if !server.down.swap(true, Ordering::Relaxed) {
                let why = format!("{failures} requests in a row have failed");
                self.changed(server, false, &why);
            }
        } else {
            let pause = u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX);
            let until = self.clock.now().saturating_add(pause);
            if server.paused_until.swap(until, Ordering::Relaxed) == 0 {
                let why = format!(
                    "{failures} requests in a row have failed; it is left out for {}",
                    humantime::format_duration(PAUSE)
                );
                self.changed(server, false, &why);
            }
        }
    }

    /// Notes the end of a check of a server. A check that a shortage on this machine has prevented
    /// changes nothing, and is reported.
    pub(super) fn check_ended(&self, server: &GroupServer, outcome: Result<(), CheckError>) {
        match outcome {
            Ok(()) => self.checked(server, Ok(())),
            Err(CheckError::Unwell(why)) => self.checked(server, Err(why)),
            Err(CheckError::LocalShortage(why)) => self.report_unchecked(server, &why),
        }
    }

    fn report_unchecked(&self, server: &GroupServer, why: &str) {
        server.unchecked.fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = self.unchecked.admit() else { return };
        let (upstream, address, others) =
            (self.name(), server.address.to_string(), others(left_out));
        let message = format!(
            "checking the server {address} of {upstream}: {why}; that is no fault of the server, whose \
             state stays{others}"
        );
        let event = Event::new(Level::Warning, "upstream-unchecked", message);
        let event = event.with("upstream", upstream).with("server", address);
        (self.report)(&event.with("why", why).with("left_out", left_out));
    }

    /// Notes the outcome of a check of a server.
    pub(super) fn checked(&self, server: &GroupServer, outcome: Result<(), String>) {
        let Some(health) = &self.config().health else { return };
        let is_well = outcome.is_ok();
        let (counted, other) = match is_well {
            true => (&server.good_checks, &server.bad_checks),
            false => (&server.bad_checks, &server.good_checks),
        };
        other.store(0, Ordering::Relaxed);
        let in_row = counted.load(Ordering::Relaxed).saturating_add(1);
        counted.store(in_row, Ordering::Relaxed);
        if is_well && in_row >= health.rise.get() {
            server.failures_in_row.store(0, Ordering::Relaxed);
            if server.down.load(Ordering::Relaxed) {
                // Before it is up, so that no request sees the whole weight.
                server.begin_slowly(self.clock);
                server.down.store(false, Ordering::Relaxed);
                self.changed(server, true, &format!("{in_row} checks in a row went well"));
            }
        } else if let Err(why) = outcome
            && in_row >= health.fall.get()
            && !server.down.swap(true, Ordering::Relaxed)
        {
            let why = format!("{in_row} checks in a row went wrong, the last one: {why}");
            self.changed(server, false, &why);
        }
    }
}
