//! Directives that are nowhere asked for by name: those without a need, and those without a way.

use super::super::directive::{Directive, Outcome};
use super::super::output::Table;
use super::syntax::is_known_file;

/// Directives that have nothing to set, by their names; `*` at the end stands for any rest.
const NOT_NEEDED: &[(&str, &str)] = &[
    ("accept_mutex", "listeners are shared without it"),
    ("aio", "files are read without waiting"),
    ("auth_request_set", "no field has this value"),
    ("client_body_buffer_size", "bodies are passed on as they come"),
    ("client_body_temp_path", "bodies are passed on as they come"),
    ("client_header_buffer_size", "buffers grow as they are needed"),
    ("daemon", "the server stays in the foreground; a service manager starts it"),
    ("default_type", "no answer here has it"),
    ("directio*", "files are read without waiting"),
    ("etag", "files always have one"),
    ("events", "the engine chooses the best back-end"),
    ("fastcgi_buffer*", "responses are always streamed"),
    ("fastcgi_busy_buffers_size", "responses are always streamed"),
    ("fastcgi_index", "it is index.php where nothing else is said"),
    ("fastcgi_keep_conn", "connections are kept while few exist"),
    ("fastcgi_max_temp_file_size", "responses are always streamed"),
    ("fastcgi_request_buffering", "spool of fastcgi reads bodies to their end first"),
    ("fastcgi_split_path_info", "a path is split after the first script that is there"),
    ("fastcgi_temp_*", "responses are always streamed"),
    ("gzip", "files that are text are compressed by default"),
    ("gzip*", "files that are text are compressed by default, and answers of servers by compress"),
    ("http2*", "HTTP/2 is offered by default"),
    ("if_modified_since", "conditions are always answered"),
    ("include", "the parameters and types of this file are built in"),
    ("keepalive_disable", "no browser of today needs it"),
    ("lingering_*", "connections are closed so that clients read the answer"),
    ("log_not_found", "files that are not there are in the access log alone"),
    ("merge_slashes", "files are found with and without more slashes"),
    ("msie_*", "no browser of today needs it"),
    ("multi_accept", "the engine decides"),
    ("open_file_cache*", "files are cached in memory"),
    ("output_buffers", "buffers grow as they are needed"),
    ("pcre_jit", "expressions are compiled"),
    ("pid", "a service manager knows the process"),
    ("port_in_redirect", "redirects name the host as the client did"),
    ("postpone_output", "the engine decides"),
    ("proxy_buffer*", "responses are always streamed"),
    ("proxy_busy_buffers_size", "responses are always streamed"),
    ("proxy_headers_hash_*", "tables grow as they are needed"),
    ("proxy_http_version", "connections are kept, and WebSockets pass, without it"),
    ("proxy_max_temp_file_size", "responses are always streamed"),
    ("proxy_pass_header", "fields of servers are passed on"),
    ("proxy_request_buffering", "bodies are always passed on as they come"),
    ("proxy_socket_keepalive", "connections are checked in use"),
    ("proxy_ssl_server_name", "the name is always sent"),
    ("proxy_temp_*", "responses are always streamed"),
    ("reset_timedout_connection", "the engine decides"),
    ("sendfile*", "it is always used"),
    ("server_names_hash_*", "tables grow as they are needed"),
    ("server_tokens", "no answer names the version"),
    ("ssl_buffer_size", "the engine decides"),
    ("tcp_no*", "it is always used where it helps"),
    ("types_hash_*", "tables grow as they are needed"),
    ("user", "a service manager starts the server as a user"),
    ("worker_rlimit_nofile", "the limit is raised as far as it may be"),
    ("lua_package_path", "there is no Lua"),
    ("ssl_ciphers", "only suites that are good today are offered"),
    ("ssl_dhparam", "only suites with elliptic curves are offered"),
    ("ssl_ecdh_curve", "good curves are offered"),
    ("ssl_prefer_server_ciphers", "only suites that are good today are offered"),
    ("ssl_preread", "the routes of a relay read the name by themselves"),
    ("ssl_session_*", "sessions are resumed by default"),
    ("variables_hash_*", "tables grow as they are needed"),
    ("worker_cpu_affinity", "the engine decides"),
];

