//! The servers, each started with one channel.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::go::Program;
use crate::record::write;
use crate::rivals;
use crate::server::http::{self, Client};
use crate::server::subject::{self, Entry, not_installed, rival};
use crate::server::wire::{Form, Subscription, Transport};
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
    let plain = |port, path| Publishing { port, path, body: Body::Text };
    let (servers, port, path, form, publishing) = match start {
        Software::Superpoll(backend) => {
            let backend = backend.map(|name| format!("[server]\nbackend = {name:?}\n"));
            let channel = program::channel("/channel", "poll = \"24h\"");
            let (listener, backend) = (program::listener(0, None), backend.unwrap_or_default());
            let text = program::configuration(&listener, &[channel], &backend);
            let (server, port) = program::superpoll_serve(name, process, own, &text, &[])?;
            (vec![server], port, "/channel", Form::Superpoll, plain(port, "/channel"))
        }
        Software::Nchan => {
            let port = program::free_port()?;
            let inside = format!(
                "server {{ listen 127.0.0.1:{port} backlog=4096;\n\
                 location = /publish {{ nchan_publisher; nchan_channel_id fanout; }}\n\
                 location = /subscribe {{ nchan_subscriber; nchan_channel_id fanout;\n\
                 nchan_subscriber_first_message newest; }} }}"
            );
            let (module, block) = (nchan_module(), program::nginx_http(own, &inside));
            let server = program::nginx(name, process, own, port, module.as_deref(), &block)?;
            (vec![server], port, "/subscribe", Form::Nchan, plain(port, "/publish"))
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
            let (port, file) = (program::free_port()?, own.join("server.js"));
            write(&file, include_str!("server.js"))?;
            let module = shown(&ws().unwrap_or_default());
            let arguments = [&*shown(&file), &port.to_string(), &module];
            let server = program::other(name, process, port, "node", &arguments)?;
            (vec![server], port, "/channel", Form::Numbered, plain(port, "/channel"))
        }
        Software::Centrifugo => {
            let (port, file) = (program::free_port()?, own.join("config.json"));
            write(&file, &centrifugo_configuration(port))?;
            let arguments = ["-c", &*shown(&file)];
            let server = program::of_go(name, process, own, port, &CENTRIFUGO, &arguments)?;
            let path = match transport {
                Transport::WebSocket => centrifugo_path!("websocket"),
                _ => centrifugo_path!("sse"),
            };
            let publishing = Publishing { port, path: "/api/publish", body: Body::Centrifugo };
            (vec![server], port, path, Form::Centrifugo, publishing)
        }
        #[cfg(feature = "http")]
        Software::Hyper => {
            let serve = crate::fanout::hyper::serve;
            let (server, port) = Server::accepting(name, false, process, serve)?;
            (vec![server], port, "/channel", Form::Numbered, plain(port, "/channel"))
        }
    };
    let subscription = Subscription { transport, path, form };
    Ok(Service { servers, port, subscription, publishing, folder })
}

/// The path of a subscription by a unidirectional transport of Centrifugo, with the request to
/// connect as JSON: `{"subs":{"fanout":{}}}`.
macro_rules! centrifugo_path {
    ($transport:literal) => {
        concat!(
            "/connection/uni_",
            $transport,
            "?cf_connect=%7B%22subs%22:%7B%22fanout%22:%7B%7D%7D%7D"
        )
    };
}
use centrifugo_path;

/// Everybody may subscribe and publish, and nothing is reported to its makers.
fn centrifugo_configuration(port: u16) -> String {
    json!({
        "http_server": { "address": "127.0.0.1", "port": port.to_string() },
        "log": { "level": "error" },
        "usage_stats": { "disabled": true },
        "client": { "insecure": true },
        "channel": { "without_namespace": { "allow_subscribe_for_client": true } },
        "http_api": { "insecure": true },
        "uni_websocket": { "enabled": true },
        "uni_sse": { "enabled": true },
    })
    .to_string()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
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

// The servers, by name.

/// The software of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Software {
    /// `superpoll serve`, with this back-end or its own choice.
    Superpoll(Option<&'static str>),
    /// nginx with the module nchan.
    Nchan,
    /// pushpin.
    Pushpin,
    /// A server for node, with `ws`.
    Node,
    /// Centrifugo.
    Centrifugo,
    /// hyper on tokio.
    #[cfg(feature = "http")]
    Hyper,
}

impl Software {
    /// Returns the feature that it lacks for a kind of subscribers, if any.
    pub(super) fn lacks(self, transport: Transport) -> Option<&'static str> {
        let polls = transport == Transport::LongPoll;
        (self == Software::Centrifugo && polls).then_some("has no long-poll")
    }
}

/// The program that its makers offer for download.
pub(crate) static CENTRIFUGO: Program = Program::of_package(
    "centrifugo",
    "github.com/centrifugal/centrifugo/v6",
    "github.com/centrifugal/centrifugo/v6",
    "v6.9.1",
);

/// A server that takes part.
pub(crate) type Subject = subject::Subject<Software>;

