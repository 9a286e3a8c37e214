//! `superpoll status`.

use std::error::Error;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use superpoll_gateway::control::{
    ApiRequest, Operation, ServerStatus, Snapshot, UpgradeState, seconds_now,
};
use superpoll_gateway::telemetry::snapshot::verdict;

use super::target::Meant;
use super::{ServerName, converse, not_answering, say, target, within};
use crate::printable::printable_line;
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

/// Asks a server for its state, and prints it.
pub(crate) fn run(options: &StatusOptions) -> Result<(), Box<dyn Error>> {
    within(Some(options.timeout), async |seen| {
        let path = &target::locate(options.name.get(), Meant::Any).await?;
        seen.borrow_mut().path.clone_from(path);
        let mut exchange = converse(path, &ApiRequest::from(&Operation::Status), seen).await?;
        let value = exchange.value().await?;
        match options.json {
            true => say(&printable_line(&value)?),
            false => say(text(&exchange.understand(value)?, seconds_now()).trim_end()),
        }
    })
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
fn text(status: &ServerStatus, now: u64) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let mut name = name;
        for part in value.lines() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<14}{part}");
            name = "";
        }
    };
    let ServerStatus { facts, snapshot } = status;
    let Snapshot { program, version, process, .. } = snapshot;
    line("process", &format!("{process}, superpoll {program} {version}, {}", facts.state.name()));
    let uptime = Duration::from_secs(Duration::from_nanos(snapshot.uptime_ns).as_secs());
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
    let missing = &snapshot.missing_processes;
    let mut connections = snapshot.connections.to_string();
    if !missing.is_empty() {
        connections = format!("{connections}, without those of {}", not_answering(missing));
    }
    line("connections", &connections);
    if let Some(ratio) = &snapshot.active_ratio {
        let verdict = verdict(ratio, snapshot.watching.as_ref());
        line("active", &verdict.replacen("; ", "\n", 1));
        line("in a minute", &ratio.minute.to_string());
        line("in an hour", &ratio.hour.to_string());
    }
    let engines = &snapshot.engines;
    let counted = || engines.iter().filter_map(|engine| engine.connections);
    let requests: u64 = counted().map(|connections| connections.running).sum();
    let silent = engines.iter().filter(|engine| !engine.answers).count();
    let mut summary = format!("{}, {}", engines.len(), snapshot.backend);
    let policy = engines.first().and_then(|engine| engine.policy.as_ref());
    if let Some(policy) = policy.filter(|policy| **policy != snapshot.backend) {
        summary = format!("{summary} ({policy})");
    }
    if counted().next().is_some() {
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
    use superpoll_gateway::control::{
        HandedOverStatus, LastReload, ServerFacts, ServerPhase, WorkerStatus,
    };
    use superpoll_gateway::telemetry::ratio::{ActiveConnections, ActiveRatio};
    use superpoll_gateway::telemetry::snapshot::{Connections, Engine};

    use super::*;

    #[test]
    fn the_state_is_told_in_lines_and_absent_facts_have_none() {
        let engine = Engine {
            answers: true,
            policy: Some("idle-server".to_owned()),
            connections: Some(Connections { running: 2, ..Connections::default() }),
            ..Engine::default()
        };
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
            snapshot: Snapshot {
                program: "serve".to_owned(),
                version: "0.1.0".to_owned(),
                process: 42,
                uptime_ns: 61_500_000_000,
                backend: "adaptive".to_owned(),
                connections: 3,
                active_ratio: Some(ratio),
                engines: vec![engine.clone(), Engine { answers: false, ..engine }],
                ..Snapshot::default()
            },
        };
        assert_eq!(
            text(&status, 1_000_000_090),
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
        status.snapshot.missing_processes = vec![43];
        status.facts.upgrade = Some(UpgradeState::Done);
        status.facts.handed_over = Some(HandedOverStatus { elsewhere: 201, here: 1 });
        let told = text(&status, 0);
        for line in [
            "upgrade       done: this is the new program; 201 connections went on, \
             1 stayed with the program before\n",
            "connections   3, without those of process 43, which does not answer\n",
            "workers       0 43, starting, not answering\n",
        ] {
            assert!(told.contains(line), "{told}");
        }
        status.snapshot.missing_processes.clear();
        status.facts = ServerFacts::default();
        status.snapshot.engines.clear();
        status.snapshot.active_ratio = None;
        assert_eq!(
            text(&status, 0),
            "process       42, superpoll serve 0.1.0, starting\n\
             uptime        1m 1s\n\
             connections   3\n\
             engines       0, adaptive\n"
        );
    }
}
