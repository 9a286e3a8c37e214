//! The servers, by name.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::programs;
use crate::server::subject::{self, Entry, not_installed, rival};

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
    /// hyper on tokio.
    #[cfg(feature = "http")]
    Hyper,
}

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
pub(super) fn nchan() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/share"];
    first(folders.map(|one| Path::new(one).join("nginx/modules")), "ngx_nchan_module.so")
}

/// Returns why nginx with nchan cannot take part.
pub(crate) fn without_nchan() -> Option<String> {
    let no_module = || nchan().is_none().then(|| "nginx has no module nchan".to_owned());
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
    programs::package_version("libnginx-mod-nchan")
}
