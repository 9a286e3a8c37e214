//! The rules of routes: which clients are served, and the rules for answers.
//!
//! A request meets the rules of its route when the router has found the route, before its handler
//! and before its body is read: the address of the client first, which costs nothing, then the
//! rates, and then the password.
//!
//! The rules for clients of a host hold for its routes as well: the addresses and the rate in
//! addition to those of the route, the users in place of those that the route does not have. A path
//! without a route meets the rules of the host, so that a client that is not served does not learn
//! which paths there are.
//!
//! The rules are opened once for all engines: files are read, and users are known by the passwords
//! that were verified (`Login`).
//!
//! The address of a client is that of its connection, or that of the header of the PROXY protocol
//! where the listener expects one. Fields as `X-Forwarded-For` say nothing here, as every client
//! can write them.

mod error;
mod login;
mod rates;
mod refusal;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use superpoll_config::{Access, Action, BasicAuth, Config, Host, RequestRate, Route, Rules};

pub use self::error::RulesError;
use self::login::{CLIENTS, Checked, Login, LoginQueue, OPERATORS, too_many_requests};
pub use self::login::{Verification, user};
use self::rates::{ByPlace, RequestLimits};
pub(crate) use self::refusal::{Reason, Refused};
use crate::answers::{AnswerRules, ErrorPages};
use crate::head::Fields;

/// The rules of a host and of its routes, in their order.
pub struct HostRules {
    /// The rules for answers without a route.
    pub answers: Option<Arc<AnswerRules>>,
    /// The rules for clients that ask for a path without a route, if there are any.
    pub clients: Option<Arc<RouteRules>>,
    /// The rules of each route, if it has any.
    pub routes: Vec<Option<Arc<RouteRules>>>,
    limits: ByPlace,
}

/// The rules of a route.
pub struct RouteRules {
    /// The rules for answers, with those of the host.
    pub answers: Option<Arc<AnswerRules>>,
    /// Those of the host and those of the route, all of which have to admit a client.
    access: Vec<Access>,
    limits: Vec<Arc<RequestLimits>>,
    login: Option<Arc<Login>>,
    /// The largest body of a request, if the route has a limit of its own.
    pub body_bytes: Option<u64>,
}

/// The decision about a request.
pub enum Admission {
    /// The request may go to the handler.
    Allowed,
    /// The request gets this answer.
    Refused(Box<Refused>),
    /// A password must be verified first.
    Verifies(Verification),
}

/// The rates of several routes, for a request that is for all of them.
pub struct JoinedRates(Vec<Arc<RequestLimits>>);

impl JoinedRates {
    /// Joins the rates of a request's own route and those of others. A rate that holds for several
    /// of them, such as that of their host, counts the request once.
    pub fn of<'a>(
        own: Option<&'a RouteRules>,
        others: impl Iterator<Item = &'a RouteRules>,
    ) -> JoinedRates {
        let mut all: Vec<Arc<RequestLimits>> = Vec::new();
        for limits in own.into_iter().chain(others).flat_map(|rules| &rules.limits) {
            if !all.iter().any(|known| Arc::ptr_eq(known, limits)) {
                all.push(limits.clone());
            }
        }
        JoinedRates(all)
    }

    /// Decides about a request by the rules of its route, and counts it in at all of these rates.
    pub fn admit(
        &self,
        own: Option<&RouteRules>,
        client: Option<IpAddr>,
        fields: Fields<'_>,
    ) -> Admission {
        match own {
            Some(rules) => rules.admit_at(&self.0, client, fields),
            None => match rates::count(&self.0, client, fields) {
                Ok(_) => Admission::Allowed,
                Err(too_fast) => {
                    Admission::Refused(Refused::with(Reason::Rate, too_many_requests(too_fast)))
                }
            },
        }
    }
}

