//! haproxy and nginx, each with a configuration of its own in a folder that goes with it, and our
//! own relay and proxy with their default keys.

use std::path::{Path, PathBuf};
use std::process::Command;

use Software::Ours;
use superpoll::BackendKind::{self, Adaptive, Epoll, Poll, Uring};
use superpoll_gateway::relay::{self, Relay};
use superpoll_gateway::{Config, serve};
use superpoll_rt::Runtime;

use crate::error::{Error, Result};
use crate::record::write;
use crate::relay::load;
use crate::rivals;
use crate::server::subject::{Entry, not_installed};
use crate::server::tls::Certificate;
use crate::server::{Calls, Control, ProcessOptions, Server, caddy, program};

/// The folders in which distributions install dynamic modules.
const STREAM_MODULES: [&str; 3] = [
    "/usr/lib/nginx/modules/ngx_stream_module.so",
    "/usr/lib64/nginx/modules/ngx_stream_module.so",
    "/usr/share/nginx/modules/ngx_stream_module.so",
];

/// Returns nginx's module for streams, if it has that: a file to load, or built in.
pub(super) fn nginx_stream() -> Option<Option<PathBuf>> {
    let module = STREAM_MODULES.iter().map(PathBuf::from).find(|module| module.is_file());
    if module.is_some() {
        return Some(module);
    }
    let version = Command::new(rivals::find("nginx")?).arg("-V").output().ok()?;
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    text.split_whitespace().any(|word| word == "--with-stream").then_some(None)
}

/// The work of a program between its clients and the origin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    /// Passes bytes on, by splice if that is forced.
    Bytes { splices: bool },
    /// Passes HTTP on, and keeps this many connections to the origin. Decrypts if there is a
    /// certificate.
    Http { pool: usize, certificate: Option<&'a Certificate> },
}

fn haproxy_configuration([port, origin]: [u16; 2], task: Task<'_>) -> String {
    // Clients may be silent during the turns of other relays.
    let mode = match task {
        Task::Bytes { splices } => {
            let splice = if splices {
                "    option splice-request\n    option splice-response\n"
            } else {
                ""
            };
            format!("    mode tcp\n    timeout client 24h\n    timeout server 24h\n{splice}")
        }
        // haproxy's pool has no limit; the origin learns the client's address as from our proxy.
        Task::Http { .. } => "    mode http\n    timeout client 24h\n    timeout server 24h\n    \
             option http-keep-alive\n    option forwardfor\n    http-reuse always\n"
            .to_owned(),
    };
    // With two pipes for each spliced connection, haproxy needs at least five descriptors for each.
    let most = (superpoll::limits::nofile().1 / 8).clamp(100, 9000);
    let tls = match task {
        Task::Http { certificate: Some(certificate), .. } => {
            format!(" ssl crt {} alpn h2,http/1.1", certificate.both.display())
        }
        _ => String::new(),
    };
    format!(
        "global\n    maxconn {most}\n    nbthread 1\n\
         defaults\n    timeout connect 5s\n{mode}\
         listen relay\n    bind 127.0.0.1:{port}{tls}\n    server origin 127.0.0.1:{origin}\n"
    )
}

fn nginx_blocks(folder: &Path, [port, origin]: [u16; 2], task: Task<'_>) -> String {
    let block = match task {
        Task::Bytes { .. } => format!(
            "stream {{ server {{ listen 127.0.0.1:{port} backlog=4096; proxy_pass 127.0.0.1:{origin}; }} }}\n"
        ),
        Task::Http { pool, certificate } => {
            let (tls, keys) = match certificate {
                Some(certificate) => (" ssl http2", certificate.directives_of_nginx()),
                None => ("", String::new()),
            };
            let inside = format!(
                "upstream origin {{ server 127.0.0.1:{origin}; keepalive {pool}; keepalive_timeout 24h;\n\
                 keepalive_requests 1000000000; }}\n\
                 server {{ listen 127.0.0.1:{port}{tls} backlog=4096; {keys} location / {{\n\
                 proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
                 proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr; }} }}"
            );
            program::nginx_http(folder, &inside)
        }
    };
    format!("worker_rlimit_nofile 20000;\n{block}")
}

