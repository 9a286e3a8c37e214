//! Events of a server, in a form for people and for programs.

use std::fmt;

use serde_json::Value;
use superpoll_config::Level;

/// An event in the life of a server. The server continues after it.
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
