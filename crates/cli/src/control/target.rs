//! Which server is meant.

use std::path::PathBuf;
use std::time::Duration;

use superpoll_gateway::control::{
    self, ApiRequest, Operation, ProcessSocket, ServerPhase, ServerStatus,
};
use superpoll_rt::{spawn, time};

use super::client::{End, Exchange};
use super::process::{exists, parent};

/// How long each of several servers may take to tell its configuration.
const PATIENCE: Duration = Duration::from_secs(2);

/// The processes that a command can be meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meant {
    /// Servers and proxies.
    Any,
    /// Servers alone.
    WebServer,
}

/// Returns the path of the socket that the user means: by a process' number, a path, or the only
/// server that can be meant.
pub(crate) async fn locate(name: Option<&str>, meant: Meant) -> Result<PathBuf, String> {
    match name {
        None => only(control::list(), meant).await,
        Some(name) => match name.parse::<u32>() {
            Ok(process) => of_process(process),
            Err(_) => Ok(name.into()),
        },
    }
}

fn of_process(process: u32) -> Result<PathBuf, String> {
    if !exists(process) {
        return Err(format!("there is no process {process}"));
    }
    if let Some(path) = control::of_process(process) {
        return Ok(path);
    }
    if let Some(supervisor) =
        parent(process).filter(|parent| control::of_process(*parent).is_some())
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

async fn only(found: Vec<ProcessSocket>, meant: Meant) -> Result<PathBuf, String> {
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
    let asked: Vec<_> = found.into_iter().map(|one| spawn(describe(one, meant))).collect();
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
async fn describe(found: ProcessSocket, meant: Meant) -> FoundServer {
    let ProcessSocket { process, path } = found;
    let asks = async {
        let mut exchange = Exchange::begin(&path, &ApiRequest::from(&Operation::Status)).await?;
        exchange.answer().await
    };
    let answer: Result<Result<ServerStatus, End>, _> = time::timeout(PATIENCE, asks).await;
    let Ok(Ok(ServerStatus { facts, snapshot })) = answer else {
        let description = "it does not tell its configuration".to_owned();
        return FoundServer { process, path, description, is_out: false };
    };
    let is_draining = facts.state == ServerPhase::Draining;
    let is_other = snapshot.program != "serve" && meant == Meant::WebServer;
    let mut description = match &facts.configuration {
        Some(path) => path.display().to_string(),
        None => format!("{}, {}", snapshot.program, facts.listeners.join(", ")),
    };
    if is_draining {
        description.push_str(", draining");
    }
    FoundServer { process, path, description, is_out: is_draining || is_other }
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