/// All servers.
pub(crate) const ALL: &[Entry<Software>] = &[
    Entry::new("superpoll-adaptive", "superpoll serve, a channel", Software::Superpoll(None)),
    Entry::new(
        "superpoll-epoll",
        "superpoll serve, a channel, back-end epoll",
        Software::Superpoll(Some("epoll")),
    ),
    Entry::new("nchan", "nginx with the module nchan", Software::Nchan).unless(without_nchan),
    Entry::new("pushpin", "pushpin with its own test channel", Software::Pushpin)
        .unless(without_pushpin),
    Entry::new("node-ws", "a server for node, with ws", Software::Node).unless(without_ws),
    Entry::new("centrifugo", "Centrifugo, its unidirectional transports", Software::Centrifugo)
        .unless(|| CENTRIFUGO.refusal()),
    rival!("http", "hyper-tokio", "hyper and tungstenite on tokio", Software::Hyper),
];

/// Returns the requested servers, each once, and the reasons for leaving out those that are not
/// installed here.
pub(crate) fn chosen(names: Option<&str>) -> Result<(Vec<Subject>, Vec<String>)> {
    subject::present(ALL, names, "no server of channels")
}

/// Returns the first of some files that exists.
fn first(folders: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the path of the module nchan.
pub(super) fn nchan_module() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/share"];
    first(folders.map(|one| Path::new(one).join("nginx/modules")), "ngx_nchan_module.so")
}

/// Returns why nginx with nchan cannot take part.
pub(crate) fn without_nchan() -> Option<String> {
    let no_module = || nchan_module().is_none().then(|| "nginx has no module nchan".to_owned());
    not_installed("nginx").or_else(no_module)
}

/// The programs of pushpin.
pub(super) const PUSHPIN: [&str; 3] = ["condure", "pushpin-proxy", "pushpin-handler"];

fn without_pushpin() -> Option<String> {
    PUSHPIN.into_iter().find_map(not_installed)
}

/// Returns the folder of node's package `ws`, where node looks for packages or where the system and
/// `npm install --global` put them.
pub(crate) fn ws() -> Option<PathBuf> {
    let path = std::env::var_os("NODE_PATH").unwrap_or_default();
    let folders = ["/usr/share/nodejs", "/usr/lib/node_modules", "/usr/local/lib/node_modules"];
    let folders = std::env::split_paths(&path).chain(folders.map(PathBuf::from));
    first(folders, "ws/package.json").and_then(|file| Some(file.parent()?.to_owned()))
}

/// Returns the version of node's package `ws`.
pub(crate) fn ws_version() -> Option<String> {
    let text = std::fs::read_to_string(ws()?.join("package.json")).ok()?;
    let about: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(about.get("version")?.as_str()?.to_owned())
}

/// Returns why `ws` cannot take part.
pub(crate) fn without_ws() -> Option<String> {
    let no_package = || ws().is_none().then(|| "node has no package ws".to_owned());
    not_installed("node").or_else(no_package)
}

/// Returns the version of the package that brings nchan, if the system knows it.
pub(crate) fn nchan_version() -> Option<String> {
    rivals::package_version("libnginx-mod-nchan")
}

// The publisher: one `POST` for each message, on a connection that stays open if the server lets
// it.

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The way to publish.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publishing {
    /// The port, which may be another one than that of the subscribers.
    pub port: u16,
    /// The path.
    pub path: &'static str,
    /// The request's body for a message.
    pub body: Body,
}

/// The body of a request that publishes a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// The message.
    Text,
    /// The message in every form that pushpin has, as JSON.
    Pushpin,
    /// The message and its channel, as JSON.
    Centrifugo,
}

impl Body {
    fn of(self, text: &str) -> String {
        match self {
            Body::Text => text.to_owned(),
            Body::Centrifugo => json!({ "channel": "fanout", "data": text }).to_string(),
            Body::Pushpin => {
                let formats = json!({
                    "http-stream": { "content": format!("data: {text}\n\n") },
                    "http-response": { "body": text },
                    "ws-message": { "content": text },
                });
                json!({ "items": [{ "channel": "test", "formats": formats }] }).to_string()
            }
        }
    }
}

/// A publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    subject: &'static str,
    publishing: Publishing,
    client: Client,
}

impl Publisher {
    /// Creates a publisher.
    pub(super) fn new(subject: &'static str, publishing: Publishing) -> Publisher {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, publishing.port));
        Publisher { subject, publishing, client: Client::new(address, PATIENCE) }
    }

    /// Publishes a message, and waits until the server has confirmed it.
    pub(super) fn publish(&mut self, text: &str) -> Result<()> {
        let Publishing { path, body, .. } = self.publishing;
        let fields = "content-type: text/plain\r\n";
        let request = http::request("POST", path, fields, Some(&body.of(text)));
        let confirmed = self.client.send(&request).and_then(|()| match self.client.answer()? {
            (200..300, _) => Ok(()),
            (code, text) => Err(io::Error::other(format!("it answered {code} {text:?}"))),
        });
        let subject = self.subject;
        confirmed.map_err(|error| Error::Work {
            subject,
            found: format!("it did not take a message: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushpin_is_given_every_form_of_a_message() {
        let body = Body::Pushpin.of("a \"b\"");
        assert!(body.contains(r#""content":"a \"b\"""#), "{body}");
        assert!(body.contains(r#""content":"data: a \"b\"\n\n""#), "{body}");
    }
}
