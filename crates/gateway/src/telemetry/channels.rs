//! The routes of channels: their subscribers, and the fate of their messages.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use superpoll_http::families;
use superpoll_http::telemetry::families;
use superpoll_hub::channel::RouteState;

families! {
    const FAMILIES: RouteState = [
        Gauge channel_lag "Messages in the logs of a route's channels that are not read",
            |route| route.lag;
        Gauge channels "Channels of a route", |route| route.channels as u64;
        Gauge channel_subscribers "Subscribers of a route's channels",
            |route| route.subscribers as u64;
        Counter channel_messages_refused
            "Messages refused as their client publishes more than publish_rate",
            |route| route.refused;
        Counter channel_messages_published "Messages that were published to a route's channels",
            |route| route.messages.published;
        Counter channel_messages_delivered
            "Messages given to subscribers, counted once for each of them",
            |route| route.messages.delivered;
        Counter channel_messages_dropped "Messages that subscribers did not get as they are slow",
            |route| route.messages.left_out;
        Counter channel_subscribers_disconnected
            "Subscribers that were disconnected as they are slow",
            |route| route.messages.disconnected;
    ];
}

/// Writes the families of all routes.
pub(super) fn write(routes: &[RouteState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let labels = |route: &RouteState| {
        families::labels([("host", &*route.host), ("route", &*route.path)], route.process)
    };
    let routes: Vec<_> = routes.iter().map(|route| (labels(route), route)).collect();
    families::write(FAMILIES, &routes, encoder)
}
