//! A route for each location of a server.
//!
//! A directive that cannot be expressed never lets a client in: a route whose action has no
//! counterpart answers with 501, and a route whose rules for clients have none refuses all clients.

use std::path::Path;

use super::super::directive::{Directive, Outcome};
use super::super::output::{Action, Table, Value, json};
use super::super::source::{escaped, is_among};
use super::super::upstreams::Protocol;
use super::location::{Kind, Location, Locations};
use super::rules;
use super::scope::Scope;
use super::settings::{DEFAULT_RESPONSE, Totals};
use super::upstream::NamedUpstreams;
use super::value;
use super::verdict::sweep;

/// The state while the routes of a server are made.
pub(super) struct Routes<'a, 'b> {
    pub(super) locations: &'b Locations<'a>,
    pub(super) upstreams: &'b mut NamedUpstreams<'a>,
    pub(super) totals: &'b mut Totals<'a>,
    /// The scheme of all requests, if they have one, and a name of the server.
    pub(super) scheme: Option<&'static str>,
    pub(super) name: String,
    /// The folder that relative paths of the file are relative to.
    pub(super) folder: &'b Path,
}

/// Content handlers that have no counterpart.
const FOREIGN: &str = "uwsgi_pass scgi_pass memcached_pass stub_status content_by_lua_block js_content perl empty_gif";

/// Parameters that the server gives scripts by itself.
const GIVEN: &str = "\
    QUERY_STRING REQUEST_METHOD CONTENT_TYPE CONTENT_LENGTH SCRIPT_NAME REQUEST_URI \
    DOCUMENT_URI DOCUMENT_ROOT SERVER_PROTOCOL REQUEST_SCHEME HTTPS GATEWAY_INTERFACE \
    SERVER_SOFTWARE REMOTE_ADDR REMOTE_PORT REMOTE_USER SERVER_ADDR SERVER_PORT SERVER_NAME \
    REDIRECT_STATUS PATH_INFO PATH_TRANSLATED HTTP_PROXY HTTP_HOST";

