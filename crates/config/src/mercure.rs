//! A hub of Mercure, as the configuration has it.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::channel::{self, Channel, HubOptions, Slow};
use super::origins::Origins;
use super::rate::{self, Rate};
use super::rights::{self, AuthorizeRule, Right, TokenRule};
use super::scalar;

/// The path of a hub, which the draft fixes (RFC 8615).
pub const MERCURE_PATH: &str = "/.well-known/mercure";

/// The cookie that clients of Mercure have their token in.
const COOKIE: &str = "mercureAuthorization";

/// A hub of Mercure. Its keys are those of a channel, unless it says otherwise.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Mercure {
    /// Default: 1000.
    history: usize,
    #[serde(deserialize_with = "scalar::size")]
    message_bytes: u64,
    #[serde(deserialize_with = "scalar::size")]
    backlog_bytes: u64,
    #[serde(deserialize_with = "channel::unsent")]
    unsent_bytes: u32,
    #[serde(deserialize_with = "scalar::size")]
    queue_bytes: u64,
    slow: Slow,
    /// After half of this time of silence a subscriber is sent a comment.
    #[serde(deserialize_with = "scalar::duration")]
    poll: Duration,
    origins: Origins,
    #[serde(deserialize_with = "rate::some")]
    publish_rate: Option<Rate>,
    /// Default: `token`, if there is `token`, and else as for a channel.
    #[serde(deserialize_with = "rights::some_right")]
    publish: Option<Right>,
    subscribe: Right,
    #[serde(deserialize_with = "rights::shared")]
    token: Option<Arc<TokenRule>>,
    #[serde(deserialize_with = "rights::shared")]
    authorize: Option<Arc<AuthorizeRule>>,
    /// Default: `false`.
    pub(super) broker: bool,
    /// Default: `false`.
    pub(super) subscriptions: bool,
    /// Default: `true`.
    discovery: bool,
}

impl Default for Mercure {
    fn default() -> Mercure {
        let Channel {
            message_bytes,
            backlog_bytes,
            unsent_bytes,
            queue_bytes,
            slow,
            poll,
            origins,
            publish_rate,
            publish,
            subscribe,
            token,
            authorize,
            ..
        } = Channel::default();
        Mercure {
            history: 1000,
            message_bytes,
            backlog_bytes,
            unsent_bytes,
            queue_bytes,
            slow,
            poll,
            origins,
            publish_rate,
            publish,
            subscribe,
            token,
            authorize,
            broker: false,
            subscriptions: false,
            discovery: true,
        }
    }
}

impl From<Mercure> for Channel {
    fn from(hub: Mercure) -> Channel {
        let needs_token = hub.token.is_some().then_some(Right::Token);
        let with_cookie = |rule: Arc<TokenRule>| {
            let mut rule = (*rule).clone();
            // A cookie that the pages of all sites would send along is none to rely on.
            if !hub.origins.allow_all() {
                rule.cookie.get_or_insert_with(|| COOKIE.to_owned());
            }
            Arc::new(rule)
        };
        let (subscriptions, discovery) = (hub.subscriptions, hub.discovery);
        Channel {
            history: hub.history,
            message_bytes: hub.message_bytes,
            backlog_bytes: hub.backlog_bytes,
            unsent_bytes: hub.unsent_bytes,
            queue_bytes: hub.queue_bytes,
            slow: hub.slow,
            poll: hub.poll,
            publish_rate: hub.publish_rate,
            publish: hub.publish.or(needs_token),
            subscribe: hub.subscribe,
            token: hub.token.map(with_cookie),
            authorize: hub.authorize,
            broker: hub.broker,
            mercure: Some(HubOptions { subscriptions, discovery }),
            origins: hub.origins,
            ..Channel::default()
        }
    }
}
