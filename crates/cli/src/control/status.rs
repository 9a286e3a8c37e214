//! `superpoll status`.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use superpoll_gateway::telemetry::socket::{
    CommandAnswer, CommandReply, ServerCommand, ServerStatus, UpgradeState, seconds_now,
};

use super::{LastSeen, ServerName, converse, not_answering, say, target, unexpected, within};
use crate::quantity;

/// Options of `status`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub name: ServerName,
    /// Print an object of JSON in one line
    #[arg(long)]
    pub json: bool,
    /// How long to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::proxy::seconds)]
    pub timeout: Duration,
}

/// Prints the state of a server.
pub(crate) fn run(options: &StatusOptions) -> Result<(), Box<dyn Error>> {
    within(Some(options.timeout), async |seen| {
        let path = &target::locate(options.name.get(), ServerCommand::Status).await?;
        seen.borrow_mut().path.clone_from(path);
        print(path, options.json, seen).await
    })
}

/// Asks for the state, and prints it.
pub(super) async fn print(
    path: &Path,
    is_json: bool,
    seen: &RefCell<LastSeen>,
) -> Result<(), Box<dyn Error>> {
    let (_, reply) = converse(path, &ServerCommand::Status.into(), seen).await?;
    let CommandAnswer::Status(status) = &reply.answer else { return Err(unexpected(&reply)) };
    match is_json {
        true => say(&serde_json::to_string(&reply)?),
        false => say(text(&reply, status, seconds_now()).trim_end()),
    }
}

/// Returns a moment and its age.
fn moment(at: u64, now: u64) -> String {
    let date = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at));
    let date =
        date.map_or_else(String::new, |date| humantime::format_rfc3339_seconds(date).to_string());
    let age = humantime::format_duration(Duration::from_secs(now.saturating_sub(at)));
    format!("{date}, {age} ago")
}

/// Returns the state in lines.
fn text(reply: &CommandReply, status: &ServerStatus, now: u64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let mut name = name;
        for part in value.lines() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<14}{part}");
            name = "";
        }
    };
    let CommandReply { program, version, process, .. } = reply;
    let facts = &status.facts;
    line("process", &format!("{process}, superpoll {program} {version}, {}", facts.state.name()));
    let uptime = Duration::from_secs(Duration::from_nanos(status.uptime_ns).as_secs());
    line("uptime", &humantime::format_duration(uptime).to_string());
    if let Some(path) = &facts.configuration {
        let taken_on = moment(facts.configured_at, now);
        line("configuration", &format!("{}, taken on {taken_on}", path.display()));
    }
    match &facts.reload {
        None => {}
        Some(reload) => match &reload.error {
            None => line("last reload", &format!("a success, {}", moment(reload.at, now))),
            Some(error) => {
                line("last reload", &format!("refused, {}\n{error}", moment(reload.at, now)));
            }
        },
    }
    match &facts.upgrade {
        None => {}
        Some(UpgradeState::UnderWay) => line("upgrade", "under way"),
        Some(UpgradeState::Done) => {
            let numbers = facts.handed_over.map_or_else(String::new, |handed| {
                let went = quantity::count(handed.elsewhere, "connection");
                format!("; {went} went on, {} stayed with the program before", handed.here)
            });
            line("upgrade", &format!("done: this is the new program{numbers}"));
        }
        Some(UpgradeState::Failed(why)) => line("upgrade", &format!("failed: {why}")),
    }
    line("listeners", &facts.listeners.join("\n"));
    if let Some(path) = &facts.keeper {
        line("keeper", &path.display().to_string());
    }
    let missing = &status.missing_processes;
    let mut connections = status.connections.to_string();
    if !missing.is_empty() {
        connections = format!("{connections}, without those of {}", not_answering(missing));
    }
    line("connections", &connections);
    if let Some(verdict) = &status.verdict {
        line("active", &verdict.replacen("; ", "\n", 1));
    }
    if let Some(ratio) = &status.active_ratio {
        line("in a minute", &ratio.minute.to_string());
        line("in an hour", &ratio.hour.to_string());
    }
    let engines = &status.engines;
    let requests: u64 = engines.iter().filter_map(|engine| engine.requests).sum();
    let silent = engines.iter().filter(|engine| !engine.answers).count();
    let mut summary = format!("{}, {}", engines.len(), status.backend);
    if let Some(policy) = status.policy.as_ref().filter(|policy| **policy != status.backend) {
        summary = format!("{summary} ({policy})");
    }
    if engines.iter().any(|engine| engine.requests.is_some()) {
        summary = format!("{summary}, {requests} requests under way");
    }
    if silent > 0 {
        summary = format!("{summary}, {silent} not answering");
    }
    line("engines", &summary);
    let worker = facts.processes.iter();
    let described = worker.map(|one| {
        let silence = if missing.contains(&one.process) { ", not answering" } else { "" };
        format!("{} {}, {}{silence}", one.slot, one.process, one.state.name())
    });
    let workers: Vec<String> = described.collect();
    line("workers", &workers.join("\n"));
    text
}

