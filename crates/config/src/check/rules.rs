//! The rules of routes and hosts: fields, pages for errors, clients and users.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use super::Check;
use crate::model::Action;
use crate::password::PasswordHash;
use crate::path_regex::PathRegex;
use crate::rate::Rate;
use crate::raw;
use crate::raw_rules::{self, ClientRules, Fields, Headers, Login, RateTable, RawErrorPages};
use crate::resource::Resource;
use crate::rewrite::Rewrite;
use crate::rules::{
    Access, BasicAuth, ClientRange, ErrorKind, ErrorPages, HeaderChanges, RateKey, RequestRate,
    Rules, check_user,
};
use crate::template::Template;

/// The name of a protected area, if the configuration does not say.
const REALM: &str = "Restricted";

/// The most wrong passwords of one client, if the configuration does not say.
const FAILURES: &str = "20/m burst 20";

/// The messages whose fields are changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Requests,
    Responses,
}

/// Returns why a field cannot be changed; `None` if it can.
fn refusal(name: &str, of: Of) -> Option<&'static str> {
    // Some servers take an underscore for a hyphen.
    match name.replace('_', "-").as_str() {
        "content-length" | "transfer-encoding" | "trailer" => Some("tells where a message ends"),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "http2-settings" => {
            Some("belongs to a connection")
        }
        "date" => Some("is the time of the response"),
        "expect" => Some("is answered by this server"),
        "host" if of == Of::Requests => Some("has a key of its own, host"),
        name if name.starts_with("sec-websocket-") => Some("belongs to the handshake of WebSocket"),
        _ => None,
    }
}

/// Takes the rules of a route out of it.
pub(super) fn take(route: &mut raw::Route) -> RawRules {
    RawRules {
        headers: std::mem::take(&mut route.headers),
        errors: std::mem::take(&mut route.errors),
        clients: ClientRules {
            allow: route.allow.take(),
            deny: std::mem::take(&mut route.deny),
            rate: route.rate.take(),
            basic_auth: route.basic_auth.take(),
        },
        auth_request: route.auth_request.take(),
        body_bytes: route.body_bytes.take().map(|size| size.0),
        rewrite: route.rewrite.take(),
    }
}

/// The rules of a route as they are written.
pub(super) struct RawRules {
    headers: Headers,
    errors: RawErrorPages,
    clients: ClientRules,
    auth_request: Option<Spanned<raw::AuthRequest>>,
    body_bytes: Option<u64>,
    pub(super) rewrite: Option<Spanned<String>>,
}

