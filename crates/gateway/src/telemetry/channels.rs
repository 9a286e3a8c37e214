//! The routes of channels: their subscribers, and the fate of their messages.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::process::process_label;
use crate::channel::RouteState;

/// A gauge of a route, which goes up and down.
type Gauge = (&'static str, &'static str, fn(&RouteState) -> i64);

const GAUGES: [Gauge; 3] = [
    ("channel_lag", "Messages in the logs of a route's channels that are not read", |route| {
        i64::try_from(route.lag).unwrap_or(i64::MAX)
    }),
    ("channels", "Channels of a route", |route| route.channels as i64),
    ("channel_subscribers", "Subscribers of a route's channels", |route| route.subscribers as i64),
];

/// A counter of a route, which only grows.
type Counter = (&'static str, &'static str, fn(&RouteState) -> u64);

const COUNTERS: [Counter; 5] = [
    (
        "channel_messages_refused",
        "Messages refused as their client publishes more than publish_rate",
        |route| route.refused,
    ),
    ("channel_messages_published", "Messages that were published to a route's channels", |route| {
        route.messages.published
    }),
    (
        "channel_messages_delivered",
        "Messages given to subscribers, counted once for each of them",
        |route| route.messages.delivered,
    ),
    (
        "channel_messages_dropped",
        "Messages that subscribers did not get as they are slow",
        |route| route.messages.left_out,
    ),
    (
        "channel_subscribers_disconnected",
        "Subscribers that were disconnected as they are slow",
        |route| route.messages.disconnected,
    ),
];

fn labels(route: &RouteState) -> Vec<(&'static str, String)> {
    let own = [("host", route.host.clone()), ("route", route.path.clone())];
    own.into_iter().chain(process_label(route.process)).collect()
}

/// Writes the families.
pub(super) fn write(routes: &[RouteState], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, of) in GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for route in routes {
            family.encode_family(&labels(route))?.encode_gauge(&of(route))?;
        }
    }
    for (name, help, of) in COUNTERS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for route in routes {
            let labels = labels(route);
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(&of(route), None)?;
        }
    }
    Ok(())
}
