//! What a server says of itself, in a form for people and for programs.

use std::fmt;

use serde_json::Value;

/// How much an event matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// All goes as it should.
    Info,
    /// Somebody has changed something.
    Notice,
    /// Something went wrong, and the server deals with it.
    Warning,
    /// Something went wrong, and the server does less than it was asked to.
    Error,
}

impl Level {
    /// Its name.
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

/// Something that has happened to a server. It goes on all the same.
#[derive(Clone, Debug)]
pub struct Event {
    level: Level,
    name: &'static str,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Event {
    /// An event of a kind, told in words.
    pub fn new(level: Level, name: &'static str, message: impl Into<String>) -> Event {
        Event { level, name, message: message.into(), fields: Vec::new() }
    }

    /// The same with something that programs may want to know.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Event {
        self.fields.push((key, value.into()));
        self
    }

    /// How much it matters.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// What kind it is of, as `upstream-down`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What programs may want to know beside its kind.
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
