//! `superpoll explain`: which route of a configuration answers a request, and why.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;

use http::{HeaderName, HeaderValue, Method, Request, Uri};
use superpoll_gateway::config::encode_target;
use superpoll_gateway::prepare;
use superpoll_gateway::serve::Server;
use superpoll_gateway::serve::explain::explain;

use crate::printable::printable_lines;

/// Options of `explain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The URL, as https://example.org/path?query
    #[arg(value_name = "URL", value_parser = url)]
    url: Uri,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: Method,
    /// A field of the request; Host takes the place of the host in the URL
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

fn url(text: &str) -> Result<Uri, String> {
    let expected = "expected one as http://example.org/path?query";
    // A part of a page is no part of a request.
    let text = text.split('#').next().unwrap_or_default();
    let url: Uri = encode_target(text).parse().map_err(|_| format!("no URL, {expected}"))?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(url),
        _ => Err(format!("no URL of HTTP, {expected}")),
    }
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let read = text
        .split_once(':')
        .and_then(|(name, value)| Some((name.trim().parse().ok()?, value.trim().parse().ok()?)));
    read.ok_or_else(|| "no field, expected one as \"Accept: text/html\"".to_owned())
}

/// Prints the explanation.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let (config, places) = prepare::read_with_places(&options.config)?;
    Server::check(&config)?;
    for warning in &config.warnings {
        writeln!(stderr(), "superpoll: {warning}")?;
    }
    let mut request = Request::new(());
    *request.method_mut() = options.method.clone();
    *request.uri_mut() = options.url.clone();
    for (name, value) in &options.headers {
        request.headers_mut().append(name, value.clone());
    }
    let text = explain(&config, &places, &request);
    writeln!(stdout(), "{}", printable_lines(&text))?;
    Ok(())
}
