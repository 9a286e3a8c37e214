//! The setting of an operator for a server of a group. The choice for each request reads it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::admin::{ServerSetting, ServerState};

/// The setting of a server. By default nothing is set.
#[derive(Debug, Default)]
pub(super) struct OperatorSetting {
    /// 0: nothing is set.
    state: AtomicU8,
    /// In place of the weight of the configuration; 0: nothing is set.
    weight: AtomicU32,
}

impl OperatorSetting {
    /// Changes the setting. Returns whether it was another one.
    pub(super) fn set(&self, setting: ServerSetting) -> bool {
        let (state, weight) = (setting.state as u8, setting.weight.map_or(0, NonZeroU32::get));
        let before = self.weight.swap(weight, Ordering::Relaxed);
        self.state.swap(state, Ordering::Relaxed) != state || before != weight
    }

    /// Returns the state that is set.
    pub(super) fn state(&self) -> ServerState {
        let state = self.state.load(Ordering::Relaxed);
        ServerState::ALL.get(usize::from(state)).copied().unwrap_or_default()
    }

    /// Whether new requests may be forwarded to the server.
    pub(super) fn takes_requests(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ServerState::Up as u8
    }

    /// Returns the weight in use.
    pub(super) fn weight(&self, configured: u32) -> u32 {
        match self.weight.load(Ordering::Relaxed) {
            0 => configured,
            weight => weight,
        }
    }
}
