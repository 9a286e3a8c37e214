//! The rules of routes: which clients are served, and the rules for answers.
//!
//! A request meets the rules of its route when the router has found the route, before its handler
//! and before its body is read: the address of the client first, which costs nothing, and then the
//! password. A request that passes hyper meets the same rules in the router's `lane_for`. It goes to
//! hyper if it is to be refused, or if a password has to be verified first.
//!
//! The rules are opened once for all engines: files are read, and users are known by the passwords
//! that were verified ([`Login`]).
//!
//! The address of a client is that of its connection, or that of the header of the PROXY protocol
//! where the listener expects one. Fields as `X-Forwarded-For` say nothing here, as every client can
//! write them.

mod login;

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};

pub(crate) use self::login::Verification;
use self::login::{Checked, Login};
use crate::answers::{AnswerRules, ErrorPages};
use crate::body::Body;
use crate::config::{Access, Action, Config, Host, Route};
use crate::reply;

/// The answer to clients that are not allowed.
const FORBIDDEN: &str = "403 Forbidden\n";

/// The rules of a host and of its routes, in their order.
pub(crate) struct HostRules {
    /// The rules for answers without a route.
    pub(crate) answers: Option<Arc<AnswerRules>>,
    /// The rules of each route, if it has any.
    pub(crate) routes: Vec<Option<Arc<RouteRules>>>,
}

/// The rules of a route.
pub(crate) struct RouteRules {
    /// The rules for answers, with those of the host.
    pub(crate) answers: Option<Arc<AnswerRules>>,
    access: Access,
    login: Option<Login>,
    /// The largest body of a request, if the route has a limit of its own.
    pub(crate) body_bytes: Option<u64>,
    /// Errors of the servers behind get pages as well.
    replaces_errors: bool,
}

/// The decision about a request.
pub(crate) enum Admission {
    Allowed,
    Refused(Response<Body>),
    /// A password has to be verified first.
    Verifies(Verification),
}

impl HostRules {
    /// Opens the rules of all hosts of a configuration.
    ///
    /// # Errors
    ///
    /// A file cannot be read, in words.
    pub(crate) fn all(config: &Config) -> Result<Arc<[HostRules]>, String> {
        config.hosts.iter().map(HostRules::open).collect()
    }

    fn open(host: &Host) -> Result<HostRules, String> {
        let pages = ErrorPages::open(&host.errors)?;
        let routes = host.routes.iter().map(|route| RouteRules::open(host, &pages, route));
        let routes = routes.collect::<Result<_, String>>()?;
        Ok(HostRules { answers: AnswerRules::new(host.headers.clone(), pages), routes })
    }
}

impl RouteRules {
    /// Opens the rules of a route; `None` if it has none, and its host has none for answers.
    fn open(
        host: &Host,
        of_host: &ErrorPages,
        route: &Route,
    ) -> Result<Option<Arc<RouteRules>>, String> {
        let rules = &route.rules;
        let pages = match &route.action {
            // Clients of channels read the reason.
            Action::Channel(_) => ErrorPages::default(),
            _ => ErrorPages::open(&rules.errors)?.or(of_host),
        };
        let replaces_errors = match &route.action {
            Action::Proxy(proxy) => proxy.replace_errors && !pages.is_empty(),
            _ => false,
        };
        let login = rules.basic_auth.as_ref().map(Login::open).transpose()?;
        let answers = AnswerRules::new(host.headers.then(&rules.headers), pages);
        let is_empty = answers.is_none()
            && login.is_none()
            && rules.access == Access::default()
            && rules.body_bytes.is_none();
        let (access, body_bytes) = (rules.access.clone(), rules.body_bytes);
        let all = RouteRules { answers, access, login, body_bytes, replaces_errors };
        Ok((!is_empty).then(|| Arc::new(all)))
    }

    /// Decides about a request, by the address of its client and its fields.
    pub(crate) fn admit(&self, client: Option<IpAddr>, headers: &HeaderMap) -> Admission {
        if !self.access.allows(client) {
            return Admission::Refused(reply::text(StatusCode::FORBIDDEN, FORBIDDEN));
        }
        let Some(login) = &self.login else { return Admission::Allowed };
        match login.check(login::values(headers)) {
            Checked::Known => Admission::Allowed,
            Checked::Missing => Admission::Refused(login.refusal()),
            Checked::Unknown(verification) => Admission::Verifies(verification),
        }
    }

    /// Verifies a password that was not known.
    ///
    /// # Errors
    ///
    /// The response that refuses the client.
    pub(crate) async fn verify(&self, verification: Verification) -> Result<(), Response<Body>> {
        match &self.login {
            Some(login) => login.verify(verification).await,
            None => Ok(()),
        }
    }

    /// Whether a request may pass hyper: it is allowed, and its answer is passed on as it is.
    /// `credentials` are the values of `Authorization`.
    pub(crate) fn allow_lane<'a>(
        &self,
        client: Option<IpAddr>,
        credentials: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        !self.replaces_errors
            && self.access.allows(client)
            && self
                .login
                .as_ref()
                .is_none_or(|login| matches!(login.check(credentials), Checked::Known))
    }

    /// Whether a client that was admitted by other rules is admitted by these as well.
    pub(crate) fn allow_with(&self, client: Option<IpAddr>, others: Option<&RouteRules>) -> bool {
        let is_known = |login: &Login| {
            let other = others.and_then(|others| others.login.as_ref());
            other.is_some_and(|other| other.has_users_of(login))
        };
        self.access.allows(client) && self.login.as_ref().is_none_or(is_known)
    }
}
