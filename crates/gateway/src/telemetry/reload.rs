//! The outcome of the last attempt to take on a configuration.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use serde::{Deserialize, Serialize};
use superpoll_http::families;
use superpoll_http::telemetry::families::{self, Labels};
use superpoll_http::unix_time::seconds_now;

/// Whether the last attempt was a success, and when there last was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReloadState {
    is_successful: bool,
    /// In seconds since 1970.
    succeeded: u64,
}

families! {
    const FAMILIES: ReloadState = [
        Gauge config_last_reload_successful
            "Whether the last attempt to take on a configuration was a success",
            |reload| reload.is_successful.into();
        Moment config_last_reload_success_timestamp
            "When a configuration was last taken on, in seconds since 1970",
            |reload| reload.succeeded;
    ];
}

impl ReloadState {
    /// Returns the state of a configuration that is taken on now.
    #[must_use]
    pub fn successful() -> ReloadState {
        ReloadState { is_successful: true, succeeded: seconds_now() }
    }

    /// Returns the state after another attempt.
    #[must_use]
    pub fn after(self, is_successful: bool) -> ReloadState {
        match is_successful {
            true => ReloadState::successful(),
            false => ReloadState { is_successful: false, ..self },
        }
    }

    /// Adds the state that another process has.
    pub(super) fn add(&mut self, other: ReloadState) {
        self.is_successful &= other.is_successful;
        self.succeeded = self.succeeded.max(other.succeeded);
    }

    pub(super) fn write(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        families::write(FAMILIES, &[(Labels::new(), self)], encoder)
    }
}
