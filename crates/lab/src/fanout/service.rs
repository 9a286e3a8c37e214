//! The servers, each started with one channel.

use std::path::Path;

use tempfile::TempDir;

use crate::error::Result;
use crate::fanout::Transport;
use crate::fanout::publisher::{Body, Publishing};
use crate::fanout::subject::{self, PUSHPIN, Software, Subject};
use crate::fanout::wire::{Form, Subscription};
use crate::record::write;
use crate::server::{ProcessOptions, Server, program};

/// Messages a second beyond which pushpin would delay them, which is more than any round has.
const PUSHPIN_RATE: usize = 1_000_000;

/// A server at work.
pub(super) struct Service {
    /// Its processes.
    pub servers: Vec<Server>,
    /// Where subscribers connect.
    pub port: u16,
    /// The way to subscribe.
    pub subscription: Subscription,
    /// The way to publish.
    pub publishing: Publishing,
    /// Its files.
    pub folder: TempDir,
}

/// Starts a server, for subscribers of one kind.
pub(super) fn start(
    Subject { name, start, .. }: Subject,
    transport: Transport,
    process: ProcessOptions,
) -> Result<Service> {
    let folder = program::folder(name)?;
    let own = folder.path();
    let text = |port, path| Publishing { port, path, body: Body::Text };
    let (servers, port, path, form, publishing) = match start {
        Software::Superpoll(backend) => {
            let (server, port) = superpoll(name, backend, process, own)?;
            (vec![server], port, "/channel", Form::Superpoll, text(port, "/channel"))
        }
        Software::Nchan => {
            let (server, port) = nchan(name, process, own)?;
            (vec![server], port, "/subscribe", Form::Nchan, text(port, "/publish"))
        }
        Software::Pushpin => {
            let (servers, port, control) = pushpin(name, process, own)?;
            // The paths of its own test channel.
            let path = match transport {
                Transport::WebSocket => "/ws",
                Transport::Events => "/stream",
                Transport::LongPoll => "/response",
            };
            let publishing = Publishing { port: control, path: "/publish/", body: Body::Pushpin };
            (servers, port, path, Form::Plain, publishing)
        }
        Software::Node => {
            let (server, port) = node(name, process, own)?;
            (vec![server], port, "/channel", Form::Numbered, text(port, "/channel"))
        }
        #[cfg(feature = "http")]
        Software::Hyper => {
            let serve = crate::fanout::hyper::serve;
            let (server, port) = Server::accepting(name, false, process, serve)?;
            (vec![server], port, "/channel", Form::Numbered, text(port, "/channel"))
        }
    };
    let subscription = Subscription { transport, path, form };
    Ok(Service { servers, port, subscription, publishing, folder })
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn superpoll(
    name: &'static str,
    backend: Option<&str>,
    process: ProcessOptions,
    own: &Path,
) -> Result<(Server, u16)> {
    let file = own.join("superpoll.toml");
    let backend = backend.map(|name| format!("[server]\nbackend = {name:?}\n")).unwrap_or_default();
    let text = format!(
        "{backend}[[listeners]]\naddress = \"127.0.0.1:0\"\n[[hosts]]\n[[hosts.routes]]\n\
         path = \"/channel\"\nchannel = {{ poll = \"24h\" }}\n\
         [timeouts]\nidle = \"24h\"\nheader = \"24h\"\n"
    );
    write(&file, &text)?;
    program::superpoll(name, process, &["serve", "--workers", "1", "-c", &shown(&file)])
}

fn nchan(name: &'static str, process: ProcessOptions, own: &Path) -> Result<(Server, u16)> {
    let (port, file) = (program::free_port()?, own.join("nginx.conf"));
    let module = subject::nchan().unwrap_or_default();
    let folder = shown(own);
    let text = format!(
        "load_module {module:?};\n\
         daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid;\n\
         error_log stderr crit;\nevents {{ worker_connections 20000; }}\n\
         http {{ access_log off; keepalive_timeout 24h; keepalive_requests 1000000000;\n\
         client_header_timeout 24h; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n\
         fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n\
         server {{ listen 127.0.0.1:{port} backlog=4096;\n\
         location = /publish {{ nchan_publisher; nchan_channel_id fanout; }}\n\
         location = /subscribe {{ nchan_subscriber; nchan_channel_id fanout;\n\
         nchan_subscriber_first_message newest; }} }} }}\n"
    );
    write(&file, &text)?;
    let server =
        program::other(name, process, port, "nginx", &["-p", &folder, "-c", &shown(&file)])?;
    Ok((server, port))
}

/// Starts the three processes of pushpin. The program `pushpin` would start the same ones, and
/// leave them behind if it is killed. Returns the port for subscribers and the port for publishers.
fn pushpin(
    name: &'static str,
    process: ProcessOptions,
    own: &Path,
) -> Result<(Vec<Server>, u16, u16)> {
    let [port, control] = [program::free_port()?, program::free_port()?];
    let (file, folder) = (own.join("pushpin.conf"), shown(own));
    write(&own.join("routes"), "* test\n")?;
    let text = format!(
        "[global]\ninclude={{libdir}}/internal.conf\nrundir={folder}\nipc_prefix=pushpin-\n\
         port_offset=0\n[proxy]\nroutesfile={folder}/routes\nupdates_check=off\n\
         [handler]\npush_in_http_addr=127.0.0.1\npush_in_http_port={control}\n\
         message_rate={PUSHPIN_RATE}\nmessage_hwm=25000\n"
    );
    write(&file, &text)?;
    let config = format!("--config={}", shown(&file));
    let [condure, proxy, handler] = PUSHPIN;
    let arguments = [
        "--log-level=0",
        &format!("--listen=127.0.0.1:{port},stream"),
        &format!("--zclient-stream=ipc://{folder}/pushpin-condure"),
        "--stream-maxconn=20000",
    ];
    let condure = program::other(name, process, port, condure, &arguments)?;
    let arguments = [&*config, "--ipc-prefix=pushpin-", "--loglevel=0"];
    let (proxy, _) = program::begin(name, process, proxy, &arguments)?;
    let handler = program::other(name, process, control, handler, &arguments)?;
    Ok((vec![condure, proxy, handler], port, control))
}

fn node(name: &'static str, process: ProcessOptions, own: &Path) -> Result<(Server, u16)> {
    let (port, file) = (program::free_port()?, own.join("server.js"));
    write(&file, include_str!("server.js"))?;
    let module = shown(&subject::ws().unwrap_or_default());
    let arguments = [&*shown(&file), &port.to_string(), &module];
    Ok((program::other(name, process, port, "node", &arguments)?, port))
}
