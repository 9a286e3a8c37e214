//! Mistakes in a configuration, each with its place.

use std::ops::Range;
use std::path::PathBuf;

use crate::suggestion;

/// The most mistakes of one text that are reported, as each costs another reading of the whole.
pub(crate) const MOST_MISTAKES: usize = 100;

/// A mistake and its place in the text, in bytes.
pub(crate) type LocatedMistake = (Range<usize>, String);

/// A mistake in a configuration.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
#[error("{file}:{line}:{column}: {what}")]
pub struct Mistake {
    /// The file, or the name that stands for it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The mistake and the expected value, in one line.
    pub what: String,
}

/// The reason for which a configuration cannot be used.
#[derive(thiserror::Error, Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The text has mistakes, each of which has a line of the message.
    #[error("{}", .mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong {
        /// The mistakes, in the order of the text; at least one.
        mistakes: Vec<Mistake>,
    },
}

/// Keys that had another name in earlier versions: the old name, and the advice for it.
const RENAMED_KEYS: [(&str, &str); 2] = [
    ("babysitter", "is called `keeper` now, and its key `sitting` is called `kind`"),
    ("sitting", "is called `kind` now"),
];

/// Returns the message of an error, in one line and in the words of operators.
pub(crate) fn message_of(error: &toml::de::Error) -> String {
    let message =
        error.message().replace("unknown field", "unknown key").replace(['\n', '\r'], " ");
    let unknown = message.strip_prefix("unknown key `").and_then(|rest| rest.split_once('`'));
    let renamed = unknown.and_then(|(key, _)| RENAMED_KEYS.iter().find(|(old, _)| *old == key));
    match renamed {
        Some((old, advice)) => format!("the key `{old}` {advice}"),
        None => suggestion::suggest(&message),
    }
}