impl<'a> Routes<'a, '_> {
    /// Returns the route of a location.
    pub(super) fn route(&mut self, location: &Location<'a>) -> Table {
        let mut table = Table::new("[[hosts.routes]]");
        let from: Vec<&Directive> = location.directive.into_iter().collect();
        if let Some(directive) = location.directive {
            table.comes_from(directive);
        }
        if location.path != "/" {
            table.set("path", location.path.as_str(), &from);
        }
        let expression = match &location.kind {
            Kind::Exact => Some(format!("^{}$", escaped(&location.path))),
            Kind::Expression(expression) => Some(expression.as_str().to_owned()),
            Kind::Prefix { .. } | Kind::Named => None,
        };
        if let Some(text) = expression {
            table.set("match", json!({ "path_regex": text }), &from);
        } else if !location.path.ends_with('/') {
            let places = from.iter().map(|one| one.place.to_string());
            self.totals.without_slash.extend(places);
        }
        self.action(location, &mut table);
        rules::add(&location.scope, &mut table, self);
        if let Some(directive) = location.directive {
            sweep(directive.children(), &mut table);
        }
        table
    }

    fn action(&mut self, location: &Location<'a>, table: &mut Table) {
        let scope = &location.scope;
        let (directive, action) = if let Some(directive) = scope.own_first("return") {
            (directive, self.give(directive, scope, table))
        } else if let Some(directive) =
            scope.own("rewrite").into_iter().find(|one| is_redirect(one))
        {
            (directive, self.rewrite_away(directive, table))
        } else if let Some(directive) = proxy_pass(scope) {
            if location.path.ends_with('/') && location.path != "/" {
                self.totals.redirected.push(directive.place.to_string());
            }
            for rewrite in scope.own("rewrite") {
                match new_path(rewrite, &location.path) {
                    Some(path) => table.set("rewrite", path, &[rewrite]),
                    None => table.not_imported(rewrite, "rewrite of the route, with {below}"),
                }
            }
            (directive, self.proxy(directive, location, table))
        } else if let Some(directive) = scope.own_first("fastcgi_pass") {
            for tried in scope.own("try_files") {
                table.not_needed(tried, "a script that is not there is answered with 404");
            }
            let is_rest = |one: &&Directive| one.second() == "$fastcgi_path_info";
            for set in scope.own("set").into_iter().filter(is_rest) {
                table.not_needed(set, "PATH_INFO is the rest of the path");
            }
            let action = self.fastcgi(directive, scope, table);
            let has_folder = action.as_ref().is_ok_and(|(_, made)| made.get("root").is_some());
            let is_below = location.path != "/" && scope.own("alias").is_empty();
            if has_folder && is_below && table.get("rewrite").is_none() {
                table.set("rewrite", "{path}", &[]);
            }
            (directive, action)
        } else if FOREIGN.split(' ').any(|name| scope.own_first(name).is_some()) {
            return table.set("respond", json!({ "status": 501 }), &[]);
        } else {
            return match &scope.own("deny")[..] {
                [one] if one.first() == "all" && scope.own("allow").is_empty() => {
                    table.set("respond", json!({ "status": 403 }), &[one]);
                }
                _ => self.files(location, table),
            };
        };
        table.act(directive, action);
    }

    /// Returns the answer of `return`.
    fn give(&self, directive: &Directive, scope: &Scope<'a>, table: &mut Table) -> Action {
        let (code, text) = match &directive.words[..] {
            [text] if text.parse::<u16>().is_err() => (302_u16, Some(text)),
            [code] => (code.parse().unwrap_or(0), None),
            [code, text, ..] => (code.parse().unwrap_or(0), Some(text)),
            [] => (0, None),
        };
        if let (301 | 302 | 303 | 307 | 308, Some(to)) = (code, text) {
            let to = value::redirect(to, self.scheme, &self.name)?;
            return Ok(("redirect", json!({ "to": to, "status": code })));
        }
        let mut respond = json!({ "status": code });
        if let Some(text) = text {
            if value::has_variables(text) {
                return Err("the body of a fixed answer has no variables".to_owned());
            }
            respond["body"] = text.as_str().into();
        }
        if !(200..=599).contains(&code) {
            return Err("it is no status of an answer".to_owned());
        }
        if let (Some(kind), Some(_)) = (scope.last("default_type"), text) {
            respond["headers"] = json!({ "content-type": kind.first() });
            table.cite("respond", &[kind]);
        }
        Ok(("respond", respond))
    }

    /// Returns the redirect of a `rewrite` that ends in one.
    pub(super) fn rewrite_away(&self, directive: &Directive, table: &mut Table) -> Action {
        let expression = directive.first();
        let is_whole = matches!(expression, "^(.*)$" | "^(.*)" | "^/(.*)$" | "(.*)" | "^" | ".*");
        // The whole path is the one group that a redirect has.
        let to = match expression {
            "^/(.*)$" => directive.second().replace("/$1", "$uri"),
            "^(.*)$" | "^(.*)" | "(.*)" => directive.second().replace("$1", "$uri"),
            _ => directive.second().to_owned(),
        };
        let kept = if to.ends_with('?') { "" } else { "$is_args$args" };
        let to = to.trim_end_matches('?').to_owned();
        let to = if to.contains("$request_uri") { to } else { to + kept };
        let is_permanent = directive.words.last().is_some_and(|word| word == "permanent");
        let to = value::redirect(&to, self.scheme, &self.name)?;
        if !is_whole && table.get("match").is_none() {
            table.set("match", json!({ "path_regex": expression }), &[directive]);
        }
        Ok(("redirect", json!({ "to": to, "status": if is_permanent { 301 } else { 302 } })))
    }

    /// Returns the `proxy` of a `proxy_pass` or `grpc_pass`, and sets the path that servers get.
    fn proxy(
        &mut self,
        directive: &'a Directive,
        location: &Location<'a>,
        table: &mut Table,
    ) -> Action {
        let scope = &location.scope;
        let url = directive.first();
        let module = module(directive);
        let (protocol, rest) = match (module, url.split_once("://")) {
            ("proxy", Some(("http", rest))) => (Protocol::Http, rest),
            ("proxy", Some(("https", rest))) => (Protocol::Https, rest),
            ("grpc", Some(("grpc", rest))) => (Protocol::Http2, rest),
            ("grpc", Some(("grpcs", rest))) => (Protocol::Http2Tls, rest),
            ("grpc", None) => (Protocol::Http2, url),
            _ => {
                let schemes =
                    if module == "grpc" { "grpc://, grpcs://" } else { "http://, https://" };
                return Err(format!("expected {schemes} and an address or upstream"));
            }
        };
        let (server, path) = match rest.strip_prefix("unix:") {
            // The path of the socket ends with a colon.
            Some(socket) => match socket.split_once(':') {
                Some((socket, path)) => (format!("unix:{socket}"), path),
                None => (rest.to_owned(), ""),
            },
            None => match rest.find('/') {
                Some(at) => (rest[..at].to_owned(), &rest[at..]),
                None => (rest.to_owned(), ""),
            },
        };
        // The query goes on by itself, and groups of the expression are those of the route's.
        let path = ["$is_args$args", "?$args", "$request_uri"]
            .iter()
            .find_map(|end| path.strip_suffix(end))
            .unwrap_or(path);
        let server = server.trim_end_matches("$request_uri").to_owned();
        let path = match location.kind {
            Kind::Expression(_) => (1..=9).fold(path.to_owned(), |path, group| {
                path.replace(&format!("${group}"), &format!("{{{group}}}"))
            }),
            _ => path.to_owned(),
        };
        let path = path.as_str();
        if value::has_variables(&server) || value::has_variables(path) {
            return Err("an upstream is known when the server starts".to_owned());
        }
        let upstream = self.upstreams.of(&server, protocol, directive)?;
        let mut proxy = json!({ "upstream": upstream.as_str() });
        if protocol.has_http2() {
            self.upstreams.made.set(&upstream, "h2", true, &[directive]);
        }
        if protocol.has_tls() {
            self.encrypt(&upstream, directive, scope, table);
        }
        if !path.is_empty() {
            self.replace_path(path, directive, location, &mut proxy, table);
        }
        rules::request_fields(scope, directive, (&mut proxy, &server), table);
        rules::responses(scope, module, "proxy", &mut proxy, table);
        self.note_timeouts(scope, module);
        Ok(("proxy", proxy))
    }

    fn encrypt(
        &mut self,
        upstream: &str,
        directive: &'a Directive,
        scope: &Scope<'a>,
        table: &mut Table,
    ) {
        let mut from = vec![directive];
        let last = |key: &str| scope.last(&format!("{}_ssl_{key}", module(directive)));
        let authorities = match last("trusted_certificate") {
            Some(given) => {
                from.push(given);
                self.path(given.first())
            }
            None => {
                let what =
                    "servers have to prove who they are here, by the authorities of the system";
                table.remark(directive, what);
                "/etc/ssl/certs/ca-certificates.crt".to_owned()
            }
        };
        let mut tls = json!({ "ca": authorities });
        for (name, key) in
            [("name", "server_name"), ("certificate", "certificate"), ("certificate_key", "key")]
        {
            let Some(given) = last(name) else { continue };
            let is_path = key != "server_name";
            let text = if is_path { self.path(given.first()) } else { given.first().to_owned() };
            tls[key] = text.into();
            from.push(given);
        }
        if let Some(verify) = last("verify") {
            match verify.first() {
                "on" => table.not_needed(verify, "it is always done"),
                _ => table.not_imported(verify, "servers always have to prove who they are"),
            }
        }
        self.upstreams.made.set(upstream, "tls", tls, &from);
    }

    /// Sets the path that replaces that of the location.
    fn replace_path(
        &mut self,
        path: &str,
        directive: &Directive,
        location: &Location<'a>,
        proxy: &mut Value,
        table: &mut Table,
    ) {
        let own = location.path.as_str();
        let ends = (own.ends_with('/'), path.ends_with('/'));
        let rewrite = match (&location.kind, ends) {
            (Kind::Exact | Kind::Expression(_), _) => path.to_owned(),
            (Kind::Prefix { .. }, _) if own == path => return,
            (Kind::Prefix { .. }, (true, true)) if path == "/" => {
                return proxy["strip_path"] = true.into();
            }
            (Kind::Prefix { .. }, (true, true)) => {
                format!("{}{{below}}", path.trim_end_matches('/'))
            }
            (Kind::Prefix { .. }, (false, false)) => format!("{path}{{below}}"),
            (Kind::Prefix { .. }, (false, true)) => {
                let what = "the path has one slash here where nginx sends two";
                table.remark(directive, what);
                format!("{}{{below}}", path.trim_end_matches('/'))
            }
            _ => {
                let why = "the path after the address would be glued to the rest";
                return table.not_imported(directive, why);
            }
        };
        table.set("rewrite", rewrite, &[directive]);
    }

    /// Returns the `fastcgi` of a `fastcgi_pass`.
    fn fastcgi(
        &mut self,
        directive: &'a Directive,
        scope: &Scope<'a>,
        table: &mut Table,
    ) -> Action {
        let upstream = self.upstreams.of(directive.first(), Protocol::FastCgi, directive)?;
        let mut fastcgi = json!({ "upstream": upstream });
        let root = scope.last("alias").or_else(|| scope.last("root"));
        let mut folder = root.map(|root| self.path(root.first()));
        let mut has_script =
            scope.all(&["include"]).iter().any(|one| one.first().ends_with(".conf"));
        let mut params = Value::Null;
        let mut from: Vec<&Directive> = root.into_iter().collect();
        for param in scope.all(&["fastcgi_param"]) {
            let text = param.second();
            match param.first() {
                "SCRIPT_FILENAME" => {
                    has_script = true;
                    let text = text.replace("$realpath_root", "$document_root");
                    let base = text.strip_suffix("$fastcgi_script_name");
                    match base.map(|base| base.trim_end_matches('/')) {
                        Some("$document_root") => {}
                        Some(base) if !value::has_variables(base) => {
                            fastcgi["server_root"] = base.into()
                        }
                        _ if text == "$request_filename" => {}
                        _ => {
                            let base = folder.as_deref().unwrap_or_default();
                            let script = text.replace("$document_root", base);
                            let parts = script.rsplit_once('/');
                            let Some((base, name)) = parts.filter(|_| !script.contains('$')) else {
                                table.not_imported(param, "a script is a file below root");
                                continue;
                            };
                            folder = Some(base.to_owned());
                            table.set("rewrite", format!("/{name}"), &[param]);
                        }
                    }
                    from.push(param);
                }
                // They are what the server gives by itself.
                _ if value::has_variables(text) || text.is_empty() => {
                    match is_among(GIVEN, param.first()) {
                        true => table.not_needed(param, "scripts get it"),
                        false => table.not_imported(param, "params have no variables"),
                    }
                }
                name => {
                    params[name] = text.into();
                    from.push(param);
                }
            }
        }
        if has_script {
            match folder {
                Some(folder) => fastcgi["root"] = folder.into(),
                None => table
                    .comment("fastcgi needs root = FOLDER: nginx looks in a folder of its own."),
            }
        }
        let index = scope.last("fastcgi_index").filter(|one| one.first() != "index.php");
        if let Some(index) = index.filter(|one| one.first().ends_with(".php")) {
            fastcgi["index"] = index.first().into();
            from.push(index);
        }
        if !params.is_null() {
            fastcgi["params"] = params;
        }
        table.cite("fastcgi", &from);
        rules::responses(scope, "fastcgi", "fastcgi", &mut fastcgi, table);
        self.note_timeouts(scope, "fastcgi");
        Ok(("fastcgi", fastcgi))
    }

    fn note_timeouts(&mut self, scope: &Scope<'a>, module: &str) {
        let read = scope.last(&format!("{module}_read_timeout"));
        let connect = scope.last(&format!("{module}_connect_timeout"));
        let time = |one: &Directive| value::duration(one.first()).map(|(_, time)| time);
        // Their lines are written at the end.
        connect.into_iter().chain(read).for_each(|one| one.note(Outcome::NotNeeded));
        self.totals.response.push((read.and_then(time).unwrap_or(DEFAULT_RESPONSE), read));
        self.totals.connect.extend(connect.and_then(|one| Some((time(one)?, one))));
    }

    /// Writes the files of a location, and the action for paths without a file.
    fn files(&mut self, location: &Location<'a>, table: &mut Table) {
        let scope = &location.scope;
        let alias = scope.own_first("alias");
        let Some(root) = alias.or_else(|| scope.last("root")) else {
            table.comment("nginx looks in a folder of its own here; files needs root = FOLDER.");
            return table.set("respond", json!({ "status": 404 }), &[]);
        };
        let expression = matches!(location.kind, Kind::Expression(_));
        if value::has_variables(root.first()) || (alias.is_some() && expression) {
            let why = "a folder has one name, without variables".to_owned();
            return table.act(root, Err(why));
        }
        let mut folder = self.path(root.first());
        if alias.is_some() && matches!(location.kind, Kind::Exact) {
            let (base, name) = folder.rsplit_once('/').unwrap_or((".", &folder));
            table.set("rewrite", format!("/{name}"), &[root]);
            folder = base.to_owned();
        } else if alias.is_none() && location.path != "/" {
            table.set("rewrite", "{path}", &[root]);
        }
        let mut files = json!({ "root": folder });
        let mut from = vec![root];
        self.index(scope, &mut files, &mut from);
        if let Some(types) = scope.last("types") {
            let mut all = json!({});
            for kind in types.children() {
                kind.words.iter().for_each(|extension| all[extension] = kind.name.as_str().into());
                from.push(kind);
            }
            files["types"] = all;
            from.push(types);
        }
        if let Some(charset) = scope.last("charset") {
            files["charset"] = charset.first().into();
            from.push(charset);
        }
        if let Some(expires) = scope.last("expires") {
            let time = if expires.first() == "max" { "10y" } else { expires.first() };
            if let Some((time, _)) = value::duration(time) {
                files["max_age"] = time.into();
                from.push(expires);
            }
        }
        if let Some(gzip) = scope.last("gzip").filter(|one| one.first() == "off") {
            files["compress"] = false.into();
            from.push(gzip);
        }
        let rest = self.otherwise(location, &mut files, table);
        let is_alone = rest.is_none();
        if let Some(listing) = scope.is_on("autoindex").filter(|_| is_alone) {
            files["listing"] = true.into();
            from.push(listing);
        }
        table.set("files", files, &from);
        if let Some((key, value, directive)) = rest {
            table.set(key, value, &[directive]);
        }
    }

    fn index(&self, scope: &Scope<'a>, files: &mut Value, from: &mut Vec<&'a Directive>) {
        let Some(index) = scope.last("index") else { return };
        let plain = |name: &&String| !name.ends_with(".php") && !name.contains(['/', '$']);
        let names: Vec<&str> = index.words.iter().filter(plain).map(String::as_str).collect();
        if names != ["index.html"] {
            files["index"] = names.into();
        }
        from.push(index);
    }

    /// Returns the action for paths that name no file, with its key.
    fn otherwise(
        &mut self,
        location: &Location<'a>,
        files: &mut Value,
        table: &mut Table,
    ) -> Option<(&'static str, Value, &'a Directive)> {
        let scope = &location.scope;
        let Some(tried) = scope.own_first("try_files") else {
            return self.index_script(location, files, table);
        };
        let (last, candidates) = tried.words.split_last()?;
        for word in candidates.iter().filter(|word| !matches!(&***word, "$uri" | "$uri/")) {
            table.not_imported(tried, &format!("{word} is not tried"));
        }
        if last.starts_with('=') || last == "$uri/" {
            if last != "=404" && last != "$uri/" {
                table.not_imported(tried, "a path without a file is answered with 404");
            }
            table.cite("files", &[tried]);
            return self.index_script(location, files, table);
        }
        let path = last.split(['?', '$']).next().unwrap_or_default();
        let target = match last.starts_with('@') {
            true => self.locations.named(last),
            false => self.locations.find(path),
        };
        let target = target.cloned();
        if let Some(target) = &target {
            let own = proxy_pass(&target.scope).filter(|_| last.starts_with('@'));
            let found = match (own, target.scope.own_first("fastcgi_pass")) {
                (Some(pass), _) => Some((pass, self.proxy(pass, target, table))),
                (None, Some(pass)) => Some((pass, self.fastcgi(pass, &target.scope, table))),
                (None, None) => None,
            };
            if let Some((pass, (key, value))) = found.and_then(|found| acted(found, table)) {
                if last.contains("$request_uri") {
                    table.remark(tried, "PATH_INFO is empty here; scripts have REQUEST_URI");
                }
                files["otherwise"] = key.into();
                table.cite("files", &[tried]);
                let guards = ["allow", "deny", "auth_basic", "auth_request", "satisfy"];
                if let Some(guard) = guards.iter().find_map(|name| target.scope.own_first(name)) {
                    table.close(guard, "files and the rest of a route have the same clients");
                }
                if let Some(named) = target.directive.filter(|_| matches!(target.kind, Kind::Named))
                {
                    table.cite("files", &[named]);
                    self.rules_of_named(named, table);
                }
                return Some((key, value, pass));
            }
        }
        if value::has_variables(last) || !last.starts_with('/') {
            table.not_imported(tried, "the last word is no file, and no location with a server");
            return None;
        }
        let below = match scope.own_first("alias") {
            Some(_) => last.strip_prefix(location.path.trim_end_matches('/')).unwrap_or(last),
            None => last,
        };
        files["fallback"] = below.into();
        table.cite("files", &[tried]);
        None
    }

    /// Says which rules of a named location count for nothing, as those of the route count.
    fn rules_of_named(&self, named: &Directive, table: &mut Table) {
        for directive in named.children() {
            let rules = "add_header client_max_body_size error_page expires limit_req root";
            if is_among(rules, &directive.name) && directive.outcome() == Outcome::Unknown {
                table.not_imported(directive, "the rules are those of the location with try_files");
            }
        }
    }

    /// Returns the scripts that answer for folders, if `index` names one.
    fn index_script(
        &mut self,
        location: &Location<'a>,
        files: &mut Value,
        table: &mut Table,
    ) -> Option<(&'static str, Value, &'a Directive)> {
        if !matches!(location.kind, Kind::Prefix { .. }) {
            return None;
        }
        let index = location.scope.last("index")?;
        let script =
            index.words.iter().find(|name| name.ends_with(".php") && !name.contains('/'))?;
        let target = self.locations.find(&format!("/{script}"))?.clone();
        let pass = target.scope.own_first("fastcgi_pass")?;
        if location.path != "/" {
            table.not_imported(index, &format!("{script} of a folder is not run here"));
            return None;
        }
        let made = self.fastcgi(pass, &target.scope, table);
        let (pass, (key, mut fastcgi)) = acted((pass, made), table)?;
        if script != "index.php" {
            fastcgi["index"] = script.as_str().into();
        }
        let what = format!("paths without a file go to /{script} here, if it is there");
        table.remark(index, &what);
        files["otherwise"] = "fastcgi".into();
        Some((key, fastcgi, pass))
    }

    /// Returns a path of nginx, which is relative to the folder of its configuration.
    pub(super) fn path(&self, text: &str) -> String {
        let trimmed = if text.len() > 1 { text.trim_end_matches('/') } else { text };
        self.folder.join(trimmed).display().to_string()
    }
}