/// Starts haproxy, from a port to another.
pub(crate) fn haproxy(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    ports: [u16; 2],
    task: Task<'_>,
) -> Result<Server> {
    let file = folder.join("haproxy.cfg");
    write(&file, &haproxy_configuration(ports, task))?;
    let arguments = ["-db", "-f", &file.to_string_lossy()];
    program::other(name, process, ports[0], "haproxy", &arguments)
}

/// Starts nginx, from a port to another.
pub(super) fn nginx(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    ports: [u16; 2],
    task: Task<'_>,
) -> Result<Server> {
    let module = match task {
        Task::Bytes { .. } => nginx_stream().flatten(),
        Task::Http { .. } => None,
    };
    let blocks = nginx_blocks(folder, ports, task);
    program::nginx(name, process, folder, ports[0], module.as_deref(), &blocks)
}

// The relays, by name. Under the HTTP loads, each is the corresponding HTTP proxy: for ours, that
// of `superpoll serve`; for haproxy and nginx, the same program.

/// The software of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// Ours on a back-end, speculating or not.
    Ours(BackendKind, bool),
    /// haproxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// Caddy.
    Caddy,
}

/// All relays; a relay that does not speculate comes after the one that does.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new(
        "superpoll-poll",
        "superpoll proxy, or superpoll serve for HTTP, back-end poll",
        Ours(Poll, true),
    ),
    Entry::new("superpoll-epoll", "the same, back-end epoll", Ours(Epoll, true)),
    Entry::new(
        "superpoll-epoll-waits",
        "back-end epoll without speculation: each direction is watched before it is tried",
        Ours(Epoll, false),
    ),
    Entry::new("superpoll-adaptive", "the same, back-end adaptive", Ours(Adaptive, true)),
    Entry::new(
        "superpoll-adaptive-waits",
        "back-end adaptive without speculation",
        Ours(Adaptive, false),
    ),
    Entry::new("superpoll-uring", "the same, back-end uring", Ours(Uring, true)).with_ring(),
    Entry::new(
        "haproxy",
        "haproxy, mode tcp or http, one thread; in bulk with forced splice",
        Software::Haproxy,
    )
    .unless(|| not_installed("haproxy")),
    Entry::new(
        "nginx",
        "nginx, module stream or proxy_pass for HTTP, one process",
        Software::Nginx,
    )
    .unless(|| not_installed("nginx")),
    Entry::new("caddy", "Caddy's reverse_proxy, on one processor", Software::Caddy)
        .unless(caddy::refusal),
];

impl Software {
    /// Returns the feature that it lacks for a load, if any.
    pub(crate) fn lacks(self, load: load::Kind) -> Option<&'static str> {
        match self {
            _ if load.is_http() => None,
            Software::Nginx if nginx_stream().is_none() => {
                Some("has no module stream (libnginx-mod-stream)")
            }
            Software::Caddy => Some("passes on HTTP alone"),
            _ => None,
        }
    }
}

/// Returns the name of the same relay without speculation.
pub(crate) fn without_speculation(name: &str) -> String {
    format!("{name}-waits")
}

// Our relay and our HTTP proxy, each in a process of its own, which reports its system calls on
// request.

/// Returns the kernel's name for a counted call; the counter's own name may be more detailed.
pub(crate) fn kernel_name(counter: &str) -> &str {
    match counter {
        "epoll_ctl_add" | "epoll_ctl_mod" | "epoll_ctl_del" => "epoll_ctl",
        "select" => "pselect6",
        "waker_read" => "read",
        "waker_write" => "write",
        "eventfd" => "eventfd2",
        "epoll_create" => "epoll_create1",
        other => other,
    }
}

/// Returns the calls of a runtime's engines, for their pollers and for their other work.
fn calls_of(runtime: &Runtime, is_http: bool) -> Calls {
    let mut calls = Calls::new();
    let mut add = |(counter, count): (&'static str, u64)| {
        *calls.entry(kernel_name(counter).to_owned()).or_default() += count;
    };
    let stats = runtime.stats();
    stats.iter().flat_map(|engine| engine.poller.calls.by_name()).for_each(&mut add);
    match is_http {
        // The server uses the sockets of the runtime, and the relay its own.
        true => stats.iter().flat_map(|engine| engine.calls.by_name()).for_each(&mut add),
        false => relay::calls().by_name().for_each(&mut add),
    }
    calls
}

