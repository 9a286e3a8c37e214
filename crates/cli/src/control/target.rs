//! Which server is meant.

use std::path::PathBuf;
use std::time::Duration;

use superpoll_gateway::telemetry::socket::{
    self, CommandAnswer, ProcessSocket, ServerCommand, ServerPhase,
};
use superpoll_rt::{spawn, time};

use super::conversation::Conversation;
use super::process::{exists, parent};

/// How long each of several servers may take to tell its configuration.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the path of the socket that the user means: by a process' number, a path, or the only
/// server that can be meant.
pub(super) async fn locate(meant: Option<&str>, command: ServerCommand) -> Result<PathBuf, String> {
    match meant {
        None => only(socket::list(), command).await,
        Some(meant) => match meant.parse::<u32>() {
            Ok(process) => of_process(process),
            Err(_) => Ok(meant.into()),
        },
    }
}

fn of_process(process: u32) -> Result<PathBuf, String> {
    if !exists(process) {
        return Err(format!("there is no process {process}"));
    }
    if let Some(path) = socket::of_process(process) {
        return Ok(path);
    }
    if let Some(supervisor) = parent(process).filter(|parent| socket::of_process(*parent).is_some())
    {
        return Err(format!(
            "process {process} is a worker of process {supervisor}; name that one"
        ));
    }
    Err(format!(
        "process {process} has no statistics socket in this user's folder; run this as the user of \
         that process, or name the path that it was started with (--stats PATH)"
    ))
}

/// One of several servers.
struct FoundServer {
    process: u32,
    path: PathBuf,
    /// Its configuration or its task, for people.
    description: String,
    /// Whether the command cannot be meant for it.
    is_out: bool,
}

async fn only(found: Vec<ProcessSocket>, command: ServerCommand) -> Result<PathBuf, String> {
    if found.is_empty() {
        return Err(
            "no server of this user was found in the usual place; start `superpoll serve`, \
                    run this as the user of the server, or name the path of its statistics socket \
                    (--stats PATH)"
                .to_owned(),
        );
    }
    if let [one] = &found[..] {
        return Ok(one.path.clone());
    }
    let asked: Vec<_> = found.into_iter().map(|one| spawn(describe(one, command))).collect();
    let mut candidates = Vec::new();
    for one in asked {
        candidates.push(one.await.map_err(|error| error.to_string())?);
    }
    choose(&candidates)
}

fn choose(candidates: &[FoundServer]) -> Result<PathBuf, String> {
    let mut eligible = candidates.iter().filter(|one| !one.is_out);
    if let (Some(one), None) = (eligible.next(), eligible.next()) {
        return Ok(one.path.clone());
    }
    let named = candidates.iter().map(|one| format!("{} ({})", one.process, one.description));
    let (count, all) = (candidates.len(), named.collect::<Vec<_>>().join(", "));
    Err(format!("{count} servers run, name one of them by its number: {all}"))
}

/// Asks a server for its configuration.
async fn describe(found: ProcessSocket, command: ServerCommand) -> FoundServer {
    let ProcessSocket { process, path } = found;
    let asks = async { Conversation::begin(&path, ServerCommand::Status).await?.next().await };
    let answer = time::timeout(PATIENCE, asks).await;
    let (description, is_out) = match answer {
        Ok(Ok(reply)) => match reply.answer {
            CommandAnswer::Status(status) => {
                let facts = &status.facts;
                let is_draining = facts.state == ServerPhase::Draining;
                let is_other = reply.program != "serve"
                    && matches!(
                        command,
                        ServerCommand::Reload | ServerCommand::Upgrade | ServerCommand::Operate
                    );
                let mut description = match &facts.configuration {
                    Some(path) => path.display().to_string(),
                    None => format!("{}, {}", reply.program, facts.listeners.join(", ")),
                };
                if is_draining {
                    description.push_str(", draining");
                }
                (description, is_draining || is_other)
            }
            _ => (unknown(), false),
        },
        _ => (unknown(), false),
    };
    FoundServer { process, path, description, is_out }
}

fn unknown() -> String {
    "it does not tell its configuration".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_server_that_can_be_meant_is_chosen_and_several_are_listed() {
        let candidate = |process: u32, is_out| FoundServer {
            process,
            path: format!("/x/{process}").into(),
            description: format!("/etc/{process}.toml"),
            is_out,
        };
        let all = [candidate(7, true), candidate(8, false)];
        assert_eq!(choose(&all), Ok("/x/8".into()));
        let all = [candidate(7, false), candidate(8, false)];
        let listed = "name one of them by its number: 7 (/etc/7.toml), 8 (/etc/8.toml)";
        assert_eq!(choose(&all), Err(format!("2 servers run, {listed}")));
        let all = [candidate(7, true), candidate(8, true)];
        assert_eq!(choose(&all), Err(format!("2 servers run, {listed}")));
    }
}
