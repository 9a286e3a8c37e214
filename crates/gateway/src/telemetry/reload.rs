//! The outcome of the last attempt to take on a configuration.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde::{Deserialize, Serialize};

use crate::unix_time::seconds_now;

/// Whether the last attempt was a success, and when there last was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReloadState {
    is_successful: bool,
    /// In seconds since 1970.
    succeeded: u64,
}

impl ReloadState {
    /// Returns the state of a configuration that is taken on now.
    pub(crate) fn successful() -> ReloadState {
        ReloadState { is_successful: true, succeeded: seconds_now() }
    }

    /// Returns the state after another attempt.
    pub(crate) fn after(self, is_successful: bool) -> ReloadState {
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
        let help = "Whether the last attempt to take on a configuration was a success";
        let name = "config_last_reload_successful";
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&i64::from(self.is_successful))?;
        let help = "When a configuration was last taken on, in seconds since 1970";
        let name = "config_last_reload_success_timestamp";
        encoder
            .encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?
            .encode_gauge(&i64::try_from(self.succeeded).unwrap_or(i64::MAX))
    }
}
