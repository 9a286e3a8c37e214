//! The commands `superpoll reload`, `upgrade` and `drain` at the server: each is a [`Request`], as
//! a signal is, with a [`CommandCall`] that waits for its outcome.

use std::path::{Path, PathBuf};

use superpoll_gateway::Config;
use superpoll_gateway::control::{
    CommandCall, CommandOutcome, CommandQueue, LastReload, ServerCommand, ServerFacts, ServerPhase,
    seconds_now,
};

use super::signals::Request;
use super::{Options, keeper_socket};
use crate::quantity;

/// The answer to a reload of a server without a configuration file.
pub(super) const NO_FILE: &str =
    "the server was started without a configuration file (-c), so that there is none to read again";

/// The answer to commands that an ending server does not carry out.
pub(super) const ENDING: &str = "the server is draining, and ends";

/// The answer to commands that a server with a successor does not carry out.
pub(super) const TAKEN_OVER: &str = "another server has taken over, and this one ends";

/// Returns the request that a command makes.
pub(super) fn request(command: ServerCommand) -> Request {
    match command {
        ServerCommand::Reload => Request::Reload,
        ServerCommand::Upgrade => Request::Upgrade,
        ServerCommand::Drain => Request::End,
    }
}

/// Answers the call that waits for an outcome, if there is one.
pub(super) fn conclude(call: Option<CommandCall>, outcome: Result<CommandOutcome, String>) {
    match (call, outcome) {
        (None, _) => {}
        (Some(call), Ok(outcome)) => call.succeed(outcome),
        (Some(call), Err(error)) => call.refuse(error),
    }
}

/// Refuses the call that waits, if there is one.
pub(super) fn refuse(call: Option<CommandCall>, error: &str) {
    conclude(call, Err(error.to_owned()));
}

/// Answers a call for a drain, with the connections and requests that are still open.
pub(super) fn begin_drain(call: Option<CommandCall>, work: &str) {
    let message = format!("draining: {work}");
    conclude(call, Ok(CommandOutcome { message, ..CommandOutcome::default() }));
}

/// Returns the outcome of a reload.
pub(super) fn taken_on(path: &Path, config: &Config) -> CommandOutcome {
    let message = format!("took on {}: {}", absolute(path).display(), summary(config));
    CommandOutcome { message, notes: config.warnings.clone(), ..CommandOutcome::default() }
}

/// Returns the error of a reload, with its consequence.
pub(super) fn not_taken_on(error: &str) -> String {
    format!("{error}\nnothing has changed: still serving the previous configuration")
}

/// Returns the sizes of a configuration.
fn summary(config: &Config) -> String {
    let count = |number: usize, one: &str| quantity::count(number as u64, one);
    let routes = config.hosts.iter().map(|host| host.routes.len()).sum();
    let mut parts = vec![
        count(config.listeners.iter().filter(|one| !one.is_admin).count(), "listener"),
        count(config.hosts.len(), "host"),
        count(routes, "route"),
    ];
    if !config.upstreams.is_empty() {
        parts.push(count(config.upstreams.len(), "upstream"));
    }
    parts.join(", ")
}

/// Returns a path that means the same in other folders.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns the facts about a server that serves this configuration from now on.
pub(super) fn facts(options: &Options, config: &Config, state: ServerPhase) -> ServerFacts {
    ServerFacts {
        state,
        configuration: options.config.as_deref().map(absolute),
        configured_at: seconds_now(),
        keeper: keeper_socket(config).cloned(),
        ..ServerFacts::default()
    }
}

/// Notes the outcome of a reload.
pub(super) fn note_reload(queue: &CommandQueue, outcome: &Result<(), String>) {
    let at = seconds_now();
    queue.note(|facts| {
        if outcome.is_ok() {
            facts.configured_at = at;
        }
        facts.reload = Some(LastReload { at, error: outcome.as_ref().err().cloned() });
    });
}

/// Answers the commands to a server that ends, for as long as this is polled.
pub(super) async fn answer_at_the_end(
    queue: &mut CommandQueue,
    why: &str,
    work: impl Fn() -> String,
) -> u64 {
    loop {
        let call = queue.next().await;
        match call.command {
            ServerCommand::Drain => begin_drain(Some(call), &work()),
            _ => call.refuse(why),
        }
    }
}