/// Directives that cannot be expressed, with what to do instead.
const NOT_IMPORTED: &[(&str, &str)] = &[
    ("access_log", "there is one access log for all requests; path of [access_log]"),
    ("auth_jwt*", "auth_request asks a server of yours"),
    ("error_log", "there is one log; path and level of [log]"),
    ("error_page", "pages of errors are files: errors of the host or the route"),
    ("expires", "max_age of files, or cache-control in headers"),
    ("fastcgi_cache*", "there is no cache for answers of servers; put one in front"),
    ("geo", "allow and deny of routes know networks"),
    ("if", "routes with match may tell requests apart: docs/routes.md"),
    ("limit_except", "match = { methods = [...] } of a route tells methods apart"),
    ("limit_rate*", "there is no limit of bytes a second"),
    ("limit_req*", "rate of a route limits the requests of a client"),
    ("load_module", "there are no modules"),
    ("log_format", "format = \"json\" of [access_log] with fields"),
    ("mail", "a relay passes connections on"),
    ("map", "routes with match may tell requests apart"),
    ("mirror", "there is no copy of requests"),
    ("more_*_headers", "headers of the host or the route"),
    ("perl*", "there are no modules"),
    ("proxy_cache*", "there is no cache for answers of servers; put one in front"),
    ("proxy_no_cache", "there is no cache for answers of servers"),
    ("proxy_store*", "there is no cache for answers of servers"),
    ("resolver*", "dns of the upstream names a resolver; names are looked up again by themselves"),
    ("rewrite", "rewrite or redirect of a route with path_regex; the order of routes is another"),
    ("satisfy", "a client has to meet all rules of a route"),
    ("set", "there are no variables"),
    ("split_clients", "weight of servers shares requests out"),
    ("ssl_stapling*", "there is no stapling of OCSP answers"),
    ("stub_status", "[metrics] has these figures, and superpoll top shows them"),
    ("sub_filter*", "bodies are not changed"),
    ("try_files", "files with fallback, or otherwise next to proxy or fastcgi"),
    ("uwsgi_*", "an HTTP server of the language, as gunicorn or uvicorn, behind proxy"),
];

/// Directives that routes ask their levels for: what no route has asked for has no effect.
const ASKED_FOR: &[&str] = &[
    "add_header",
    "alias",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "autoindex",
    "charset",
    "client_max_body_size",
    "deny",
    "fastcgi_hide_header",
    "fastcgi_intercept_errors",
    "fastcgi_param",
    "fastcgi_pass",
    "fastcgi_read_timeout",
    "fastcgi_connect_timeout",
    "index",
    "internal",
    "limit_conn_zone",
    "limit_req_zone",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_path",
    "proxy_hide_header",
    "proxy_intercept_errors",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_set_header",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_verify",
    "proxy_ssl_verify_depth",
    "root",
    "ssl_trusted_certificate",
    "types",
    "zone",
];

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

/// Returns the directive of `proxy_pass` that means the same as one of `grpc_pass`; others stay.
fn as_proxy(name: &str) -> String {
    match name.strip_prefix("grpc_") {
        Some(rest) => format!("proxy_{rest}"),
        None => name.to_owned(),
    }
}

/// Returns why a directive has nothing to set, if it never has.
fn no_need(directive: &Directive) -> Option<&'static str> {
    let name = directive.name.as_str();
    if name == "include" && !is_known_file(directive.first()) {
        // A pattern without files is right in nginx.
        return directive.first().contains('*').then_some("no file has such a name");
    }
    let name = as_proxy(name);
    NOT_NEEDED.iter().find(|(pattern, _)| fits(pattern, &name)).map(|(_, why)| *why)
}

/// Writes a comment for each directive of a level that nothing has asked for.
pub(super) fn sweep(level: &[Directive], table: &mut Table) {
    for directive in level.iter().filter(|one| one.outcome() == Outcome::Unknown) {
        let name = directive.name.as_str();
        if matches!(name, "location" | "server" | "upstream" | "http" | "stream") {
            // They have lines of their own.
            continue;
        }
        let refusal = NOT_IMPORTED.iter().find(|(pattern, _)| fits(pattern, name));
        if let Some(why) = no_need(directive) {
            table.not_needed(directive, why);
        } else if name == "map" && directive.first() == "$http_upgrade" {
            table.not_needed(directive, "WebSockets pass without it");
        } else if let Some((_, why)) = refusal {
            table.not_imported(directive, why);
        } else if name == "include" {
            table.not_imported(directive, "the file cannot be read");
        } else if ASKED_FOR.contains(&&*as_proxy(name)) {
            table.not_needed(directive, "no location here uses it");
        } else {
            table.not_imported(directive, "there is no such setting here");
        }
    }
}
