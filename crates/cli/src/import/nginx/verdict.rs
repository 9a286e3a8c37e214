//! Directives that are nowhere asked for by name: those without a need, and those without a way.

use super::super::directive::{Directive, Outcome};
use super::super::output::Table;
use super::super::source::is_among;
use super::syntax::is_known_file;

/// Directives that have nothing to set, by their names; `*` stands for any text.
const NOT_NEEDED: &[(&str, &str)] = &[
    ("accept_mutex", "listeners are shared without it"),
    ("aio directio*", "files are read without waiting"),
    ("auth_request_set", "no field has this value"),
    ("client_body_buffer_size client_body_temp_path", "bodies are passed on as they come"),
    ("client_header_buffer_size output_buffers", "buffers grow as they are needed"),
    ("daemon", "the server stays in the foreground; a service manager starts it"),
    ("default_type", "no answer here has it"),
    ("etag", "files always have one"),
    ("events", "the engine chooses the best back-end"),
    (
        "fastcgi_buffer* fastcgi_busy_buffers_size fastcgi_max_temp_file_size fastcgi_temp_* proxy_buffer* proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_*",
        "responses are always streamed",
    ),
    ("fastcgi_index", "it is index.php where nothing else is said"),
    ("fastcgi_keep_conn", "connections are kept while few exist"),
    ("fastcgi_request_buffering", "spool of fastcgi reads bodies to their end first"),
    ("fastcgi_split_path_info", "a path is split after the first script that is there"),
    ("gzip", "files that are text are compressed by default"),
    ("gzip*", "files that are text are compressed by default, and answers of servers by compress"),
    ("http2*", "HTTP/2 is offered by default"),
    ("if_modified_since", "conditions are always answered"),
    ("include", "the parameters and types of this file are built in"),
    ("keepalive_disable msie_*", "no browser of today needs it"),
    ("lingering_*", "connections are closed so that clients read the answer"),
    ("log_not_found", "files that are not there are in the access log alone"),
    ("merge_slashes", "files are found with and without more slashes"),
    (
        "multi_accept postpone_output reset_timedout_connection ssl_buffer_size worker_cpu_affinity",
        "the engine decides",
    ),
    ("open_file_cache*", "files are cached in memory"),
    ("pcre_jit", "expressions are compiled"),
    ("pid", "a service manager knows the process"),
    ("port_in_redirect", "redirects name the host as the client did"),
    (
        "proxy_headers_hash_* server_names_hash_* types_hash_* variables_hash_*",
        "tables grow as they are needed",
    ),
    ("proxy_http_version", "connections are kept, and WebSockets pass, without it"),
    ("proxy_pass_header", "fields of servers are passed on"),
    ("proxy_request_buffering", "bodies are always passed on as they come"),
    ("proxy_socket_keepalive", "connections are checked in use"),
    ("proxy_ssl_server_name", "the name is always sent"),
    ("sendfile*", "it is always used"),
    ("server_tokens", "no answer names the version"),
    ("tcp_no*", "it is always used where it helps"),
    ("user", "a service manager starts the server as a user"),
    ("worker_rlimit_nofile", "the limit is raised as far as it may be"),
    ("lua_package_path", "there is no Lua"),
    ("ssl_ciphers ssl_prefer_server_ciphers", "only suites that are good today are offered"),
    ("ssl_dhparam", "only suites with elliptic curves are offered"),
    ("ssl_ecdh_curve", "good curves are offered"),
    ("ssl_preread", "the routes of a relay read the name by themselves"),
    ("ssl_session_*", "sessions are resumed by default"),
];

/// Directives that cannot be expressed, with the remedy.
const NOT_IMPORTED: &[(&str, &str)] = &[
    ("access_log", "there is one access log for all requests; path of [access_log]"),
    ("auth_jwt*", "auth_request asks a server of yours"),
    ("error_log", "there is one log; path and level of [log]"),
    ("error_page", "pages of errors are files: errors of the host or the route"),
    ("expires", "max_age of files, or cache-control in headers"),
    ("fastcgi_cache* proxy_cache*", "there is no cache for answers of servers; put one in front"),
    ("geo", "allow and deny of routes know networks"),
    ("if", "routes with match may tell requests apart: docs/routes.md"),
    ("limit_except", "match = { methods = [...] } of a route tells methods apart"),
    ("limit_rate*", "there is no limit of bytes a second"),
    ("limit_req*", "rate of a route limits the requests of a client"),
    ("load_module perl*", "there are no modules"),
    ("log_format", "format = \"json\" of [access_log] with fields"),
    ("mail", "a relay passes connections on"),
    ("map", "routes with match may tell requests apart"),
    ("mirror", "there is no copy of requests"),
    ("more_*_headers", "headers of the host or the route"),
    ("proxy_no_cache proxy_store*", "there is no cache for answers of servers"),
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

/// Directives that routes ask their levels for: without a route that asks, they have no effect.
const ASKED_FOR: &str = "\
    add_header alias allow auth_basic auth_basic_user_file auth_request autoindex charset \
    client_max_body_size deny fastcgi_hide_header fastcgi_intercept_errors fastcgi_param \
    fastcgi_pass fastcgi_read_timeout fastcgi_connect_timeout index internal limit_conn_zone \
    limit_req_zone proxy_connect_timeout proxy_cookie_domain proxy_cookie_path \
    proxy_hide_header proxy_intercept_errors proxy_read_timeout proxy_redirect \
    proxy_set_header proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_name \
    proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth root \
    ssl_trusted_certificate types zone";

/// Returns the text of the first line of a table that has a name.
fn find(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(names, _)| is_among(names, name)).map(|(_, why)| *why)
}

/// Returns the directive of `proxy_pass` that means the same as a directive of `grpc_pass`; all
/// other names stay.
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
    find(NOT_NEEDED, &as_proxy(name))
}

/// Writes a comment for each directive of a level that nothing has asked for.
pub(super) fn sweep(level: &[Directive], table: &mut Table) {
    for directive in level.iter().filter(|one| one.outcome() == Outcome::Unknown) {
        let name = directive.name.as_str();
        if matches!(name, "location" | "server" | "upstream" | "http" | "stream") {
            // They have lines of their own.
            continue;
        }
        if let Some(why) = no_need(directive) {
            table.not_needed(directive, why);
        } else if name == "map" && directive.first() == "$http_upgrade" {
            table.not_needed(directive, "WebSockets pass without it");
        } else if let Some(why) = find(NOT_IMPORTED, name) {
            table.not_imported(directive, why);
        } else if name == "include" {
            table.not_imported(directive, "the file cannot be read");
        } else if is_among(ASKED_FOR, &as_proxy(name)) {
            table.not_needed(directive, "no location here uses it");
        } else {
            table.not_imported(directive, "there is no such setting here");
        }
    }
}
