//! `superpoll import nginx`.

mod http;
mod location;
mod route;
mod rules;
mod scope;
mod settings;
mod stream;
mod syntax;
mod upstream;
mod value;
mod verdict;

use std::error::Error;
use std::path::{Path, PathBuf};

use super::directive::{Directive, Outcome};
use super::output::Output;
use super::source::Sources;
use upstream::NamedUpstreams;
use verdict::sweep;

/// Reads a configuration of nginx, and returns its directives with their translation.
pub(super) fn import(file: &Path) -> Result<(Vec<Directive>, Output), Box<dyn Error>> {
    let mut sources = Sources::new(&folder(file));
    let text = sources.open_first(file)?;
    let directives = syntax::parse(&text, &mut sources)?;
    let output = translate(&directives, sources.folder())?;
    Ok((directives, output))
}

/// Returns the folder that paths of the configuration are relative to: that of the file, or the one
/// above for a file of `sites-available` and its like.
fn folder(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_part = ["sites-available", "sites-enabled", "conf.d", "http.d"]
        .iter()
        .any(|name| folder.file_name().is_some_and(|own| own == *name));
    match folder.parent().filter(|_| is_part) {
        Some(above) => above.to_path_buf(),
        None => folder.to_path_buf(),
    }
}

fn translate(directives: &[Directive], folder: &Path) -> Result<Output, Box<dyn Error>> {
    let mut output = Output::new();
    let mut upstreams = NamedUpstreams::new();
    let blocks = |name: &'static str| directives.iter().filter(move |one| one.name == name);
    // A file of one site has what `http` has elsewhere.
    let is_part = blocks("http").next().is_none() && blocks("stream").next().is_none();
    let mut levels: Vec<&[Directive]> = blocks("http").map(Directive::children).collect();
    if is_part {
        levels.push(directives);
    }
    blocks("http").chain(blocks("stream")).for_each(|one| one.note(Outcome::Imported));
    for level in &levels {
        upstreams.add_blocks(level);
    }
    blocks("stream").for_each(|stream| upstreams.add_blocks(stream.children()));
    for level in levels {
        let scope = http::add_servers(level, folder, &mut upstreams, &mut output);
        if scope.is_exhausted() {
            return Err("the locations inherit too many directives".into());
        }
        settings::event_log(level, &mut output);
        upstreams.add_unused(&mut output.top);
        sweep(level, &mut output.top);
    }
    for stream in blocks("stream") {
        stream::add_relays(stream.children(), folder, &mut upstreams, &mut output);
        sweep(stream.children(), &mut output.top);
    }
    upstreams.add_unused(&mut output.top);
    for directive in blocks("worker_processes") {
        match directive.first().parse::<u64>() {
            Ok(number) => output.single("server").set("workers", number, &[directive]),
            Err(_) => output.single("server").not_needed(directive, "it is the default"),
        }
    }
    settings::event_log(directives, &mut output);
    sweep(directives, &mut output.top);
    output.upstreams = upstreams.made.tables.into_iter().map(|(_, table)| table).collect();
    Ok(output)
}
