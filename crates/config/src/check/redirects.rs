//! Redirects that lead back to themselves.
//!
//! Only destinations on the same host are followed, as in `to = "/new{path}"`: a redirect to
//! another scheme or host, also one that the request names, may be answered elsewhere.

use super::Check;
use crate::redirect_target::RedirectTarget;
use crate::{Action, Host, Redirect};

impl Check<'_> {
    /// Warns of redirects that never lead to an answer, where everything else is right.
    pub(super) fn redirects(&mut self, hosts: &[Host]) {
        let places = std::mem::take(&mut self.redirects);
        if !self.found.is_empty() {
            return;
        }
        let routes =
            hosts.iter().flat_map(|host| host.routes.iter().map(move |route| (host, route)));
        let redirects = routes.filter_map(|(host, route)| match &route.action {
            Action::Redirect(redirect) => Some((host, &route.path, redirect)),
            _ => None,
        });
        for ((host, path, redirect), place) in redirects.zip(places) {
            if let Some(way) = way_back(host, path, redirect) {
                self.warn(place, format!("the redirect leads back to itself: {way}"));
            }
        }
    }
}

/// Returns the paths of a redirect's way, if it comes back to a route where it has been.
fn way_back(host: &Host, path: &str, redirect: &Redirect) -> Option<String> {
    let (mut way, mut seen) = (path.to_owned(), vec![path]);
    let (mut at, mut redirect) = (path.to_owned(), redirect);
    loop {
        let to = RedirectTarget::parse(&redirect.to).ok()?.of(None, (&at, None))?;
        let to = to.to_str().ok()?.split(['?', '#']).next().unwrap_or_default().to_owned();
        if !to.starts_with('/') || to.starts_with("//") {
            return None;
        }
        let route = host.route(&to)?;
        let Action::Redirect(next) = &route.action else { return None };
        way = format!("{way} -> {to}");
        if seen.contains(&route.path.as_str()) {
            return Some(way);
        }
        seen.push(&route.path);
        (at, redirect) = (to, next);
    }
}
