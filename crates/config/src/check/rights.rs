//! The rights of clients to use a channel, and those of a Mercure hub, which is a channel as well.

use std::ops::Range;
use std::sync::Arc;

use super::Check;
use crate::channel::Channel;
use crate::mercure::{MERCURE_PATH, Mercure};
use crate::model::Listener;
use crate::resource::Resource;
use crate::rights::{
    CallbackEvent, CallbackRule, KeySource, Right, TokenRule, is_cookie_name, is_private,
};
use crate::token_key::TokenKey;

impl Check<'_> {
    /// Checks the hub at a path.
    pub(super) fn mercure(&mut self, place: &Range<usize>, path: &str, hub: Mercure) -> Channel {
        if path != MERCURE_PATH {
            let what = format!("a hub of Mercure at {path:?}");
            self.wrong(place.clone(), format!("{what}, expected path = {MERCURE_PATH:?}"));
        }
        if hub.broker {
            self.shared_channel(place);
            if hub.subscriptions {
                let what = "a server knows only its own subscriptions, expected subscriptions or \
                            broker, not both";
                self.wrong(self.within(place, &["broker"]), what);
            }
        }
        let mut channel = Channel::from(hub);
        self.rights(place, path, &mut channel);
        channel
    }

    /// Checks the rights of the channel at a path.
    pub(super) fn rights(&mut self, place: &Range<usize>, path: &str, channel: &mut Channel) {
        let uses = |right| channel.publish == Some(right) || channel.subscribe == right;
        let (takes_tokens, asks) = (uses(Right::Token), uses(Right::Authorize));
        match channel.token.clone() {
            // A token says which private updates of a hub are for its holder, too.
            Some(token) if takes_tokens || channel.mercure.is_some() => {
                let token = self.token(place, channel, (*token).clone());
                channel.token = Some(Arc::new(token));
            }
            Some(_) => {
                let what = "nobody needs a token here, expected publish or subscribe = \"token\"";
                self.wrong(self.within(place, &["token"]), what);
            }
            None if takes_tokens => {
                let what = "\"token\" without a key, expected token = { key = KEY }";
                let key = if channel.subscribe == Right::Token { "subscribe" } else { "publish" };
                self.missing(self.within(place, &[key]), what);
            }
            None => {}
        }
        match channel.authorize.clone() {
            Some(rule) if asks => {
                let place = self.within(place, &["authorize"]);
                if rule.upstream.is_empty() {
                    let what = "no upstream to ask, expected upstream = NAME";
                    self.missing(place.clone(), what);
                } else {
                    let of_name = self.within(&place, &["upstream"]);
                    self.known_upstream(of_name, &rule.upstream);
                }
                self.path(self.within(&place, &["path"]), &rule.path);
            }
            Some(_) => {
                let what =
                    "no client is asked about, expected publish or subscribe = \"authorize\"";
                self.wrong(self.within(place, &["authorize"]), what);
            }
            None if asks => {
                let what = "\"authorize\" without a server to ask";
                let key =
                    if channel.subscribe == Right::Authorize { "subscribe" } else { "publish" };
                let place = self.within(place, &[key]);
                let expected = "expected authorize = { upstream = NAME, path = PATH }";
                self.missing(place, format!("{what}, {expected}"));
            }
            None => {}
        }
        let names_users = matches!(channel.subscribe, Right::Token | Right::Authorize);
        if channel.presence && !names_users {
            let what = "presence counts users, and nothing says who a client is, expected \
                        subscribe = \"token\" or \"authorize\"";
            self.wrong(self.within(place, &["presence"]), what);
        }
        if let Some(rule) = channel.callbacks.take() {
            let place = self.within(place, &["callbacks"]);
            let rule = self.callbacks(&place, (*rule).clone(), channel.presence);
            channel.callbacks = Some(Arc::new(rule));
        }
        if channel.publish.is_none() {
            self.warn_unless_private(place.clone(), path);
        }
    }

    fn token(
        &mut self,
        place: &Range<usize>,
        channel: &Channel,
        mut token: TokenRule,
    ) -> TokenRule {
        let whole = self.within(place, &["token"]);
        let cookie_place = self.within(&whole, &["cookie"]);
        match &token.cookie {
            Some(name) if !is_cookie_name(name) => {
                let what = format!("{name:?} is no name of a cookie");
                self.wrong(cookie_place, format!("{what}, expected one as \"session\""));
            }
            Some(_) if channel.origins.allow_all() => {
                let what = "browsers send a cookie for the pages of every site, and origins lets \
                            all of them in, expected origins by name";
                self.wrong(cookie_place, what);
            }
            _ => {}
        }
        if token.audience.as_ref().is_some_and(String::is_empty) {
            let what = "the audience is empty, expected a name as \"chat\"";
            self.wrong(self.within(&whole, &["audience"]), what);
        }
        if let Some(KeySource::File(path)) = &mut token.key {
            *path = self.resolved(std::mem::take(path));
        }
        token.jwks = token.jwks.map(|path| self.resolved(path));
        let key = match (&token.key, &token.jwks) {
            (Some(_), Some(_)) => {
                let what = "a set of keys in addition to a key, expected key or jwks, not both";
                self.wrong(self.within(&whole, &["jwks"]), what);
                return token;
            }
            (None, None) => {
                self.missing(whole, "tokens without a key, expected key = KEY or jwks = FILE");
                return token;
            }
            (Some(_), None) => self.within(&whole, &["key"]),
            (None, Some(_)) => self.within(&whole, &["jwks"]),
        };
        match &token.key {
            Some(KeySource::Text(text)) => {
                if let Err(what) = TokenKey::parse(text.as_bytes()) {
                    self.wrong(key, format!("key is {what}"));
                }
            }
            _ => self.needs(key, Resource::TokenKey(token.clone())),
        }
        token
    }

    fn callbacks(
        &mut self,
        place: &Range<usize>,
        mut rule: CallbackRule,
        counts_users: bool,
    ) -> CallbackRule {
        if rule.upstream.is_empty() {
            self.missing(place.clone(), "no upstream to tell, expected upstream = NAME");
        } else {
            self.known_upstream(self.within(place, &["upstream"]), &rule.upstream);
        }
        self.path(self.within(place, &["path"]), &rule.path);
        let events = self.within(place, &["events"]);
        if rule.events.is_empty() {
            self.wrong(events.clone(), "nothing is to be told, expected events as [\"joined\"]");
        }
        let of_users = |event: &CallbackEvent| CallbackEvent::OF_USERS.contains(event);
        if !counts_users && rule.events.iter().any(of_users) {
            let what = "these events tell of users, whom the channel does not count, expected \
                        presence = true, or events = [\"published\"]";
            self.wrong(events, what);
        }
        let key = self.within(place, &["key"]);
        match &mut rule.key {
            None => self.missing(place.clone(), "requests without a signature, expected key = KEY"),
            Some(source) => self.secret(key, source),
        }
        rule
    }

    /// Warns of a channel that is closed to publishers, as it has no right for them.
    fn warn_unless_private(&mut self, place: Range<usize>, path: &str) {
        let Some(open) = self.open_listener() else { return };
        let what = format!("nobody may publish to {path} on {open}");
        let expected = "expected publish = \"token\", \"authorize\", \"local\" or \"anyone\"";
        self.warn(place, format!("{what} until the channel says who, {expected}"));
    }
}

impl Listener {
    /// As [`is_private`].
    pub(super) fn is_private(&self) -> bool {
        is_private(&self.address, self.proxy_protocol)
    }
}
