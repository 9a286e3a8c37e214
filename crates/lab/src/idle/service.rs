//! The servers, each started with the settings of its kind of connection.

use std::path::Path;

use crate::error::{Doing, Result};
use crate::http;
use crate::http::BODY;
use crate::idle::subject::{Kind, Software, Subject};
use crate::idle::tls::Certificate;
use crate::record::write;
use crate::server::{ProcessOptions, Server, program};

/// A server at work.
#[derive(Debug)]
pub(super) struct Service {
    /// Its process.
    pub server: Server,
    /// Where it listens.
    pub port: u16,
    // The server that a relay leads to.
    _behind: Option<Server>,
}

/// Starts a server. It may put files into the folder.
pub(super) fn start(
    Subject { name, start, .. }: Subject,
    process: ProcessOptions,
    folder: &Path,
    certificate: &Certificate,
) -> Result<Service> {
    let of = |server, port| Service { server, port, _behind: None };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let root = folder.join("root");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("index.html"), BODY))
        .doing(format_args!("writing into {}", root.display()))?;
    let file = folder.join(format!("{name}.conf"));
    match (start.software, start.kind) {
        (Software::Superpoll, Kind::Relay) => {
            let (behind, to) =
                Server::accepting("raw-epoll", false, process, http::raw_epoll::serve)?;
            let to = format!("127.0.0.1:{to}");
            let arguments = ["proxy", "--workers", "1", "--listen", "127.0.0.1:0", "--to", &to];
            let (server, port) = program::superpoll(name, process, &arguments)?;
            Ok(Service { server, port, _behind: Some(behind) })
        }
        (Software::Superpoll, kind) => {
            let tls = format!(
                "tls = {{ certificate = {:?}, key = {:?} }}\n",
                text(&certificate.certificate),
                text(&certificate.key)
            );
            write(
                &file,
                &format!(
                    "[[listeners]]\naddress = \"127.0.0.1:0\"\n{}[[hosts]]\n[[hosts.routes]]\n\
                 files = {{ root = {:?} }}\n[[hosts.routes]]\npath = \"/channel\"\n\
                 channel = {{ poll = \"24h\" }}\n[timeouts]\nidle = \"24h\"\nheader = \"24h\"\n",
                    if kind == Kind::Tls { &tls } else { "" },
                    text(&root),
                ),
            )?;
            let (server, port) = program::superpoll(
                name,
                process,
                &["serve", "--workers", "1", "--dumpable", "-c", &text(&file)],
            )?;
            Ok(of(server, port))
        }
        (Software::RawEpoll, _) => {
            let (server, port) = Server::accepting(name, false, process, http::raw_epoll::serve)?;
            Ok(of(server, port))
        }
        #[cfg(feature = "http")]
        (Software::Hyper, _) => {
            let (server, port) = Server::accepting(name, false, process, http::tokio::serve)?;
            Ok(of(server, port))
        }
        (Software::Nginx, kind) => {
            let port = program::free_port()?;
            let own = text(folder);
            let (ssl, certificates) = match kind {
                Kind::Tls => (
                    " ssl",
                    format!(
                        "ssl_certificate {:?}; ssl_certificate_key {:?};",
                        text(&certificate.certificate),
                        text(&certificate.key)
                    ),
                ),
                _ => ("", String::new()),
            };
            write(
                &file,
                &format!(
                    "daemon off; master_process off; worker_processes 1; pid {own}/nginx.pid;\n\
                 error_log stderr crit;\nevents {{ worker_connections 20000; }}\n\
                 http {{ access_log off; keepalive_timeout 24h; keepalive_requests 1000000;\n\
                 client_header_timeout 24h; client_body_temp_path {own}/b; proxy_temp_path {own}/p;\n\
                 fastcgi_temp_path {own}/f; uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;\n\
                 server {{ listen 127.0.0.1:{port}{ssl} backlog=4096; {certificates} root {}; }} }}\n",
                    text(&root)
                ),
            )?;
            let server =
                program::other(name, process, port, "nginx", &["-p", &own, "-c", &text(&file)])?;
            Ok(of(server, port))
        }
        (Software::Haproxy, _) => {
            let (behind, to) =
                Server::accepting("raw-epoll", false, process, http::raw_epoll::serve)?;
            let port = program::free_port()?;
            write(
                &file,
                &format!(
                    "global\n  nbthread 1\n  maxconn 9000\n\
                 defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 24h\n\
                 \x20 timeout server 24h\nlisten relay\n  bind 127.0.0.1:{port} backlog 4096\n\
                 \x20 server behind 127.0.0.1:{to}\n"
                ),
            )?;
            let arguments = ["-db", "-q", "-f", &text(&file)];
            let server = program::other(name, process, port, "haproxy", &arguments)?;
            Ok(Service { server, port, _behind: Some(behind) })
        }
    }
}
