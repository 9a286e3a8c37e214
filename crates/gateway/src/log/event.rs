//! Events of a server, in a form for people and for programs.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well.
    Info,
    /// A change by an operator or another process.
    Notice,
    /// An error that the server deals with.
    Warning,
    /// An error that makes the server do less than it was asked to.
    Error,
}

impl Level {
    /// All levels, the least first.
    pub const ALL: [Level; 4] = [Level::Info, Level::Notice, Level::Warning, Level::Error];

    /// Returns the level's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Notice => "notice",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// An event in the life of a server. The server goes on after it.
#[derive(Clone, Debug)]
pub struct Event {
    level: Level,
    name: &'static str,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Event {
    /// Creates an event of a kind, with a message in words.
    pub fn new(level: Level, name: &'static str, message: impl Into<String>) -> Event {
        Event { level, name, message: message.into(), fields: Vec::new() }
    }

    /// Adds a field for programs.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Event {
        self.fields.push((key, value.into()));
        self
    }

    /// Returns the event's level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the event's kind, as `upstream-down`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the fields for programs, in addition to the kind.
    #[must_use]
    pub fn fields(&self) -> &[(&'static str, Value)] {
        &self.fields
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
