//! Redirects that lead back to themselves.
//!
//! Only destinations on the same host are followed, as in `to = "/new{path}"`: a redirect to
//! another scheme or host, also one that the request names, may be answered elsewhere.

use super::Check;
use crate::redirect_target::RedirectTarget;
use crate::route_table::RouteTable;
use crate::{Action, Host, Redirect, Route};

impl Check<'_> {
    /// Warns of redirects that never lead to an answer, where everything else is right.
    pub(super) fn redirects(&mut self, hosts: &[Host]) {
        let places = std::mem::take(&mut self.redirects);
        if !self.found.is_empty() {
            return;
        }
        let mut places = places.into_iter();
        for host in hosts {
            let redirects = host.routes.iter().filter_map(|route| match &route.action {
                Action::Redirect(redirect) => Some((&route.path, redirect)),
                _ => None,
            });
            let mut redirects = redirects.peekable();
            if redirects.peek().is_none() {
                continue;
            }
            let table = host.route_table();
            for ((path, redirect), place) in redirects.zip(&mut places) {
                if let Some(way) = way_back(&table, path, redirect) {
                    self.warn(place, format!("the redirect leads back to itself: {way}"));
                }
            }
        }
    }
}

/// Returns the paths of a redirect's way, if it comes back to a route where it has been.
fn way_back(table: &RouteTable<&Route>, path: &str, redirect: &Redirect) -> Option<String> {
    let (mut way, mut seen) = (path.to_owned(), vec![path]);
    let (mut at, mut redirect) = (path.to_owned(), redirect);
    loop {
        let to = RedirectTarget::parse(&redirect.to).ok()?.of(None, (&at, None))?;
        let to = to.to_str().ok()?.split(['?', '#']).next().unwrap_or_default().to_owned();
        if !to.starts_with('/') || to.starts_with("//") {
            return None;
        }
        // Whether a route with matchers answers depends on the request.
        let route = table.candidates(&to).next().filter(|route| route.matcher.is_none())?;
        let Action::Redirect(next) = &route.handler.action else { return None };
        way = format!("{way} -> {to}");
        if seen.contains(&route.path.as_str()) {
            return Some(way);
        }
        seen.push(&route.path);
        (at, redirect) = (to, next);
    }
}