/// The settings of one of our relays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub backend: BackendKind,
    pub speculative: bool,
    /// The port on which it listens, and the port to which it leads.
    pub ports: [u16; 2],
    pub task: Task<'a>,
}

fn said(error: impl std::fmt::Display) -> Error {
    Error::usage(error.to_string())
}

/// Relays from one port to another indefinitely.
pub(super) fn serve(setting: Setting<'_>, control: &mut Control) -> Result<()> {
    let Setting { backend, speculative, ports, task } = setting;
    let builder = Runtime::builder().backend(backend);
    let calls = |runtime: &Runtime| calls_of(runtime, matches!(task, Task::Http { .. }));
    if let Task::Http { certificate, .. } = task {
        let config = configuration(ports, certificate)?;
        // A client that is not served gets no answer, which the load notices.
        let start =
            |runtime: &Runtime| serve::Server::start(runtime, &config, |_| {}).map_err(said);
        return program::serve_on(builder.speculative(speculative), control, start, calls);
    }
    let [listen, to] = ports.map(|port| format!("127.0.0.1:{port}").parse());
    let (Ok(listen), Ok(to)) = (listen, to) else {
        return Err(Error::usage("the loopback address is none"));
    };
    let options = relay::Options { speculative, ..relay::Options::default() };
    let start =
        |runtime: &Runtime| Relay::start(runtime, &listen, &to, options, |_| {}).map_err(said);
    program::serve_on(builder, control, start, calls)
}

/// Builds the configuration that `superpoll serve -c` would get.
fn configuration([port, origin]: [u16; 2], certificate: Option<&Certificate>) -> Result<Config> {
    let route = "proxy = { upstream = \"origin\" }".to_owned();
    let upstream =
        format!("[upstreams.origin]\nservers = [{{ address = \"127.0.0.1:{origin}\" }}]");
    let text = program::configuration(&program::listener(port, certificate), &[route], &upstream);
    Config::parse("relay", &text).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::subject::chosen;

    const PORTS: [u16; 2] = [1234, 5678];

    #[test]
    fn configurations_name_both_ports_and_splice_where_asked() {
        let bytes = |splices| Task::Bytes { splices };
        let text = haproxy_configuration(PORTS, bytes(true));
        assert!(text.contains("bind 127.0.0.1:1234\n") && text.contains("127.0.0.1:5678\n"));
        assert!(text.contains("option splice-response") && text.contains("mode tcp"));
        assert!(!haproxy_configuration(PORTS, bytes(false)).contains("splice"));
        let text = nginx_blocks(Path::new("/tmp/x"), PORTS, bytes(false));
        assert!(
            text.contains("listen 127.0.0.1:1234 ") && text.contains("proxy_pass 127.0.0.1:5678;")
        );
    }

    #[test]
    fn proxies_of_http_keep_their_connections_to_the_origin() {
        let task = Task::Http { pool: 64, certificate: None };
        let text = haproxy_configuration(PORTS, task);
        assert!(text.contains("mode http\n") && text.contains("    http-reuse always\n"), "{text}");
        let text = nginx_blocks(Path::new("/tmp/x"), PORTS, task);
        assert!(text.contains("server 127.0.0.1:5678; keepalive 64;"), "{text}");
        assert!(text.contains("proxy_set_header Connection \"\";"), "{text}");
    }

    #[test]
    fn each_without_speculation_has_a_partner_and_ours_lack_nothing() {
        let all = chosen(ALL, None, "no relay").unwrap().0;
        for one in &all {
            if let Ours(backend, false) = one.start {
                let partner = all.iter().find(|other| other.start == Ours(backend, true));
                assert_eq!(without_speculation(partner.unwrap().name), one.name);
            }
        }
        let ours = all[0].start;
        assert!(load::Kind::ALL.iter().all(|&kind| ours.lacks(kind).is_none()));
    }

    #[test]
    fn the_configuration_of_the_proxy_is_right() {
        let config = configuration([1234, 5678], None).unwrap();
        assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:1234");
        let origin = &config.upstreams["origin"];
        assert_eq!(origin.servers[0].address.to_string(), "127.0.0.1:5678");
        // As many as the load has connections, at least, without a key for it.
        assert!(origin.keep_alive >= 128, "{}", origin.keep_alive);
    }
}