impl HostRules {
    /// Opens the rules of all hosts of a configuration, and after them those of the admin
    /// listener, if there is one. Rates continue that the rules `before` have as well.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or has mistakes.
    pub fn all(config: &Config, before: &[HostRules]) -> Result<Arc<[HostRules]>, RulesError> {
        let mut known = ByPlace::new();
        for rules in before {
            let limits = rules.limits.iter();
            known.extend(limits.map(|(place, limits)| (place.clone(), limits.clone())));
        }
        let admin = config.admin.iter().map(|admin| {
            let routes = vec![RouteRules::of_admin(&admin.rules)?];
            Ok(HostRules { answers: None, clients: None, routes, limits: ByPlace::new() })
        });
        config.hosts.iter().map(|host| HostRules::open(host, &known)).chain(admin).collect()
    }

    fn open(host: &Host, before: &ByPlace) -> Result<HostRules, RulesError> {
        let pages = ErrorPages::open(&host.errors)?;
        let mut limits = ByPlace::new();
        let clients = RouteRules {
            answers: AnswerRules::new(host.headers.clone(), pages.clone()),
            access: restrictions([&host.access]),
            limits: opened(host.rate.as_ref(), host, None, before, &mut limits).collect(),
            login: login(host.basic_auth.as_ref(), &CLIENTS)?,
            body_bytes: None,
        };
        let (mut routes, mut at_path) = (Vec::new(), HashMap::<&str, usize>::new());
        for route in &host.routes {
            // Routes with matchers may have the same path, and count for themselves.
            let before_it = at_path.entry(&route.path).or_default();
            let place = match *before_it {
                0 => route.path.clone(),
                number => format!("{}#{number}", route.path),
            };
            *before_it += 1;
            let rules = RouteRules::open(host, &pages, &clients, route)?;
            let rate = route.rules.rate.as_ref();
            let own = opened(rate, host, Some(&place), before, &mut limits);
            let limits = clients.limits.iter().cloned().chain(own).collect();
            let rules = RouteRules { limits, ..rules };
            routes.push((!rules.is_empty()).then(|| Arc::new(rules)));
        }
        let answers = clients.answers.clone();
        let clients = clients.admits_some_only().then(|| Arc::new(clients));
        Ok(HostRules { answers, clients, routes, limits })
    }
}

/// Opens the users of a rule, if there is one.
fn login(
    rule: Option<&Arc<BasicAuth>>,
    queue: &'static LoginQueue,
) -> Result<Option<Arc<Login>>, RulesError> {
    Ok(rule.map(|rule| Login::open(rule, queue)).transpose()?.map(Arc::new))
}

/// Returns the rules for addresses that are any.
fn restrictions<'a>(all: impl IntoIterator<Item = &'a Access>) -> Vec<Access> {
    all.into_iter().filter(|access| **access != Access::default()).cloned().collect()
}

/// Opens the limits of a rate, if there is one, of a route or of a host.
fn opened(
    rate: Option<&RequestRate>,
    host: &Host,
    route: Option<&str>,
    before: &ByPlace,
    all: &mut ByPlace,
) -> impl Iterator<Item = Arc<RequestLimits>> {
    let listeners = host.listeners.iter().map(ToString::to_string);
    let names = host.names.iter().cloned().chain(listeners).collect::<Vec<_>>().join(",");
    let place = || route.map_or_else(|| names.clone(), |path| format!("{names}{path}"));
    rate.map(|rate| RequestLimits::open(rate, place(), before, all)).into_iter()
}

impl RouteRules {
    /// Opens the rules of a route, without its rates.
    fn open(
        host: &Host,
        of_host: &ErrorPages,
        clients: &RouteRules,
        route: &Route,
    ) -> Result<RouteRules, RulesError> {
        let rules = &route.rules;
        let pages = match &route.action {
            // Clients of channels read the reason.
            Action::Channel(_) => ErrorPages::default(),
            _ => ErrorPages::open(&rules.errors)?.or(of_host),
        };
        let login = match (&rules.basic_auth, &host.basic_auth) {
            (Some(users), Some(all)) if Arc::ptr_eq(users, all) => clients.login.clone(),
            (users, _) => login(users.as_ref(), &CLIENTS)?,
        };
        Ok(RouteRules {
            answers: AnswerRules::new(host.headers.then(&rules.headers), pages),
            access: restrictions([&host.access, &rules.access]),
            limits: Vec::new(),
            login,
            body_bytes: rules.body_bytes,
        })
    }

