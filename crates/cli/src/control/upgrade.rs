//! `superpoll upgrade`.
//!
//! A server of one process is told by its keeper that another one takes over, and answers with the
//! number of that. A supervisor stays the process that it is, and its program is replaced: it
//! answers that this is about to happen, and the new program is asked for the outcome.

use std::cell::RefCell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use superpoll_gateway::control::{
    self, ApiRequest, CommandOutcome, HandedOverStatus, Operation, ServerCommand, UpgradeState,
    WorkerStatus,
};
use superpoll_rt::time;

use super::client::{End, Exchange};
use super::process::ServerProcess;
use super::{AGAIN, LastSeen, ended, say};
use crate::quantity;

/// How long a process that has taken over may take to answer. It serves before that.
const ANSWER: Duration = Duration::from_secs(10);

/// Makes the program on disk take over from a server, and prints which process serves then.
pub(super) async fn upgrade(path: &Path, seen: &RefCell<LastSeen>) -> Result<(), Box<dyn Error>> {
    // For its version. A server that speaks another protocol is told of below.
    let before = identity(path).await.unwrap_or_default();
    let mut exchange = Exchange::begin(path, &ServerCommand::Upgrade.into()).await?;
    seen.borrow_mut().process = exchange.process.as_ref().map(|process| process.number);
    let answer = exchange.answer().await;
    match (answer, exchange.process.take()) {
        (Ok(CommandOutcome { is_under_way: true, process, .. }), _) => {
            replaced(path, &before, &ServerProcess::new(process), seen).await
        }
        (Ok(outcome), _) => succeeded(path, &before, &outcome).await,
        (Err(End::Ended), Some(process)) => replaced(path, &before, &process, seen).await,
        (Err(End::Ended), None) => Err(ended(None).into()),
        (Err(error), _) => Err(error.into()),
    }
}

/// The parts of a server's state that an upgrade needs, which is between two versions.
#[derive(Default, Deserialize)]
struct Identity {
    process: u32,
    version: String,
    #[serde(default)]
    upgrade: Option<UpgradeState>,
    #[serde(default)]
    processes: Vec<WorkerStatus>,
    #[serde(default)]
    handed_over: Option<HandedOverStatus>,
}

async fn identity(path: &Path) -> Result<Identity, End> {
    Exchange::begin(path, &ApiRequest::from(&Operation::Status)).await?.answer().await
}

/// Waits for the answer of the process that has taken over.
async fn succeeded(
    path: &Path,
    before: &Identity,
    outcome: &CommandOutcome,
) -> Result<(), Box<dyn Error>> {
    let from = format!("process {} ({})", before.process, before.version);
    let message = &outcome.message;
    let Some(number) = outcome.successor else {
        return say(&format!("another process has taken over from {from}: {message}"));
    };
    let successor = ServerProcess::new(number);
    let end = Instant::now() + ANSWER;
    while Instant::now() < end {
        // It may have been started with another path.
        let paths: [Option<PathBuf>; 2] = [control::of_process(number), Some(path.to_path_buf())];
        for path in paths.into_iter().flatten() {
            let answer = time::timeout(ANSWER, identity(&path)).await;
            if let Ok(Ok(now)) = answer
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
    before: &Identity,
    process: &ServerProcess,
    seen: &RefCell<LastSeen>,
) -> Result<(), Box<dyn Error>> {
    let number = process.number;
    while !process.ends_within(AGAIN).await {
        // Until its socket is back.
        let request = ApiRequest::from(&Operation::Status);
        let Ok(mut asked) = Exchange::begin(path, &request).await else { continue };
        let now: Identity = match asked.answer().await {
            Ok(now) => now,
            Err(End::Ended) => continue,
            Err(End::Wrong(error)) => {
                return Err(format!("the program of process {number} was replaced: {error}").into());
            }
        };
        if now.process != number {
            break;
        }
        let (old, new) = (&before.version, &now.version);
        match &now.upgrade {
            Some(UpgradeState::UnderWay) => {
                seen.borrow_mut().last = Some("its workers are being replaced".to_owned());
            }
            Some(UpgradeState::Failed(why)) => {
                return Err(format!("process {number} ({new}): {why}").into());
            }
            Some(UpgradeState::Done) => {
                let workers: Vec<String> =
                    now.processes.iter().map(|one| one.process.to_string()).collect();
                let workers = workers.join(", ");
                let numbers = now.handed_over.map_or_else(String::new, |handed| {
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
