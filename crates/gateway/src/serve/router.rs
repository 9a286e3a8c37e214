//! From a request to who answers it: by host, by path.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{HOST, LOCATION};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Version};

use crate::body::Body;
use crate::channel::{Desk, Registry};
use crate::config::{self, Config};
use crate::exchange::Exchange;
use crate::files::{Folder, Site};
use crate::park::Lot;
use crate::reply;
use crate::upload::Upload;

/// A configuration with all that can fail done, for one engine.
pub(super) struct Blueprint {
    config: Arc<Config>,
    /// The folders, in the order in which the configuration names them.
    folders: Vec<Folder>,
    channels: Registry,
}

/// Who answers below a path.
enum Handler {
    Channel(Rc<Desk>),
    Files(Site),
    Redirect(config::Redirect),
}

struct Route {
    path: String,
    handler: Handler,
}

/// The routes of a virtual host, the longest path first.
type Routes = Rc<[Route]>;

/// What one engine serves.
pub(super) struct Router {
    names: HashMap<String, Routes>,
    /// What follows the `*` of a wildcard, the longest first.
    wildcards: Vec<(String, Routes)>,
    default: Option<Routes>,
    desks: Vec<Rc<Desk>>,
}

impl Blueprint {
    /// Opens what a configuration names.
    pub fn new(config: &Arc<Config>, channels: &Registry) -> Result<Blueprint, String> {
        let mut folders = Vec::new();
        for host in &config.hosts {
            for route in &host.routes {
                if let config::Action::Files(files) = &route.action {
                    let path = &files.root;
                    folders.push(Folder::open(path).map_err(|error| {
                        format!("opening the folder {} to serve its files: {error}", path.display())
                    })?);
                }
            }
        }
        Ok(Blueprint { config: config.clone(), folders, channels: channels.clone() })
    }

    /// Builds the routes, on the engine that they are for. Channels that `before` has as well go on.
    pub fn build(self, lot: &Rc<Lot>, before: Option<&Router>) -> Router {
        let mut folders = self.folders.into_iter();
        let mut router = Router {
            names: HashMap::new(),
            wildcards: Vec::new(),
            default: None,
            desks: Vec::new(),
        };
        for host in &self.config.hosts {
            let mut routes = Vec::new();
            for route in &host.routes {
                let handler = match &route.action {
                    config::Action::Files(files) => match folders.next() {
                        Some(folder) => Handler::Files(Site::new(folder, files.clone())),
                        None => continue,
                    },
                    config::Action::Redirect(redirect) => Handler::Redirect(redirect.clone()),
                    config::Action::Channel(_) => match self.channels.of(host, &route.path) {
                        Some(hub) => {
                            let mut desks = before.into_iter().flat_map(|before| &before.desks);
                            let desk = desks.find(|desk| Arc::ptr_eq(desk.hub(), hub)).cloned();
                            let desk = desk.unwrap_or_else(|| Desk::new(hub.clone(), lot.clone()));
                            router.desks.push(desk.clone());
                            Handler::Channel(desk)
                        }
                        None => continue,
                    },
                    _ => continue,
                };
                routes.push(Route { path: route.path.clone(), handler });
            }
            routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
            let routes: Routes = routes.into();
            for name in &host.names {
                match name.strip_prefix('*') {
                    Some(rest) => router.wildcards.push((rest.to_owned(), routes.clone())),
                    None => drop(router.names.insert(name.clone(), routes.clone())),
                }
            }
            if host.default {
                router.default = Some(routes);
            }
        }
        router.wildcards.sort_by_key(|(rest, _)| std::cmp::Reverse(rest.len()));
        router
    }
}

/// The host that a request is for. RFC 9112, section 3.2, has it refused where that is not clear.
fn host<B>(request: &Request<B>) -> Result<Option<Authority>, StatusCode> {
    let mut fields = request.headers().get_all(HOST).into_iter();
    let field = fields.next();
    if fields.next().is_some() || (field.is_none() && request.version() == Version::HTTP_11) {
        return Err(StatusCode::BAD_REQUEST);
    }
    // The target's comes first, which is how HTTP/2 tells it and what requests to a proxy have.
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    match field.map(HeaderValue::as_bytes) {
        None | Some(b"") => Ok(None),
        Some(bytes) => match Authority::try_from(bytes) {
            Ok(authority) if !authority.as_str().contains('@') => Ok(Some(authority)),
            _ => Err(StatusCode::BAD_REQUEST),
        },
    }
}

impl Router {
    fn routes(&self, name: &str) -> Option<&Routes> {
        let name = name.trim_end_matches('.');
        let lower;
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            &lower
        } else {
            name
        };
        let fits = |rest: &str| name.len() > rest.len() && name.ends_with(rest);
        self.names
            .get(name)
            .or_else(|| {
                let found = self.wildcards.iter().find(|(rest, _)| fits(rest));
                found.map(|(_, routes)| routes)
            })
            .or(self.default.as_ref())
    }

    /// Ends the channels that another does not have.
    pub fn retire(&self, after: Option<&Router>) {
        for desk in &self.desks {
            let mut desks = after.into_iter().flat_map(|after| &after.desks);
            if !desks.any(|other| Rc::ptr_eq(desk, other)) {
                desk.retire();
            }
        }
    }

    /// Answers a request.
    pub async fn respond(
        self: Rc<Self>,
        request: Request<Upload>,
        exchange: Exchange,
    ) -> Response<Body> {
        let host = match host(&request) {
            Ok(host) => host,
            Err(status) => return reply::status(status),
        };
        let name = host.as_ref().map_or("", Authority::host);
        let Some(routes) = self.routes(name) else {
            return reply::status(StatusCode::MISDIRECTED_REQUEST);
        };
        let path = request.uri().path();
        let fits = |route: &&Route| {
            let rest = path.strip_prefix(route.path.as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('/') || route.path.ends_with('/')
            })
        };
        let Some(route) = routes.iter().find(fits) else {
            return reply::status(StatusCode::NOT_FOUND);
        };
        match &route.handler {
            Handler::Channel(desk) => {
                // There is nothing below a channel.
                if !matches!(&path[route.path.trim_end_matches('/').len()..], "" | "/") {
                    return reply::status(StatusCode::NOT_FOUND);
                }
                desk.clone().answer(request, &exchange).await
            }
            Handler::Files(site) => {
                let (head, _) = request.into_parts();
                let path = &head.uri.path()[route.path.trim_end_matches('/').len()..];
                site.answer(&head, path).await
            }
            Handler::Redirect(redirect) => to(redirect),
        }
    }
}

/// Sends a client elsewhere.
fn to(redirect: &config::Redirect) -> Response<Body> {
    let status = StatusCode::from_u16(redirect.status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
    let mut response = reply::status(status);
    if let Ok(to) = HeaderValue::from_str(&redirect.to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}
