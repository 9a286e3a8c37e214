//! Commands to a server, and its answers: the forms of the lines.
//!
//! A client of the statistics socket may send a command in place of an interval:
//!
//! ```text
//! {"command": "reload", "protocol": 1}
//! ```
//!
//! From then on it is sent no snapshots, but [replies](CommandReply), each of which has one
//! [`CommandAnswer`]. The answer to `drain` is followed by the number of connections, again and
//! again until the process ends; every other command has one answer, and then the connection ends.
//! A program that does not know commands takes such a line for a wrong interval and says so,
//! without `protocol`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::admin::{Operation, OperationReport};
use crate::telemetry::ratio::ActiveRatio;

/// The version of the commands and their answers. A field that is added to an answer does not
/// change the version.
pub const COMMAND_PROTOCOL: u32 = 1;

superpoll::named! {
    /// A command to a server.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerCommand {
        /// Read the configuration again, as for SIGHUP.
        Reload = "reload",
        /// Let the program on disk take over, as for SIGUSR2.
        Upgrade = "upgrade",
        /// End, and let connections end first, as for SIGTERM.
        Drain = "drain",
        /// Report the state of the server.
        Status = "status",
        /// Carry out the operation of the request: list or change upstreams, connections, channels.
        Operate = "operate",
    }
}

/// A line with a command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// The command.
    pub command: ServerCommand,
    /// The version of the commands: [`COMMAND_PROTOCOL`].
    pub protocol: u32,
    /// The operation, for [`ServerCommand::Operate`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

impl From<ServerCommand> for CommandRequest {
    fn from(command: ServerCommand) -> CommandRequest {
        CommandRequest { command, protocol: COMMAND_PROTOCOL, operation: None }
    }
}

impl From<Operation> for CommandRequest {
    fn from(operation: Operation) -> CommandRequest {
        let operation = Some(operation);
        CommandRequest { operation, ..ServerCommand::Operate.into() }
    }
}

/// A line in answer to a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandReply {
    /// The version of the form of snapshots: `SCHEMA`.
    pub schema: u32,
    /// The version of the commands: [`COMMAND_PROTOCOL`].
    pub protocol: u32,
    /// The task of the process: `serve` or `proxy`.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// The number of the process.
    pub process: u32,
    /// The answer.
    #[serde(flatten)]
    pub answer: CommandAnswer,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandAnswer {
    /// The command was carried out; for `drain`, the server has begun.
    Done(CommandOutcome),
    /// The command was not carried out, for this reason. It may have several lines.
    Error(String),
    /// How far a drain is.
    Progress(DrainProgress),
    /// The state of the server.
    Status(Box<ServerStatus>),
    /// The answer to an operation.
    Report(Box<OperationReport>),
}

/// The outcome of a command that was carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// The outcome in one line.
    pub message: String,
    /// Notes about it, a line each, such as settings that are probably not meant.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The process that has taken over, where that is another one.
    #[serde(default)]
    pub successor: Option<u32>,
}

/// How far a drain is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DrainProgress {
    /// Connections that clients still have.
    pub connections: u64,
    /// Requests under way on these; none for a program that does not count them.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The processes that have not answered in time, so that their connections and requests are
    /// left out.
    #[serde(default)]
    pub missing_processes: Vec<u32>,
}

/// The state of a server at one moment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The facts that the server's program knows.
    #[serde(flatten)]
    pub facts: ServerFacts,
    /// The time since the program was started in its process, in nanoseconds.
    pub uptime_ns: u64,
    /// The name of the back-end that all engines have.
    pub backend: String,
    /// The name of its placement policy; `None` where the back-end has none, and for a server of an
    /// earlier version.
    #[serde(default)]
    pub policy: Option<String>,
    /// Connections that clients have now, parked ones included.
    pub connections: u64,
    /// The connections that are active, compared with all; `None` in the first second, for a
    /// program that does not count them, and for a server of an earlier version.
    #[serde(default)]
    pub active_ratio: Option<ActiveRatio>,
    /// The ratio and what watching has cost since the start, in one line.
    #[serde(default)]
    pub verdict: Option<String>,
    /// The engines that have ever answered.
    pub engines: Vec<EngineStatus>,
    /// The processes that have not answered in time, so that their connections and engines are left
    /// out.
    #[serde(default)]
    pub missing_processes: Vec<u32>,
}

