//! A hub of Mercure.

use std::ops::Range;

use super::Check;
use crate::channel::Channel;
use crate::mercure::{MERCURE_PATH, Mercure};

impl Check<'_> {
    /// Checks the hub at a path.
    pub(super) fn mercure(&mut self, place: &Range<usize>, path: &str, hub: Mercure) -> Channel {
        if path != MERCURE_PATH {
            let what = format!("a hub of Mercure at {path:?}");
            self.wrong(place.clone(), format!("{what}, expected path = {MERCURE_PATH:?}"));
        }
        if hub.broker {
            self.shared_channel(place, "subscriptions", hub.subscriptions);
        }
        let mut channel = Channel::from(hub);
        self.rights(place, path, &mut channel);
        channel
    }
}
