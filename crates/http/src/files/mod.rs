//! Static files: from the head of a request and a folder to a response.
//!
//! This module knows nothing of sockets. [`Site::answer`] finds the file, decides by RFC 9110 which
//! part of it to send, and returns bytes that are in memory, or a body that reads them while they
//! are sent. The way of a request:
//!
//! * `cache`: the path leads to a resource, mostly by one look into a table;
//! * `path`, `folder`: else the path is decoded once and refused rather than repaired - `..`, an
//!   encoded slash, a backslash and a zero byte get 400 - and the file is opened without leaving
//!   the folder;
//! * `resource`, `encoding`, `compress`: choose a representation that the client accepts;
//! * `representation`, `condition`, `range`: make the response of it;
//! * `pieces`: read the bytes.
//!
//! A response describes the opened descriptor, so that a file that is exchanged meanwhile is sent
//! whole, old or new. A change of a file is seen within a second.
//!
//! The strong ETag is made of size, time of change and inode, like those of other servers; a file
//! that is overwritten in place within the granularity of the file system's clock, to the same
//! length, keeps it. Representations that are compressed here have a weak ETag, as another version
//! of the library may compress differently.

mod cache;
mod compress;
mod condition;
mod embedded;
mod folder;
mod kind;
mod path;
pub(crate) mod pieces;
mod range;
mod representation;
mod resource;
mod site;
mod status;
#[cfg(test)]
mod tests;
mod version;

pub use self::embedded::Embedded;
pub use self::folder::Folder;
pub(crate) use self::folder::Kind;
pub use self::representation::Representation;
pub use self::site::{Site, to_folder};
pub(crate) use self::site::{clock, status_of};

/// Returns the path of a file, relative to the folder, for a path below a route; it ends with a
/// slash if it is that of a folder.
///
/// # Errors
///
/// The status of a path that is not even looked for.
pub fn path_below(path: &str, hidden: bool) -> Result<String, http::StatusCode> {
    let found = path::relative(path, hidden).map_err(|refusal| refusal.status())?;
    let end = if found.is_folder && !found.path.is_empty() { "/" } else { "" };
    Ok(found.path + end)
}

/// Returns the media type of a file, by its name.
pub(crate) fn media_type(name: &str) -> http::HeaderValue {
    kind::Kind::from_name(name, &superpoll_config::Files::default()).field
}

/// Whether bodies with this Content-Type are text of some sort, which compression makes much
/// shorter.
pub(crate) fn is_text(kind: &[u8]) -> bool {
    kind::is_text(kind)
}