/// Returns the directive of a scope that passes requests to servers of HTTP.
fn proxy_pass<'a>(scope: &Scope<'a>) -> Option<&'a Directive> {
    scope.own_first("proxy_pass").or_else(|| scope.own_first("grpc_pass"))
}

/// Returns the module that a directive such as `grpc_pass` belongs to: all of its directives begin
/// with this name.
pub(super) fn module(directive: &Directive) -> &'static str {
    if directive.name == "grpc_pass" { "grpc" } else { "proxy" }
}

/// Whether a `rewrite` sends the client elsewhere.
pub(super) fn is_redirect(directive: &Directive) -> bool {
    let flag = directive.words.get(2).map(String::as_str);
    let mut urls = ["http://", "https://", "$scheme"].iter();
    matches!(flag, Some("permanent" | "redirect"))
        || urls.any(|start| directive.second().starts_with(start))
}

/// Returns the new path of `rewrite ^/api/(.*)$ /$1 break` in the location of this path.
fn new_path(directive: &Directive, path: &str) -> Option<String> {
    let flag = directive.words.get(2).map(String::as_str);
    let expression = directive.first().strip_prefix('^')?;
    let expression = expression.strip_suffix('$').unwrap_or(expression);
    let base = path.trim_end_matches('/');
    let group = expression.strip_prefix(base)?;
    let before = directive.second().strip_suffix("$1")?;
    let before = match group {
        "/(.*)" => before.strip_suffix('/')?,
        "(/.*)" => before,
        _ => return None,
    };
    let is_plain = flag == Some("break") && !value::has_variables(before);
    is_plain.then(|| format!("{before}{{below}}"))
}

/// Returns an action with the directive that it comes from, or says why there is none.
fn acted<'a>(
    (pass, action): (&'a Directive, Action),
    table: &mut Table,
) -> Option<(&'a Directive, (&'static str, Value))> {
    match action {
        Ok(made) => Some((pass, made)),
        Err(why) => {
            table.not_imported(pass, &why);
            None
        }
    }
}
