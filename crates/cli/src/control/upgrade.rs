//! `superpoll upgrade`.
//!
//! A server of one process is told by its keeper that another one takes over, and answers with the
//! number of that. A supervisor stays the process that it is, and its program is replaced: it
//! cannot answer, and the new program is asked for the outcome.

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use superpoll_gateway::telemetry::socket::{
    self, CommandAnswer, CommandOutcome, CommandReply, ServerCommand, ServerStatus, UpgradeState,
};
use superpoll_rt::time;

use super::conversation::Conversation;
use super::process::ServerProcess;
use super::{AGAIN, LastSeen, ended, say, unexpected};
use crate::quantity;
use crate::stats::source::End;

/// How long a process that has taken over may take to answer. It serves before that.
const ANSWER: Duration = Duration::from_secs(10);

/// Makes the program on disk take over from a server, and prints which process serves then.
pub(super) async fn upgrade(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    // For its version.
    let (before, _) = status(path).await?;
    let mut conversation = Conversation::begin(path, ServerCommand::Upgrade).await?;
    let process = conversation.process.take();
    seen.borrow_mut().process = process.as_ref().map(|process| process.number);
    match conversation.next().await {
        Ok(reply) => match &reply.answer {
            CommandAnswer::Done(outcome) => succeeded(path, &before, outcome).await,
            _ => Err(unexpected(&reply)),
        },
        Err(End::Ended) => match process {
            Some(process) => replaced(path, &before, &process, seen).await,
            None => Err(ended(None).into()),
        },
        Err(error) => Err(error.into()),
    }
}

async fn status(path: &Path) -> Result<(CommandReply, ServerStatus), Box<dyn Error>> {
    let reply = Conversation::begin(path, ServerCommand::Status).await?.next().await?;
    match &reply.answer {
        CommandAnswer::Status(status) => {
            let status = ServerStatus::clone(status);
            Ok((reply, status))
        }
        _ => Err(unexpected(&reply)),
    }
}

/// Waits for the answer of the process that has taken over.
async fn succeeded(
    path: &Path,
    before: &CommandReply,
    outcome: &CommandOutcome,
) -> Result<(), Box<dyn Error>> {
    let (from, message) =
        (format!("process {} ({})", before.process, before.version), &outcome.message);
    let Some(number) = outcome.successor else {
        return say(&format!("another process has taken over from {from}: {message}"));
    };
    let successor = ServerProcess::new(number);
    let end = Instant::now() + ANSWER;
    while Instant::now() < end {
        // It may have been started with another path.
        let paths: [Option<PathBuf>; 2] = [socket::of_process(number), Some(path.to_path_buf())];
        for path in paths.into_iter().flatten() {
            let answer = time::timeout(ANSWER, status(&path)).await;
            if let Ok(Ok((now, _))) = answer
                && now.process == number
            {
                let version = &now.version;
                return say(&format!(
                    "process {number} ({version}) has taken over from {from}: {message}"
                ));
            }
        }
        if successor.ends_within(AGAIN).await {
            let what = format!("process {number} has taken over from {from}, and has ended since");
            return Err(format!("{what}; its log says why").into());
        }
    }
    say(&format!(
        "process {number} has taken over from {from}, and publishes no statistics: {message}"
    ))
}

/// Waits until the new program of a supervisor has replaced the workers.
async fn replaced(
    path: &Path,
    before: &CommandReply,
    process: &ServerProcess,
    seen: &RefCell<LastSeen>,
) -> Result<(), Box<dyn Error>> {
    let number = process.number;
    while !process.ends_within(AGAIN).await {
        // Until its socket is back.
        let Ok(mut asked) = Conversation::begin(path, ServerCommand::Status).await else {
            continue;
        };
        let now = match asked.next().await {
            Ok(now) => now,
            Err(End::Ended) => continue,
            Err(End::Wrong(error)) => {
                return Err(format!("the program of process {number} was replaced: {error}").into());
            }
        };
        let CommandAnswer::Status(status) = &now.answer else { return Err(unexpected(&now)) };
        if now.process != number {
            break;
        }
        let (old, new) = (&before.version, &now.version);
        match &status.facts.upgrade {
            Some(UpgradeState::UnderWay) => {
                seen.borrow_mut().last = Some("its workers are being replaced".to_owned());
            }
            Some(UpgradeState::Failed(why)) => {
                return Err(format!("process {number} ({new}): {why}").into());
            }
            Some(UpgradeState::Done) => {
                let workers: Vec<String> =
                    status.facts.processes.iter().map(|one| one.process.to_string()).collect();
                let workers = workers.join(", ");
                let numbers = status.facts.handed_over.map_or_else(String::new, |handed| {
                    format!(": {}", quantity::handed_over(handed.elsewhere, handed.here))
                });
                return say(&format!(
                    "process {number} is {new} now, in place of {old}, with the workers \
                     {workers}{numbers}"
                ));
            }
            None => return Err(ended(Some(number)).into()),
        }
    }
    Err(format!("process {number} has ended during the upgrade; its log says why").into())
}