#[cfg(test)]
mod tests {
    use superpoll_gateway::telemetry::ratio::{ActiveConnections, ActiveRatio};
    use superpoll_gateway::telemetry::socket::{
        COMMAND_PROTOCOL, EngineStatus, HandedOverStatus, LastReload, SCHEMA, ServerFacts,
        ServerPhase, WorkerStatus,
    };

    use superpoll_gateway::telemetry::verdict::verdict;

    use super::*;

    #[test]
    fn the_state_is_told_in_lines_and_absent_facts_have_none() {
        let engine =
            EngineStatus { number: 0, process: Some(43), answers: true, requests: Some(2) };
        let mean = |active, connections| ActiveConnections {
            active,
            connections,
            ratio: Some(active / connections),
        };
        let (last_second, minute) = (mean(2.0, 3.0), mean(1.5, 3.0));
        let ratio = ActiveRatio { last_second, minute, ..ActiveRatio::default() };
        let mut status = ServerStatus {
            facts: ServerFacts {
                state: ServerPhase::Serving,
                configuration: Some("/etc/superpoll.toml".into()),
                configured_at: 1_000_000_000,
                reload: Some(LastReload { at: 1_000_000_060, error: Some("a\nb".to_owned()) }),
                listeners: vec!["http://127.0.0.1:80/".to_owned(), "https://[::1]:443/".to_owned()],
                keeper: Some("/run/keeper".into()),
                processes: vec![WorkerStatus {
                    slot: 0,
                    process: 43,
                    state: ServerPhase::Starting,
                }],
                upgrade: Some(UpgradeState::UnderWay),
                handed_over: None,
            },
            uptime_ns: 61_500_000_000,
            backend: "adaptive".to_owned(),
            policy: Some("idle-server".to_owned()),
            connections: 3,
            active_ratio: Some(ratio),
            verdict: Some(verdict(&ratio, None)),
            engines: vec![engine, EngineStatus { answers: false, ..engine }],
            missing_processes: Vec::new(),
        };
        let reply = CommandReply {
            schema: SCHEMA,
            protocol: COMMAND_PROTOCOL,
            program: "serve".to_owned(),
            version: "0.1.0".to_owned(),
            process: 42,
            answer: CommandAnswer::Error(String::new()),
        };
        assert_eq!(
            text(&reply, &status, 1_000_000_090),
            "process       42, superpoll serve 0.1.0, serving\n\
             uptime        1m 1s\n\
             configuration /etc/superpoll.toml, taken on 2001-09-09T01:46:40Z, 1m 30s ago\n\
             last reload   refused, 2001-09-09T01:47:40Z, 30s ago\n\
             \x20             a\n\
             \x20             b\n\
             upgrade       under way\n\
             listeners     http://127.0.0.1:80/\n\
             \x20             https://[::1]:443/\n\
             keeper        /run/keeper\n\
             connections   3\n\
             active        ratio 0.67: 2 of 3 active\n\
             \x20             the back-end does not measure what watching costs\n\
             in a minute   0.50: 1.5 of 3 active\n\
             in an hour    -: 0 of 0 active\n\
             engines       2, adaptive (idle-server), 4 requests under way, 1 not answering\n\
             workers       0 43, starting\n"
        );
        status.missing_processes = vec![43];
        status.facts.upgrade = Some(UpgradeState::Done);
        status.facts.handed_over = Some(HandedOverStatus { elsewhere: 201, here: 1 });
        let told = text(&reply, &status, 0);
        for line in [
            "upgrade       done: this is the new program; 201 connections went on, \
             1 stayed with the program before\n",
            "connections   3, without those of process 43, which does not answer\n",
            "workers       0 43, starting, not answering\n",
        ] {
            assert!(told.contains(line), "{told}");
        }
        status.missing_processes.clear();
        status.facts = ServerFacts::default();
        status.engines.clear();
        (status.active_ratio, status.verdict, status.policy) = (None, None, None);
        assert_eq!(
            text(&reply, &status, 0),
            "process       42, superpoll serve 0.1.0, starting\n\
             uptime        1m 1s\n\
             connections   3\n\
             engines       0, adaptive\n"
        );
    }
}
