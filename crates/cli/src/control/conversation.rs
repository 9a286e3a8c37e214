//! A command to a server by its statistics socket, and the answers.

use std::path::Path;

use serde_json::Value;
use superpoll_gateway::telemetry::socket::{
    COMMAND_PROTOCOL, CommandReply, CommandRequest, ServerCommand,
};

use super::process::ServerProcess;
use crate::stats::printable::{map_texts, printable_lines};
use crate::stats::source::{End, Source};

/// A connection on which a command was sent.
pub(super) struct Conversation {
    source: Source,
    command: ServerCommand,
    /// The process that answers.
    pub process: Option<ServerProcess>,
    /// The version of a program that sends statistics, which it does before it reads a command.
    version: Option<String>,
}

/// The signal that makes an older server do the same.
fn signal(command: ServerCommand) -> Option<&'static str> {
    match command {
        ServerCommand::Reload => Some("HUP"),
        ServerCommand::Upgrade => Some("USR2"),
        ServerCommand::Drain => Some("TERM"),
        ServerCommand::Status | ServerCommand::Operate => None,
    }
}

impl Conversation {
    /// Sends a command to the server that listens at a path.
    pub(super) async fn begin(
        path: &Path,
        request: impl Into<CommandRequest>,
    ) -> Result<Conversation, End> {
        let request = request.into();
        let command = request.command;
        let mut source = Source::connect(path).await?;
        let process = source.process().map(ServerProcess::new);
        source.say(&request).await?;
        Ok(Conversation { source, command, process, version: None })
    }

    /// Returns the next answer, passing over statistics. Nothing is lost if this is dropped.
    pub(super) async fn next(&mut self) -> Result<CommandReply, End> {
        loop {
            let line = self.source.line().await?;
            let value = map_texts(self.source.value(&line)?, printable_lines);
            let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
            match (value.get("protocol").and_then(Value::as_u64), text("error")) {
                (None, None) => self.version = Some(text("version").unwrap_or_default()),
                (None, Some(error)) => return Err(self.refused(&error)),
                (Some(protocol), _) if protocol != u64::from(COMMAND_PROTOCOL) => {
                    let what = format!(
                        "it answers in version {protocol}, and this program knows version \
                         {COMMAND_PROTOCOL}; use the `superpoll` of that process"
                    );
                    return Err(self.source.wrong(&what));
                }
                (Some(_), _) => {
                    let read = serde_json::from_value(value);
                    return read.map_err(|error| {
                        self.source.wrong(&format!("its answer cannot be read: {error}"))
                    });
                }
            }
        }
    }

    /// Returns the meaning of an error that is no answer to a command.
    fn refused(&self, error: &str) -> End {
        let Some(version) = &self.version else { return self.source.wrong(error) };
        // It has sent statistics, and has taken the command for a wrong interval.
        let (name, process) = (self.command.name(), self.process.as_ref());
        let number = process.map_or_else(|| "PID".to_owned(), |process| process.number.to_string());
        let instead = match signal(self.command) {
            Some(signal) => format!("use kill -{signal} {number}"),
            None => format!("use superpoll top {number}"),
        };
        End::Wrong(format!(
            "process {number} is superpoll {version}, which does not know the command {name}; {instead}"
        ))
    }
}
