//! `superpoll import caddy`.

mod matcher;
mod route;
mod site;
mod syntax;

use std::error::Error;
use std::path::Path;

use super::directive::{Directive, Outcome};
use super::output::Output;
use super::source::Sources;
use super::upstreams::Upstreams;

/// The networks that `private_ranges` stands for.
const PRIVATE: &str = "192.168.0.0/16 172.16.0.0/12 10.0.0.0/8 127.0.0.0/8 fd00::/8 ::1";

/// Reads a Caddyfile, and returns its directives with their translation.
pub(super) fn import(file: &Path) -> Result<(Vec<Directive>, Output), Box<dyn Error>> {
    let mut sources = Sources::new(file.parent().unwrap_or(Path::new("")));
    let text = sources.open_first(file)?;
    let syntax::Caddyfile { blocks, snippets } = syntax::parse(&text, &mut sources)?;
    let mut output = Output::new();
    let mut upstreams = Upstreams::default();
    let (options, sites): (Vec<&Directive>, _) = blocks.iter().partition(|one| one.name.is_empty());
    let mut settings = site::Settings::default();
    for block in options {
        block.note(Outcome::Imported);
        block.children().iter().for_each(|one| option(one, &mut settings, &mut output));
    }
    for snippet in &snippets {
        match snippet.outcome() {
            Outcome::Unknown => output.top.not_needed(snippet, "no site imports it"),
            // Its lines are in the sites.
            _ => snippet.note_all(Outcome::Imported),
        }
    }
    site::add_sites(&sites, &settings, &mut upstreams, &mut output)?;
    output.upstreams = upstreams.tables.into_iter().map(|(_, table)| table).collect();
    Ok((blocks, output))
}

/// Writes a global option.
fn option<'a>(one: &'a Directive, settings: &mut site::Settings<'a>, output: &mut Output) {
    match one.name.as_str() {
        "email" => settings.email = Some(one),
        "acme_ca" => settings.directory = Some(one),
        "local_certs" => settings.is_local = Some(one),
        "auto_https" if matches!(one.first(), "off" | "disable_redirects") => {
            settings.without_redirects = Some(one);
        }
        "http_port" | "https_port" if one.first().parse::<u16>().is_ok() => {
            one.note(Outcome::Imported);
            let port = one.first().to_owned();
            match one.name.as_str() {
                "http_port" => settings.http_port = port,
                _ => settings.https_port = port,
            }
            output.top.remark(one, "listeners have it");
        }
        "debug" => output.single("log").set("level", "info", &[one]),
        "grace_period" if !one.first().is_empty() => {
            output.single("timeouts").set("drain", one.first(), &[one]);
        }
        "order" => {
            output.top.not_imported(one, "directives have the order that Caddy has built in")
        }
        "admin" => output.top.not_needed(
            one,
            "superpoll reload and the other commands need no port; [admin] has one",
        ),
        "servers" => {
            one.note(Outcome::Imported);
            let server = output.single("server");
            for child in one.children() {
                match (child.name.as_str(), child.first()) {
                    ("trusted_proxies", "static") => {
                        let networks = child.words[1..].iter().map(|network| match &**network {
                            "private_ranges" => PRIVATE,
                            network => network,
                        });
                        let all: Vec<&str> = networks.flat_map(|one| one.split(' ')).collect();
                        server.set("trusted_proxies", all, &[one, child]);
                    }
                    ("trusted_proxies_strict", _) => {
                        server.not_needed(child, "the last address that is no proxy is the client")
                    }
                    ("protocols" | "metrics" | "keepalive_interval", _) => {
                        let why = "HTTP/1.1 and HTTP/2 are served; [metrics] has the figures";
                        server.not_needed(child, why);
                    }
                    _ => server.not_imported(
                        child,
                        "[timeouts], [limits] and [server] have such settings",
                    ),
                }
            }
            server.comment(&format!("{}: servers", one.place));
        }
        _ => output.top.not_imported(one, "there is no such option here"),
    }
}
