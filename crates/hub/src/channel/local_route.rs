//! One engine's part of a route of channels: the subscribers of those that have some here.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use http::header::STRICT_TRANSPORT_SECURITY;
use http::{HeaderMap, HeaderValue, Request};
use superpoll_http::authority;
use superpoll_http::head::Head;
use superpoll_http::peer::Peer;
use superpoll_http::rules::RouteRules;
use superpoll_rt::spawn;

use super::callbacks;
use super::engine::ChannelEngine;
use super::hub::Hub;
use super::local_subscribers::LocalSubscribers;
use super::publisher::PublisherLimit;
use super::rights::Rights;
use super::route::Channels;

/// One engine's part of a route of channels.
pub struct LocalRoute {
    pub(super) channels: Arc<Channels>,
    rights: RefCell<Rc<Rights>>,
    /// The rules of the route, for the answers that the router does not see: those to parked
    /// subscribers.
    rules: RefCell<Option<Arc<RouteRules>>>,
    /// The value of `Strict-Transport-Security` of the host, for those answers.
    hsts: RefCell<Option<HeaderValue>>,
    engine: Rc<ChannelEngine>,
    /// The routes of applications that hold connections by the log of this route, by their names:
    /// of a type that is above this one.
    held: RefCell<HashMap<Arc<str>, Weak<dyn Any>>>,
    /// By the address of their channel, which they hold.
    subscribers: RefCell<HashMap<usize, Weak<LocalSubscribers>>>,
    is_retired: Cell<bool>,
    /// A task tells the application of the channels, or waits for its turn.
    tells: Cell<bool>,
}

/// Returns the key of a channel.
fn key(hub: &Arc<Hub>) -> usize {
    Arc::as_ptr(hub) as usize
}

impl LocalRoute {
    /// Creates the engine's part of a route.
    pub fn new(
        channels: Arc<Channels>,
        rights: Rc<Rights>,
        rules: Option<Arc<RouteRules>>,
        engine: Rc<ChannelEngine>,
    ) -> Rc<LocalRoute> {
        let (subscribers, is_retired) = (RefCell::default(), Cell::new(false));
        let rights = RefCell::new(rights);
        let (rules, hsts) = (RefCell::new(rules), RefCell::default());
        let (held, tells) = (RefCell::default(), Cell::new(false));
        let route = Rc::new(LocalRoute {
            channels,
            rights,
            rules,
            hsts,
            engine,
            held,
            subscribers,
            is_retired,
            tells,
        });
        route.begin_callbacks();
        route
    }

    /// Begins to tell the application of the channels, if it is to be told.
    fn begin_callbacks(self: &Rc<LocalRoute>) {
        let rights = self.rights();
        if rights.callback_sender().is_some() && !self.tells.replace(true) {
            let (route, callbacks) = (Rc::downgrade(self), self.channels.callbacks().clone());
            let report = rights.report().clone();
            let tells = async move {
                let sender = || route.upgrade()?.rights().callback_sender();
                callbacks::run(sender, callbacks, report).await;
                if let Some(route) = route.upgrade() {
                    route.tells.set(false);
                    route.begin_callbacks();
                }
            };
            spawn(tells).detach();
        }
    }

    /// Returns the rights of clients.
    pub(super) fn rights(&self) -> Rc<Rights> {
        self.rights.borrow().clone()
    }

    /// Whether it is a hub of Mercure, whose messages are not for all who may subscribe.
    pub fn is_hub(&self) -> bool {
        self.channels.options().mercure.is_some()
    }

    /// Enters the routes of applications that hold connections by the log of this route, in the
    /// place of those before.
    pub(super) fn enter_held(&self, routes: Vec<(Arc<str>, Rc<dyn Any>)>) {
        let routes = routes.into_iter().map(|(name, route)| (name, Rc::downgrade(&route)));
        self.held.replace(routes.collect());
    }

