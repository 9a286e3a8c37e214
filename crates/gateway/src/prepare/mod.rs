//! The step between a checked text and a server: it looks at the files, keys and addresses that a
//! configuration names.
//!
//! Files must be readable and of the right kind, keys must belong to their certificates, and the
//! addresses of listeners must be those of this machine. `superpoll serve --check`, the start and a
//! reload all read a configuration in this way. A mistake that is found here has a place in the
//! text, as those that [`config`](crate::config) finds have, and both are reported at once.

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::time::SystemTime;

use superpoll_http::certificates::{Certificate, chain, key};
use superpoll_http::token::{Verifier, read_secret};
use superpoll_http::{htpasswd, listen};
use superpoll_hub::broker::WITHOUT_REDIS;

use crate::config::{
    Address, CertificateFiles, Config, ConfigError, Draft, HostPlaces, LARGEST_PAGE, Place,
    Resource, bounded_file,
};

/// Reads a configuration from a file, and looks at the resources that it names.
///
/// Relative paths in it are relative to the folder of the file. Folders, certificates and keys
/// must be there.
///
/// # Errors
///
/// The file cannot be read, or it has mistakes.
pub fn read(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
    prepare(Draft::read(path)?)
}

/// As [`read`], with the places of the hosts and their routes in the text.
///
/// # Errors
///
/// The file cannot be read, or it has mistakes.
pub fn read_with_places(path: impl AsRef<Path>) -> Result<(Config, Vec<HostPlaces>), ConfigError> {
    let draft = Draft::read(path)?;
    let places = draft.host_places();
    Ok((prepare(draft)?, places))
}

/// As [`read`], with the text that the file had ([`Config::read_text`]).
///
/// # Errors
///
/// All mistakes in the text and in the files that it names.
pub fn parse_file(path: impl AsRef<Path>, text: &str) -> Result<Config, ConfigError> {
    prepare(Draft::parse_file(path, text))
}

fn prepare(mut draft: Draft) -> Result<Config, ConfigError> {
    for (place, resource) in draft.take_resources() {
        let looked_at = match &resource {
            Resource::KeyPair { files, key } => {
                key_pair(&mut draft, files, place, key.clone());
                continue;
            }
            Resource::Listen(address) => listener(address),
            Resource::Authorities(path) => chain(path).map(drop).map_err(|error| error.to_string()),
            Resource::TokenKey(rule) => {
                Verifier::read(rule).map(drop).map_err(|error| error.to_string())
            }
            Resource::Secret(source) => {
                read_secret(source).map(drop).map_err(|error| error.to_string())
            }
            Resource::Users(path) => {
                htpasswd::read(path).map(drop).map_err(|error| error.to_string())
            }
            Resource::ErrorPage(path) => page(path),
            Resource::Folder(path) => folder(path),
            Resource::FileOfRoute { path, file } => not_one_file(path, file),
            Resource::Log(path) => log(path),
            Resource::Redis => redis(cfg!(feature = "redis")),
        };
        if let Err(what) = looked_at {
            draft.wrong(place, &what);
        }
    }
    draft.finish()
}

fn key_pair(draft: &mut Draft, files: &CertificateFiles, place: Place, key_place: Place) {
    let read = [
        (place.clone(), chain(&files.certificate).map(drop)),
        (key_place, key(&files.key).map(drop)),
    ];
    let is_readable = read.iter().all(|(_, read)| read.is_ok());
    for (place, read) in read {
        if let Err(error) = read {
            draft.wrong(place, &error.to_string());
        }
    }
    match Certificate::read(files) {
        Err(error) if is_readable => draft.wrong(place, &error.to_string()),
        Ok(read) => {
            if let Some(what) = read.refused_at(SystemTime::now()) {
                let name = files.certificate.display();
                draft.warn(place, format!("the certificate {name} {what}"));
            }
        }
        Err(_) => {}
    }
}

/// Checks that an address is one of this machine.
fn listener(address: &Address) -> Result<(), String> {
    listen::look_up(address).map(drop).map_err(|error| {
        let what = format!("cannot look up the listener's address {address}: {error}");
        format!("{what}, expected an address of this machine")
    })
}

/// Checks a folder; the error says why it is wrong.
fn folder(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot read the folder {}: {error}", path.display());
    std::fs::read_dir(path).map(drop).map_err(wrong)
}

/// Checks that a log can be written; it need not exist yet.
fn log(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot write the log {}: {error}", path.display());
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(wrong(io::ErrorKind::IsADirectory.into())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            std::fs::metadata(folder.unwrap_or(Path::new("."))).map(drop).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Checks that the server was built with a client of Redis.
fn redis(is_built_in: bool) -> Result<(), String> {
    is_built_in.then_some(()).ok_or_else(|| WITHOUT_REDIS.to_owned())
}

/// Checks a page for errors.
fn page(path: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot read the page for errors {}: {error}", path.display());
    bounded_file::read(path, LARGEST_PAGE).map(drop).map_err(wrong)
}

/// Checks that a route is not for one file: it would answer with the folder.
fn not_one_file(path: &str, file: &Path) -> Result<(), String> {
    if !file.is_file() {
        return Ok(());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Err(format!(
        "the route's path {path:?} is taken off, so that it stands for the folder and not for the \
         file {name}, expected rewrite = \"/{name}\" in the route"
    ))
}