/// The state of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineStatus {
    /// The engine's number, from zero.
    pub number: usize,
    /// The number of its process, where a server has several.
    pub process: Option<u32>,
    /// Whether the engine has answered in time.
    pub answers: bool,
    /// Requests under way now; none for a program that does not count them.
    pub requests: Option<u64>,
}

/// The facts about a server that its program knows, and its engines do not.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The phase of the server's life.
    pub state: ServerPhase,
    /// The file of the configuration; none if the command line says everything.
    pub configuration: Option<PathBuf>,
    /// When the configuration in use was taken on, in seconds since 1970.
    pub configured_at: u64,
    /// The last attempt to read the configuration again, if there was one.
    pub reload: Option<LastReload>,
    /// The addresses that are served, as users write them.
    pub listeners: Vec<String>,
    /// The socket of the keeper, if there is one.
    pub keeper: Option<PathBuf>,
    /// The worker processes, where a server has several.
    pub processes: Vec<WorkerStatus>,
    /// The last upgrade that this process has had a part in.
    pub upgrade: Option<UpgradeState>,
    /// The connections of the workers that the last upgrade has replaced, where a server has
    /// several.
    #[serde(default)]
    pub handed_over: Option<HandedOverStatus>,
}

/// The connections of processes that an upgrade has replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedOverStatus {
    /// Connections that the new program continues with.
    pub elsewhere: u64,
    /// Connections that end with the program before.
    pub here: u64,
}

superpoll::named! {
    /// The phase of a server's life.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerPhase {
        /// It does not serve yet.
        #[default]
        Starting = "starting",
        /// It serves.
        Serving = "serving",
        /// It accepts no connections any more, and ends when those that it has are closed.
        Draining = "draining",
    }
}

/// The outcome of an attempt to read the configuration again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastReload {
    /// When it was over, in seconds since 1970.
    pub at: u64,
    /// The mistake, if the configuration was refused.
    pub error: Option<String>,
}

/// A worker process of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its place among the workers, from zero.
    pub slot: u32,
    /// The number of the process.
    pub process: u32,
    /// The phase of its life.
    pub state: ServerPhase,
}

/// The state of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeState {
    /// The new program is about to take over.
    UnderWay,
    /// This is the new program, and it has taken over.
    Done,
    /// The new program has not taken over, for this reason.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{Protocol, ServerState};

    #[test]
    fn replies_have_one_answer_each_and_are_read_as_they_were_written() {
        let status = ServerStatus {
            facts: ServerFacts {
                state: ServerPhase::Serving,
                configuration: Some("/etc/superpoll.toml".into()),
                reload: Some(LastReload { at: 7, error: Some("a:1:2: wrong".to_owned()) }),
                upgrade: Some(UpgradeState::UnderWay),
                ..ServerFacts::default()
            },
            uptime_ns: 5,
            backend: "epoll".to_owned(),
            policy: None,
            connections: 3,
            active_ratio: None,
            verdict: None,
            engines: Vec::new(),
            missing_processes: Vec::new(),
        };
        for (answer, key) in [
            (CommandAnswer::Done(CommandOutcome::default()), "done"),
            (CommandAnswer::Error("no".to_owned()), "error"),
            (
                CommandAnswer::Progress(DrainProgress {
                    connections: 3,
                    requests: Some(1),
                    missing_processes: vec![7],
                }),
                "progress",
            ),
            (CommandAnswer::Status(Box::new(status)), "status"),
        ] {
            let reply = CommandReply {
                schema: 1,
                protocol: COMMAND_PROTOCOL,
                program: "serve".to_owned(),
                version: "1".to_owned(),
                process: 4,
                answer,
            };
            let text = serde_json::to_string(&reply).unwrap();
            assert!(text.contains(&format!("\"{key}\":")) && !text.contains('\n'), "{text}");
            assert_eq!(serde_json::from_str::<CommandReply>(&text).unwrap(), reply);
            let more = text.replacen('{', "{\"later\":[1],", 1);
            assert_eq!(serde_json::from_str::<CommandReply>(&more).unwrap(), reply);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        fn read<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
            let text = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name);
            T::deserialize(text).ok()
        }
        for value in ServerCommand::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in ServerPhase::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in ServerState::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
        for value in Protocol::ALL {
            assert_eq!(read(value.name()), Some(value));
        }
    }
}
