//! Channels, as an operator sees them.

use std::sync::Arc;

use superpoll_http::admin::{ChannelList, ChannelQuery, ChannelReport};

use super::hub::Hub;
use super::registry::Registry;

fn describe(key: String, route: &str, hub: &Hub) -> ChannelReport {
    let (messages, bytes) = hub.kept_in_all();
    ChannelReport {
        key,
        route: route.to_owned(),
        subscribers: hub.subscribers() as u64,
        last_id: hub.last(),
        messages,
        bytes,
    }
}

impl Registry {
    /// Lists channels by their keys.
    pub fn list(&self, query: &ChannelQuery) -> ChannelList {
        let after = query.after.as_deref().unwrap_or("");
        let mut found: Vec<(String, String, Arc<Hub>)> = Vec::new();
        for (host, path, channels) in self.by_host() {
            let hubs = channels.all().into_iter();
            let named = hubs.map(|hub| (format!("{host}{}", hub.name()), path.clone(), hub));
            found.extend(named.filter(|(key, ..)| key.as_str() > after));
        }
        found.sort_unstable_by(|(one, ..), (next, ..)| one.cmp(next));
        let is_more = found.len() > query.limit;
        found.truncate(query.limit);
        let channels = found.into_iter().map(|(key, route, hub)| describe(key, &route, &hub));
        let channels: Vec<_> = channels.collect();
        let last = channels.last().map(|channel| channel.key.clone());
        ChannelList { next: last.filter(|_| is_more), channels }
    }
}
