//! A hub of Mercure, as the configuration has it.

use std::sync::Arc;
use std::time::Duration;

use super::channel::{self, Channel, HubOptions, Slow};
use super::origins::Origins;
use super::rate::{self, Rate};
use super::rights::{self, AuthorizeRule, Right, TokenRule};
use super::scalar;
use crate::table::table;

/// The path of a hub, which the draft fixes (RFC 8615).
pub const MERCURE_PATH: &str = "/.well-known/mercure";

/// The cookie that clients of Mercure have their token in.
const COOKIE: &str = "mercureAuthorization";

table! {
    /// A hub of Mercure. Its keys are those of a channel, unless it says otherwise.
    pub(super) struct Mercure {
        /// Default: 1000.
        history: usize = 1000,
        message_bytes: u64 as "scalar::size" = Channel::default().message_bytes,
        backlog_bytes: u64 as "scalar::size" = Channel::default().backlog_bytes,
        unsent_bytes: u32 as "channel::unsent" = Channel::default().unsent_bytes,
        queue_bytes: u64 as "scalar::size" = Channel::default().queue_bytes,
        slow: Slow = Channel::default().slow,
        /// After half of this time of silence a subscriber is sent a comment.
        poll: Duration as "scalar::duration" = Channel::default().poll,
        origins: Origins = Channel::default().origins,
        publish_rate: Option<Rate> as "rate::some" = Channel::default().publish_rate,
        /// Default: `token`, if there is `token`, and else as for a channel.
        publish: Option<Right> as "rights::some_right" = Channel::default().publish,
        subscribe: Right = Channel::default().subscribe,
        token: Option<Arc<TokenRule>> as "rights::shared" = Channel::default().token,
        authorize: Option<Arc<AuthorizeRule>> as "rights::shared" = Channel::default().authorize,
        /// Default: `false`.
        pub(super) broker: bool = false,
        /// Default: `false`.
        pub(super) subscriptions: bool = false,
        /// Default: `true`.
        discovery: bool = true,
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