    /// Opens the rules of the admin listener: clients and users.
    fn of_admin(rules: &Rules) -> Result<Option<Arc<RouteRules>>, RulesError> {
        let all = RouteRules {
            answers: None,
            access: restrictions([&rules.access]),
            limits: Vec::new(),
            login: login(rules.basic_auth.as_ref(), &OPERATORS)?,
            body_bytes: None,
        };
        Ok((!all.is_empty()).then(|| Arc::new(all)))
    }

    fn is_empty(&self) -> bool {
        self.answers.is_none() && !self.admits_some_only() && self.body_bytes.is_none()
    }

    /// Whether not every request of every client is admitted.
    fn admits_some_only(&self) -> bool {
        !self.access.is_empty() || !self.limits.is_empty() || self.login.is_some()
    }

    /// Whether a client at this address is allowed.
    #[inline]
    pub fn allows(&self, client: Option<IpAddr>) -> bool {
        self.access.iter().all(|access| access.allows(client))
    }

    /// Decides about a request, by the address of its client and its fields, and counts it in.
    #[inline]
    pub fn admit(&self, client: Option<IpAddr>, fields: Fields<'_>) -> Admission {
        self.admit_at(&self.limits, client, fields)
    }

    /// The same with other rates.
    fn admit_at(
        &self,
        limits: &[Arc<RequestLimits>],
        client: Option<IpAddr>,
        fields: Fields<'_>,
    ) -> Admission {
        if !self.allows(client) {
            return Admission::Refused(Refused::by_address());
        }
        if !limits.is_empty()
            && let Err(too_fast) = rates::count(limits, client, fields)
        {
            let response = too_many_requests(too_fast);
            return Admission::Refused(Refused::with(Reason::Rate, response));
        }
        let Some(login) = &self.login else { return Admission::Allowed };
        match login.check(client, fields) {
            Checked::Known => Admission::Allowed,
            Checked::Missing => {
                Admission::Refused(Refused::with(Reason::NoPassword, login.refusal()))
            }
            Checked::Unknown(verification) => Admission::Verifies(verification),
        }
    }

    /// Returns the reasons for which requests may be refused.
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        let has = |reason: &Reason| match reason {
            Reason::Address => !self.access.is_empty(),
            Reason::Rate => !self.limits.is_empty(),
            _ => self.login.is_some(),
        };
        Reason::ALL.into_iter().filter(has)
    }

    /// Whether clients need the password of a user.
    #[inline]
    pub fn has_users(&self) -> bool {
        self.login.is_some()
    }

    /// Verifies a password that was not known.
    ///
    /// # Errors
    ///
    /// The response that refuses the client.
    pub async fn verify(&self, verification: Verification) -> Result<(), Box<Refused>> {
        match &self.login {
            Some(login) => login.verify(verification).await,
            None => Ok(()),
        }
    }

    /// Whether all users of the rules before are users with the same passwords in the rules now.
    /// Without users, each client is one.
    pub fn keeps_users_of(now: Option<&RouteRules>, before: Option<&RouteRules>) -> bool {
        fn login(rules: Option<&RouteRules>) -> Option<&Login> {
            rules.and_then(|rules| rules.login.as_deref())
        }
        match (login(now), login(before)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(now), Some(before)) => now.keeps_users_of(before),
        }
    }

    /// Whether a client that was admitted by other rules is admitted by these as well.
    pub fn allow_with(&self, client: Option<IpAddr>, others: Option<&RouteRules>) -> bool {
        let is_known = |login: &Arc<Login>| {
            let other = others.and_then(|others| others.login.as_ref());
            other.is_some_and(|other| Arc::ptr_eq(other, login) || other.has_users_of(login))
        };
        self.allows(client) && self.login.as_ref().is_none_or(is_known)
    }
}
