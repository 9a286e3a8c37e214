//! A channel as one that a client publishes to.

use std::sync::Arc;

use super::hub::Hub;
use super::publisher::PublisherLimit;

/// A channel that a client may publish to.
pub(super) struct PublishTarget {
    pub hub: Arc<Hub>,
    /// Whether the client has the right to publish.
    pub may_publish: bool,
    /// How much the client may publish.
    pub limit: Option<PublisherLimit>,
}

impl PublishTarget {
    /// The most bytes of a message, which may change with the configuration.
    pub(super) fn message_bytes(&self) -> u64 {
        self.hub.options().message_bytes
    }
}