impl Check<'_> {
    /// Checks the rules of a route, on a host with these users.
    pub(super) fn rules(
        &mut self,
        raw: RawRules,
        action: Option<&Action>,
        (path, expression): (&str, Option<&PathRegex>),
        users: Option<&Arc<BasicAuth>>,
    ) -> Rules {
        if let (Some(Action::Channel(_)), Some((kind, _))) = (action, raw.errors.first_key_value())
        {
            let what = "clients of channels read why they are refused, and get no pages";
            self.wrong(kind.span(), format!("{what}, expected errors on other routes or the host"));
        }
        let (access, rate, basic_auth) = self.client_rules(raw.clients, Some(users));
        Rules {
            headers: self.headers(raw.headers, Of::Responses),
            errors: self.error_pages(raw.errors),
            access,
            rate,
            basic_auth,
            auth_request: raw.auth_request.and_then(|auth| self.auth_request(auth)).map(Arc::new),
            body_bytes: raw.body_bytes,
            rewrite: raw.rewrite.map(|text| self.rewrite(text, (path, expression), action)),
        }
    }

    fn rewrite(
        &mut self,
        text: Spanned<String>,
        (path, expression): (&str, Option<&PathRegex>),
        action: Option<&Action>,
    ) -> String {
        let place = text.span();
        let conflict = match action {
            Some(action) if strips_path(action) => {
                Some("strip_path takes a part of the path off as well, expected rewrite alone")
            }
            Some(
                Action::Files(_) | Action::Proxy(_) | Action::FastCgi(_) | Action::FilesFirst(..),
            )
            | None => None,
            Some(_) => {
                Some("a rewrite is for files and for servers, expected files, proxy or fastcgi")
            }
        };
        if let Some(what) = conflict {
            self.wrong(place, what);
        } else if let Err(what) = Rewrite::parse(text.get_ref(), path, expression) {
            self.wrong(place, what);
        }
        text.into_inner()
    }

    /// Checks the rules for clients. `users` are those of the host, for a route.
    pub(super) fn client_rules(
        &mut self,
        raw: ClientRules,
        users: Option<Option<&Arc<BasicAuth>>>,
    ) -> (Access, Option<RequestRate>, Option<Arc<BasicAuth>>) {
        let ClientRules { allow, deny, rate, basic_auth } = raw;
        let of_host = users.flatten();
        let basic_auth = match basic_auth.map(|login| (login.span(), login.into_inner())) {
            None => of_host.cloned(),
            Some((place, Login::Users(own))) => self.basic_auth(place, own),
            Some((place, Login::Off)) => {
                if of_host.is_none() {
                    let what = "no password is asked for anyway, expected basic_auth = false only in a \
                                route, where its host has basic_auth";
                    self.missing(place, what);
                }
                None
            }
        };
        (self.access(allow, deny), rate.and_then(|rate| self.request_rate(rate)), basic_auth)
    }

    fn request_rate(&mut self, raw: Spanned<raw_rules::RequestRate>) -> Option<RequestRate> {
        let place = raw.span();
        let (limit, by) = match raw.into_inner() {
            raw_rules::RequestRate::Text(text) => (Some(Spanned::new(place.clone(), text)), None),
            raw_rules::RequestRate::Table(RateTable { limit, by }) => (limit, by),
        };
        let by = by.map_or(Some(RateKey::Client), |by| {
            let key = RateKey::parse(by.get_ref());
            key.map_err(|what| self.wrong(by.span(), what)).ok()
        });
        let Some(limit) = limit else {
            self.missing(place, "a rate without a limit, expected limit = \"20/s burst 40\"");
            return None;
        };
        let rate = self.rate(&limit)?;
        Some(RequestRate { rate, by: by? })
    }

    fn rate(&mut self, text: &Spanned<String>) -> Option<Rate> {
        Rate::read(text.get_ref()).map_err(|what| self.wrong(text.span(), what)).ok()
    }

    /// Checks the changes of the fields of a message.
    pub(super) fn headers(&mut self, raw: Headers, of: Of) -> HeaderChanges {
        let mut changes = HeaderChanges::default();
        for name in raw.remove {
            if let Some(name) = self.field_name(name.span(), name.get_ref(), of) {
                changes.removed.push(name);
            }
        }
        let removed = changes.removed.clone();
        let mut set: HashMap<HeaderName, usize> = HashMap::new();
        for (place, name, value) in self.fields(raw.set, of) {
            let first = set.entry(name.clone()).or_insert_with(|| {
                changes.removed.push(name.clone());
                place.start
            });
            if *first != place.start {
                let what = format!("the field {name:?} is set twice");
                self.wrong(place, format!("{what}, expected it once, perhaps with a list"));
            } else if removed.contains(&name) {
                let what = format!("the field {name:?} is removed and set");
                self.wrong(place, format!("{what}, expected set alone"));
            }
            changes.push(name, value);
        }
        for (_, name, value) in self.fields(raw.add, of) {
            changes.push(name, value);
        }
        changes
    }

    /// Checks fields and their values, each with the place of its name.
    fn fields(&mut self, raw: Fields, of: Of) -> Vec<(Range<usize>, HeaderName, Value)> {
        let mut all = Vec::new();
        for (name, values) in raw {
            let (place, value_place) = (name.span(), values.span());
            let Some(name) = self.field_name(place.clone(), name.get_ref(), of) else { continue };
            for value in values.into_inner().0 {
                let is_trimmed = value.trim() == value;
                match HeaderValue::from_str(&value) {
                    Ok(plain) if is_trimmed && plain.to_str().is_ok() => {
                        let value = match Template::parse(&value) {
                            Ok(None) => Value::Plain(plain),
                            Ok(Some(template)) => Value::Template(template),
                            Err(what) => {
                                self.wrong(value_place.clone(), what);
                                continue;
                            }
                        };
                        all.push((place.clone(), name.clone(), value));
                    }
                    _ => {
                        let what = format!("{value:?} is no value of a field");
                        let expected = "expected visible characters of ASCII, with spaces between";
                        self.wrong(value_place.clone(), format!("{what}, {expected}"));
                    }
                }
            }
        }
        all
    }

    /// Checks the name of a field that requests and responses have.
    pub(super) fn common_field_name(
        &mut self,
        place: Range<usize>,
        name: &str,
    ) -> Option<HeaderName> {
        self.field_name(place.clone(), name, Of::Responses)?;
        self.field_name(place, name, Of::Requests)
    }

    fn field_name(&mut self, place: Range<usize>, name: &str, of: Of) -> Option<HeaderName> {
        let Ok(read) = HeaderName::from_bytes(name.as_bytes()) else {
            let what = format!("{name:?} is no name of a field");
            self.wrong(place, format!("{what}, expected one as \"cache-control\""));
            return None;
        };
        if let Some(why) = refusal(read.as_str(), of) {
            self.wrong(place, format!("the field {name:?} {why}, expected another"));
            return None;
        }
        Some(read)
    }

    /// Checks the pages for errors.
    pub(super) fn error_pages(&mut self, raw: RawErrorPages) -> ErrorPages {
        let mut pages = BTreeMap::new();
        for (kind, path) in raw {
            let Some(read) = ErrorKind::parse(kind.get_ref()) else {
                let what = format!("{:?} is no error", kind.get_ref());
                self.wrong(kind.span(), format!("{what}, expected 400 to 599, \"4xx\" or \"5xx\""));
                continue;
            };
            let place = path.span();
            let path = self.resolved(path.into_inner());
            self.needs(place, Resource::ErrorPage(path.clone()));
            pages.insert(read, path);
        }
        pages
    }

    pub(super) fn access(
        &mut self,
        allow: Option<Spanned<Vec<Spanned<String>>>>,
        deny: Vec<Spanned<String>>,
    ) -> Access {
        if let Some(allow) = &allow
            && allow.get_ref().is_empty()
        {
            let what = "a list of no clients, expected networks, or no such key for all clients";
            self.missing(allow.span(), what);
        }
        let allow = allow.map(Spanned::into_inner).unwrap_or_default();
        Access { allow: self.ranges(allow), deny: self.ranges(deny) }
    }

    pub(super) fn ranges(&mut self, raw: Vec<Spanned<String>>) -> Vec<ClientRange> {
        let mut ranges = Vec::new();
        for text in raw {
            match ClientRange::parse(text.get_ref()) {
                Ok(range) => ranges.push(range),
                Err(what) => self.wrong(text.span(), what),
            }
        }
        ranges
    }

    pub(super) fn basic_auth(
        &mut self,
        place: Range<usize>,
        raw: raw_rules::BasicAuth,
    ) -> Option<Arc<BasicAuth>> {
        let raw_rules::BasicAuth { realm, users, file, failures } = raw;
        if let Some(listener) = &self.unencrypted {
            let what = format!(
                "passwords are sent in plain text to {listener}, expected tls on that listener, \
                 https = \"always\" on the host, or other listeners of this host"
            );
            self.warn(place.clone(), what);
        }
        if users.is_empty() && file.is_none() {
            let what = "a password is asked for and there are no users";
            self.missing(
                place,
                format!("{what}, expected users = {{ NAME = HASH }} or file = PATH"),
            );
            return None;
        }
        let realm = realm.map_or_else(
            || REALM.to_owned(),
            |realm| {
                let is_plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
                if !realm.get_ref().bytes().all(is_plain) {
                    let what = format!("{:?} is no name of an area", realm.get_ref());
                    let expected = "expected visible characters of ASCII and spaces";
                    self.wrong(realm.span(), format!("{what}, {expected}"));
                }
                realm.into_inner()
            },
        );
        let mut hashes = BTreeMap::new();
        for (user, hash) in users {
            if let Err(what) = check_user(user.get_ref()) {
                self.wrong(user.span(), what.to_string());
            }
            match PasswordHash::parse(hash.get_ref()) {
                Ok(hash) => drop(hashes.insert(user.into_inner(), hash)),
                Err(what) => self.wrong(hash.span(), what.to_string()),
            }
        }
        let file = file.map(|file| {
            let (place, path) = (file.span(), self.resolved(file.into_inner()));
            self.needs(place, Resource::Users(path.clone()));
            path
        });
        let spares_local = failures.is_none();
        let failures = match failures {
            None => Rate::parse(FAILURES),
            Some(text) if text.get_ref() == "off" => None,
            Some(text) => self.failures(&text),
        };
        Some(Arc::new(BasicAuth { realm, users: hashes, file, failures, spares_local }))
    }

    fn failures(&mut self, text: &Spanned<String>) -> Option<Rate> {
        let rate = Rate::read(text.get_ref());
        rate.map_err(|what| self.wrong(text.span(), format!("{what}, or \"off\""))).ok()
    }
}

/// Whether an action takes the route's path off.
fn strips_path(action: &Action) -> bool {
    match action {
        Action::Proxy(proxy) => proxy.strip_path,
        Action::FilesFirst(_, rest) => strips_path(rest),
        _ => false,
    }
}

/// The value of a field, as it is or with variables.
enum Value {
    Plain(HeaderValue),
    Template(Template),
}

impl HeaderChanges {
    fn push(&mut self, name: HeaderName, value: Value) {
        match value {
            Value::Plain(value) => self.added.push((name, value)),
            Value::Template(template) => self.templates.push((name, template)),
        }
    }
}