    /// Ends the held connections of routes other than these.
    pub(super) fn dismiss_held(&self, kept: &HashSet<Arc<str>>) {
        let all: Vec<_> = self.subscribers.borrow().values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|subscribers| subscribers.dismiss_held(kept));
    }

    /// Returns the route of an application that holds connections, if there still is one.
    pub(super) fn held_route(&self, name: &str) -> Option<Rc<dyn Any>> {
        self.held.borrow().get(name)?.upgrade()
    }

    /// Returns a client as a publisher.
    pub(super) fn publisher(&self, peer: &Peer) -> PublisherLimit {
        let limits = self.channels.publish_limits().clone();
        let client = peer.client.map(|client| client.ip());
        PublisherLimit { limits, rights: self.rights(), client }
    }

    /// Changes the rights of clients. If they are other ones, all subscribers have to come again.
    pub fn change(self: &Rc<LocalRoute>, rights: Rc<Rights>) {
        let before = self.rights.replace(rights.clone());
        if !before.is_like(&rights) {
            self.dismiss();
        }
        self.begin_callbacks();
    }

    /// Makes all subscribers come again.
    fn dismiss(&self) {
        let all: Vec<_> = self.subscribers.borrow().values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(LocalSubscribers::dismiss);
    }

    /// Whether clients that these rules have admitted are admitted by the rules of now.
    pub fn has_rules(&self, rules: Option<&Arc<RouteRules>>) -> bool {
        RouteRules::keeps_users_of(self.rules.borrow().as_deref(), rules.map(Arc::as_ref))
    }

    /// Changes the rules of the route, and the value of `Strict-Transport-Security` of the host. If
    /// a password is not right any more, all subscribers have to come again: they may have come by
    /// it.
    pub fn change_rules(&self, rules: Option<Arc<RouteRules>>, hsts: Option<HeaderValue>) {
        self.hsts.replace(hsts);
        let before = self.rules.replace(rules.clone());
        if !RouteRules::keeps_users_of(rules.as_deref(), before.as_deref()) {
            self.dismiss();
        }
    }

    /// Whether the answer to a request may have `Strict-Transport-Security`.
    pub fn may_have_hsts<B>(&self, request: &Request<B>, peer: &Peer) -> bool {
        peer.is_encrypted
            && self.hsts.borrow().is_some()
            && authority::of_request(Head::from(request), true)
                .is_ok_and(|host| host.is_some_and(|host| host.may_have_hsts()))
    }

    /// Changes the fields of an answer to a subscriber that was parked, as the router does with all
    /// other answers.
    pub(super) fn change_fields(&self, headers: &mut HeaderMap, may_have_hsts: bool) {
        if may_have_hsts && let Some(hsts) = &*self.hsts.borrow() {
            headers.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| hsts.clone());
        }
        if let Some(answers) = self.rules.borrow().as_ref().and_then(|rules| rules.answers.as_ref())
        {
            answers.change(headers);
        }
    }

    /// Returns the channels whose part it is.
    pub fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    /// Whether it is the part of this route.
    pub fn is_of(&self, channels: &Arc<Channels>) -> bool {
        Arc::ptr_eq(&self.channels, channels)
    }

    /// Returns the subscribers that a channel has here, which may be none yet.
    pub fn subscribers(self: &Rc<LocalRoute>, hub: &Arc<Hub>) -> Rc<LocalSubscribers> {
        let mut subscribers = self.subscribers.borrow_mut();
        if let Some(known) = subscribers.get(&key(hub)).and_then(Weak::upgrade) {
            return known;
        }
        let new = LocalSubscribers::new(hub.clone(), &self.engine, Rc::downgrade(self));
        if self.is_retired.get() {
            new.retire();
        }
        subscribers.insert(key(hub), Rc::downgrade(&new));
        new
    }

    /// Forgets the subscribers of a channel: there are none any more.
    pub(super) fn remove(&self, hub: &Arc<Hub>) {
        self.subscribers.borrow_mut().remove(&key(hub));
    }

    /// Ends all subscriptions, and accepts no new ones.
    pub fn retire(&self) {
        self.is_retired.set(true);
        let all: Vec<_> = self.subscribers.borrow().values().filter_map(Weak::upgrade).collect();
        all.iter().for_each(LocalSubscribers::retire);
    }
}

superpoll::debug_fields!(LocalRoute, it =>
    channels: it.channels, here: it.subscribers.borrow().len());
