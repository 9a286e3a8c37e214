//! haproxy and nginx, each with a configuration of its own in a folder that goes with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::programs;
use crate::record::write;
use crate::server::{ProcessOptions, Server, program};

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
    let version = Command::new(programs::find("nginx")?).arg("-V").output().ok()?;
    let text = String::from_utf8_lossy(&version.stderr).into_owned();
    text.split_whitespace().any(|word| word == "--with-stream").then_some(None)
}

/// The work of a program between its clients and the origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Passes bytes on, by splice if that is forced.
    Bytes { splices: bool },
    /// Passes HTTP on, and keeps this many connections to the origin, as our proxy does.
    Http { pool: usize },
}

fn haproxy_configuration([port, origin]: [u16; 2], task: Task) -> String {
    // Clients may be silent during the turns of other relays.
    let mode = match task {
        Task::Bytes { splices } => {
            let splice = if splices {
                "    option splice-request\n    option splice-response\n"
            } else {
                ""
            };
            format!("    mode tcp\n    timeout client 60s\n    timeout server 60s\n{splice}")
        }
        // haproxy's pool has no limit; the origin learns the client's address as from our proxy.
        Task::Http { .. } => "    mode http\n    timeout client 24h\n    timeout server 24h\n    \
             option http-keep-alive\n    option forwardfor\n    http-reuse always\n"
            .to_owned(),
    };
    // With two pipes for each spliced connection, haproxy needs at least five descriptors for each.
    let most = (superpoll::limits::nofile().1 / 8).clamp(100, 9000);
    format!(
        "global\n    maxconn {most}\n    nbthread 1\n\
         defaults\n    timeout connect 5s\n{mode}\
         listen relay\n    bind 127.0.0.1:{port}\n    server origin 127.0.0.1:{origin}\n"
    )
}

fn nginx_configuration(
    folder: &Path,
    module: Option<&Path>,
    [port, origin]: [u16; 2],
    task: Task,
) -> String {
    let folder = folder.display();
    let module =
        module.map_or(String::new(), |module| format!("load_module {};\n", module.display()));
    let begin = format!(
        "{module}daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr error;\n\
         worker_rlimit_nofile 20000;\nevents {{ worker_connections 9000; }}\n"
    );
    let rest = match task {
        Task::Bytes { .. } => format!(
            "stream {{\n    server {{ listen 127.0.0.1:{port} backlog=4096; proxy_pass 127.0.0.1:{origin}; }}\n}}\n"
        ),
        // Kept connections stay open, whatever has passed through them.
        Task::Http { pool } => format!(
            "http {{\n    access_log off;\n    keepalive_timeout 24h;\n    keepalive_requests 1000000000;\n\
             \x20   client_body_temp_path {folder}/b;\n    proxy_temp_path {folder}/p;\n\
             \x20   fastcgi_temp_path {folder}/f;\n    uwsgi_temp_path {folder}/u;\n\
             \x20   scgi_temp_path {folder}/s;\n\
             \x20   upstream origin {{ server 127.0.0.1:{origin}; keepalive {pool}; keepalive_timeout 24h; \
             keepalive_requests 1000000000; }}\n\
             \x20   server {{ listen 127.0.0.1:{port} backlog=4096; location / {{\n\
             \x20       proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             \x20       proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr;\n\
             \x20   }} }}\n}}\n"
        ),
    };
    begin + &rest
}

/// Starts haproxy, from a port to another.
pub(super) fn haproxy(
    name: &'static str,
    process: ProcessOptions,
    folder: &Path,
    ports: [u16; 2],
    task: Task,
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
    task: Task,
) -> Result<Server> {
    let module = match task {
        Task::Bytes { .. } => nginx_stream().flatten(),
        Task::Http { .. } => None,
    };
    let file = folder.join("nginx.conf");
    write(&file, &nginx_configuration(folder, module.as_deref(), ports, task))?;
    let (folder, file) = (folder.to_string_lossy(), file.to_string_lossy());
    let arguments = ["-p", &folder, "-c", &file, "-e", "stderr"];
    program::other(name, process, ports[0], "nginx", &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: [u16; 2] = [1234, 5678];

    #[test]
    fn configurations_name_both_ports_and_splice_where_asked() {
        let bytes = |splices| Task::Bytes { splices };
        let text = haproxy_configuration(PORTS, bytes(true));
        assert!(text.contains("bind 127.0.0.1:1234\n") && text.contains("127.0.0.1:5678\n"));
        assert!(text.contains("option splice-response") && text.contains("mode tcp"));
        assert!(!haproxy_configuration(PORTS, bytes(false)).contains("splice"));
        let module = Some(Path::new("/m.so"));
        let text = nginx_configuration(Path::new("/tmp/x"), module, PORTS, bytes(false));
        assert!(text.starts_with("load_module /m.so;\n") && text.contains("pid /tmp/x/pid;"));
        assert!(
            text.contains("listen 127.0.0.1:1234 ") && text.contains("proxy_pass 127.0.0.1:5678;")
        );
    }

    #[test]
    fn proxies_of_http_keep_their_connections_to_the_origin() {
        let task = Task::Http { pool: 64 };
        let text = haproxy_configuration(PORTS, task);
        assert!(text.contains("mode http\n") && text.contains("    http-reuse always\n"), "{text}");
        let text = nginx_configuration(Path::new("/tmp/x"), None, PORTS, task);
        assert!(text.contains("server 127.0.0.1:5678; keepalive 64;"), "{text}");
        assert!(text.contains("proxy_set_header Connection \"\";"), "{text}");
    }
}
