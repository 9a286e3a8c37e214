//! Answering a command.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::AsyncWriteExt;
use serde::Serialize;
use superpoll_http::admin::Refusal;
use superpoll_http::admin::command::{
    COMMAND_PROTOCOL, CommandAnswer, CommandReply, CommandRequest, DrainProgress, EngineStatus,
    ServerCommand, ServerFacts, ServerPhase, ServerStatus,
};
use superpoll_rt::net::unix::UnixStream;
use superpoll_rt::time;

use super::collector::Collector;
use super::snapshot::{Engine, SCHEMA, Snapshot};
use super::subject::{Engines, Subject};
use crate::telemetry::verdict::verdict;

/// How long a client may take to read a snapshot.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two reports of how far a drain is.
const REPORT: Duration = Duration::from_millis(200);

/// The same for several processes, which the supervisor must ask.
const REPORT_OF_WORKERS: Duration = Duration::from_millis(500);

/// Sends a line of JSON.
pub(super) async fn write(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    time::timeout(PATIENCE, stream.write_all(&line)).await?
}

fn reply(subject: &Subject, answer: CommandAnswer) -> CommandReply {
    CommandReply {
        schema: SCHEMA,
        protocol: COMMAND_PROTOCOL,
        program: subject.program.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process: std::process::id(),
        answer,
    }
}

/// Answers a command, or the mistake in it.
///
/// # Errors
///
/// The client has gone, or does not read.
pub(super) async fn answer(
    stream: &UnixStream,
    subject: &Arc<Subject>,
    request: Result<CommandRequest, String>,
) -> io::Result<()> {
    let CommandRequest { command, operation, .. } = match request {
        Ok(request) => request,
        Err(error) => return write(stream, &reply(subject, CommandAnswer::Error(error))).await,
    };
    let outcome = match (command, operation) {
        (ServerCommand::Operate, None) => Err(Refusal::invalid("the command has no operation")),
        (ServerCommand::Operate, Some(operation)) => {
            let outcome = subject.operate(operation).await;
            outcome.map(|report| (CommandAnswer::Report(Box::new(report)), None))
        }
        (command, _) => subject.command(command).await,
    };
    let (answer, unwritten) =
        outcome.unwrap_or_else(|refusal| (CommandAnswer::Error(refusal.message), None));
    let is_draining = command == ServerCommand::Drain && matches!(answer, CommandAnswer::Done(_));
    write(stream, &reply(subject, answer)).await?;
    drop(unwritten);
    if is_draining { report_drain(stream, subject).await } else { Ok(()) }
}

/// Reports how many connections there are until the process ends, and this task with it.
async fn report_drain(stream: &UnixStream, subject: &Arc<Subject>) -> io::Result<()> {
    loop {
        let (progress, pause) = match &subject.engines {
            Engines::Here { connections, counters, overview } => {
                let running = counters.iter().map(|engine| engine.running.get()).sum();
                let requests = overview.is_some().then_some(running);
                let progress = DrainProgress {
                    connections: connections(),
                    requests,
                    missing_processes: Vec::new(),
                };
                (progress, REPORT)
            }
            Engines::There(_) => {
                let mut collector = Collector::new(subject.clone());
                let Snapshot { connections, missing_processes, .. } =
                    collector.take_snapshot().await;
                let requests = Some(collector.running());
                let progress = DrainProgress { connections, requests, missing_processes };
                (progress, REPORT_OF_WORKERS)
            }
        };
        write(stream, &reply(subject, CommandAnswer::Progress(progress))).await?;
        time::sleep(pause).await;
    }
}

async fn snapshot(subject: &Arc<Subject>) -> Snapshot {
    Collector::new(subject.clone()).take_snapshot().await
}

pub(super) async fn status(subject: &Arc<Subject>) -> ServerStatus {
    let snapshot = snapshot(subject).await;
    let unknown = || ServerFacts { state: ServerPhase::Serving, ..ServerFacts::default() };
    let engine = |engine: &Engine| EngineStatus {
        number: engine.number,
        process: engine.process,
        answers: engine.answers,
        requests: engine.connections.map(|connections| connections.running),
    };
    ServerStatus {
        facts: subject.commands.as_ref().map_or_else(unknown, |commands| commands.facts()),
        uptime_ns: snapshot.uptime_ns,
        backend: snapshot.backend,
        policy: snapshot.engines.first().and_then(|engine| engine.policy.clone()),
        connections: snapshot.connections,
        active_ratio: snapshot.active_ratio,
        verdict: snapshot.active_ratio.map(|ratio| verdict(&ratio, snapshot.watching.as_ref())),
        engines: snapshot.engines.iter().map(engine).collect(),
        missing_processes: snapshot.missing_processes,
    }
}
