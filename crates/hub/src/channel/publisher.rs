//! A client as a publisher to the channels of a route: whether it may publish one more message now.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use superpoll_http::rate_table::TooFast;

use super::counters;
use super::hub::Hub;
use super::publish_limits::PublishLimits;
use super::rights::Rights;

/// One client, as a publisher to the channels of a route.
pub(super) struct PublisherLimit {
    pub limits: Arc<PublishLimits>,
    pub rights: Rc<Rights>,
    pub client: Option<IpAddr>,
}

impl PublisherLimit {
    /// Counts a message in, if the client may publish one now.
    ///
    /// # Errors
    ///
    /// It may not, which was reported.
    pub(super) fn admit(&self, name: &str) -> Result<(), TooFast> {
        let admitted = self.limits.admit(self.client);
        if let Err(TooFast { rate, .. }) = admitted {
            self.rights.report_too_fast(name, self.client, rate);
        }
        admitted
    }

    /// Counts a message that was refused. Its channel may not exist.
    pub(super) fn count_refused(&self, hub: Option<&Hub>) {
        self.limits.count_refused();
        if let Some(hub) = hub {
            counters::count(&hub.counters().refused, 1);
        }
    }
}
