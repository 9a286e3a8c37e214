//! The changes of an operator to a server of an upstream.

use serde::{Deserialize, Serialize};

/// The state of a server that an operator has set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Nothing is set: the server gets requests if it is healthy.
    #[default]
    Up,
    /// The server gets no new requests. Those that are under way on it end as usual.
    Down,
    /// The same, but clients that are bound to the server go on with it.
    Drain,
}

impl ServerState {
    /// Returns the name of the state in requests and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServerState::Up => "up",
            ServerState::Down => "down",
            ServerState::Drain => "drain",
        }
    }
}

/// A change of the setting for a server of an upstream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerChange {
    /// The name of the upstream.
    pub upstream: String,
    /// The address of the server, as the configuration has it.
    pub server: String,
    /// The state from now on. `None`: it stays.
    #[serde(default)]
    pub state: Option<ServerState>,
    /// The weight from now on. `None`: it stays.
    #[serde(default)]
    pub weight: Option<WeightChange>,
}

/// A change of the weight of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightChange {
    /// The weight of the configuration again.
    Configured,
    /// This weight, from 1 on.
    Number(u32),
}
